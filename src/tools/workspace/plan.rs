//! Plans that turn one state of the files into another, as events.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::backends::FileChange;
use crate::engine::clock::Timestamp;
use crate::engine::commit::{Commit, CommitError, Content};
use crate::engine::event::{DeleteEntry, Event, LinkFile, Node, WriteFile, WriteMode};
use crate::engine::id::Digest;
use crate::engine::path::EntryPath;
use crate::engine::recorded::EventRef;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::reducers::{Change, Entry, VirtualFileSystem, can_be_made, directories_above};

#[derive(Debug, Default)]
pub(in crate::tools) struct ChangePlan {
    pub(crate) steps: Vec<PlannedChange>,
    pub(crate) changes: Vec<Change>,
    /// Entries that stay unchanged: entries with target contents that were never stored, missing sockets and devices,
    /// and without force also entries with present contents that were never stored.
    pub(crate) left: Vec<EntryPath>,
    /// Entries that are removed or replaced for good: their present contents were never stored.
    pub(crate) lost: Vec<EntryPath>,
}

pub(crate) type NewContents = BTreeMap<Digest, Bytes>;

#[derive(Debug, Clone)]
#[doc(hidden)]
pub enum PlannedChange {
    Write(WriteFile),
    Delete(DeleteEntry),
    Link(LinkFile),
}

impl PlannedChange {
    /// Kinds of the events of a change.
    pub(crate) const KINDS: [&str; 3] = [WriteFile::KIND, DeleteEntry::KIND, LinkFile::KIND];

    /// Decodes the change of an event. `None` for other events.
    pub fn of(event: &EventRef<'_>) -> Option<Self> {
        let change = event.decoded().map(Self::Write).or_else(|| event.decoded().map(Self::Delete));
        change.or_else(|| event.decoded().map(Self::Link))
    }

    #[doc(hidden)]
    pub fn path(&self) -> &EntryPath {
        match self {
            Self::Write(event) => &event.path,
            Self::Delete(event) => &event.path,
            Self::Link(event) => &event.path,
        }
    }

    /// Returns the size of the contents that it writes, in bytes.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Self::Write(WriteFile { node: Node::File { size, .. }, .. }) => *size,
            _ => 0,
        }
    }

    #[doc(hidden)]
    pub fn link(&self) -> Option<&LinkFile> {
        if let Self::Link(event) = self { Some(event) } else { None }
    }

    #[doc(hidden)]
    pub fn apply_to(&self, tree: &mut VirtualFileSystem, time: Timestamp) {
        match self {
            Self::Write(event) => tree.write(event, time),
            Self::Delete(event) => tree.delete(event),
            Self::Link(event) => tree.link(event),
        }
    }

    pub(in crate::tools) fn push_to(&self, commit: &mut Commit) -> Result<(), CommitError> {
        match self {
            Self::Write(event) => commit.push(event),
            Self::Delete(event) => commit.push(event),
            Self::Link(event) => commit.push(event),
        }
    }

    /// Returns the contents that it writes, if they are new.
    pub(in crate::tools) fn new_content(&self, fresh: &NewContents) -> Option<Content> {
        let Self::Write(WriteFile { node: Node::File { content, .. }, .. }) = self else { return None };
        fresh.get(content).map(|bytes| Content { digest: *content, bytes: bytes.clone() })
    }

    /// Returns the change of the disk, with contents from `read`.
    pub(crate) fn file_change<E>(&self, read: impl FnOnce(&Digest) -> Result<Bytes, E>) -> Result<FileChange, E> {
        Ok(match self {
            Self::Delete(event) => FileChange::Delete { path: event.path.clone() },
            Self::Link(event) => FileChange::Link { path: event.path.clone(), to: event.to.clone() },
            // Contents that were never stored are on the disk, and only the mode changes.
            Self::Write(WriteFile { path, node: Node::File { mode, incomplete: true, .. }, .. }) => {
                FileChange::Mode { path: path.clone(), mode: *mode }
            }
            Self::Write(event) => FileChange::Write {
                path: event.path.clone(),
                bytes: content_of(&event.node, read)?,
                node: event.node.clone(),
                // Newer than any build output: a build must not reuse the output of reverted code.
                modified: None,
            },
        })
    }
}

/// Reads a file's contents; empty for other entries.
pub(crate) fn content_of<E>(node: &Node, read: impl FnOnce(&Digest) -> Result<Bytes, E>) -> Result<Bytes, E> {
    match node {
        Node::File { content, .. } => read(content),
        Node::Symlink { .. } | Node::Directory { .. } | Node::Special { .. } => Ok(Bytes::new()),
    }
}

