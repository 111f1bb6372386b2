//! An independent check of a stream: what was acknowledged is there once, in one history, on every replica.
//!
//! It shares no code with the store. A session's commits are read from the whole stream with plain requests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::{Info, RawMessageErrorKind, Stream};
use tokio::task::JoinSet;

use crate::stored::decode;

/// A commit as it is stored, or as it was acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Commit {
    pub(crate) session: String,
    /// Position of its last event.
    pub(crate) position: u64,
    pub(crate) events: u64,
    pub(crate) id: String,
    pub(crate) digest: String,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// A commit was acknowledged and is not stored.
    Missing { session: String, position: u64, id: String },
    /// A commit is stored more than once.
    Doubled { session: String, position: u64, id: String },
    /// Positions are left out before this one.
    Gap { session: String, position: u64 },
    /// A position has two contents: stored twice, acknowledged as another, or different on another replica.
    TwoHistories { session: String, position: u64 },
}

/// The log of what was acknowledged: a line with session, position, number of events, id and digest for each commit.
pub(crate) struct Acknowledged {
    path: PathBuf,
    file: Mutex<File>,
}

impl Acknowledged {
    /// Opens a log, which other processes may write to as well.
    pub(crate) fn open(path: PathBuf) -> Self {
        let file = File::options().create(true).append(true).open(&path).unwrap();
        Self { path, file: Mutex::new(file) }
    }

    pub(crate) fn note(&self, session: &str, position: u64, events: u64, id: &str, bytes: &[u8]) {
        let line = format!("{session} {position} {events} {id} {}\n", blake3::hash(bytes));
        self.file.lock().unwrap().write_all(line.as_bytes()).unwrap();
    }

    pub(crate) fn read(&self) -> Vec<Commit> {
        let parse = |line: &str| {
            let [session, position, events, id, digest] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
            let (position, events) = (position.parse().unwrap(), events.parse().unwrap());
            Commit { session: session.into(), position, events, id: id.into(), digest: digest.into() }
        };
        std::fs::read_to_string(&self.path).unwrap().lines().map(parse).collect()
    }
}

/// Returns the faults of one copy of a stream.
pub(crate) fn faults(acknowledged: &[Commit], stored: &[Commit]) -> BTreeSet<Fault> {
    let mut found = BTreeSet::new();
    let mut sessions = BTreeMap::<&str, Vec<&Commit>>::new();
    for commit in stored {
        sessions.entry(&commit.session).or_default().push(commit);
    }
    for commits in sessions.values() {
        let (mut ids, mut last) = (BTreeSet::new(), 0);
        for commit in commits {
            let Commit { session, position, id, .. } = (*commit).clone();
            if !ids.insert(&commit.id) {
                found.insert(Fault::Doubled { session, position, id });
                continue;
            }
            match (position + 1 - commit.events).cmp(&(last + 1)) {
                std::cmp::Ordering::Less => found.insert(Fault::TwoHistories { session, position }),
                std::cmp::Ordering::Equal => true,
                std::cmp::Ordering::Greater => found.insert(Fault::Gap { session, position }),
            };
            last = position.max(last);
        }
    }
    let by_id: BTreeMap<_, _> = stored.iter().map(|commit| ((&commit.session, &commit.id), commit)).collect();
    for commit in acknowledged {
        let Commit { session, position, id, .. } = commit.clone();
        match by_id.get(&(&commit.session, &commit.id)) {
            None => found.insert(Fault::Missing { session, position, id }),
            Some(stored) if *stored != commit => found.insert(Fault::TwoHistories { session, position }),
            Some(_) => true,
        };
    }
    found
}

/// Returns the first commit in which two copies differ.
fn difference(one: &[Commit], other: &[Commit]) -> Option<Fault> {
    let length = one.len().max(other.len());
    let at = (0..length).find(|at| one.get(*at) != other.get(*at))?;
    let commit = one.get(at).or(other.get(at))?;
    Some(Fault::TwoHistories { session: commit.session.clone(), position: commit.position })
}

/// Makes each replica of a stream its leader in turn, reads it whole and returns its name with what is wrong.
pub(crate) async fn check(context: &Context, name: &str, acknowledged: &Acknowledged) -> Vec<(String, Fault)> {
    let acknowledged = acknowledged.read();
    let stream = insist("the stream answers", async || context.get_stream(name).await.ok()).await;
    let (mut found, mut first) = (Vec::new(), None);
    for replica in members(&stream.get_info().await.unwrap()) {
        let stored = insist("a replica leads while it is read", async || {
            let last = lead(context, name, &replica).await;
            let stored = read(&stream, last).await;
            (leader(&stream.get_info().await.ok()?)? == replica).then_some(stored)
        });
        let stored = stored.await;
        found.extend(faults(&acknowledged, &stored).into_iter().map(|fault| (replica.clone(), fault)));
        let first = first.get_or_insert_with(|| stored.clone());
        found.extend(difference(first, &stored).map(|fault| (replica.clone(), fault)));
    }
    found
}

fn members(info: &Info) -> Vec<String> {
    let cluster = info.cluster.as_ref().unwrap();
    let others = cluster.replicas.iter().map(|replica| replica.name.clone());
    others.chain(cluster.leader.clone()).collect()
}

fn leader(info: &Info) -> Option<&str> {
    info.cluster.as_ref()?.leader.as_deref()
}

/// Makes a replica the leader, and returns the last sequence of its copy.
pub(crate) async fn lead(context: &Context, name: &str, replica: &str) -> u64 {
    insist(&format!("{replica} leads"), async || {
        let info = context.get_stream(name).await.ok()?.cached_info().clone();
        if leader(&info) == Some(replica) {
            return Some(info.state.last_sequence);
        }
        let wish = serde_json::json!({ "placement": { "preferred": replica } });
        let request = format!("STREAM.LEADER.STEPDOWN.{name}");
        context.request::<_, _, serde_json::Value>(request, &wish).await.ok()?;
        None
    })
    .await
}

/// Reads what the leader of a stream has, in the order of sequences.
async fn read(stream: &Stream, last: u64) -> Vec<Commit> {
    let (mut reads, mut commits) = (JoinSet::new(), BTreeMap::new());
    for sequence in 1..=last {
        if reads.len() == 64 {
            commits.extend(reads.join_next().await.unwrap().unwrap());
        }
        let stream = stream.clone();
        reads.spawn(async move { message(&stream, sequence).await.map(|message| (sequence, decode(&message))) });
    }
    while let Some(read) = reads.join_next().await {
        commits.extend(read.unwrap());
    }
    commits.into_values().collect()
}

async fn message(stream: &Stream, sequence: u64) -> Option<StreamMessage> {
    for _ in 0..600 {
        match stream.get_raw_message(sequence).await {
            Ok(message) => return Some(message),
            Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => return None,
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
    panic!("message {sequence} could never be read")
}

/// Tries again until there is a result.
async fn insist<T>(what: &str, attempt: impl AsyncFn() -> Option<T>) -> T {
    for _ in 0..600 {
        if let Some(result) = attempt().await {
            return result;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("never: {what}")
}
