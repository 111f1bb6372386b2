//! The process is killed at random moments: what was acknowledged is there, in order, without gaps.
//!
//! The killed process is this test binary, started again to [`append`].

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;

use foldspace::event::{Digest, FileMode, Node, SystemClock, WriteFile, WriteMode};
use foldspace::session::SnapshotPolicy;
use foldspace::store::{Content, Durability, LocalStoreOptions};
use foldspace::{EntryPath, LocalStore, NewSession, Registry, Seq, Session, SessionId, Sessions};

use super::small;
use crate::rig::{Random, process, rounds};

const SESSIONS: u64 = 3;
const THREADS: u64 = 4;

/// What the child does; the parent makes it up, and it is passed on in the environment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub(super) durability: Durability,
    /// Also packs segments, removes sessions and takes snapshots.
    pub(super) busy: bool,
    pub(super) seed: u64,
}

fn options(load: Load) -> LocalStoreOptions {
    LocalStoreOptions { durability: load.durability, pack: load.busy, ..small() }
}

fn sessions(directory: &Path, load: Load) -> Sessions {
    let store = LocalStore::open(directory, options(load)).unwrap();
    let policy = SnapshotPolicy { every: 50, ..SnapshotPolicy::default() };
    Sessions::new(Arc::new(store), Registry::standard(), Arc::new(SystemClock::default()), policy).unwrap()
}

/// Appends to a few sessions from several threads until the process is killed.
pub(crate) fn append(orders: &str) {
    let parts: Vec<&str> = orders.splitn(4, ' ').collect();
    let durability = if parts[0] == "synced" { Durability::Synced } else { Durability::Buffered };
    let load = Load { durability, busy: parts[1] == "busy", seed: parts[2].parse().unwrap() };
    let sessions = sessions(Path::new(parts[3]), load);
    let named = |number: u64| {
        let name = format!("s{number}");
        match sessions.find(&name) {
            Ok(entry) => sessions.session(entry.id).unwrap(),
            Err(_) => sessions.create(NewSession::named(name)).unwrap(),
        }
    };
    let all: Vec<Session> = (0..SESSIONS).map(named).collect();
    // The test harness has begun a line.
    say("\n");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (all, sessions) = (&all, &sessions);
            scope.spawn(move || work(all, sessions, load, Random(load.seed ^ thread << 40)));
        }
    });
}

/// Appends until it is killed, and says of each commit that is acknowledged what it was.
fn work(all: &[Session], sessions: &Sessions, load: Load, mut random: Random) {
    loop {
        if load.busy && random.below(50) == 0 {
            let passing = sessions.create(NewSession::default()).unwrap();
            sessions.remove(passing.id()).unwrap();
            say(&format!("gone {}\n", passing.id()));
        }
        let session = &all[random.below(SESSIONS) as usize];
        let length = if random.below(20) == 0 { 150_000 } else { random.below(300) as usize };
        let content = Content::of(random.bytes(length));
        let mut commit = session.commit();
        let events = 1 + random.below(3);
        for number in 0..events {
            let path = EntryPath::for_creation(&format!("d{}/f{}", random.below(5), random.below(40))).unwrap();
            let node = Node::File {
                content: content.digest,
                size: length as u64,
                mode: FileMode::usual(number == 1),
                text: false,
                incomplete: false,
            };
            commit.push(&WriteFile { path, mode: WriteMode::Overwrite, node }).unwrap();
        }
        let digest = content.digest;
        commit.keep(content);
        let done = session.submit(commit).unwrap().wait().unwrap();
        say(&format!("ack {} {} {} {digest}\n", session.id(), done.first, done.last));
    }
}

pub(super) fn say(line: &str) {
    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
}

