//! Hard links: names of one file, on a disk and in a plan.

use std::collections::{BTreeMap, BTreeSet};

use super::plan::{PlannedChange, after, joined};
use crate::backends::{BackendError, ChangeDetector, FileChange, FileId, Observed, Workspace};
use crate::engine::clock::Timestamp;
use crate::engine::event::{LinkFile, Node, WriteFile, WriteMode};
use crate::engine::path::EntryPath;
use crate::reducers::VirtualFileSystem;

/// Links paths again with their other names in `before`, as far as all have the same node now.
pub(in crate::tools) fn relink<'p>(
    files: &mut VirtualFileSystem,
    before: &VirtualFileSystem,
    paths: impl Iterator<Item = &'p EntryPath>,
) {
    if !before.has_hard_links() {
        return;
    }
    for path in paths {
        if files.first_name(path).is_some() {
            continue;
        }
        for name in before.names(path) {
            if files.node(path) == files.node(&name) {
                files.link(&LinkFile { path: name, to: path.clone() });
            }
        }
    }
}

/// Reverts joins and splits of names between two states, at paths that still have the entries of the later state.
pub(in crate::tools) fn take_back_links<'p>(
    files: &mut VirtualFileSystem,
    (before, after): (&VirtualFileSystem, &VirtualFileSystem),
    paths: impl Iterator<Item = &'p EntryPath> + Clone,
) {
    for path in paths.clone().filter(|path| after.first_name(path).is_some() && before.first_name(path).is_none()) {
        if let Some(node) = files.node(path).filter(|node| before.node(path) == Some(node)).cloned() {
            files.write(&WriteFile { path: path.clone(), mode: WriteMode::Overwrite, node }, Timestamp(0));
        }
    }
    relink(files, before, paths);
}

/// Adds the changes that give files the names found on a disk.
pub(super) fn add_found(
    disk: &dyn ChangeDetector,
    found: &BTreeMap<EntryPath, Option<Observed>>,
    tree: &VirtualFileSystem,
    changes: &mut Vec<PlannedChange>,
) -> Result<(), BackendError> {
    let mut files = after(changes, tree, changes.len(), Timestamp(0));
    let (mut by_file, mut known) = (BTreeMap::<FileId, Vec<EntryPath>>::new(), BTreeSet::new());
    let mut wanted = Vec::new();
    for (path, observed) in found {
        // A missing name may have moved, and the file still has its other names.
        known.extend(files.names(path).into_iter().chain(tree.names(path)));
        match shared(observed.as_ref()) {
            Some(file) => by_file.entry(file).or_default().push(path.clone()),
            None if files.first_name(path).is_some() => wanted.push(vec![path.clone()]),
            None => {}
        }
    }
    // Names without a found change.
    for name in known.into_iter().filter(|name| !found.contains_key(name)) {
        if let Some(file) = shared(disk.observe(&name)?.as_ref()) {
            by_file.entry(file).or_default().push(name);
        }
    }
    for mut names in by_file.into_values() {
        names.sort_unstable();
        names.retain(|path| files.node(path).is_some_and(|node| !node.is_directory()));
        changes.extend(with_one_node(&mut files, &names));
        wanted.push(names);
    }
    changes.extend(joined(&mut files, &wanted, |_| true));
    Ok(())
}

/// Unifies the nodes of a file's names: git's id of the contents, known at one name, replaces the digest at others.
fn with_one_node(files: &mut VirtualFileSystem, names: &[EntryPath]) -> Vec<PlannedChange> {
    let is_of_git = |node: &&Node| node.content().is_some_and(|content| content.git_blob().is_some());
    let Some(wanted) = names.iter().filter_map(|path| files.node(path)).find(is_of_git).cloned() else {
        return Vec::new();
    };
    let size = |path: &EntryPath| files.get(path).map(|entry| (entry.size(), entry.node.mode()));
    let sizes = names.first().and_then(size);
    let is_other = |path: &&EntryPath| size(path) == sizes && files.node(path).is_some_and(|node| !is_of_git(&node));
    let others: Vec<EntryPath> = names.iter().filter(is_other).cloned().collect();
    let write = |path| PlannedChange::Write(WriteFile { path, mode: WriteMode::Overwrite, node: wanted.clone() });
    let steps: Vec<PlannedChange> = others.into_iter().map(write).collect();
    steps.iter().for_each(|step| step.apply_to(files, Timestamp(0)));
    steps
}

fn shared(observed: Option<&Observed>) -> Option<FileId> {
    if let Some(Observed::File { shared, .. }) = observed { *shared } else { None }
}

/// Returns the hard links of files, each to the first name of its file.
pub(super) fn pairs(files: &VirtualFileSystem) -> Vec<LinkFile> {
    let mut pairs = Vec::new();
    for names in files.hard_links() {
        if let [to, others @ ..] = &names[..] {
            pairs.extend(others.iter().map(|path| LinkFile { path: path.clone(), to: to.clone() }));
        }
    }
    pairs
}

/// Returns the changes that link these paths as in `files`, once they are written.
pub(in crate::tools) fn links_at<'p>(
    files: &VirtualFileSystem,
    paths: impl Iterator<Item = &'p EntryPath>,
) -> Vec<FileChange> {
    let firsts: BTreeSet<&EntryPath> = paths.filter_map(|path| files.first_name(path)).collect();
    let links = pairs(files).into_iter().filter(|link| firsts.contains(&link.to));
    links.map(|LinkFile { path, to }| FileChange::Link { path, to }).collect()
}

/// Joins the names of hard-linked files that a write would separate. If that fails, a write separates them.
pub(super) fn join_names(workspace: &dyn Workspace, files: &VirtualFileSystem) {
    if files.has_hard_links()
        && let Err(error) = workspace.join_names(&|| files.hard_links())
    {
        tracing::warn!(%error, "a write may separate the names of one file");
    }
}

/// Lists the names that are still separate files: the file system can't link them.
pub(super) fn apart<'a>(
    workspace: &dyn Workspace,
    links: impl Iterator<Item = &'a LinkFile>,
) -> Result<Vec<EntryPath>, BackendError> {
    let Some(disk) = workspace.capture() else { return Ok(Vec::new()) };
    let mut apart = Vec::new();
    for LinkFile { path, to } in links {
        let file = shared(disk.observe(path)?.as_ref());
        if file.is_none() || file != shared(disk.observe(to)?.as_ref()) {
            apart.push(path.clone());
        }
    }
    Ok(apart)
}
