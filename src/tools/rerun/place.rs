//! The fresh session in which recorded calls run again.

use std::sync::Arc;

use bytes::Bytes;

use super::RerunError;
use super::answers::Answers;
use super::past::{Outside, Past};
use crate::backends::{FileChange, Workspace};
use crate::engine::commit::{Commit, Content};
use crate::engine::event::{DeleteEntry, Node, SliceRestored, WriteFile, WriteMode};
use crate::engine::path::EntryPath;
use crate::engine::recorded::{Recorded, Seq};
use crate::engine::session::Session;
use crate::reducers::VirtualFileSystem;
use crate::tools::dispatch::Dispatcher;
use crate::tools::machine::{ShellRules, can_be_written};
use crate::tools::toolset::Tools;

/// Bytes of files, and entries, that are put there at once.
const PIECE: (u64, usize) = (32 << 20, 4096);

/// The fresh session with its dispatcher, and where its files come from.
pub(super) struct Place<'a> {
    pub(super) past: &'a Past,
    pub(super) dispatcher: Dispatcher,
    pub(super) answers: Arc<Answers>,
    /// What could not be put there, because its contents were never kept.
    pub(super) missing: Vec<EntryPath>,
}

/// File events on their way to the fresh session.
struct Piece {
    commit: Commit,
    changes: Vec<FileChange>,
    bytes: u64,
}

impl<'a> Place<'a> {
    /// A session that has just begun; anything else is refused.
    pub(super) fn new(
        past: &'a Past,
        session: Session,
        workspace: Arc<dyn Workspace>,
        tools: Arc<Tools>,
        rules: ShellRules,
    ) -> Result<Self, RerunError> {
        let is_fresh = session.head()? == 1 && session.id() != past.id();
        if !is_fresh {
            return Err(RerunError::NotFresh(session.name().to_owned()));
        }
        let answers = Arc::new(Answers::new(rules.asker.clone()));
        let rules = ShellRules { asker: Some(Arc::clone(&answers) as _), ..rules };
        let dispatcher = Dispatcher::with_rules(session, tools, workspace, rules)?;
        if Past::of(dispatcher.session()).files_at(dispatcher.session().head()?)?.len() > 0 {
            return Err(RerunError::NotFresh(dispatcher.session().name().to_owned()));
        }
        Ok(Self { past, dispatcher, answers, missing: Vec::new() })
    }

    fn session(&self) -> &Session {
        self.dispatcher.session()
    }

    /// Puts the files and slices there that the recorded session had at `seq`.
    pub(super) fn begin_at(&mut self, seq: Seq) -> Result<(), RerunError> {
        let files: VirtualFileSystem = self.past.files_at(seq)?;
        let mut piece = self.piece();
        for (path, entry) in files.iter() {
            if !can_be_written(entry) {
                self.missing.push(path.clone());
                continue;
            }
            let write = WriteFile { path: path.clone(), mode: WriteMode::Create, node: entry.node.clone() };
            piece.commit.push(&write)?;
            self.write(&mut piece, &write)?;
            if piece.bytes >= PIECE.0 || piece.changes.len() >= PIECE.1 {
                let full = std::mem::replace(&mut piece, self.piece());
                self.put(full)?;
            }
        }
        for slice in self.past.slices_at(seq)? {
            piece.commit.push(&slice)?;
        }
        self.put(piece)
    }

    /// Does to the files what happened outside of any call, or in a call that can't be run again, and records it as
    /// it was recorded.
    pub(super) fn apply(&mut self, happened: &Outside) -> Result<(), RerunError> {
        let mut piece = self.piece();
        for event in &happened.events {
            if self.take(&mut piece, event)? {
                piece.commit.push_encoded(&event.event.kind, event.event.version, &event.event.bytes)?;
            }
            // Pieces may be cut anywhere: nobody looks before all are there.
            if piece.bytes >= PIECE.0 || piece.changes.len() >= PIECE.1 {
                let full = std::mem::replace(&mut piece, self.piece());
                self.put(full)?;
            }
        }
        self.put(piece)
    }

    /// What the disk has to do for an event; false when it can't, so that it is not recorded either.
    fn take(&mut self, piece: &mut Piece, event: &Recorded) -> Result<bool, RerunError> {
        if let Some(Ok(delete)) = event.typed::<DeleteEntry>() {
            piece.changes.push(FileChange::Delete { path: delete.event.path });
        } else if let Some(Ok(write)) = event.typed::<WriteFile>() {
            let write = write.event;
            if let Node::File { incomplete: true, .. } | Node::Special { .. } = write.node {
                self.missing.push(write.path);
                return Ok(false);
            }
            self.write(piece, &write)?;
        } else if let Some(Ok(restored)) = event.typed::<SliceRestored>() {
            return Ok(!restored.event.slice.is_empty());
        }
        Ok(true)
    }

    fn write(&self, piece: &mut Piece, write: &WriteFile) -> Result<(), RerunError> {
        let bytes = match &write.node {
            Node::File { content, .. } => {
                let bytes = self.past.content(content)?;
                piece.commit.keep(Content { digest: *content, bytes: bytes.clone() });
                bytes
            }
            Node::Symlink { .. } | Node::Directory | Node::Special { .. } => Bytes::new(),
        };
        piece.bytes += bytes.len() as u64;
        piece.changes.push(FileChange::Write {
            path: write.path.clone(),
            node: write.node.clone(),
            bytes,
            modified: None,
        });
        Ok(())
    }

    fn piece(&self) -> Piece {
        Piece { commit: self.session().as_agent("").commit(), changes: Vec::new(), bytes: 0 }
    }

    fn put(&self, piece: Piece) -> Result<(), RerunError> {
        self.dispatcher.workspace().project(&piece.changes)?;
        if !piece.commit.is_empty() {
            self.session().record(piece.commit)?;
        }
        Ok(())
    }
}
