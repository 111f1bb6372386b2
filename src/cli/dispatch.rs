use std::io::Read;
use std::path::{Path, PathBuf};

use foldspace::hub::operations::{Dispatched, DispatchedChild};
use serde_json::{Value, json};

use super::emit::json_of;
use super::{BAD, BOLD, Cell, Exit, Failure, GOOD, Globals, ODD, Out, OwnerClient, TextTable, files, output, text};

/// Limit for the file, in bytes.
const INPUT_MAX: u64 = 64 << 20;
const SHOWN_PATHS: usize = 4;

/// Makes calls in a batch of new children, several at a time, and shows the result of each child
///
/// The file has the children as JSON: a list, or an object with `children` and options of the HTTP API. All children
/// begin before the first call. A child that fails does not affect the others, and every child's session stays.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foldspace dispatch NAME --file batch.json --merge --yes
  echo '[{\"calls\": [{\"tool\": \"ls\"}]}]' | foldspace dispatch NAME --file -

A child has: isolation (fork, full, shared), at, name, agent, limits (calls, wall_millis, bytes_written, depth, \
tools, deny), calls (tool, params, timeout_seconds), go_on, annotations (name, score, note, value).")]
pub(super) struct DispatchArgs {
    /// The session, by name or by the beginning of its id
    session: String,
    /// The file with the children; `-` is standard input
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
    /// Lets N children work at the same time [default: 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=16))]
    parallel: Option<u8>,
    /// Merges the children that are done, one after the other
    #[arg(long)]
    merge: bool,
    /// Runs all commands that are not denied, without asking
    #[arg(short, long)]
    yes: bool,
    /// Runs this program without asking; may be given several times
    #[arg(long, value_name = "PROGRAM")]
    allow: Vec<String>,
}

impl DispatchArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        let asked = self.request()?;
        let done: Dispatched = super::block_on(async {
            let owner = OwnerClient::of_existing(globals).await?;
            let session = owner.sessions()?.find(&self.session)?.session;
            let path = format!("/v1/sessions/{}/subagents", session.id());
            let done = owner.client.work(&path, &asked, output::progress).await;
            owner.end().await;
            Ok::<_, Failure>(done?)
        })??;
        let is_well = |child: &DispatchedChild| child.status == "done" && !is_unmerged(child);
        out.show(&done, |out| show(&done, out))?;
        Ok(if done.children.iter().all(is_well) { Exit::Ok } else { Exit::Failed })
    }

    /// Returns the file's request, with the options of the command line.
    fn request(&self) -> Result<Value, Failure> {
        let mut asked = match json_of(&self.file.display().to_string(), &read(&self.file)?)? {
            children @ Value::Array(_) => json!({ "children": children }),
            object @ Value::Object(_) => object,
            _ => return Err(Failure::usage("a batch is a list of children, or an object with `children`")),
        };
        if let Some(parallel) = self.parallel {
            asked["parallel"] = json!(parallel);
        }
        for (name, _) in [("merge", self.merge), ("auto_confirm", self.yes)].iter().filter(|(_, given)| *given) {
            asked[*name] = json!(true);
        }
        if !self.allow.is_empty() {
            let listed = asked["allow"].as_array().cloned().unwrap_or_default();
            asked["allow"] = listed.into_iter().chain(self.allow.iter().map(|word| json!(word))).collect();
        }
        Ok(asked)
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let read = files::reader(path)?.take(INPUT_MAX + 1).read_to_string(&mut text);
    match read.map_err(|error| Failure::io("read", path.display(), &error))? as u64 > INPUT_MAX {
        true => Err(Failure::usage(format!("{} has more than {} MiB", path.display(), INPUT_MAX >> 20))),
        false => Ok(text),
    }
}

fn is_unmerged(child: &DispatchedChild) -> bool {
    matches!(child.merge.as_deref(), Some("conflicted" | "failed"))
}

fn show(done: &Dispatched, out: &mut Out) -> Result<(), Failure> {
    let mut table = TextTable::with_titles(&["child", "status", ">calls", "changed", ""]);
    for child in &done.children {
        let style = match &*child.status {
            "done" => GOOD,
            "cancelled" => ODD,
            _ => BAD,
        };
        let mut changed: Vec<String> =
            child.changed.iter().take(SHOWN_PATHS).map(|path| text::one_line(&path.to_string(), 80)).collect();
        if child.changed.len() > SHOWN_PATHS {
            changed.push("...".to_owned());
        }
        let conflicts = child.conflicts.iter().map(|path| format!(" {}", path.rooted()));
        let merge = child.merge.iter().map(|word| format!("merge: {word}{}", conflicts.clone().collect::<String>()));
        let notes: Vec<String> = child.reason.iter().cloned().chain(merge).collect();
        let name = if child.name.is_empty() { "-".to_owned() } else { text::one_line(&child.name, 80) };
        table.row([
            Cell::left(name).styled(BOLD),
            Cell::left(child.status.replace('_', " ")).styled(style),
            Cell::right(child.calls.len()),
            Cell::left(changed.join(" ")),
            Cell::left(text::one_line(&notes.join("; "), 300)),
        ]);
    }
    table.show(out)
}
