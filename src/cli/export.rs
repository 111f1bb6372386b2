//! `foldspace export`: a session as one file.

use std::io::Write;
use std::path::PathBuf;

use foldspace::{PortableSummary, export_session};

use super::Globals;
use super::exit::{Exit, Failure};
use super::files::{self, AtomicFile};
use super::output::{self, Out};
use super::{open, text};

/// Writes a session with everything that belongs to it into one file
#[derive(Debug, clap::Args)]
pub(super) struct ExportArgs {
    /// The session, by name or by the beginning of its id
    session: String,
    /// The file to write; - is standard output
    #[arg(value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
}

impl ExportArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        let opened = open::reading(globals)?;
        let found = opened.find(&self.session)?;
        if files::is_standard(&self.file) {
            return to_stdout(&opened, &found, out);
        }
        let mut file = AtomicFile::begin(&self.file)?;
        let summary = export_session(&opened.sessions, found.entry.id, &mut file)?;
        file.finish()?;
        match out.is_json() {
            true => out.document(&summary)?,
            false => out.line(format!("{} written to {}", told(&summary), self.file.display()))?,
        }
        Ok(Exit::Ok)
    }
}

fn to_stdout(opened: &open::OpenedStore, found: &open::FoundSession, out: &mut Out) -> Result<Exit, Failure> {
    if out.is_terminal() {
        let failure = Failure::new(Exit::Usage, "an export is no text; it is not written to a terminal");
        return Err(failure.with_hint("give a file, or send the output somewhere"));
    }
    out.go_live()?;
    let mut stdout = std::io::BufWriter::new(Piped { out, failed: None });
    let exported = export_session(&opened.sessions, found.entry.id, &mut stdout);
    if let Some(failure) = stdout.get_mut().failed.take() {
        return Err(failure);
    }
    output::note(&format!("{} written", told(&exported?)));
    Ok(Exit::Ok)
}

/// What a portable file holds, in words.
pub(super) fn told(summary: &PortableSummary) -> String {
    let (events, contents) = (text::count(summary.events, "event"), text::count(summary.contents, "content"));
    format!("{}: {events}, {contents}, {}", text::one_line(&summary.name, 80), text::size(summary.bytes))
}

/// Writes to the program's output, and remembers what went wrong there.
struct Piped<'a> {
    out: &'a mut Out,
    failed: Option<Failure>,
}

impl Write for Piped<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self.out.raw(bytes) {
            Ok(()) => Ok(bytes.len()),
            Err(failure) => {
                self.failed = Some(failure);
                Err(std::io::ErrorKind::BrokenPipe.into())
            }
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
