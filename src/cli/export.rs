use std::io::Write;
use std::path::PathBuf;

use foldspace::history::{PortableSummary, export_session};

use super::{Failure, Globals, Out, files, open, output, text};

/// Writes a session with all its contents into one file
#[derive(Debug, clap::Args)]
pub(super) struct ExportArgs {
    /// The session, by name or by the beginning of its id
    session: String,
    /// The file to write; - is standard output
    #[arg(value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
}

impl ExportArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        let opened = open::reading(globals)?;
        let found = opened.find(&self.session)?;
        if files::is_standard(&self.file) {
            let export = |pipe: &mut dyn Write| export_session(&opened.sessions, found.entry.id, pipe);
            output::note(&format!("{} written", told(&to_stdout(out, "an export", export)?)));
            return Ok(());
        }
        let summary = files::write(&self.file, |file| Ok(export_session(&opened.sessions, found.entry.id, file)?))?;
        out.show(&summary, |out| out.line(format!("{} written to {}", told(&summary), self.file.display())))
    }
}

pub(super) fn to_stdout<T, E: Into<Failure>>(
    out: &mut Out,
    what: &str,
    write: impl FnOnce(&mut dyn Write) -> Result<T, E>,
) -> Result<T, Failure> {
    if out.is_terminal() {
        return Err(Failure::usage(format!("{what} is no text; it is not written to a terminal"))
            .with_hint("give a file, or send the output somewhere"));
    }
    out.go_live()?;
    let mut stdout = std::io::BufWriter::new(out);
    let written = write(&mut stdout).map_err(E::into)?;
    stdout.flush().map_err(|error| Failure::io("write", "the output", &error))?;
    Ok(written)
}

pub(super) fn told(summary: &PortableSummary) -> String {
    let (events, contents) = (text::count(summary.events, "event"), text::count(summary.contents, "content"));
    format!("{}: {events}, {contents}, {}", text::one_line(&summary.name, 80), text::size(summary.bytes))
}
