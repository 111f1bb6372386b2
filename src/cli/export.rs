use std::io::Write;
use std::path::PathBuf;

use foldspace::history::{PortableSummary, export_session};

use super::files::AtomicFile;
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
        let mut file = AtomicFile::begin(&self.file)?;
        let summary = export_session(&opened.sessions, found.entry.id, &mut file)?;
        file.finish()?;
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
    let mut stdout = std::io::BufWriter::new(Piped { out, failed: None });
    let written = write(&mut stdout);
    let flushed = stdout.flush();
    match stdout.get_mut().failed.take() {
        Some(failure) => Err(failure),
        None => {
            flushed.map_err(|error| Failure::io("write", "the output", &error))?;
            written.map_err(E::into)
        }
    }
}

pub(super) fn told(summary: &PortableSummary) -> String {
    let (events, contents) = (text::count(summary.events, "event"), text::count(summary.contents, "content"));
    format!("{}: {events}, {contents}, {}", text::one_line(&summary.name, 80), text::size(summary.bytes))
}

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
