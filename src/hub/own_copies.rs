//! Copies of contents that only git has, made in the background for attached directories.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use super::attached::AttachedDirectory;
use super::spool_files::{ATTACHED, put};
use super::{Hub, HubError, blocking};
use crate::engine::id::{Digest, SessionId};
use crate::engine::lock::lock;
use crate::reducers::GitWorktree;
use crate::tools::{CopyProgress, OwnCopies};

/// Directory with a progress file for each attached directory whose contents are copied.
const COPIES: &str = "copies";
/// Length of the pause after a piece, as a multiple of its time. Reports do not have to wait.
const PAUSES: u32 = 2;

/// The limit and git's index at the last copy for a session. The lock is held during a copy.
pub(super) type CopiesMade = Mutex<BTreeMap<SessionId, Arc<AsyncMutex<Option<CopiedIndex>>>>>;

/// The limit of copies, and the index that git had when they were made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CopiedIndex {
    limit: u64,
    index: Option<Digest>,
}

/// Reads the progress of the copies for an attached directory. `None` before they begin.
#[expect(clippy::disallowed_methods, reason = "the progress is the hub's")]
pub fn own_copies_of(home: &Path, directory: &Path) -> Option<CopyProgress> {
    serde_json::from_slice(&std::fs::read(Hub::copies_file(home, directory)).ok()?).ok()
}

impl Hub {
    /// Returns the file with the progress of the copies for a directory.
    pub(super) fn copies_file(home: &Path, directory: &Path) -> PathBuf {
        home.join(ATTACHED).join(COPIES).join(Digest::of(directory.as_os_str().as_encoded_bytes()).to_string())
    }

    /// Starts to copy what only git has of an attached directory, unless git's index and the limit are those of the last
    /// copy.
    pub(super) fn begin_own_copies(&self, attached: &AttachedDirectory) {
        if attached.own_copy == 0 {
            return;
        }
        let made = self.copies_made(attached);
        // The report after a copy in progress starts the next one.
        let Ok(mut made) = made.try_lock_owned() else { return };
        let (hub, attached) = (self.clone(), attached.clone());
        tokio::spawn(async move {
            if let Err(error) = hub.make_own_copies(&attached, &mut made).await {
                tracing::warn!(%error, "what only git has is not copied");
                // The next report tries again.
                *made = None;
            }
        });
    }

    /// Copies what only git has of a directory that was attached again, whatever was copied before.
    pub(super) fn repeat_own_copies(&self, attached: &AttachedDirectory) {
        let (hub, attached, made) = (self.clone(), attached.clone(), self.copies_made(attached));
        tokio::spawn(async move {
            *made.lock().await = None;
            hub.begin_own_copies(&attached);
        });
    }

    fn copies_made(&self, attached: &AttachedDirectory) -> Arc<AsyncMutex<Option<CopiedIndex>>> {
        Arc::clone(lock(&self.shared.own_copies).entry(attached.session).or_default())
    }

    async fn make_own_copies(
        &self,
        attached: &AttachedDirectory,
        made: &mut Option<CopiedIndex>,
    ) -> Result<(), HubError> {
        let (session, limit) = (self.session(attached.session).await?, attached.own_copy);
        let place = session.state()?.slice::<GitWorktree>().and_then(|place| place.index);
        let copied = CopiedIndex { limit, index: place };
        if made.replace(copied) == Some(copied) {
            return Ok(());
        }
        let file = Self::copies_file(&self.options().home, &attached.directory.0);
        let mut copies = blocking(move || OwnCopies::of(&session, limit)).await??;
        loop {
            self.still_going()?;
            let (since, file) = (Instant::now(), file.clone());
            let piece = move || {
                let is_more = copies.copy_some()?;
                let written = serde_json::to_vec(&copies.progress).map_err(io::Error::from);
                if let Err(error) = written.and_then(|progress| put(&file, &progress)) {
                    tracing::debug!(%error, "the progress of copies could not be written");
                }
                Ok::<_, HubError>((copies, is_more))
            };
            let (moved, is_more) = blocking(piece).await??;
            if !is_more {
                return Ok(());
            }
            copies = moved;
            tokio::time::sleep(since.elapsed() * PAUSES).await;
        }
    }
}
