//! Mounts: host directories and files that are copied into a workspace when it opens.

mod copy;
mod error;
mod roots;
mod spec;
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the tests make the host's files")]
mod tests;

use std::collections::BTreeMap;

use crate::backends::{FileChange, Workspace};
use crate::engine::commit::{Commit, Content};
use crate::engine::event::{MountHydrated, MountPreview, Node, WriteFile, WriteMode};
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::engine::state::State;
use crate::reducers::{Mounts, VirtualFileSystem, directories_above};
use crate::tools::words::counted;
use crate::tools::workspace::keeping::distrust;
use crate::tools::workspace::runtime::SessionRuntime;

use copy::{CopiedTree, copy};
pub use error::MountError;
pub use roots::AllowedRoots;
pub use spec::MountSpec;

const PREVIEW_MAX: usize = 50;

/// Copies the mounts into an empty workspace, and records every file.
///
/// Does nothing and returns an empty list if the workspace has files or its mounts were copied before. Copies all
/// mounts or none.
///
/// ```
/// # use foldspace_tools as foldspace;
/// use foldspace::{MemoryWorkspace, NewSession, Registry, Sessions, tools::{AllowedRoots, MountSpec, hydrate}};
/// # let directory = tempfile::tempdir()?;
/// # let home = tempfile::tempdir()?;
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # std::fs::write(home.path().join("notes.txt"), "hello")?;
/// let sessions = Sessions::open(directory.path(), Registry::standard())?;
/// let session = sessions.create(NewSession::default())?;
/// let roots = AllowedRoots::new([home.path()])?;
/// let mounts = [MountSpec { host_path: home.path().into(), ..MountSpec::default() }];
/// let hydrated = runtime.block_on(hydrate(&session, &MemoryWorkspace, &mounts, &roots))?;
/// assert_eq!(hydrated[0].preview.entries, ["notes.txt"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`MountError`]: a mount can't be copied. Nothing is recorded.
pub async fn hydrate(
    session: &Session,
    workspace: &dyn Workspace,
    mounts: &[MountSpec],
    roots: &AllowedRoots,
) -> Result<Vec<MountHydrated>, MountError> {
    if mounts.is_empty() || !is_untouched(session)? {
        return Ok(Vec::new());
    }
    session.aside(|| session.check_own())?;
    let (mounts, roots) = (mounts.to_vec(), roots.clone());
    let copied = tokio::task::spawn_blocking(move || copy_all(&mounts, &roots)).await;
    let copied = copied.map_err(|_| MountError::Stopped)??;
    let _turn = SessionRuntime::of(session).lock_workspace().await;
    if !session.aside(|| is_untouched(session))? {
        return Ok(Vec::new());
    }
    let (mut commit, mut changes) = (session.commit(), Vec::new());
    let hydrated =
        copied.into_iter().map(|mount| record(mount, &mut commit, &mut changes)).collect::<Result<_, _>>()?;
    workspace.apply(&changes)?;
    let recorded = match session.aside(|| session.submit(commit)) {
        Ok(pending) => pending.durable().await.map_err(SessionError::from),
        Err(error) => Err(error),
    };
    recorded.inspect_err(|_| distrust(workspace))?;
    Ok(hydrated)
}

/// Returns a text for a model that names the mounts and their top-level entries; empty without mounts.
pub fn previews(state: &State) -> String {
    let mounts = state.slice::<Mounts>().into_iter().flat_map(Mounts::iter);
    let lines: Vec<_> = mounts.map(preview_line).collect();
    if lines.is_empty() { String::new() } else { format!("Copied from the host:\n{}\n", lines.join("\n")) }
}

fn preview_line(mount: &MountHydrated) -> String {
    let MountHydrated { files, bytes, preview, .. } = mount;
    let names = match (preview.entries.join(", "), preview.more) {
        (names, _) if names.is_empty() => "nothing".to_owned(),
        (names, 0) => names,
        (names, more) => format!("{names} and {more} more"),
    };
    let (files, bytes) = (counted(*files, "file"), counted(*bytes, "byte"));
    format!("- {} ({files}, {bytes}): {names}", mount.mount_path.rooted())
}

