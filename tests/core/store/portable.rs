//! Sessions in one file: commits stay what they were, and an import that was killed goes on.
//!
//! The child is this very test binary, started again for the one test [`child`].

use std::io::{BufRead, BufReader, Cursor, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use foldspace::event::{Digest, Isolation, SystemClock};
use foldspace::history::{HistoryError, PortableSummary, export_session, import_session};
use foldspace::session::SnapshotPolicy;
use foldspace::store::{Content, RemoteStore, StoreServer};
use foldspace::{
    Commit, EventStore, ForkOptions, LocalStore, NewSession, Recorded, Registry, Seq, Session, SessionId, Sessions,
    Timestamp,
};
use serde_json::json;

use super::{events, open, small};
use crate::rig::{Random, process};

fn sessions(store: impl EventStore) -> Sessions {
    let clock = Arc::new(SystemClock::default());
    Sessions::new(Arc::new(store), Registry::standard(), clock, SnapshotPolicy::default()).unwrap()
}

fn import(sessions: &Sessions, file: &[u8], rename: Option<&str>) -> Result<PortableSummary, HistoryError> {
    import_session(sessions, &mut Cursor::new(file), rename)
}

fn exported(sessions: &Sessions, id: SessionId) -> Vec<u8> {
    let mut file = Vec::new();
    export_session(sessions, id, &mut file).unwrap();
    file
}

/// A commit of so many events, of several agents in turn, with a content that does not compress.
fn commit(session: &Session, random: &mut Random, count: u64, length: usize) -> Commit {
    let agents: [Arc<str>; 3] = ["".into(), "one".into(), "two".into()];
    let mut commit = session.commit().as_agent(&agents[random.below(3) as usize]);
    let content = Content::of(random.bytes(length));
    for _ in 0..count {
        commit.push_encoded("Note", 1, content.digest.as_bytes()).unwrap();
    }
    commit.keep(content);
    commit
}

/// A repaired session leaves for another store with what it lost, and with what it did not.
#[test]
fn session_with_gap_is_exported_and_imported() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (store, session, _) = long(from.path());
    let (id, original) = (session.id(), events(store.store().as_ref(), session.id(), 1).unwrap());
    drop((store, session));
    let path = from.path().join("journal/00000001.seg");
    let frames = super::journal::frames_of(&path);
    let frame = frames.iter().filter(|frame| frame.kind == super::journal::COMMIT).nth(9).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[frame.at..frame.next].fill(0);
    std::fs::write(&path, bytes).unwrap();
    let (_, first, last) = frame.commit();
    let report = LocalStore::fsck(from.path(), true).unwrap();
    assert_eq!(report.gaps.iter().map(|gap| (gap.first, gap.last)).collect::<Vec<_>>(), [(first, last)]);
    assert_eq!((report.gaps[0].name.as_str(), report.gaps[0].behind), ("long", original.len() as u64 - last));
    let repaired = sessions(open(from.path()));
    let state = repaired.session(id).unwrap().state_at(last).unwrap();
    assert_eq!(state.unreadable(), last + 1 - first);
    let verified = repaired.verify(None).unwrap();
    assert_eq!((verified.lost, verified.unreadable), (last + 1 - first, 0));
    let target = sessions(open(to.path()));
    import(&target, &exported(&repaired, id), None).unwrap();
    let found = events(target.store().as_ref(), id, 1).unwrap();
    assert_eq!(found, events(repaired.store().as_ref(), id, 1).unwrap());
    for (event, original) in found.iter().zip(&original) {
        assert_eq!(super::is_lost(event), (first..=last).contains(&event.seq));
        assert!(event == original || super::is_lost(event), "event {}", event.seq);
    }
    assert_eq!(target.verify(None).unwrap().differences, []);
}

/// A session of commits of one to four events each, and two large contents; its export.
fn long(directory: &Path) -> (Sessions, Session, Vec<u8>) {
    let (sessions, mut random) = (sessions(open(directory)), Random(7));
    let session = sessions.create(NewSession::named("long")).unwrap();
    for number in 0..40 {
        let length = if number % 20 == 10 { 300_000 } else { 10_000 };
        session.submit(commit(&session, &mut random, 1 + number % 4, length)).unwrap().wait().unwrap();
    }
    let file = exported(&sessions, session.id());
    (sessions, session, file)
}

