//! What is asked of a history, against plain models of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use foldspace::event::{DeleteEntry, Node, SessionRewound, StepClock, WriteFile, WriteMode};
use foldspace::history::{
    Cause, HistoryError, HistoryHit, HistorySearch, PathChange, blame, path_history, search_history,
};
use foldspace::session::SnapshotPolicy;
use foldspace::store::Content;
use foldspace::{
    Commit, EntryPath, MemoryStore, NewSession, Registry, Seq, Session, SessionError, Sessions, Timestamp,
    VirtualFileSystem,
};
use proptest::prelude::*;

use super::rounds;

fn session() -> Session {
    let clock = Arc::new(StepClock::new(Timestamp(1000), 10));
    let store = Arc::new(MemoryStore::default());
    let sessions = Sessions::new(store, Registry::standard(), clock, SnapshotPolicy::default()).unwrap();
    sessions.create(NewSession::named("history")).unwrap()
}

fn path(text: &str) -> EntryPath {
    EntryPath::lookup(text).unwrap()
}

fn write(commit: &mut Commit, at: &str, text: &[u8]) {
    let event = WriteFile { path: path(at), mode: WriteMode::Create, node: Node::file(text, false) };
    commit.push(&event).unwrap();
    commit.keep(Content::of(text.to_vec()));
}

fn delete(commit: &mut Commit, at: &str) {
    commit.push(&DeleteEntry { path: path(at) }).unwrap();
}

/// Records what is done to a commit; gives its last position.
fn record(session: &Session, done: impl FnOnce(&mut Commit)) -> Seq {
    let mut commit = session.commit();
    done(&mut commit);
    session.record(commit).unwrap().last
}

fn rewound(to: Seq, from: Seq) -> SessionRewound {
    SessionRewound { to, from, entries: 1, left: 0 }
}

fn whose(session: &Session, at: &str, seq: Seq) -> Vec<(Seq, String)> {
    let blamed = blame(session, &path(at), seq).unwrap();
    blamed.lines.iter().map(|line| (blamed.changes[line.change].change.seq, line.text.clone())).collect()
}

fn told(changes: &[PathChange]) -> Vec<(Seq, &'static str, String)> {
    changes.iter().map(|change| (change.seq, change.what(), change.path.to_string())).collect()
}

#[test]
fn blame_gives_no_lines_to_a_rewind() {
    let session = session();
    let first = record(&session, |commit| write(commit, "a", b"1\n2\n3\n"));
    let second = record(&session, |commit| write(commit, "a", b"1\n3\n4\n"));
    let back = record(&session, |commit| {
        commit.push(&rewound(first, second)).unwrap();
        write(commit, "a", b"1\n2\n3\n");
    });
    assert_eq!(whose(&session, "a", second).iter().map(|line| line.0).collect::<Vec<_>>(), [first, first, second]);
    assert!(whose(&session, "a", back).iter().all(|(seq, _)| *seq == first));
    let changes = path_history(&session, &path("a"), back).unwrap();
    assert_eq!(
        changes.iter().map(|change| change.cause.name()).collect::<Vec<_>>(),
        ["recorded", "recorded", "rewind"]
    );
    // It comes back after it was removed, after another file took its place, and from where it was moved.
    let undone = |done: &dyn Fn(&mut Commit), to: Seq, text: &[u8]| {
        let from = record(&session, |commit| done(commit));
        let back = record(&session, |commit| {
            commit.push(&rewound(to, from)).unwrap();
            write(commit, "a", text);
        });
        whose(&session, "a", back).iter().map(|line| line.0).collect::<Vec<_>>()
    };
    assert_eq!(undone(&|commit| delete(commit, "a"), first, b"1\n2\n3\n"), [first; 3]);
    record(&session, |commit| delete(commit, "a"));
    let other = |commit: &mut Commit| write(commit, "a", b"4\nother\n");
    assert_eq!(undone(&other, second, b"1\n3\n4\n"), [first, first, second]);
    let moved = |commit: &mut Commit| {
        delete(commit, "a");
        write(commit, "b", b"1\n3\n4\n");
    };
    assert_eq!(undone(&moved, second, b"1\n3\n4\n"), [first, first, second]);
    // To undo a rewind is one, too.
    assert_eq!(undone(&|commit| delete(commit, "a"), back, b"1\n2\n3\n"), [first; 3]);
}