impl ChangePlan {
    /// Plans a change that can be undone, except that it removes special files, which have no contents.
    pub(in crate::tools) fn between(now: &VirtualFileSystem, then: &VirtualFileSystem) -> Self {
        Self::of(now.diff(then), false).linked(now, then)
    }

    /// Plans the same change, but leaves entries with contents that neither `fresh` nor the store nor git has. With
    /// `is_forced`, it removes or replaces contents that can't be restored.
    pub(in crate::tools) fn kept(
        session: &Session,
        now: &VirtualFileSystem,
        then: &VirtualFileSystem,
        (fresh, is_forced): (&NewContents, bool),
    ) -> Result<Self, SessionError> {
        let (mut changes, mut is_known) = (now.diff(then), BTreeMap::new());
        for change in &mut changes {
            let (before, after) = match change {
                Change::Added { after, .. } => (None, Some(after)),
                Change::Removed { before, .. } => (Some(before), None),
                Change::Changed { before, after, .. } => (Some(before), Some(after)),
            };
            // Contents on the disk that are not git's were read from the disk, and may not be recorded yet.
            let before =
                before.filter(|entry| entry.node.content().is_some_and(|content| content.git_blob().is_some()));
            for entry in [before, after].into_iter().flatten() {
                let Node::File { content, incomplete: incomplete @ false, .. } = &mut entry.node else { continue };
                let has = match is_known.get(content) {
                    Some(has) => *has,
                    None => fresh.contains_key(content) || session.has_content(content)?,
                };
                is_known.insert(*content, has);
                *incomplete = !has;
            }
        }
        Ok(Self::of(changes, is_forced).linked(now, then))
    }

    /// Adds the steps that link names as in `then`.
    fn linked(mut self, now: &VirtualFileSystem, then: &VirtualFileSystem) -> Self {
        self.steps.extend(link_steps(&self.steps, now, then));
        self
    }

    fn of(changes: Vec<Change>, is_forced: bool) -> Self {
        let mut plan = Self::default();
        let shown_by_others = parents(&changes);
        let loses = |change: &Change| !keeps_contents(change) && change.sides().0.is_some_and(is_unkept);
        let stays = |change: &Change| !is_forced && loses(change);
        let staying = changes.iter().filter(|change| stays(change));
        let kept: BTreeSet<EntryPath> = staying.flat_map(|change| directories_above(change.path())).collect();
        let (mut gone, mut in_the_way) = (BTreeSet::new(), BTreeSet::new());
        for change in changes {
            let is_blocked = change.path().parent().is_some_and(|parent| in_the_way.contains(&parent));
            let (before, after) = change.sides();
            let can_be_made = after.is_none_or(|after| can_be_made(&after.node)) || keeps_contents(&change);
            if is_blocked || !can_be_made || stays(&change) {
                // Nothing can be below a non-directory; entries below a directory are planned separately.
                if is_blocked || before.is_some_and(|before| !before.is_directory()) {
                    in_the_way.insert(change.path().clone());
                }
                plan.left.push(change.path().clone());
                continue;
            }
            if kept.contains(change.path()) && !after.is_some_and(Entry::is_directory) {
                // A directory with entries that stay can't be removed or replaced.
                if matches!(change, Change::Changed { .. }) {
                    plan.left.push(change.path().clone());
                }
                continue;
            }
            plan.lost.extend(loses(&change).then(|| change.path().clone()));
            plan.steps.extend(step(&change, &shown_by_others, &mut gone));
            plan.changes.push(change);
        }
        plan
    }
}

pub(crate) fn after(
    steps: &[PlannedChange],
    now: &VirtualFileSystem,
    count: usize,
    time: Timestamp,
) -> VirtualFileSystem {
    let mut tree = now.clone();
    for step in steps.iter().take(count) {
        step.apply_to(&mut tree, time);
    }
    tree
}