/// Lists the first and the last position of each commit.
fn commits(session: &Session) -> Vec<(Seq, Seq)> {
    let (mut commits, mut next) = (Vec::new(), 1);
    while next <= session.head().unwrap() {
        commits.push(session.commit_of(next).unwrap());
        next = commits[commits.len() - 1].1 + 1;
    }
    commits
}

fn history(sessions: &Sessions, id: SessionId) -> Vec<Recorded> {
    events(sessions.store().as_ref(), id, 1).unwrap()
}

#[test]
fn import_keeps_commits() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (original, session, file) = long(here.path());
    let is_mixed = |commits: &[(Seq, Seq)]| (0..4).all(|more| commits.iter().any(|(first, last)| last - first == more));
    assert!(is_mixed(&commits(&session)));
    let owner = sessions(open(there.path()));
    let _server = StoreServer::start(&owner, there.path()).unwrap();
    for imported in [&owner, &sessions(RemoteStore::connect(there.path()).unwrap().unwrap())] {
        import(imported, &file, None).unwrap();
        assert_eq!(commits(&imported.session(session.id()).unwrap()), commits(&session));
        assert!(exported(imported, session.id()) == file);
        assert!(history(imported, session.id()) == history(&original, session.id()));
        imported.remove(session.id()).unwrap();
    }
}

#[test]
fn export_of_child_keeps_commits_of_its_past() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (original, parent, _) = long(here.path());
    let at = commits(&parent)[20].1;
    let child = original.child_of(&parent, ForkOptions { at: Some(at), ..ForkOptions::new(Isolation::Fork) }).unwrap();
    child.submit(commit(&child, &mut Random(8), 3, 10)).unwrap().wait().unwrap();
    let imported = sessions(open(there.path()));
    import(&imported, &exported(&original, child.id()), None).unwrap();
    assert_eq!(commits(&imported.session(child.id()).unwrap()), commits(&child));
}

/// Sessions of this program begin with an event that is a commit by itself; those of others may not.
#[test]
fn import_renames_session_with_larger_first_commit() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let original = sessions(open(here.path()));
    let id = super::session(3);
    let mut commit = Commit::new(id, Timestamp(5));
    let started = json!({ "name": "old", "backend": "memory", "program": "0.1.0" });
    commit.push_encoded("SessionStarted", 1, started.to_string().as_bytes()).unwrap();
    commit.push_encoded("Note", 1, b"one").unwrap();
    super::record(original.store().as_ref(), commit);
    let session = original.session(id).unwrap();
    let child = original.child_of(&session, ForkOptions::new(Isolation::Fork)).unwrap();
    let imported = sessions(open(there.path()));
    for (id, name) in [(id, "new"), (child.id(), "newer")] {
        let file = exported(&original, id);
        assert_eq!(import(&imported, &file, Some(name)).unwrap().name, name);
        let session = imported.session(id).unwrap();
        assert_eq!(session.commit_of(1).unwrap(), (1, 2));
        assert!(history(&imported, id)[1..] == history(&original, id)[1..]);
        // The same under the name that the file gives it is no other session.
        assert_eq!(import(&imported, &file, None).unwrap().added, 0);
    }
}

#[test]
fn import_of_known_events_in_smaller_commits_adds_the_rest() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (original, session, file) = long(here.path());
    let all = history(&original, session.id());
    let (first, last) = commits(&session)[8];
    assert!(last > first, "it ends in the midst of a commit");
    let imported = sessions(open(there.path()));
    for event in &all[..first as usize] {
        let mut commit = Commit::new(event.session, event.time).as_agent(&event.agent);
        commit.push_encoded(&event.event.kind, event.event.version, &event.event.bytes).unwrap();
        imported.store().submit(commit).unwrap().wait().unwrap();
    }
    assert_eq!(import(&imported, &file, None).unwrap().added, all.len() as u64 - first);
    assert!(history(&imported, session.id()) == all);
    let mut expected: Vec<_> = (1..=first).map(|seq| (seq, seq)).chain([(first + 1, last)]).collect();
    expected.extend(&commits(&session)[9..]);
    assert_eq!(commits(&imported.session(session.id()).unwrap()), expected);
}

