use std::collections::BTreeSet;

use foldspace::reducers::Change;
use foldspace::view::{self, ObservedCalls, Patch};
use foldspace::{EntryPath, VirtualFileSystem};

use super::position::PositionRange;
use super::{BAD, Cell, Failure, GOOD, Globals, Out, TextTable, diffs, live_files, open, text, tree};

/// Shows the difference between two positions, as patches
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foldspace diff NAME ..             everything since the first call
  foldspace diff NAME -20.. src      in src, in the last twenty events
  foldspace diff NAME 12..40 --stat
  foldspace diff --run last          changes of the latest run of an agent
  foldspace diff NAME --live         what the running command has changed so far
  foldspace diff NAME 12.. --no-pager | git apply")]
pub(super) struct DiffArgs {
    /// The session, by name or by the beginning of its id
    session: String,
    /// From position A to position B [default: from before the first call to the last position]
    #[arg(value_name = "A..B", allow_hyphen_values = true, required_unless_present_any = ["run", "live"])]
    range: Option<PositionRange>,
    /// From before the first call of an agent's run to after its last: the run's id, the beginning of it, or `last`
    #[arg(long, value_name = "RUN", conflicts_with = "range")]
    run: Option<String>,
    /// The changes on the disk that are not recorded yet, also while a command runs
    #[arg(long, conflicts_with_all = ["range", "run", "path", "stat", "name_only"])]
    live: bool,
    /// Only changes at or below this path
    path: Option<String>,
    /// Shows the number of changed lines of each file
    #[arg(long)]
    stat: bool,
    /// Shows only the changed paths
    #[arg(long, conflicts_with = "stat")]
    name_only: bool,
}

impl DiffArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        let path = self.path.as_deref().map(tree::path).transpose()?;
        let found = open::session(globals, &self.session)?;
        if self.live {
            return live_files::show_diff(globals, &found.session, out);
        }
        let (from, until) = match (&self.range, &self.run) {
            (Some(range), _) => range.resolve(&found.session)?,
            (None, run) => {
                let run = ObservedCalls::of(&found.session)?.run(&found.session, run.as_deref().unwrap_or("last"))?;
                (run.before, run.last)
            }
        };
        let mut changes = view::file_changes(&found.session, from, until, path.as_ref())?;
        if let Some(path) = path.as_ref().filter(|path| changes.is_empty() && !path.is_root())
            && VirtualFileSystem::of(&found.session.state_at(from)?).get(path).is_none()
        {
            let meant = tree::meant(&VirtualFileSystem::of(&found.session.state_at(until)?), path);
            let what = format!("{} exists neither at {from} nor at {until}", path.rooted());
            return Err(Failure::missing(what)
                .with_hint(format!("{meant}`foldspace ls {} -R` lists the files", found.session.id().short())));
        }
        if out.is_json() {
            let list: Result<Vec<_>, _> = changes.iter().map(|change| view::change(&found.session, change)).collect();
            return out.document(&list?);
        }
        let implied = parents(&changes);
        changes.retain(|change| match change.sides() {
            (Some(entry), None) | (None, Some(entry)) => !entry.is_directory() || !implied.contains(change.path()),
            _ => true,
        });
        if self.name_only {
            return changes.iter().try_for_each(|change| out.line(change.path()));
        }
        if !self.stat {
            return changes.iter().try_for_each(|change| diffs::show_change(&found.session, change, out));
        }
        let mut patches = Vec::new();
        for change in &changes {
            patches.extend(view::patches(&found.session, change)?);
        }
        show_stat(&patches, changes.len(), out)
    }
}

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
