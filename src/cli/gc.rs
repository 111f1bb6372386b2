//! `foldspace gc`: space that nobody needs any more.

use foldspace::LocalStore;

use super::Globals;
use super::exit::{Exit, Failure};
use super::output::Out;
use super::{open, text};

/// Frees the space of removed sessions, of contents that nothing refers to, and of old repairs
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
        if out.is_json() {
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
        Ok(Exit::Ok)
    }
}