#[test]
fn import_of_diverged_session_is_refused() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (original, session, before) = long(here.path());
    let head = session.head().unwrap();
    session.submit(commit(&session, &mut Random(8), 2, 10)).unwrap().wait().unwrap();
    let imported = sessions(open(there.path()));
    import(&imported, &before, None).unwrap();
    let other = imported.session(session.id()).unwrap();
    other.submit(commit(&other, &mut Random(9), 1, 10)).unwrap().wait().unwrap();
    let now = history(&imported, session.id());
    let refused = import(&imported, &exported(&original, session.id()), None).unwrap_err();
    assert!(matches!(refused, HistoryError::Differs { seq, .. } if seq == head + 1), "{refused}");
    assert!(history(&imported, session.id()) == now);
    // What is here goes further than that file.
    assert_eq!(import(&imported, &before, None).unwrap().added, 0);
}

/// A file whose second reading stops at some place for ever, when all before it is on the disk.
struct Stopping {
    file: Cursor<Vec<u8>>,
    store: Arc<dyn EventStore>,
    stops_at: u64,
    is_second: bool,
}

impl Read for Stopping {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.is_second && self.file.position() >= self.stops_at {
            self.store.sync().unwrap();
            // The test harness has begun a line.
            std::io::stdout().write_all(b"\nstopped\n").unwrap();
            loop {
                std::thread::park();
            }
        }
        let most = buffer.len().min(512);
        self.file.read(&mut buffer[..most])
    }
}

impl Seek for Stopping {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.is_second |= matches!(to, SeekFrom::Start(_));
        self.file.seek(to)
    }
}

/// Imports a file until its second reading stops.
pub(crate) fn import_halfway(orders: &str) {
    let parts: Vec<&str> = orders.splitn(3, ' ').collect();
    let directory = Path::new(parts[2]);
    let sessions = sessions(LocalStore::open(directory, small()).unwrap());
    let file = Cursor::new(std::fs::read(directory.join("long.fold")).unwrap());
    let (store, stops_at) = (Arc::clone(sessions.store()), parts[0].parse().unwrap());
    let mut file = Stopping { file, store, stops_at, is_second: false };
    import_session(&sessions, &mut file, Some(parts[1])).unwrap();
}

/// Imports the file there in a process that is killed when it has read so much of it for the second time.
fn import_killed(directory: &Path, at: usize, name: &str) {
    let orders = format!("{at} {name} {}", directory.display());
    let mut child = process("import_halfway", orders).stdout(Stdio::piped()).spawn().unwrap();
    let stopped = BufReader::new(child.stdout.take().unwrap()).lines().any(|line| line.unwrap() == "stopped");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(stopped, "it ended before");
}

#[test]
fn import_killed_is_completed_by_the_next() {
    let here = tempfile::tempdir().unwrap();
    let (original, session, file) = long(here.path());
    let all = history(&original, session.id());
    let mut begun = Vec::new();
    for tenth in 0..10 {
        let there = tempfile::tempdir().unwrap();
        std::fs::File::create(there.path().join("long.fold")).unwrap().write_all(&file).unwrap();
        // In between it had another name, which stays.
        let name = if tenth % 2 == 0 { "long" } else { "tale" };
        import_killed(there.path(), file.len() * tenth / 10, name);
        let imported = sessions(open(there.path()));
        let head = imported.list().unwrap().first().map_or(0, |entry| entry.head);
        begun.push(head);
        let name = if head == 0 { "long" } else { name };
        let summary = import(&imported, &file, None).unwrap();
        assert_eq!((summary.name.as_str(), summary.added), (name, all.len() as u64 - head));
        assert!(history(&imported, session.id())[1..] == all[1..]);
        assert_eq!(commits(&imported.session(session.id()).unwrap()), commits(&session));
        let missing = |event: &&Recorded| {
            let digest = event.event.bytes.as_ref().try_into().map(Digest::from_bytes);
            digest.is_ok_and(|digest| imported.store().content(&digest).is_err())
        };
        assert_eq!(all.iter().filter(missing).count(), 0, "contents");
        assert_eq!(imported.verify(None).unwrap().differences, []);
        assert_eq!(import(&imported, &file, None).unwrap().added, 0);
    }
    assert!(begun.is_sorted() && begun[0] == 0 && begun[9] > 60, "{begun:?}");
}
