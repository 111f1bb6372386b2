//! The files of one session, at a position or now.

use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::moments::ViewKey;
use crate::engine::clock::Timestamp;
use crate::engine::id::Seq;
use crate::engine::lock::lock;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::reducers::{Change, VirtualFileSystem};

pub(super) struct TreeView {
    /// An id, unique in the mount.
    pub(super) id: u64,
    pub(super) key: ViewKey,
    shown: Mutex<ViewedFiles>,
}

#[derive(Clone)]
pub(super) struct ViewedFiles {
    pub(super) seq: Seq,
    /// The time of the event at that position.
    pub(super) time: Timestamp,
    pub(super) files: VirtualFileSystem,
}

impl TreeView {
    pub(super) fn open(id: u64, key: ViewKey, session: &Session) -> Result<Self, SessionError> {
        let shown = ViewedFiles::read(session, key.at)?;
        Ok(Self { id, key, shown: Mutex::new(shown) })
    }

    pub(super) fn shown(&self) -> ViewedFiles {
        lock(&self.shown).clone()
    }

    /// Reads the files again if the session has new events. Returns the changes.
    pub(super) fn follow(&self, session: &Session) -> Result<Vec<Change>, SessionError> {
        let before = self.shown();
        if session.head()? == before.seq {
            return Ok(Vec::new());
        }
        let now = ViewedFiles::read(session, None)?;
        let changes = before.files.diff(&now.files);
        *lock(&self.shown) = now;
        Ok(changes)
    }
}

impl ViewedFiles {
    fn read(session: &Session, at: Option<Seq>) -> Result<Self, SessionError> {
        let state = at.map_or_else(|| session.state(), |seq| session.state_at(seq))?;
        let time = if state.seq() == 0 { Timestamp(0) } else { session.event(state.seq())?.time };
        Ok(Self { seq: state.seq(), time, files: VirtualFileSystem::of(&state) })
    }
}

pub(super) fn system_time(Timestamp(millis): Timestamp) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}
