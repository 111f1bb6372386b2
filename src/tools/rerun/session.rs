//! The fresh session in which recorded calls run again.

use std::sync::Arc;

use bytes::Bytes;

use super::answers::Answers;
use super::past::{OutsideEvents, PastRun};
use crate::backends::{FileChange, Workspace};
use crate::engine::commit::{Commit, Content};
use crate::engine::event::{
    ChildLimits, DeleteEntry, Event, Isolation, Node, SessionRewound, SliceRestored, WriteFile, WriteMode,
};
use crate::engine::id::Seq;
use crate::engine::path::EntryPath;
use crate::engine::recorded::Recorded;
use crate::engine::session::Session;
use crate::engine::session::sessions::SessionError;
use crate::engine::slice::Slice;
use crate::reducers::{Allowances, VirtualFileSystem};
use crate::tools::call::dispatcher::ToolRunner;
use crate::tools::call::toolset::Tools;
use crate::tools::error::WorkspaceError;
use crate::tools::workspace::managed::ShellRules;
use crate::tools::workspace::populate::can_be_written;

/// Bytes of files, and entries, that are put there at once.
const PIECE: (u64, usize) = (32 << 20, 4096);

/// The fresh session with its dispatcher, and where its files come from.
pub(super) struct RerunSession<'a> {
    pub(super) past: &'a PastRun,
    pub(super) dispatcher: ToolRunner,
    pub(super) answers: Arc<Answers>,
    /// What could not be put there, because its contents were never kept.
    pub(super) missing: Vec<EntryPath>,
    /// Dispatchers for calls that were made under limits.
    limited: Vec<(Arc<ChildLimits>, ToolRunner)>,
    /// Where it begins.
    start: Seq,
    /// It has the past up to there itself.
    is_fork: bool,
}

/// File events on their way to the fresh session.
struct Piece {
    commit: Commit,
    changes: Vec<FileChange>,
    bytes: u64,
}

impl<'a> RerunSession<'a> {
    /// A session that has just begun, by itself or as a fork of the recorded one at `start`; anything else is refused.
    pub(super) fn new(
        past: &'a PastRun,
        start: Seq,
        session: Session,
        workspace: Arc<dyn Workspace>,
        tools: Arc<Tools>,
        rules: ShellRules,
    ) -> Result<Self, WorkspaceError> {
        let is_fork = is_fork_of(&session, past, start);
        let has_begun = if is_fork { start.saturating_add(1) } else { 1 };
        if session.head()? != has_begun || session.id() == past.id() {
            return Err(WorkspaceError::NotFresh(session.name().to_owned()));
        }
        let is_sandboxed = workspace.shell().is_none_or(|shell| shell.properties().sandboxed);
        let answers = Arc::new(Answers::new(rules.asker.clone(), is_sandboxed));
        let rules = ShellRules { asker: Some(Arc::clone(&answers) as _), ..rules };
        let dispatcher = ToolRunner::with_rules(session, tools, workspace, rules)?;
        if !is_fork && !PastRun::of(dispatcher.session()).files_at(dispatcher.session().head()?)?.is_empty() {
            return Err(WorkspaceError::NotFresh(dispatcher.session().name().to_owned()));
        }
        Ok(Self { past, dispatcher, answers, missing: Vec::new(), limited: Vec::new(), start, is_fork })
    }

    fn session(&self) -> &Session {
        self.dispatcher.session()
    }

    /// Calls there for whoever was under such limits. They never widen those of the session in which they run.
    pub(super) fn under(&mut self, limits: &Arc<ChildLimits>) -> Result<ToolRunner, SessionError> {
        if limits.is_unlimited() {
            return Ok(self.dispatcher.clone());
        }
        if let Some((_, known)) = self.limited.iter().find(|(known, _)| known == limits) {
            return Ok(known.clone());
        }
        let session = self.session().clone();
        let narrower = limits.within(session.limits());
        let dispatcher = self.dispatcher.in_session(session.limited_to(narrower))?;
        self.limited.push((Arc::clone(limits), dispatcher.clone()));
        Ok(dispatcher)
    }

    /// Puts the files and slices there that the recorded session had where this begins.
    pub(super) fn begin(&mut self) -> Result<(), WorkspaceError> {
        let seq = self.start;
        let files: VirtualFileSystem = self.past.files_at(seq)?;
        if self.is_fork {
            let missing = files.iter().filter(|(_, entry)| !can_be_written(entry));
            self.missing.extend(missing.map(|(path, _)| path.clone()));
            return Ok(());
        }
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
    /// it was recorded; but for what names positions, which are others here, and for what commands were allowed.
    pub(super) fn apply(&mut self, happened: &OutsideEvents) -> Result<(), WorkspaceError> {
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
    fn take(&mut self, piece: &mut Piece, event: &Recorded) -> Result<bool, WorkspaceError> {
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
            return Ok(!restored.event.slice.is_empty() && restored.event.slice != Allowances::NAME);
        }
        Ok(*event.event.kind != *SessionRewound::KIND)
    }

    fn write(&self, piece: &mut Piece, write: &WriteFile) -> Result<(), WorkspaceError> {
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

    fn put(&self, piece: Piece) -> Result<(), WorkspaceError> {
        self.dispatcher.workspace().project(&piece.changes)?;
        if !piece.commit.is_empty() {
            self.session().record(piece.commit)?;
        }
        Ok(())
    }
}

/// Whether a session is a fork of a past at that very position.
fn is_fork_of(session: &Session, past: &PastRun, at: Seq) -> bool {
    let is_of = |isolation, parent, begun| isolation == Isolation::Fork && parent == past.id() && begun == at;
    session.origin().is_some_and(|origin| is_of(origin.isolation, origin.parent, origin.at))
}
