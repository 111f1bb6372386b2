//! Background copies of contents that exist only in git, for attached directories.

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

/// The directory with a progress file per attached directory with copies.
const COPIES: &str = "copies";
/// Pause after each piece, as a multiple of its duration, so that reports do not wait.
const PAUSES: u32 = 2;

/// The limit and git's index at each session's last copy. The lock is held during a copy.
pub(super) type CopiesMade = Mutex<BTreeMap<SessionId, Arc<AsyncMutex<Option<CopiedIndex>>>>>;

/// The limit for copies, and git's index when they were made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CopiedIndex {
    limit: u64,
    index: Option<Digest>,
}

/// Reads the progress of an attached directory's copies. `None` before they begin.
#[expect(clippy::disallowed_methods, reason = "the progress is the hub's")]
pub fn own_copies_of(home: &Path, directory: &Path) -> Option<CopyProgress> {
    serde_json::from_slice(&std::fs::read(Hub::copies_file(home, directory)).ok()?).ok()
}

impl Hub {
    /// Returns the path of a directory's progress file.
    pub(super) fn copies_file(home: &Path, directory: &Path) -> PathBuf {
        home.join(ATTACHED).join(COPIES).join(Digest::of(directory.as_os_str().as_encoded_bytes()).to_string())
    }

    /// Starts copying an attached directory's contents that exist only in git, unless git's index and the limit are
    /// unchanged since the last copy.
    pub(super) fn begin_own_copies(&self, attached: &AttachedDirectory) {
        if attached.own_copy == 0 {
            return;
        }
        let made = self.copies_made(attached);
        // If a copy is in progress, a later report starts the next one.
        let Ok(mut made) = made.try_lock_owned() else { return };
        let (hub, attached) = (self.clone(), attached.clone());
        tokio::spawn(async move {
            if let Err(error) = hub.make_own_copies(&attached, &mut made).await {
                tracing::warn!(%error, "failed to copy contents that exist only in git");
                // Lets the next report retry.
                *made = None;
            }
        });
    }

    /// Copies the contents of a reattached directory that exist only in git, even if they were copied before.
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
        let of = session.clone();
        let place = blocking(move || of.state()).await??.slice::<GitWorktree>().and_then(|place| place.index);
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
                    tracing::debug!(%error, "failed to write the progress of copies");
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