/// Plans the links and separations that, after these steps, lead to the hard links of `then`. Files with other nodes
/// than in `then` stay unchanged.
pub(in crate::tools) fn link_steps(
    steps: &[PlannedChange],
    now: &VirtualFileSystem,
    then: &VirtualFileSystem,
) -> Vec<PlannedChange> {
    if !now.has_hard_links() && !then.has_hard_links() {
        return Vec::new();
    }
    let mut files = after(steps, now, steps.len(), Timestamp(0));
    let is_back = |path: &EntryPath| files.node(path) == then.node(path);
    let mut wanted: Vec<Vec<EntryPath>> =
        then.hard_links().into_iter().map(|names| names.into_iter().filter(is_back).collect()).collect();
    let alone =
        files.hard_links().into_iter().flatten().filter(|path| is_back(path) && then.first_name(path).is_none());
    wanted.extend(alone.map(|path| vec![path]));
    // A file without stored contents can't be written as a separate file.
    wanted.retain(|names| names.iter().all(|path| files.node(path).is_some_and(can_be_made)));
    // A file that is not written keeps its times, so its other names join it.
    let written: BTreeSet<&EntryPath> = steps.iter().map(PlannedChange::path).collect();
    joined(&mut files, &wanted, |path| !written.contains(path))
}

/// Plans to make the paths of each of these sorted sets names of one file: that of the first `preferred` path.
pub(super) fn joined(
    files: &mut VirtualFileSystem,
    wanted: &[Vec<EntryPath>],
    preferred: impl Fn(&EntryPath) -> bool,
) -> Vec<PlannedChange> {
    let mut steps = Vec::new();
    for names in wanted {
        let Some(to) = names.iter().find(|path| preferred(path)).or_else(|| names.first()) else { continue };
        let mut step = |files: &mut VirtualFileSystem, step: PlannedChange| {
            step.apply_to(files, Timestamp(0));
            steps.push(step);
        };
        let has_others = match names.len() {
            1 => files.first_name(to).is_some(),
            _ => files.names(to).iter().any(|name| names.binary_search(name).is_err()),
        };
        if let Some(node) = files.node(to).filter(|_| has_others).cloned() {
            step(files, PlannedChange::Write(WriteFile { path: to.clone(), mode: WriteMode::Overwrite, node }));
        }
        for path in names.iter().filter(|path| *path != to) {
            if files.first_name(path).is_none() || files.first_name(path) != files.first_name(to) {
                step(files, PlannedChange::Link(LinkFile { path: path.clone(), to: to.clone() }));
            }
        }
    }
    steps
}

/// Returns true for a file without stored contents.
fn is_unkept(entry: &Entry) -> bool {
    matches!(entry.node, Node::File { incomplete: true, .. })
}

/// Returns true if a file has the same contents before and after, stored or not.
fn keeps_contents(change: &Change) -> bool {
    let (before, after) = change.sides();
    let known = before.and_then(|entry| entry.node.known_content());
    known.is_some() && known == after.and_then(|entry| entry.node.known_content())
}

/// Returns the directories of entries to write; their existence needs no event.
fn parents(changes: &[Change]) -> BTreeSet<EntryPath> {
    let written = changes.iter().filter(|change| change.sides().1.is_some_and(|after| can_be_made(&after.node)));
    written.filter_map(|change| change.path().parent()).collect()
}

