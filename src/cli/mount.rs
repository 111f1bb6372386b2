use std::path::{Path, PathBuf};

use foldspace::hub::fuse::{MountDocument, MountRequest, MountWork, mounts, unmount};
use serde_json::json;

use super::interrupt::Signals;
use super::owner::Starter;
use super::position::{self, AtArg};
use super::{Cell, Failure, Globals, Out, TextTable, open, output, text};

/// Shows the files of a session as a read-only directory, as they are now or were at a position
///
/// Without a position it follows the session. It ends with the session, or with `foldspace umount`. A process in the
/// background serves it, so it stays when the owner of the data ends.
#[derive(Debug, clap::Args)]
#[command(mut_args(position::meaning("Shows the files as they were at", "Shows the files as they were before")))]
#[command(after_help = "\
Examples:
  foldspace mount demo /mnt/demo               follows the session
  foldspace mount demo --at -10 /mnt/before
  diff -r /mnt/before /mnt/demo
  foldspace mount demo --all                   prints the directory
  ls DIRECTORY/.call/12/before

Directories with --all, which `ls` does not list:
  .at/POSITION      the files at a position, such as .at/12, .at/-5 or .at/tag:NAME
  .call/N/before    and .call/N/after: the files before and after a call
  .sessions/NAME    another session, with .at and .call")]
pub(super) struct MountSessionArgs {
    /// The session, by name or by the beginning of its id
    #[arg(required_unless_present = "work")]
    session: Option<String>,
    /// The directory, empty or new [default: one in the user's runtime directory]
    #[arg(value_hint = clap::ValueHint::DirPath)]
    directory: Option<PathBuf>,
    #[command(flatten)]
    at: AtArg,
    /// Adds the directories of all positions, calls and sessions
    #[arg(long)]
    all: bool,
    /// Serves a mount for the process that started this one
    #[arg(long, value_name = "JSON", hide = true)]
    work: Option<String>,
}

impl MountSessionArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        if let Some(work) = &self.work {
            return serve(globals, work);
        }
        let wanted = self.session.as_deref().unwrap_or_default();
        let data = open::existing(globals)?;
        let found = open::session(globals, wanted)?;
        let at = self.at.is_given().then(|| self.at.resolve(&found.session)).transpose()?;
        let directory = self.directory.as_deref().map(std::path::absolute).transpose();
        let directory = directory.map_err(|error| Failure::io("find", "the directory", &error))?;
        let new = MountRequest { at, all: self.all, directory };
        let mount = open::mount_helper(&data)?.start(&found.session, &new)?;
        let shown = text::one_line(&mount.directory.display().to_string(), 300);
        out.show(&mount, |out| out.line(shown))
    }
}

fn serve(globals: &Globals, work: &str) -> Result<(), Failure> {
    let starter = Starter::leave();
    let work: MountWork =
        serde_json::from_str(work).map_err(|error| Failure::usage(format!("invalid work: {error}")))?;
    let data = open::existing(globals)?;
    starter.log_to(&data);
    let directory = work.directory().to_owned();
    let thread = std::thread::Builder::new().name("foldspace-signals".to_owned());
    thread
        .spawn(move || end_at_signal(&directory))
        .map_err(|error| Failure::io("start", "the thread for signals", &error))?;
    Ok(work.serve(&data, super::registry(), |words| starter.say(words))?)
}

/// Waits for a signal, and ends the mount and this process.
fn end_at_signal(directory: &Path) {
    if super::block_on(async { Signals::listen().next().await }).is_err() {
        return;
    }
    if let Err(error) = unmount(directory, true) {
        tracing::warn!(%error, "failed to unmount after a signal");
    }
    // Other processes may still have files open, or another mount namespace a copy of the mount.
    std::thread::sleep(super::LAST);
    std::process::exit(0);
}

/// Ends a mount
///
/// Nothing is lost: a mount only shows what is recorded.
#[derive(Debug, clap::Args)]
#[command(alias = "unmount")]
pub(super) struct Umount {
    /// The directory of the mount
    #[arg(value_hint = clap::ValueHint::DirPath)]
    directory: PathBuf,
    /// Unmounts it even if processes use it; they keep their open files
    #[arg(long)]
    lazy: bool,
}

impl Umount {
    pub(super) fn run(&self, _: &Globals, out: &mut Out) -> Result<(), Failure> {
        let failed = |error| Failure::io("find", self.directory.display(), &error);
        // The directory can't be read if the process of its mount was killed.
        let absolute = std::path::absolute(&self.directory).map_err(failed)?;
        let place = absolute.canonicalize().unwrap_or(absolute);
        unmount(&place, self.lazy)?;
        let shown = text::one_line(&place.display().to_string(), 300);
        out.show(&json!({ "directory": place, "unmounted": true }), |out| out.line(format!("unmounted {shown}")))
    }
}

/// Lists the mounts of sessions
#[derive(Debug, clap::Args)]
pub(super) struct MountsArgs {}

impl MountsArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        let known = mounts(&open::existing(globals)?)?;
        for MountDocument { directory, trouble, .. } in &known {
            if let Some(trouble) = trouble {
                let shown = text::one_line(&directory.display().to_string(), 300);
                output::note(&format!("files in {shown} can't be read: {}", text::one_line(trouble, 300)));
            }
        }
        out.show(&known, |out| {
            if known.is_empty() {
                return out.line("no mounts");
            }
            let mut table = TextTable::with_titles(&["session", "at", "directory", ">process"]);
            for mount in &known {
                let at = mount.at.map_or_else(|| "now".to_owned(), |seq| seq.to_string());
                table.row([
                    Cell::left(text::one_line(&mount.name, 80)),
                    Cell::left(if mount.all { format!("{at}, all") } else { at }),
                    Cell::left(text::one_line(&mount.directory.display().to_string(), 300)),
                    Cell::right(mount.process),
                ]);
            }
            table.show(out)
        })
    }
}
