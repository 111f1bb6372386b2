//! `foldspace gc`: space that nobody needs any more.

use foldspace::{LocalStore, remove_leftovers};

use super::Globals;
use super::exit::{Exit, Failure};
use super::output::Out;
use super::{open, text};

/// Frees the space of removed sessions, of contents that nothing refers to, and of old repairs; removes
/// containers whose process has ended
#[derive(Debug, clap::Args)]
pub(super) struct Gc {
    /// Only tells what it would do
    #[arg(long)]
    dry_run: bool,
}

impl Gc {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        let directory = open::existing(globals)?;
        let report = open::patiently(|| LocalStore::collect(&directory, self.dry_run))?;
        let containers = remove_leftovers(self.dry_run)?;
        if out.is_json() {
            let mut report = serde_json::to_value(&report).unwrap_or_default();
            report["containers"] = serde_json::to_value(&containers).unwrap_or_default();
            out.document(&report)?;
            return Ok(Exit::Ok);
        }
        let found = [
            text::count(report.commits, "commit"),
            text::count(report.contents, "content"),
            text::count(report.snapshot_blocks, "snapshot block"),
            text::count(report.leftovers, "leftover"),
        ];
        let verb = if self.dry_run { "would free" } else { "freed" };
        out.line(format!("{verb} {} of the journal: {}", text::size(report.bytes), found.join(", ")))?;
        let verb = if self.dry_run { "would remove" } else { "removed" };
        for container in &containers {
            let state = if container.running { "running" } else { "stopped" };
            out.line(format!(
                "{verb} container {} ({state}), whose process has ended",
                text::one_line(&container.name, 200)
            ))?;
        }
        Ok(Exit::Ok)
    }
}
