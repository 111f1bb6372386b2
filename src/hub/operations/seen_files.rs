//! The files that a reader asked for: at a position, or on the disk now.

use bytes::Bytes;

use super::show_state::state_at;
use super::{OperationContext, OperationError, position, reading};
use crate::engine::id::{Digest, Seq};
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::hub::Hub;
use crate::reducers::{Change, Entry, VirtualFileSystem};
use crate::tools::LiveFiles;
use crate::view::{self, EntryDocument, Position};

/// The files of a session at a position, or on the disk now.
pub struct SeenFiles {
    /// The session.
    pub session: Session,
    /// The files at a position, unless they are live.
    recorded: VirtualFileSystem,
    live: Option<LiveFiles>,
}

impl SeenFiles {
    /// Reads the files at a position. Without one, external changes are recorded first, unless a call is in flight. If
    /// `live`, reads the files at and below `path` from the disk and records nothing; if no workspace is open, no
    /// command runs, and they are as recorded.
    pub async fn read(
        hub: &Hub,
        session: Session,
        at: Option<Position>,
        (live, path): (bool, &EntryPath),
    ) -> Result<Self, OperationError> {
        if live && at.is_some() {
            return Err(OperationError::invalid("live shows the files as they are now; omit the position"));
        }
        let open = if live { hub.opened(session.id()).await } else { None };
        if !live && at.is_none() {
            hub.refresh(session.id()).await?;
        }
        let path = path.clone();
        reading(move || {
            let (recorded, live) = match open {
                Some(open) => (VirtualFileSystem::default(), Some(open.tool_runner().live_files(&path)?)),
                None => (VirtualFileSystem::of(&state_at(&session, at)?), None),
            };
            Ok(Self { session, recorded, live })
        })
        .await
    }

    /// Returns the files.
    pub fn files(&self) -> &VirtualFileSystem {
        self.live.as_ref().map_or(&self.recorded, |live| &live.files)
    }

    /// Returns the last recorded position when live files were read; `None` for recorded files.
    pub fn live_at(&self) -> Option<Seq> {
        self.live.as_ref().map(|live| live.at)
    }

    /// Reads the contents of a file.
    pub fn content(&self, digest: &Digest) -> Result<Bytes, SessionError> {
        let live = self.live.as_ref().and_then(|live| live.content(digest));
        live.map_or_else(|| self.session.content(digest), Ok)
    }

    /// Returns an entry as a document.
    pub fn entry(&self, path: &EntryPath, entry: &Entry) -> EntryDocument {
        EntryDocument { live_at: self.live_at(), ..view::entry(path, entry) }
    }
}

/// The changes from one position to another, or to the files on the disk now.
pub(super) struct SeenChanges {
    pub(super) seen: SeenFiles,
    pub(super) from: Seq,
    pub(super) to: Seq,
    pub(super) changes: Vec<Change>,
}

impl SeenChanges {
    /// Compares the files, optionally only at or below a path. The start is by default 0, or if `live` the last position.
    pub(super) async fn between(
        context: &OperationContext<'_>,
        (from, to, live): (Option<Position>, Option<Position>, bool),
        path: Option<EntryPath>,
    ) -> Result<Self, OperationError> {
        let session = context.session().await?;
        let below = path.clone().unwrap_or_else(EntryPath::root);
        let to = if live { to } else { Some(to.unwrap_or(Position::Back(0))) };
        let seen = SeenFiles::read(context.hub, session, to.clone(), (live, &below)).await?;
        reading(move || {
            let end = to.map(|to| to.resolve(&seen.session)).transpose()?.or(seen.live_at());
            let to = end.map_or_else(|| seen.session.head(), Ok)?;
            let from = position(&seen.session, from, if live { to } else { 0 })?;
            let changes = view::changes_to(&seen.session, from, seen.files(), path.as_ref())?;
            Ok(Self { seen, from, to, changes })
        })
        .await
    }
}