fn is_untouched(session: &Session) -> Result<bool, SessionError> {
    let state = session.state()?;
    let no_files = state.slice::<VirtualFileSystem>().is_none_or(VirtualFileSystem::is_empty);
    // Copied files that were then removed must not come back.
    let no_mounts = state.slice::<Mounts>().is_none_or(|mounts| mounts.iter().next().is_none());
    Ok(no_files && no_mounts)
}

fn copy_all(mounts: &[MountSpec], roots: &AllowedRoots) -> Result<Vec<CopiedTree>, MountError> {
    let mut taken = BTreeMap::new();
    let mut all = Vec::with_capacity(mounts.len());
    for spec in mounts {
        let copied = copy(spec, roots)?;
        for entry in &copied.entries {
            take(&mut taken, &entry.path, entry.node.is_directory())?;
        }
        all.push(copied);
    }
    Ok(all)
}

/// Claims an entry and the directories above it for a mount. Only directories, with the value true, can be shared.
fn take(taken: &mut BTreeMap<EntryPath, bool>, path: &EntryPath, is_directory: bool) -> Result<(), MountError> {
    let entries = std::iter::once((path.clone(), is_directory));
    for (path, is_directory) in entries.chain(directories_above(path).map(|above| (above, true))) {
        match taken.insert(path.clone(), is_directory) {
            None => {}
            // The directories above it were claimed with it.
            Some(true) if is_directory => return Ok(()),
            Some(_) => return Err(MountError::Overlap { path }),
        }
    }
    Ok(())
}

fn record(mount: CopiedTree, commit: &mut Commit, changes: &mut Vec<FileChange>) -> Result<MountHydrated, MountError> {
    let hydrated = mount.hydrated();
    let too_many = MountError::commit(&mount.host);
    commit.push(&hydrated).map_err(&too_many)?;
    for copy::CopiedEntry { path, node, bytes, modified } in mount.entries {
        let event = WriteFile { path, mode: WriteMode::Create, node };
        commit.push(&event).map_err(&too_many)?;
        if let Node::File { content: digest, .. } = event.node {
            commit.keep(Content { digest, bytes: bytes.clone() });
        }
        changes.push(FileChange::Write { path: event.path, node: event.node, bytes, modified });
    }
    Ok(hydrated)
}

impl CopiedTree {
    fn hydrated(&self) -> MountHydrated {
        MountHydrated {
            host_path: super::builtin::files::shown(self.host.as_os_str().as_encoded_bytes()),
            mount_path: self.mount_path.clone(),
            include_glob: self.spec.include_glob.clone(),
            exclude_glob: self.spec.exclude_glob.clone(),
            max_bytes: self.spec.max_bytes,
            follow_symlinks: self.spec.follow_symlinks,
            files: self.files,
            bytes: self.bytes,
            preview: self.preview(),
        }
    }

    fn preview(&self) -> MountPreview {
        let mut top: BTreeMap<&[u8], bool> = BTreeMap::new();
        for entry in &self.entries {
            let relative = match entry.path.relative_to(&self.mount_path) {
                Some(relative) => relative,
                // An empty mount is recorded as its own only entry. Leave that out.
                None if entry.node.is_directory() => continue,
                None => entry.path.name(),
            };
            let mut segments = relative.split(|byte| *byte == b'/');
            let name = segments.next().unwrap_or_default();
            let is_directory = segments.next().is_some() || entry.node.is_directory();
            *top.entry(name).or_default() |= is_directory;
        }
        let shown = |(name, is_directory): (&&[u8], &bool)| {
            let slash = if *is_directory { "/" } else { "" };
            format!("{}{slash}", super::builtin::files::shown(name))
        };
        let entries: Vec<_> = top.iter().take(PREVIEW_MAX).map(shown).collect();
        let more = (top.len() - entries.len()) as u64;
        MountPreview { entries, more }
    }
}
