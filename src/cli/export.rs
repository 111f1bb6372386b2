use std::io::Write;
use std::path::{Path, PathBuf};

use foldspace::history::{PortableSummary, export_session_seen};
use foldspace::tools::{SecretMask, traces_of, trajectory_of};

use super::mask::MaskArgs;
use super::{Failure, Globals, Out, files, open, output, text};

/// Writes a session with all its contents into one file, or as a trajectory or traces for other programs
///
/// A trajectory (ATIF) and traces (OTLP) have the calls of the session and of its children, but no files. They go to
/// standard output, unless a file is given, with likely secrets masked. The file for `import` is exact: a note lists
/// its likely secrets.
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
    /// The file to write, instead of FILE
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, conflicts_with = "file")]
    output: Option<PathBuf>,
    /// Replaces the file if it exists
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    mask: MaskArgs,
}

impl ExportArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        let file = self.file.as_deref().or(self.output.as_deref()).unwrap_or(Path::new("-"));
        files::check_absent(file, self.force)?;
        let opened = open::reading(globals)?;
        let found = opened.find(&self.session)?;
        if self.atif || self.otlp {
            let mut document = match self.atif {
                true => trajectory_of(&found.session, &opened.sessions)?,
                false => traces_of(&found.session, &opened.sessions)?,
            };
            let mut mask = self.mask.mask();
            mask.json(&mut document);
            self.mask.tell(&mask);
            let document = if self.atif { format!("{document:#}\n") } else { format!("{document}\n") };
            return match files::is_standard(file) {
                true => out.raw(document.as_bytes()),
                false => files::write(file, |file| {
                    file.write_all(document.as_bytes()).map_err(|error| Failure::io("write", "the document", &error))
                }),
            };
        }
        if self.mask.is_given() {
            return Err(Failure::usage("a file for `import` is exact: it can't be masked")
                .with_hint("--atif, --otlp and `foldspace ui NAME --export FILE` mask secrets"));
        }
        let mut likely = SecretMask::new(true, &[]);
        let mut export = |to: &mut dyn Write| {
            export_session_seen(&opened.sessions, found.entry.id, to, &mut |bytes| likely.count(bytes))
        };
        let is_piped = files::is_standard(file);
        let summary = match is_piped {
            true => to_stdout(out, "an export", export)?,
            false => files::write(file, |file| Ok(export(file)?))?,
        };
        if let Some(found) = likely.found() {
            output::note(&format!(
                "the file contains likely secrets, unmasked: {found}; --atif, --otlp and `foldspace ui {} --export \
                 FILE` mask them",
                text::one_line(&self.session, 80)
            ));
        }
        if is_piped {
            output::note(&format!("{} written", told(&summary)));
            return Ok(());
        }
        out.show(&summary, |out| out.line(format!("{} written to {}", told(&summary), file.display())))
    }
}

pub(super) fn to_stdout<T, E: Into<Failure>>(
    out: &mut Out,
    what: &str,
    write: impl FnOnce(&mut dyn Write) -> Result<T, E>,
) -> Result<T, Failure> {
    if out.is_terminal() {
        return Err(Failure::usage(format!("{what} is binary and is not written to a terminal"))
            .with_hint("name a file, or redirect the output"));
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
