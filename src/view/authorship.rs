//! The lines of a git commit that agents wrote, as far as a session recorded their work.

use std::collections::BTreeMap;
use std::io;

use super::observed::{ObservedCalls, RunMention};
use crate::backends::WorkspaceSpec;
use crate::backends::git::GitRepository;
use crate::engine::clock::Timestamp;
use crate::engine::event::Node;
use crate::engine::history::error::HistoryError;
use crate::engine::history::{blame, kept, path_history};
use crate::engine::id::{Digest, Seq, SessionId};
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;

/// The lines of a commit that agents wrote.
#[derive(Debug, Clone)]
pub struct Authorship {
    /// The session.
    pub session: SessionId,
    /// The time of its last event.
    pub time: Timestamp,
    /// The id of the commit.
    pub commit: String,
    /// The files with lines that agents wrote.
    pub files: Vec<AttributedFile>,
    repository: GitRepository,
}

/// A file of a commit, with the lines that agents wrote.
#[derive(Debug, Clone)]
pub struct AttributedFile {
    /// The path.
    pub path: EntryPath,
    /// The line numbers, from 1, with the call that wrote each.
    pub lines: BTreeMap<u64, RunMention>,
}

/// A failure to attribute the lines of a commit.
#[derive(Debug, thiserror::Error)]
pub enum AuthorshipError {
    /// git failed.
    #[error("git failed: {0}")]
    Git(#[from] io::Error),
    /// The session can't be read.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The history of a file can't be read.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// The session watches no directory.
    #[error("only a session of an attached git repository knows which lines agents wrote")]
    NotWatched,
}

impl Authorship {
    /// Attributes the lines of all files of a commit that observed calls wrote: by position if a recorded version is
    /// equal, else by the lines that the file shares with the last recorded version. Lines that calls of several runs
    /// may have written are left out.
    ///
    /// # Errors
    /// [`AuthorshipError`] if the commit does not exist, or the history can't be read.
    pub fn of(session: &Session, revision: &str) -> Result<Self, AuthorshipError> {
        let spec = session.started().and_then(|started| WorkspaceSpec::of_session(started).ok());
        let spec = spec.filter(WorkspaceSpec::only_watches);
        let directory = spec.as_ref().and_then(WorkspaceSpec::named_directory).ok_or(AuthorshipError::NotWatched)?;
        let repository = GitRepository::find(directory)?.ok_or(AuthorshipError::NotWatched)?;
        let commit = repository.commit(revision)?;
        let (observed, head, mut files) = (ObservedCalls::of(session)?, session.head()?, Vec::new());
        for (path, blob) in repository.blobs(&commit)? {
            let Ok(path) = EntryPath::from_bytes(&path) else { continue };
            if !observed.has_written(&path) {
                continue;
            }
            let lines = attributed(session, &observed, &path, &repository.blob(&blob)?, head)?;
            if !lines.is_empty() {
                files.push(AttributedFile { path, lines });
            }
        }
        let time = session.event(head)?.time;
        Ok(Self { session: session.id(), time, commit, files, repository })
    }

    /// Writes a note for the commit in git, replacing an existing one.
    ///
    /// # Errors
    /// An error with git's message.
    pub fn write_note(&self, reference: &str, note: &str) -> io::Result<()> {
        self.repository.write_note(reference, &self.commit, note)
    }
}

/// Returns the lines of a text that observed calls wrote.
fn attributed(
    session: &Session,
    observed: &ObservedCalls,
    path: &EntryPath,
    text: &[u8],
    head: Seq,
) -> Result<BTreeMap<u64, RunMention>, AuthorshipError> {
    let digest = Digest::of(text);
    let is_it = |node: &Option<Node>| matches!(node, Some(Node::File { content, .. }) if *content == digest);
    let changes = path_history(session, path, head)?;
    let at = changes.iter().rev().find(|change| is_it(&change.after)).map_or(head, |change| change.seq);
    let blamed = match blame(session, path, at) {
        Ok(blamed) => blamed,
        Err(HistoryError::Session(error)) => return Err(error.into()),
        // A removed or binary file lacks lines to compare.
        Err(_) => return Ok(BTreeMap::new()),
    };
    let committed: Vec<String> = String::from_utf8_lossy(text).lines().map(str::to_owned).collect();
    let committed: Vec<&[u8]> = committed.iter().map(String::as_bytes).collect();
    let known: Vec<&[u8]> = blamed.lines.iter().map(|line| line.text.as_bytes()).collect();
    let mut lines = BTreeMap::new();
    for (number, from) in (1_u64..).zip(kept(&known, &committed).0) {
        let change = from.and_then(|from| blamed.changes.get(blamed.lines.get(from)?.change));
        let Some(change) = change.filter(|change| change.session == session.id()) else { continue };
        let by = observed.by(change.change.cause.call(), change.change.seq);
        if let Some((first, others)) = by.split_first()
            && others.iter().all(|other| other.run == first.run)
        {
            lines.insert(number, first.clone());
        }
    }
    Ok(lines)
}
