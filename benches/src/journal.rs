//! Journals to be replayed: the events that real sessions have, without the work behind them.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use foldspace::event::{CallFinished, CallStarted, CallStatus, Digest, Node, SystemClock, WriteFile, WriteMode};
use foldspace::session::SnapshotPolicy;
use foldspace::store::{CallLink, Durability, LocalStoreOptions};
use foldspace::{Commit, EntryPath, EventStore, LocalStore, NewSession, Registry, Session, Sessions};
use serde_json::json;

/// What a journal's sessions are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Commits of one `WriteFile`.
    Writes,
    /// Calls: the intent, then the write and the outcome together.
    Calls,
}

/// A session to be written.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// What it is made of.
    pub shape: Shape,
    /// Events, about.
    pub events: u64,
    /// Paths that are written in turn, in an order that looks random.
    pub paths: u64,
}

/// Opens a store with its sessions.
///
/// # Errors
/// What the store says.
pub fn open(directory: &Path, durability: Durability, pack: bool, policy: SnapshotPolicy) -> Result<Sessions> {
    open_with(directory, LocalStoreOptions { durability, pack, ..LocalStoreOptions::default() }, policy)
}

/// The same by options.
///
/// # Errors
/// What the store says.
pub fn open_with(directory: &Path, options: LocalStoreOptions, policy: SnapshotPolicy) -> Result<Sessions> {
    let store = LocalStore::open(directory, options)?;
    let store: Arc<dyn EventStore> = Arc::new(store);
    Ok(Sessions::new(store, Registry::standard(), Arc::new(SystemClock::default()), policy)?)
}

/// The path with that number: a hundred to a directory.
pub fn path(number: u64) -> String {
    format!("src/part_{:03}/module_{number:06}.rs", number / 100)
}

/// Writes a session.
///
/// # Errors
/// What the store says.
pub fn write(sessions: &Sessions, name: &str, plan: Plan) -> Result<Session> {
    let mut author = Author::new(sessions, name, plan)?;
    while author.writes_more()? {}
    Ok(author.session)
}

/// Writes so many sessions, each by the plan, a step of each in turn: no two of one stand together.
///
/// # Errors
/// What the store says.
pub fn write_in_turn(sessions: &Sessions, count: usize, plan: Plan) -> Result<()> {
    let authors = (0..count).map(|number| Author::new(sessions, &format!("in-turn-{number}"), plan));
    let mut authors: Vec<Author> = authors.collect::<Result<_>>()?;
    let mut writes = true;
    while writes {
        for author in &mut authors {
            writes = author.writes_more()?;
        }
    }
    Ok(())
}

/// Who writes a session, step by step.
struct Author {
    session: Session,
    plan: Plan,
    paths: Vec<EntryPath>,
    number: u64,
    head: u64,
}

impl Author {
    fn new(sessions: &Sessions, name: &str, plan: Plan) -> Result<Self> {
        let session = sessions.create(NewSession::named(name))?.as_agent("agent-1");
        let paths = (0..plan.paths).map(|number| EntryPath::for_creation(&path(number)));
        let paths = paths.collect::<Result<_, _>>()?;
        Ok(Self { head: session.head()?, session, plan, paths, number: 0 })
    }

    /// Writes a step, unless it is done.
    fn writes_more(&mut self) -> Result<bool> {
        let Self { session, plan, paths, number, head } = self;
        if *head >= plan.events {
            return Ok(false);
        }
        // 7,919 is a prime: every path has its turn.
        let path = &paths[(*number * 7_919 % plan.paths) as usize];
        let mode = if *number < plan.paths { WriteMode::Create } else { WriteMode::Overwrite };
        let digest = Digest::of(&number.to_le_bytes());
        let node = Node::File {
            content: digest,
            size: 1_000 + *number % 1_000,
            mode: foldspace::event::FileMode::FILE,
            text: true,
            incomplete: false,
        };
        let written = WriteFile { path: path.clone(), mode, node };
        *head = match plan.shape {
            Shape::Writes => {
                let mut commit = session.commit();
                commit.push(&written)?;
                session.submit(commit)?.last()
            }
            Shape::Calls => call(session, &written, digest)?,
        };
        *number += 1;
        Ok(true)
    }
}

fn call(session: &Session, written: &WriteFile, digest: Digest) -> Result<u64> {
    let file = written.path.to_string();
    let mut commit = session.commit().of_call(CallLink::Opens);
    let params = json!({ "file_path": file, "content": { "$content": digest, "bytes": 1_000 } });
    commit.push(&CallStarted { tool: "write_file".to_owned(), params })?;
    let begun = session.submit(commit)?.first();
    let mut commit: Commit = session.commit().of_call(CallLink::Of(begun));
    commit.push(written)?;
    let result = json!({ "file_path": file, "bytes": 1_000, "version": 1 });
    commit.push(&CallFinished { status: CallStatus::Ok, result, message: String::new(), micros: 43, reason: None })?;
    Ok(session.submit(commit)?.last())
}
