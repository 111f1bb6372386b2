//! The tree of files, with what changed at the step.

use std::collections::{BTreeMap, BTreeSet};

use foldspace::event::Node;
use foldspace::reducers::{Change, Entry};
use foldspace::{EntryPath, VirtualFileSystem};

use crate::terminal::text;
use crate::tui::model::{Sheet, ShownStep, Target, Tone};

const LINES_MAX: usize = 5_000;

const SMALL: usize = 40;

/// Maximum depth of shown directories; a path may have thousands.
const DEPTH_MAX: usize = 64;

/// Returns the tree: `+` added, `-` removed, `~` changed, `*` with changes inside.
pub(crate) fn files(step: &ShownStep, turned: &BTreeSet<EntryPath>) -> Sheet {
    let tree = VirtualFileSystem::of(&step.new);
    let (mut changed, mut above) = (BTreeMap::new(), BTreeSet::new());
    let mut gone: BTreeMap<EntryPath, Vec<_>> = BTreeMap::new();
    for change in step.changes.iter() {
        changed.insert(change.path().clone(), change);
        above.extend(directories_above(change.path()));
        if let (Change::Removed { before, .. }, Some(parent)) = (change, change.path().parent()) {
            gone.entry(parent).or_default().push((change.path(), before));
        }
    }
    let count = |sign| changed.values().filter(|change| sign_of(change) == sign).count();
    let counts = match step.changes.len() {
        0 => "nothing changed".to_owned(),
        _ => format!("+{} -{} ~{}", count('+'), count('-'), count('~')),
    };
    let entries = text::count(tree.len() as u64, "entry");
    let mut sheet = Sheet::new(format!("files at {}: {entries}, {counts}", step.after));
    let mut walk = FileWalk { tree: &tree, changed: &changed, above: &above, gone: &gone, turned, sheet: &mut sheet };
    walk.directory(&EntryPath::root(), 0);
    if sheet.lines.is_empty() {
        sheet.add(Tone::Dim, "no files");
    }
    sheet
}

fn directories_above(path: &EntryPath) -> impl Iterator<Item = EntryPath> {
    let bytes = path.as_bytes();
    let slashes = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    let named = slashes.take(DEPTH_MAX).filter_map(|at| EntryPath::from_bytes(&bytes[..at]).ok());
    std::iter::once(EntryPath::root()).chain(named)
}

fn sign_of(change: &Change) -> char {
    match change {
        Change::Added { .. } => '+',
        Change::Removed { .. } => '-',
        Change::Changed { .. } => '~',
    }
}

struct FileWalk<'a> {
    tree: &'a VirtualFileSystem,
    changed: &'a BTreeMap<EntryPath, &'a Change>,
    above: &'a BTreeSet<EntryPath>,
    gone: &'a BTreeMap<EntryPath, Vec<(&'a EntryPath, &'a Entry)>>,
    turned: &'a BTreeSet<EntryPath>,
    sheet: &'a mut Sheet,
}

impl FileWalk<'_> {
    fn directory(&mut self, directory: &EntryPath, depth: usize) {
        let mut entries: BTreeMap<EntryPath, Entry> = BTreeMap::new();
        let room = LINES_MAX.saturating_sub(self.sheet.lines.len());
        let present = self.tree.children(directory).take(room + 1);
        entries.extend(present.map(|(path, entry)| (path.clone(), entry.clone())));
        let gone = self.gone.get(directory).into_iter().flatten();
        entries.extend(gone.take(room).map(|(path, entry)| ((*path).clone(), (*entry).clone())));
        for (path, entry) in entries {
            if self.sheet.lines.len() >= LINES_MAX {
                if self.sheet.lines.len() == LINES_MAX {
                    self.sheet.add(Tone::Odd, "... more than can be shown");
                }
                return;
            }
            self.entry(&path, &entry, depth);
        }
    }

    fn entry(&mut self, path: &EntryPath, entry: &Entry, depth: usize) {
        let within = self.above.contains(path);
        // Changed directories are open, and all of a small tree, unless a key toggled them.
        let by_itself = within || self.tree.len() <= SMALL || depth >= DEPTH_MAX;
        let open = entry.is_directory() && by_itself != self.turned.contains(path);
        let (sign, tone) = match self.changed.get(path).map(|change| sign_of(change)) {
            Some('+') => ('+', Tone::Good),
            Some('-') => ('-', Tone::Bad),
            Some(sign) => (sign, Tone::Odd),
            None if within => ('*', Tone::Bold),
            None => (' ', Tone::Plain),
        };
        if sign != ' ' {
            self.sheet.notice();
        }
        let name = String::from_utf8_lossy(path.name()).into_owned();
        let indent = "  ".repeat(depth.min(20));
        let shown = match &entry.node {
            Node::Directory { .. } => format!("{sign} {indent}{} {name}/", if open { 'v' } else { '>' }),
            Node::Symlink { target } => format!("{sign} {indent}  {name} -> {}", String::from_utf8_lossy(target)),
            Node::Special { special } => format!("{sign} {indent}  {name} ({})", special.name()),
            Node::File { size, mode, .. } => {
                let executable = if mode.is_executable() { "*" } else { "" };
                format!("{sign} {indent}  {name}{executable}  {} v{}", text::size(*size), entry.version)
            }
        };
        let target = match entry.is_directory() {
            true => Target::Directory(path.clone()),
            false => Target::File(path.clone()),
        };
        self.sheet.add_for(tone, shown, Some(target));
        match open {
            true if depth < DEPTH_MAX => self.directory(path, depth + 1),
            true => self.sheet.add(Tone::Odd, format!("  {indent}  ... deeper than can be shown")),
            false => {}
        }
    }
}