#[test]
fn path_history_follows_moves_not_copies() {
    let session = session();
    let made = record(&session, |commit| write(commit, "x/a", b"1\n"));
    let copied = record(&session, |commit| write(commit, "copy", b"1\n"));
    let moved = record(&session, |commit| {
        delete(commit, "x");
        write(commit, "y/a", b"1\n");
    });
    // The other way round, over what stood there, and what was there before is written anew.
    let again = record(&session, |commit| {
        write(commit, "z", b"1\n");
        write(commit, "y/a", b"new\n");
    });
    let changes = path_history(&session, &path("z"), again).unwrap();
    assert_eq!(
        told(&changes),
        [
            (made, "created", "x/a".to_owned()),
            (moved, "moved here", "y/a".to_owned()),
            (again - 1, "moved here", "z".to_owned()),
        ]
    );
    assert_eq!(told(&path_history(&session, &path("copy"), again).unwrap()), [(copied, "created", "copy".to_owned())]);
    let gone = path_history(&session, &path("x/a"), again).unwrap();
    assert_eq!(
        (gone[1].what(), gone[1].moved_to.clone(), gone[1].by.clone()),
        ("moved away", Some(path("y/a")), Some(path("x")))
    );
    assert_eq!(whose(&session, "z", again), [(made, "1".to_owned())]);
    assert_eq!(whose(&session, "y/a", again), [(again, "new".to_owned())]);
    // Elsewhere at another time is no move.
    record(&session, |commit| delete(commit, "copy"));
    let later = record(&session, |commit| write(commit, "late", b"1\n"));
    assert_eq!(whose(&session, "late", later), [(later, "1".to_owned())]);
}

#[test]
fn path_history_tells_equal_files_apart_by_name() {
    let session = session();
    let names = ["1/x", "2/x", "2/y", "3/y", "long/name"];
    record(&session, |commit| names.iter().for_each(|name| write(commit, &format!("from/{name}"), b"same\n")));
    let moved = record(&session, |commit| {
        delete(commit, "from");
        names.iter().rev().for_each(|name| write(commit, &format!("to/{name}"), b"same\n"));
    });
    for name in names {
        let changes = path_history(&session, &path(&format!("to/{name}")), moved).unwrap();
        assert_eq!(changes.last().unwrap().moved_from, Some(path(&format!("from/{name}"))));
    }
}

#[test]
fn path_history_follows_files_that_swap_names() {
    let session = session();
    let first = record(&session, |commit| {
        write(commit, "a", b"1\n");
        write(commit, "b", b"2\n");
    });
    let swapped = record(&session, |commit| {
        delete(commit, "a");
        delete(commit, "b");
        write(commit, "a", b"2\n");
        write(commit, "b", b"1\n");
    });
    assert_eq!(whose(&session, "a", swapped), [(first, "2".to_owned())]);
    assert_eq!(whose(&session, "b", swapped), [(first - 1, "1".to_owned())]);
}

#[test]
fn blame_reports_unknown_lines() {
    let session = session();
    let incomplete = |text: &[u8]| match Node::file(text, false) {
        Node::File { content, size, mode, text, .. } => Node::File { content, size, mode, text, incomplete: true },
        other => other,
    };
    record(&session, |commit| write(commit, "a", b"1\n"));
    let lost = record(&session, |commit| {
        commit.push(&WriteFile { path: path("a"), mode: WriteMode::Overwrite, node: incomplete(b"1\n2\n") }).unwrap();
    });
    assert!(matches!(blame(&session, &path("a"), lost), Err(HistoryError::NotKept { .. })));
    let known = record(&session, |commit| write(commit, "a", b"1\n2\n3\n"));
    let blamed = blame(&session, &path("a"), known).unwrap();
    assert_eq!(blamed.unknown, [lost]);
    assert!(whose(&session, "a", known).iter().all(|(seq, _)| *seq == known));
    let empty = record(&session, |commit| write(commit, "empty", b""));
    assert!(blame(&session, &path("empty"), empty).unwrap().lines.is_empty());
    assert!(matches!(blame(&session, &path("a"), 99), Err(HistoryError::Session(SessionError::NoPosition { .. }))));
    assert!(matches!(path_history(&session, &path("a"), 99), Err(SessionError::NoPosition { .. })));
    assert!(matches!(
        blame(&session, &EntryPath::root(), known),
        Err(HistoryError::NotText { what: "a directory", .. })
    ));
}

