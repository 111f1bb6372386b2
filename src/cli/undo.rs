use foldspace::hub::operations::UndoDocument;
use foldspace::reducers::Change;
use foldspace::view::Position;
use foldspace::{EntryPath, Seq};
use serde_json::json;

use super::{BAD, Exit, Failure, GOOD, Globals, ODD, Out, OwnerClient, open, output, text};

/// The most paths of one kind that are listed.
pub(super) const SHOWN: usize = 50;

/// Takes back what calls changed in the files, and keeps what others changed
///
/// It lists what would change, asks, and then changes only that: files that others changed since keep these changes, and
/// nothing is removed that was there before the session. It never touches `.git`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
An undo is a call like others, so another undo takes it back.

Examples:
  foldspace undo                   the latest call that changed files
  foldspace undo --run last        all that the latest run of an agent changed
  foldspace undo --call 219 -y     one call, without a question
  foldspace undo --to 10m          all calls of the last ten minutes")]
pub(super) struct UndoArgs {
    /// The session, by name or by the beginning of its id
    pub(super) session: String,
    #[command(flatten)]
    pub(super) subject: SubjectArgs,
    /// Undoes the rest where something can't be undone
    #[arg(long)]
    pub(super) force: bool,
    /// Shows the changes, and makes none
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Asks nothing
    #[arg(long, short)]
    pub(super) yes: bool,
}

#[derive(Debug, Clone, Default, clap::Args)]
#[group(multiple = false)]
pub(super) struct SubjectArgs {
    /// One call, by its position
    #[arg(long, value_name = "N")]
    pub(super) call: Option<Seq>,
    /// All calls of a run of an agent, by its id or the beginning of that; `last` is the latest
    #[arg(long, value_name = "RUN")]
    pub(super) run: Option<String>,
    #[arg(long, value_name = "POSITION", allow_hyphen_values = true)]
    #[arg(help = format!("All calls after POSITION: {}", Position::FORMS))]
    pub(super) to: Option<Position>,
}

impl UndoArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        super::block_on(async {
            let owner = OwnerClient::of_existing(globals).await?;
            let found = owner.sessions()?.find(&self.session)?;
            let path = format!("/v1/sessions/{}/undo", found.session.id());
            let SubjectArgs { call, run, to } = &self.subject;
            let to = to.as_ref().map(|to| to.resolve(&found.session)).transpose()?;
            let asked = |more: serde_json::Value| {
                let mut asked = json!({ "call": call, "run": run, "to": to, "force": self.force });
                asked
                    .as_object_mut()
                    .into_iter()
                    .for_each(|fields| fields.extend(more.as_object().cloned().unwrap_or_default()));
                asked
            };
            let undo = async |more| owner.client.work::<UndoDocument>(&path, &asked(more), output::progress).await;
            let planned = undo(json!({ "dry_run": true })).await?;
            let is_asked = self.may_go_on(&planned, out)?;
            let done = match is_asked {
                true => Some(undo(json!({ "seen": planned.seen })).await?),
                false => None,
            };
            owner.end().await;
            self.tell(done, planned, &open::named(&found.session), out, globals)
        })?
    }

    /// Shows what would change, and asks.
    fn may_go_on(&self, planned: &UndoDocument, out: &mut Out) -> Result<bool, Failure> {
        if !out.is_json() {
            show(planned, out)?;
        }
        if self.dry_run || planned.changes.is_empty() {
            return Ok(false);
        }
        if !planned.is_whole() && !self.force {
            let hint = "--force undoes the rest; nothing was done";
            return Err(Failure::failed("not all of it can be undone").with_hint(hint));
        }
        if self.yes {
            return Ok(true);
        }
        let question = format!("undo {}?", text::count(planned.changes.len() as u64, "change"));
        let unasked = Failure::usage(format!("there is no terminal to ask on: {question}"));
        output::confirm(&question, "nothing was done", unasked.with_hint("--yes undoes without asking"))?;
        Ok(true)
    }

    fn tell(
        &self,
        done: Option<UndoDocument>,
        planned: UndoDocument,
        named: &str,
        out: &mut Out,
        globals: &Globals,
    ) -> Result<Exit, Failure> {
        if out.is_json() {
            out.document(&done.unwrap_or(planned))?;
            return Ok(Exit::Ok);
        }
        match done.as_ref().and_then(|done| done.call) {
            Some(call) => {
                let program = open::same_program(globals);
                out.line(format!("undone as call {call}; to take that back: {program} undo {named} --call {call}"))?;
            }
            None if planned.changes.is_empty() => {
                out.line("the files are as they were before; there is nothing to do")?
            }
            None => out.line("nothing was done")?,
        }
        Ok(Exit::Ok)
    }
}

/// Writes one line for each of the first changes, and how many more there are.
pub(super) fn show_changes(changes: &[Change], out: &mut Out) -> Result<(), Failure> {
    for change in changes.iter().take(SHOWN) {
        let word = match change {
            Change::Added { .. } => out.paint(GOOD, "back   "),
            Change::Removed { .. } => out.paint(BAD, "gone   "),
            Change::Changed { .. } => out.paint(ODD, "changed"),
        };
        out.line(format!("{word}  {}", change.path()))?;
    }
    match changes.len().saturating_sub(SHOWN) {
        0 => Ok(()),
        more => out.line(format!("and {more} more")),
    }
}

fn show(planned: &UndoDocument, out: &mut Out) -> Result<(), Failure> {
    show_changes(&planned.changes, out)?;
    let conflicts: Vec<EntryPath> = planned.conflicts.iter().map(|conflict| conflict.path.clone()).collect();
    let kept: [(&[EntryPath], &str); 4] = [
        (&conflicts, "stays: others changed the same place since"),
        (&planned.earlier, "stays: it was there before the session"),
        (&planned.not_kept, "stays: its contents were not kept"),
        (&planned.shared, "stays: several calls may have changed it, and not all of them are undone"),
    ];
    for (paths, why) in kept {
        for path in paths.iter().take(SHOWN) {
            out.line(format!("{}  {path}  {why}", out.paint(ODD, "left   ")))?;
        }
        if paths.len() > SHOWN {
            out.line(format!("and {} more", paths.len() - SHOWN))?;
        }
    }
    if let Some(git) = &planned.git {
        let branch = if git.branch.is_empty() { "no branch" } else { &git.branch };
        let head = git.head.get(..12).unwrap_or("no commit");
        output::note(&format!(
            "git has moved since these calls: the worktree is on {} at {head} now",
            text::one_line(branch, 80)
        ));
    }
    Ok(())
}
