//! The objects of a repository: lost commits, stashes and blobs, and the tracked files that are missing.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use bytes::Bytes;

use super::{CONTENT_MAX, Certainty, RescueCandidate, RescueScan};
use crate::backends::git::{GitFile, GitRepository};
use crate::engine::clock::Timestamp;
use crate::engine::path::EntryPath;

impl RescueScan<'_> {
    pub(super) fn git(&mut self) {
        let read = GitRepository::find(&self.places.directory).and_then(|found| match found {
            Some(repository) => self.repository(&repository),
            None => Ok(()),
        });
        if let Err(error) = read {
            self.skipped("the repository", error);
        }
    }

    fn repository(&mut self, repository: &GitRepository) -> io::Result<()> {
        let prefix =
            self.places.directory.strip_prefix(&repository.top).map_err(io::Error::other)?.as_os_str().as_bytes();
        let mut files = repository.tracked_files()?;
        files.retain(|file| {
            let path = file.path.as_deref().and_then(|path| below(prefix, path));
            self.named.extend(path.clone());
            path.is_some_and(|path| self.places.is_missing(&path))
        });
        if !files.is_empty() {
            repository.date(&mut files)?;
        }
        files.extend(repository.lost_files()?);
        self.git_files(repository, "git", prefix, files)
    }

    /// Reads the snapshots that Gemini CLI stores as its own repository.
    pub(super) fn shadow_repository(&mut self, directory: &Path, prefix: &[u8]) {
        let read = directory.canonicalize().and_then(|directory| match GitRepository::find(&directory)? {
            Some(found) if found.top == directory => self.git_files(&found, "gemini-cli", prefix, found.all_files()?),
            _ => Ok(()),
        });
        if let Err(error) = read {
            self.skipped(directory.display(), error);
        }
    }

    /// Passes on the contents of files, with paths relative to the prefix.
    fn git_files(
        &mut self,
        repository: &GitRepository,
        source: &'static str,
        prefix: &[u8],
        files: Vec<GitFile>,
    ) -> io::Result<()> {
        let mut by_id: BTreeMap<String, Vec<RescueCandidate>> = BTreeMap::new();
        for file in files {
            let path = file.path.as_deref().map(|path| below(prefix, path));
            if path == Some(None) {
                continue;
            }
            let candidate = RescueCandidate {
                sure: if file.is_sure { Certainty::Exact } else { Certainty::Inferred },
                time: file.seconds.map(|seconds| Timestamp(seconds.saturating_mul(1000))),
                executable: file.executable,
                ..RescueCandidate::new(source, path.flatten(), file.origin)
            };
            self.named.extend(candidate.path.clone());
            by_id.entry(file.id).or_default().push(candidate);
        }
        let over = repository.contents(by_id.keys().cloned(), CONTENT_MAX, |id, bytes| {
            let content = Bytes::from(bytes);
            for candidate in by_id.get(id).into_iter().flatten() {
                self.found(candidate.clone(), content.clone());
            }
        })?;
        over.iter().for_each(|id| self.skipped(format_args!("blob {id}"), "more than 64 MiB"));
        Ok(())
    }
}

/// Returns the path below the directory, of a path below the top.
fn below(prefix: &[u8], path: &[u8]) -> Option<EntryPath> {
    let rest = path.strip_prefix(prefix)?;
    let rest = if prefix.is_empty() { rest } else { rest.strip_prefix(b"/")? };
    EntryPath::from_bytes(rest).ok().filter(|path| !path.is_root())
}