#[test]
fn path_history_names_the_cause_of_each_change() {
    let session = session();
    record(&session, |commit| {
        commit
            .push(&foldspace::event::DriftFound {
                backend: "host".to_owned(),
                entries: 1,
                late: 0,
                perhaps: Vec::new(),
            })
            .unwrap();
        write(commit, "a", b"1\n");
    });
    let last = record(&session, |commit| write(commit, "a", b"2\n"));
    let changes = path_history(&session, &path("a"), last).unwrap();
    assert_eq!(changes.iter().map(|change| &change.cause).collect::<Vec<_>>(), [&Cause::Drift, &Cause::Recorded]);
}

/// Something that is done to the files.
#[derive(Debug, Clone)]
enum Act {
    Write(usize, u8),
    Directory(usize),
    Delete(usize),
}

/// Few places, above and below each other, one of which begins like another.
const PLACES: [&str; 7] = ["a", "a/b", "a/b/c", "a-b", "d", "d/a", "e"];

fn acts() -> impl Strategy<Value = Vec<Vec<Act>>> {
    let place = 0..PLACES.len();
    let act = prop_oneof![
        4 => (place.clone(), 0_u8..6).prop_map(|(place, text)| Act::Write(place, text)),
        1 => place.clone().prop_map(Act::Directory),
        2 => place.prop_map(Act::Delete),
    ];
    proptest::collection::vec(proptest::collection::vec(act, 1..4), 1..20)
}

fn text_of(number: u8) -> String {
    (0..number).map(|line| format!("line {}\n", line % 3)).collect()
}

fn done(session: &Session, all: &[Vec<Act>]) -> Seq {
    for acts in all {
        record(session, |commit| {
            for act in acts {
                match act {
                    Act::Write(place, number) => write(commit, PLACES[*place], text_of(*number).as_bytes()),
                    Act::Directory(place) => {
                        let (path, node) = (path(PLACES[*place]), Node::DIRECTORY);
                        commit.push(&WriteFile { path, mode: WriteMode::Create, node }).unwrap();
                    }
                    Act::Delete(place) => delete(commit, PLACES[*place]),
                }
            }
        });
    }
    session.head().unwrap()
}

