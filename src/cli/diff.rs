//! `foldspace diff`: what differs between two moments.

use std::collections::BTreeSet;

use foldspace::reducers::Change;
use foldspace::view::{self, Patch};
use foldspace::{EntryPath, VirtualFileSystem};

use super::Globals;
use super::exit::{Exit, Failure};
use super::output::{BAD, GOOD, Out};
use super::position::PositionRange;
use super::table::{Cell, TextTable};
use super::{diffs, open, text};

/// Shows what differs in the workspace between two moments, as patches
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foldspace diff NAME ..             everything since the beginning
  foldspace diff NAME -20.. src      in src, in the last twenty events
  foldspace diff NAME 12..40 --stat
  foldspace diff NAME 12.. --no-pager | git apply")]
pub(super) struct DiffArgs {
    /// The session, by name or by the beginning of its id
    session: String,
    /// From A to B: positions, of which either may be left out
    #[arg(value_name = "A..B", allow_hyphen_values = true)]
    range: PositionRange,
    /// Only what is there or below it
    path: Option<String>,
    /// Shows how many lines changed in each file
    #[arg(long)]
    stat: bool,
    /// Shows only what changed
    #[arg(long, conflicts_with = "stat")]
    name_only: bool,
}

impl DiffArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        let path = self.path.as_deref().map(EntryPath::lookup).transpose()?;
        let opened = open::reading(globals)?;
        let found = opened.find(&self.session)?;
        let (from, until) = self.range.resolve(&found.session)?;
        let before = VirtualFileSystem::of(&found.session.state_at(from)?);
        let after = VirtualFileSystem::of(&found.session.state_at(until)?);
        if let Some(path) = path.as_ref().filter(|path| !path.is_root())
            && before.get(path).is_none()
            && after.get(path).is_none()
        {
            return Err(Failure::new(Exit::NotFound, format!("there is no {} at {from} or {until}", path.rooted())));
        }
        let mut changes = before.diff(&after);
        let concerned = |change: &Change, path: &EntryPath| change.path() == path || change.path().is_below(path);
        changes.retain(|change| path.as_ref().is_none_or(|path| concerned(change, path)));
        if out.is_json() {
            let list: Result<Vec<_>, _> = changes.iter().map(|change| view::change(&found.session, change)).collect();
            out.document(&list?)?;
            return Ok(Exit::Ok);
        }
        let implied = parents(&changes);
        changes.retain(|change| !(is_directory(change) && implied.contains(change.path())));
        if self.name_only {
            changes.iter().try_for_each(|change| out.line(change.path()))?;
            return Ok(Exit::Ok);
        }
        let mut patches = Vec::new();
        for change in &changes {
            patches.extend(view::patches(&found.session, change)?);
            if !self.stat {
                patches.drain(..).try_for_each(|patch| diffs::show(&patch, out))?;
            }
        }
        if self.stat {
            show_stat(&patches, changes.len(), out)?;
        }
        Ok(Exit::Ok)
    }
}

/// The directories above what changed: that they came or went with it needs no words.
fn parents(changes: &[Change]) -> BTreeSet<EntryPath> {
    let mut parents = BTreeSet::new();
    for change in changes {
        let mut above = change.path().parent();
        while let Some(parent) = above.filter(|parent| parents.insert(parent.clone())) {
            above = parent.parent();
        }
    }
    parents
}

fn is_directory(change: &Change) -> bool {
    match change {
        Change::Added { after: entry, .. } | Change::Removed { before: entry, .. } => entry.is_directory(),
        Change::Changed { .. } => false,
    }
}

fn show_stat(patches: &[Patch], entries: usize, out: &mut Out) -> Result<(), Failure> {
    let mut table = TextTable::default();
    for patch in patches {
        let counts = diffs::counts(patch, out);
        table.row([Cell::left(patch.change), Cell::left(&patch.path), Cell::left(counts)]);
    }
    table.show(out)?;
    let sum = |pick: fn(&Patch) -> u64| patches.iter().map(pick).sum::<u64>();
    let (added, removed) = (sum(|patch| patch.added), sum(|patch| patch.removed));
    let (plus, minus) = (out.paint(GOOD, format!("+{added}")), out.paint(BAD, format!("-{removed}")));
    out.line(format!("{} changed, {plus} {minus}", text::count(entries as u64, "entry")))
}
