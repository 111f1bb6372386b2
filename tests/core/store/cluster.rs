//! Several stores on one NATS cluster, as on several machines. They need a cluster: `FOLDSPACE_NATS` has its servers.

use std::sync::Arc;
use std::time::Duration;

use foldspace::event::{Clock, CommitId, SystemClock};
use foldspace::session::SnapshotPolicy;
use foldspace::store::{Content, Expected, ForkPoint, NatsAddress, NatsStore, NatsStoreOptions};
use foldspace::{EventStore, Filter, NewSession, Registry, SessionId, Sessions, StoreError};
use tempfile::TempDir;

use super::{Random, events, note, record, session, with_content};

const WAIT_LIMIT: Duration = Duration::from_secs(20);

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
        let options = NatsStoreOptions { snapshot_every: 50, ..NatsStoreOptions::default() };
        NatsStore::open(&self.address, directory, options).unwrap()
    }
}

fn sessions(store: Arc<NatsStore>) -> Sessions {
    let policy = SnapshotPolicy { every: 50, ..SnapshotPolicy::default() };
    Sessions::new(store, Registry::standard(), Arc::new(SystemClock::default()), policy).unwrap()
}

/// Returns the position up to which a host has nothing of a session that is there; 0 if it has all.
fn begun_late(store: &NatsStore, session: SessionId) -> u64 {
    match store.local().read(session, 1, 1, 1) {
        Err(StoreError::NotHere { until, .. }) => until,
        read => read.map(|_| 0).unwrap(),
    }
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
    let refused = one.submit(long.duplicate()).unwrap().wait();
    assert!(matches!(refused, Err(StoreError::Commit(_))), "it would be a session's first: {refused:?}");
    record(&one, note(session(1), b"short"));
    record(&one, long);
    record(&one, note(session(1), b"short"));
    assert_eq!(events(&one, session(1), 1).unwrap(), events(&other, session(1), 1).unwrap());
}

#[test]
fn subscription_follows_another_host() {
    let Some(mut shared) = Shared::new() else { return };
    let (one, other) = (sessions(shared.host().into()), sessions(shared.host().into()));
    let begun = one.create(NewSession::named("shared")).unwrap();
    let there = other.session(begun.id()).unwrap();
    let mut subscription = there.subscribe(1, Filter::all());
    for number in 2..200u64 {
        drop(begun.submit(note(begun.id(), &number.to_le_bytes())).unwrap());
    }
    for seq in 1..200 {
        assert_eq!(subscription.next_within(WAIT_LIMIT).unwrap().map(|event| event.seq), Some(seq));
    }
    assert_eq!(there.state().unwrap().seq(), 199);
}

#[test]
fn host_begins_long_session_at_its_snapshot() {
    let Some(mut shared) = Shared::new() else { return };
    let one = sessions(shared.host().into());
    let (long, id) = (one.create(NewSession::named("long")).unwrap(), CommitId::from_bytes([7; 16]));
    let all = |store: &dyn EventStore, session| events(store, session, 1).unwrap();
    for number in 2..=600u64 {
        let commit = note(long.id(), &number.to_le_bytes());
        long.record(if number == 200 { commit.with_id(id) } else { commit }).unwrap();
    }
    // The last snapshots are on their way.
    let late = || {
        let host = Arc::new(shared.host());
        let found = (host.head(long.id()).unwrap() == 600).then(|| begun_late(&host, long.id())).unwrap();
        (found >= 300).then_some((host, found))
    };
    let (host, base) = std::iter::repeat_with(late).take(20).flatten().next().expect("a snapshot comes");
    let other = sessions(Arc::clone(&host) as _);
    let there = other.session(long.id()).unwrap();
    assert_eq!(there.state().unwrap().digests().unwrap(), long.state().unwrap().digests().unwrap());
    assert_eq!(host.entry(long.id()).unwrap(), one.store().entry(long.id()).unwrap());
    assert_eq!(begun_late(&host, long.id()), base, "opening it reads none of its past");
    // A retry of a commit before the snapshot.
    let retried = record(&*host, note(long.id(), &200u64.to_le_bytes()).with_id(id));
    assert_eq!((retried.first, retried.repeated), (200, true));
    record(&*host, note(long.id(), b"after"));
    assert_eq!(there.state_at(3).unwrap().digests().unwrap(), long.state_at(3).unwrap().digests().unwrap());
    assert_eq!(all(&*host, long.id()), all(&**one.store(), long.id()));
    // A child from before the snapshot, made where the past is not there yet.
    let third = shared.host();
    let point = ForkPoint { session: long.id(), seq: 20 };
    record(&third, note(session(2), b"child").expecting(Expected::ForkOf(point)));
    assert_eq!(all(&third, session(2)), all(&*host, session(2)));
    drop(third);
    let again = shared.last_host();
    assert_eq!(all(&again, long.id()), all(&*host, long.id()));
    again.remove(long.id()).unwrap();
    for store in [&again, &*host, &shared.host()] {
        assert_eq!(store.entry(long.id()).unwrap(), None);
        assert_eq!(all(store, session(2)).len(), 21);
    }
}
