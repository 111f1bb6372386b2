use std::io::Write;
use std::path::{Path, PathBuf};

use foldspace::tools::{materialise, write_tar};
use foldspace::{EntryPath, Session, State};
use serde_json::json;

use super::export::to_stdout;
use super::not_back::{not_back, tell_apart, tell_not_back};
use super::{AtArg, Exit, Failure, Globals, Out, files, open, output, position, text};

/// Writes the files of a session into a directory or a tar archive
#[derive(Debug, clap::Args)]
#[command(mut_args(position::meaning("Writes the files as they were at", "Writes the files as they were before")))]
#[command(visible_alias = "materialize")]
pub(super) struct Materialise {
    /// The session, by name or by the beginning of its id
    session: String,
    /// The directory, which must be new or empty
    #[arg(value_hint = clap::ValueHint::DirPath, required_unless_present = "tar", conflicts_with = "tar")]
    directory: Option<PathBuf>,
    /// Writes a tar archive instead; - is standard output
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    tar: Option<PathBuf>,
    #[command(flatten)]
    at: AtArg,
}

impl Materialise {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        let found = open::session(globals, &self.session)?;
        let state = self.at.state(&found.session)?;
        let Some(directory) = &self.directory else {
            let file = self.tar.as_deref().unwrap_or(Path::new("-"));
            return archive(&found.session, &state, file, out);
        };
        let written = materialise(&found.session, &state, directory)?;
        let shown = text::one_line(&directory.display().to_string(), 300);
        let document = json!({
            "session": found.session.id(),
            "seq": state.seq(),
            "directory": directory,
            "entries": written.entries,
            "bytes": written.bytes,
            "left": written.left,
            "left_out": written.left,
            "apart": written.apart,
        });
        let (entries, bytes) = (text::count(written.entries, "entry"), text::size(written.bytes));
        let told = format!("wrote {entries}, {bytes}, as of position {}, to {shown}", state.seq());
        out.show(&document, |out| {
            out.line(told)?;
            tell_not_back(&written.left, &[], out)?;
            tell_apart(&written.apart, out)
        })?;
        Ok(exit(&written.left))
    }
}

fn archive(session: &Session, state: &State, file: &Path, out: &mut Out) -> Result<Exit, Failure> {
    let failed = |error: std::io::Error| Failure::io("write", file.display(), &error);
    let root = EntryPath::root();
    if files::is_standard(file) {
        let left = to_stdout(out, "an archive", |pipe: &mut dyn Write| {
            write_tar(session, state, &root, pipe).map_err(failed)
        })?;
        not_back(&left, &[]).iter().for_each(|line| output::note(line));
        return Ok(exit(&left));
    }
    let left = files::write(file, |written| {
        write_tar(session, state, &root, std::io::BufWriter::new(written)).map_err(failed)
    })?;
    let shown = text::one_line(&file.display().to_string(), 300);
    let document = json!({ "session": session.id(), "seq": state.seq(), "file": file, "left": left });
    out.show(&document, |out| {
        out.line(format!("wrote an archive as of position {} to {shown}", state.seq()))?;
        tell_not_back(&left, &[], out)
    })?;
    Ok(exit(&left))
}

fn exit(left: &[EntryPath]) -> Exit {
    if left.is_empty() { Exit::Ok } else { Exit::Failed }
}
