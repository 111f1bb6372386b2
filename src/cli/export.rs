use std::io::Write;
use std::path::{Path, PathBuf};

use foldspace::history::{PortableSummary, export_session};
use foldspace::tools::{traces_of, trajectory_of};

use super::{Failure, Globals, Out, files, open, output, text};

/// Writes a session with all its contents into one file, or as a trajectory or traces for other programs
///
/// A trajectory (ATIF) and traces (OTLP) have the calls of the session and of its children, and no files. They go to
/// standard output, unless a file is given.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foldspace export demo demo.fold
  foldspace export demo --atif --output trajectory.json
  foldspace export demo --otlp | curl -H 'content-type: application/json' -d @- localhost:4318/v1/traces")]
pub(super) struct ExportArgs {
    /// The session, by name or by the beginning of its id
    session: String,
    /// The file to write; - is standard output
    #[arg(value_hint = clap::ValueHint::FilePath, required_unless_present_any = ["atif", "otlp", "output"])]
    file: Option<PathBuf>,
    /// Writes a trajectory in ATIF 1.8, one JSON document
    #[arg(long, conflicts_with = "otlp")]
    atif: bool,
    /// Writes traces in OTLP, one ExportTraceServiceRequest in JSON on one line
    #[arg(long)]
    otlp: bool,
    /// The file to write, as FILE
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, conflicts_with = "file")]
    output: Option<PathBuf>,
}

impl ExportArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        let opened = open::reading(globals)?;
        let found = opened.find(&self.session)?;
        let file = self.file.as_deref().or(self.output.as_deref()).unwrap_or(Path::new("-"));
        if self.atif || self.otlp {
            let document = match self.atif {
                true => format!("{:#}\n", trajectory_of(&found.session, &opened.sessions)?),
                false => format!("{}\n", traces_of(&found.session, &opened.sessions)?),
            };
            return match files::is_standard(file) {
                true => out.raw(document.as_bytes()),
                false => files::write(file, |file| {
                    file.write_all(document.as_bytes()).map_err(|error| Failure::io("write", "the document", &error))
                }),
            };
        }
        if files::is_standard(file) {
            let export = |pipe: &mut dyn Write| export_session(&opened.sessions, found.entry.id, pipe);
            output::note(&format!("{} written", told(&to_stdout(out, "an export", export)?)));
            return Ok(());
        }
        let summary = files::write(file, |file| Ok(export_session(&opened.sessions, found.entry.id, file)?))?;
        out.show(&summary, |out| out.line(format!("{} written to {}", told(&summary), file.display())))
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