fn files(session: &Session, seq: Seq) -> VirtualFileSystem {
    VirtualFileSystem::of(&session.state_at(seq).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: rounds(20) as u32, failure_persistence: None, ..ProptestConfig::default() })]

    /// The changes of everything, made again, give the files of every moment; and a file's own are those among them.
    #[test]
    fn path_changes_replayed_give_the_files(all in acts()) {
        let session = session();
        let head = done(&session, &all);
        let changes = path_history(&session, &EntryPath::root(), head).unwrap();
        let mut now: BTreeMap<EntryPath, Node> = BTreeMap::new();
        for seq in 1..=head {
            for change in changes.iter().filter(|change| change.seq == seq) {
                let before = match &change.after {
                    Some(node) => now.insert(change.path.clone(), node.clone()),
                    None => now.remove(&change.path),
                };
                // Directories that come with a file are not told.
                if before != Some(Node::DIRECTORY) && change.before != Some(Node::DIRECTORY) {
                    prop_assert_eq!(&before, &change.before, "at {}: {:?}", seq, change);
                }
            }
            let is_file = |node: &Node| !node.is_directory();
            let told: Vec<_> = now.iter().filter(|(_, node)| is_file(node)).collect();
            let tree = files(&session, seq);
            let there: Vec<_> = tree.iter().map(|(path, entry)| (path, &entry.node)).filter(|(_, node)| is_file(node)).collect();
            prop_assert_eq!(told, there, "at {}", seq);
        }
        for place in PLACES {
            let own: Vec<Seq> = path_history(&session, &path(place), head).unwrap().iter()
                .filter(|change| change.path == path(place)).map(|change| change.seq).collect();
            let among: Vec<Seq> = changes.iter().filter(|change| change.path == path(place)).map(|change| change.seq).collect();
            prop_assert!(among.iter().all(|seq| own.contains(seq)), "{}: {:?} {:?}", place, own, among);
        }
    }

    /// Whoever is said to have written a line has written it, and it is all there is.
    #[test]
    fn blame_equals_the_model(all in acts()) {
        let session = session();
        let head = done(&session, &all);
        for (place, entry) in files(&session, head).iter() {
            let Node::File { content, .. } = &entry.node else { continue };
            let blamed = blame(&session, place, head).unwrap();
            let text = String::from_utf8(session.content(content).unwrap().to_vec()).unwrap();
            prop_assert_eq!(blamed.lines.iter().map(|line| format!("{}\n", line.text)).collect::<String>(), text);
            for line in &blamed.lines {
                let Some(Node::File { content, .. }) = &blamed.changes[line.change].change.after else { panic!("no file") };
                let then = String::from_utf8(session.content(content).unwrap().to_vec()).unwrap();
                prop_assert!(then.lines().any(|other| other == line.text));
            }
        }
    }

    /// A line that is found is there from its first position to its last and not beyond.
    #[test]
    fn search_hits_existed_at_their_seq(all in acts()) {
        let session = session();
        let head = done(&session, &all);
        let mut matching = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes).into_owned();
            (1..).zip(text.lines()).filter(|(_, line)| *line == "line 2").map(|(n, line)| (n, line.to_owned())).collect()
        };
        let mut hits = Vec::new();
        let what = HistorySearch { until: head, ..HistorySearch::default() };
        search_history::<SessionError>(&session, &what, &mut matching, &mut |hit| { hits.push(hit); Ok(()) }).unwrap();
        // Pages find the same lines, each where it appears.
        let place = |hit: &HistoryHit| match hit {
            HistoryHit::Line { path, line_number, first, .. } => (*first, path.clone(), *line_number),
            other => panic!("{other:?}"),
        };
        for middle in 1..head {
            let mut parts = Vec::new();
            for (from, until) in [(1, middle), (middle + 1, head)] {
                let earlier = files(&session, from - 1);
                let before = |path: &EntryPath| match earlier.get(path).map(|entry| &entry.node) {
                    Some(Node::File { content, .. }) => Some(*content),
                    _ => None,
                };
                let what = HistorySearch { from, until, before: &before, ..HistorySearch::default() };
                let mut found = |hit: HistoryHit| { parts.push(place(&hit)); Ok(()) };
                search_history::<SessionError>(&session, &what, &mut matching, &mut found).unwrap();
            }
            parts.sort();
            let mut whole: Vec<_> = hits.iter().map(place).collect();
            whole.sort();
            prop_assert_eq!(parts, whole, "pages that meet at {}", middle);
        }
        for seq in 1..=head {
            let tree = files(&session, seq);
            for place in PLACES {
                let count = match tree.get(&path(place)).map(|entry| &entry.node) {
                    Some(Node::File { content, .. }) => {
                        let bytes = session.content(content).unwrap();
                        String::from_utf8_lossy(&bytes).lines().filter(|line| *line == "line 2").count()
                    }
                    _ => 0,
                };
                let is_then = |hit: &&HistoryHit| matches!(hit, HistoryHit::Line { path: at, first, last, .. }
                    if *at == path(place) && (*first..=*last).contains(&seq));
                prop_assert_eq!(hits.iter().filter(is_then).count(), count, "{} at {}", place, seq);
            }
        }
    }
}