/// Returns the step for a change. Changes come in path order; removing a directory removes the entries below it.
fn step(change: &Change, shown: &BTreeSet<EntryPath>, gone: &mut BTreeSet<EntryPath>) -> Option<PlannedChange> {
    let write = |path: &EntryPath, mode, after: &Entry| {
        Some(PlannedChange::Write(WriteFile { path: path.clone(), mode, node: after.node.clone() }))
    };
    match change {
        Change::Added { path, after } if after.node.is_implied() && shown.contains(path) => None,
        Change::Added { path, after } => write(path, WriteMode::Create, after),
        Change::Changed { path, before, after } => {
            if before.is_directory() && !after.is_directory() {
                gone.insert(path.clone());
            }
            write(path, WriteMode::Overwrite, after)
        }
        Change::Removed { path, .. } => {
            let is_gone = path.parent().is_some_and(|parent| gone.contains(&parent));
            gone.insert(path.clone());
            (!is_gone).then(|| PlannedChange::Delete(DeleteEntry { path: path.clone() }))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::engine::event::{FileMode, Special};

    /// Files with a few names at a few depths: file, directory, link or absent; with `with_lost` also entries that
    /// can't be restored.
    fn tree(with_lost: bool) -> impl Strategy<Value = VirtualFileSystem> {
        let lost = move |node: Node| if with_lost { Some(node) } else { None };
        let Node::File { content, .. } = Node::file(b"lost", false) else { panic!("a file") };
        let incomplete = Node::File { content, size: 4, mode: FileMode::FILE, text: true, incomplete: true };
        let name = prop_oneof![Just("a"), Just("a-b"), Just("a/b"), Just("a/b/c"), Just("d"), Just("d/e")];
        let node = prop_oneof![
            any::<u8>().prop_map(|byte| Some(Node::file(&[byte % 3], byte > 200))),
            Just(Some(Node::DIRECTORY)),
            Just(Some(Node::Symlink { target: b"x".to_vec() })),
            Just(lost(incomplete)),
            Just(lost(Node::Special { special: Special::Socket })),
            Just(None),
        ];
        prop::collection::vec((name, node), 0..12).prop_map(|steps| {
            let mut tree = VirtualFileSystem::default();
            for (name, node) in steps {
                let path = EntryPath::lookup(name).unwrap();
                match node {
                    Some(node) => tree.write(&WriteFile { path, mode: WriteMode::Create, node }, Timestamp(1)),
                    None => tree.delete(&DeleteEntry { path }),
                }
            }
            tree
        })
    }

    proptest! {
        #[test]
        fn plan_leads_from_any_files_to_any_others(now in tree(false), then in tree(false)) {
            let plan = ChangePlan::between(&now, &then);
            let reached = after(&plan.steps, &now, plan.steps.len(), Timestamp(2));
            prop_assert_eq!(reached.diff(&then), Vec::new());
            prop_assert!(plan.left.is_empty());
            prop_assert_eq!(plan.steps.is_empty(), now.diff(&then).is_empty());
        }

        #[test]
        fn plan_keeps_what_is_left(now in tree(true), then in tree(true)) {
            let plan = ChangePlan::between(&now, &then);
            let reached = after(&plan.steps, &now, plan.steps.len(), Timestamp(2));
            let node = |tree: &VirtualFileSystem, path| tree.get(path).map(|entry| entry.node.clone());
            for path in &plan.left {
                prop_assert_eq!(node(&reached, path), node(&now, path), "{} was touched", path);
            }
            for change in reached.diff(&then) {
                let path = change.path();
                let below_it = |left: &EntryPath| std::iter::successors(left.parent(), EntryPath::parent).any(|above| above == *path);
                let holds = matches!(change, Change::Removed { .. }) && plan.left.iter().any(below_it);
                prop_assert!(plan.left.contains(path) || holds, "{} is neither back nor left", path);
            }
            for change in &plan.changes {
                let path = change.path();
                prop_assert_eq!(node(&reached, path), node(&then, path), "{} did not change as reported", path);
            }
            prop_assert_eq!(plan.left.is_empty(), reached.diff(&then).is_empty());
        }
    }

    #[test]
    fn plan_leaves_unrestorable_entries() {
        let path = |name: &str| EntryPath::lookup(name).unwrap();
        let write = |tree: &mut VirtualFileSystem, name: &str, node| {
            tree.write(&WriteFile { path: path(name), mode: WriteMode::Create, node }, Timestamp(1));
        };
        let (mut now, mut then) = (VirtualFileSystem::default(), VirtualFileSystem::default());
        write(&mut then, "only/socket", Node::Special { special: Special::Socket });
        write(&mut now, "big", Node::file(b"small", false));
        let Node::File { content, .. } = Node::file(b"large", false) else { panic!("a file") };
        write(&mut then, "big", Node::File { content, size: 5, mode: FileMode::FILE, text: true, incomplete: true });
        let plan = ChangePlan::between(&now, &then);
        assert_eq!(plan.left, [path("big"), path("only/socket")]);
        let reached = after(&plan.steps, &now, plan.steps.len(), Timestamp(2));
        assert_eq!(reached.get(&path("big")).unwrap().node, Node::file(b"small", false));
        assert!(reached.is_directory(&path("only")) && reached.len() == 2);
        // Nor is it removed, since it could not be restored.
        write(&mut then, "only/new", Node::file(b"new", false));
        let back = ChangePlan::between(&then, &now);
        assert_eq!(back.left, [path("big")]);
        let reached = after(&back.steps, &then, back.steps.len(), Timestamp(2));
        assert_eq!(reached.len(), 1, "a socket has nothing that could be lost");
        let forced = ChangePlan::of(then.diff(&now), true);
        assert_eq!((forced.left.len(), &forced.lost[..]), (0, &[path("big")][..]));
        assert_eq!(after(&forced.steps, &then, forced.steps.len(), Timestamp(2)).diff(&now), []);
        // Its mode can change.
        write(&mut now, "big", then.get(&path("big")).unwrap().node.with_mode(FileMode::of(0o600)));
        let moded = ChangePlan::between(&then, &now);
        assert_eq!((moded.left.len(), moded.lost.len()), (0, 0));
        assert_eq!(after(&moded.steps, &then, moded.steps.len(), Timestamp(2)).diff(&now), []);
    }
}
