//! Several stores on one NATS cluster, as on several machines. They need a cluster: `FOLDSPACE_NATS` has its servers.

use std::sync::Arc;
use std::time::Duration;

use foldspace::event::{Clock, CommitId, SystemClock};
use foldspace::session::SnapshotPolicy;
use foldspace::store::{Content, Expected, ForkPoint, NatsAddress, NatsStore, NatsStoreOptions};
use foldspace::{EventStore, Filter, NewSession, Registry, Sessions, StoreError};
use tempfile::TempDir;

use super::{Random, events, note, record, session, with_content};

const PATIENCE: Duration = Duration::from_secs(20);

/// A stream of its own on the cluster.
struct Shared {
    address: NatsAddress,
    directories: Vec<TempDir>,
}

impl Shared {
    /// None without a cluster.
    fn new() -> Option<Self> {
        let servers = std::env::var("FOLDSPACE_NATS").ok()?;
        let id = CommitId::from_bytes(SystemClock::default().fresh_id());
        let address = format!("{servers}?stream=test-{id}").parse().unwrap();
        Some(Self { address, directories: Vec::new() })
    }

    /// Opens it as another machine.
    fn host(&mut self) -> NatsStore {
        self.directories.push(tempfile::tempdir().unwrap());
        self.last_host()
    }

    /// Opens it as the machine that was opened last, again.
    fn last_host(&self) -> NatsStore {
        let directory = self.directories.last().unwrap().path();
        NatsStore::open(&self.address, directory, NatsStoreOptions::default()).unwrap()
    }
}

fn sessions(store: NatsStore) -> Sessions {
    let clock = Arc::new(SystemClock::default());
    Sessions::new(Arc::new(store), Registry::standard(), clock, SnapshotPolicy::default()).unwrap()
}

#[test]
fn hosts_see_what_others_record() {
    let Some(mut shared) = Shared::new() else { return };
    let (one, other) = (shared.host(), shared.host());
    record(&one, note(session(1), b"first"));
    assert_eq!(other.head(session(1)).unwrap(), 1);
    record(&other, note(session(1), b"second"));
    record(&one, note(session(1), b"third"));
    assert_eq!((one.head(session(1)).unwrap(), other.head(session(1)).unwrap()), (3, 3));
    let seen = events(&one, session(1), 1).unwrap();
    assert_eq!(seen, events(&other, session(1), 1).unwrap());
    assert_eq!(seen, events(&shared.host(), session(1), 1).unwrap(), "a machine that comes later");
}

#[test]
fn commits_of_two_hosts_at_one_position_let_one_win() {
    let Some(mut shared) = Shared::new() else { return };
    let (one, other) = (shared.host(), shared.host());
    record(&one, note(session(1), b"first"));
    for head in 1..=20 {
        let expecting = |payload| note(session(1), payload).expecting(Expected::Exactly(head));
        let pending = (one.submit(expecting(b"one")).unwrap(), other.submit(expecting(b"other")).unwrap());
        let outcomes = [pending.0.wait(), pending.1.wait()];
        let refused = |outcome: &&Result<_, _>| matches!(outcome, Err(StoreError::Conflict { .. }));
        assert_eq!(outcomes.iter().filter(refused).count(), 1, "{head}: {outcomes:?}");
    }
    assert_eq!(events(&one, session(1), 1).unwrap(), events(&other, session(1), 1).unwrap());
    assert_eq!(one.head(session(1)).unwrap(), 21);
}

#[test]
fn contents_and_forks_are_there_for_other_hosts() {
    let Some(mut shared) = Shared::new() else { return };
    let (one, other) = (shared.host(), shared.host());
    let large = Random(7).bytes(3 << 20);
    let (commit, digest) = with_content(session(1), large.clone());
    record(&one, commit);
    assert_eq!(other.content(&digest).unwrap(), large);
    assert!(other.has_content(&digest).unwrap());
    let missing = Content::of("never kept").digest;
    assert!(matches!(other.content(&missing), Err(StoreError::NoContent(_))));
    let point = ForkPoint { session: session(1), seq: 1 };
    record(&other, note(session(2), b"child").expecting(Expected::ForkOf(point)));
    record(&one, note(session(1), b"after the fork"));
    one.remove(session(1)).unwrap();
    let third = shared.host();
    assert_eq!(events(&third, session(2), 1).unwrap(), events(&one, session(2), 1).unwrap());
    assert!(matches!(third.head(session(1)), Err(StoreError::NoSession(_))));
    assert_eq!(third.entries().unwrap().iter().map(|entry| entry.id).collect::<Vec<_>>(), [session(2)]);
    drop(third);
    let again = shared.last_host();
    assert_eq!(again.entry(session(1)).unwrap(), None);
    assert_eq!(events(&again, session(2), 1).unwrap(), events(&one, session(2), 1).unwrap());
}

#[test]
fn commit_longer_than_a_message_is_kept_whole() {
    let Some(mut shared) = Shared::new() else { return };
    let (one, other) = (shared.host(), shared.host());
    let long = note(session(1), &Random(1).bytes(5 << 20));
    let refused = one.submit(long.clone()).unwrap().wait();
    assert!(matches!(refused, Err(StoreError::Commit(_))), "it would be a session's first: {refused:?}");
    record(&one, note(session(1), b"short"));
    record(&one, long);
    record(&one, note(session(1), b"short"));
    assert_eq!(events(&one, session(1), 1).unwrap(), events(&other, session(1), 1).unwrap());
}

#[test]
fn subscription_follows_another_host() {
    let Some(mut shared) = Shared::new() else { return };
    let (one, other) = (sessions(shared.host()), sessions(shared.host()));
    let begun = one.create(NewSession::named("shared")).unwrap();
    let there = other.session(begun.id()).unwrap();
    let mut subscription = there.subscribe(1, Filter::all());
    for number in 2..200u64 {
        drop(begun.submit(note(begun.id(), &number.to_le_bytes())).unwrap());
    }
    for seq in 1..200 {
        assert_eq!(subscription.next_within(PATIENCE).unwrap().map(|event| event.seq), Some(seq));
    }
    assert_eq!(there.state().unwrap().seq(), 199);
}