pub(super) fn spawn(directory: &Path, load: Load) -> Child {
    let durability = if load.durability == Durability::Synced { "synced" } else { "buffered" };
    let busy = if load.busy { "busy" } else { "calm" };
    let orders = format!("{durability} {busy} {} {}", load.seed, directory.display());
    process("append", orders).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// What children said before they were killed.
#[derive(Clone, Default)]
pub(super) struct Acknowledged {
    /// Positions with the digest at each.
    events: BTreeMap<SessionId, BTreeMap<Seq, Digest>>,
    removed: BTreeSet<SessionId>,
}

/// Lets a child work until it has said so much, and kills it.
fn killed(directory: &Path, load: Load, lines: usize, known: &mut Acknowledged) {
    let mut child = spawn(directory, load);
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let is_of_work = |line: &String| line.starts_with("ack ") || line.starts_with("gone ");
    let before: Vec<String> = said.by_ref().filter(is_of_work).take(lines).collect();
    child.kill().unwrap();
    let after: Vec<String> = said.collect();
    let killed = child.wait_with_output().unwrap();
    assert!(killed.status.code().is_none(), "it ended by itself: {}", String::from_utf8_lossy(&killed.stderr));
    for line in before.iter().chain(&after) {
        known.hear(line);
    }
}

impl Acknowledged {
    #[cfg(feature = "replicate")]
    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Learns from a line that a child said.
    pub(super) fn hear(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        if let ["gone", session] = words[..] {
            self.removed.extend(session.parse::<SessionId>());
        }
        // The last line may have been cut off.
        if let ["ack", session, first, last, digest] = words[..]
            && let (Ok(session), Ok(digest)) = (session.parse(), digest.parse())
        {
            let (first, last): (Seq, Seq) = (first.parse().unwrap(), last.parse().unwrap());
            for seq in first..=last {
                let before = self.events.entry(session).or_default().insert(seq, digest);
                assert_eq!(before, None, "position {seq} was given twice");
            }
        }
    }
}

/// Compares a store with what is known of it; then everything that is there is known.
pub(super) fn check(directory: &Path, load: Load, known: &mut Acknowledged, thorough: bool) {
    let sessions = sessions(directory, load);
    assert!(sessions.list().unwrap().iter().all(|entry| !known.removed.contains(&entry.id)), "a removed one is back");
    for (id, acknowledged) in &mut known.events {
        if load.durability == Durability::Buffered && sessions.store().entry(*id).unwrap().is_none() {
            // Killed before its first commit was written: what was not waited for is gone.
            acknowledged.clear();
            continue;
        }
        let session = sessions.session(*id).unwrap_or_else(|e| panic!("{e} after {load:?}"));
        let from = if thorough { 1 } else { session.head().unwrap().saturating_sub(500).max(1) };
        let mut next = from;
        session
            .visit(from, &mut |event| {
                assert_eq!(event.seq, next, "a gap");
                next += 1;
                if let Some(Ok(write)) = event.typed::<WriteFile>() {
                    let Node::File { content, .. } = write.event.node else { panic!() };
                    let said = acknowledged.insert(event.seq, content);
                    assert!(said.is_none_or(|said| said == content), "{id} event {} is another", event.seq);
                }
                std::ops::ControlFlow::Continue(())
            })
            .unwrap();
        let head = session.head().unwrap();
        assert_eq!(head, next - 1);
        let last = acknowledged.last_key_value().map_or(0, |(last, _)| *last);
        match load.durability {
            Durability::Synced => assert!(last <= head, "{last} was acknowledged, {head} is there"),
            // What had not been written yet is gone, the latest first.
            Durability::Buffered => acknowledged.retain(|seq, _| *seq <= head),
        }
        let some =
            acknowledged.iter().rev().step_by(if thorough { 1 } else { 20 }).take(if thorough { 200 } else { 20 });
        for (_, digest) in some {
            assert_eq!(Digest::of(&session.content(digest).unwrap()), *digest);
        }
    }
    if thorough {
        let report = sessions.verify(None).unwrap();
        assert_eq!(report.differences, []);
    }
    sessions.close();
    if thorough {
        assert_eq!(LocalStore::fsck(directory, false).unwrap().problems, []);
    }
}

fn crashes(count: u64, durability: Durability, busy: bool, seed: u64) {
    let directory = tempfile::tempdir().unwrap();
    let mut known = Acknowledged::default();
    let mut random = Random(seed);
    for round in 0..count {
        let load = Load { durability, busy, seed: random.next() };
        // Now and then long enough for the index to learn something and to have it written.
        let lines = if round % 8 == 7 { 2_000 } else { 1 + random.below(150) as usize };
        killed(directory.path(), load, lines, &mut known);
        check(directory.path(), load, &mut known, round % 8 >= 6 || round == count - 1);
    }
    // Who does not wait may lose even that a session has begun, and begins another.
    let sessions = known.events.len() as u64;
    assert!(sessions == SESSIONS || sessions > SESSIONS && durability == Durability::Buffered, "{sessions} sessions");
    assert!(known.events.values().map(BTreeMap::len).sum::<usize>() > 100 && busy != known.removed.is_empty());
}

#[test]
fn synced_store_killed_keeps_every_acknowledged_event() {
    crashes(rounds(20), Durability::Synced, false, 31);
}

#[test]
fn synced_store_killed_while_packing_keeps_every_acknowledged_event() {
    crashes(rounds(16), Durability::Synced, true, 32);
}

#[test]
fn buffered_store_killed_keeps_a_prefix() {
    crashes(rounds(8), Durability::Buffered, false, 33);
}
