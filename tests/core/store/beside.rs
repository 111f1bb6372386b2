//! Reading beside the owner: by the catalogue and what came after it, or by the journal alone.

use std::ops::ControlFlow;

use foldspace::store::{CallLink, Expected, ForkPoint};
use foldspace::{EventStore, LocalStore, MemoryStore};

use super::{Random, assert_same, copied, history, note, open, record, session, small, with_content};

fn reading(directory: &std::path::Path) -> LocalStore {
    LocalStore::open_reading(directory).unwrap()
}

/// A store of several segments, some of them packed, with sessions in turn, forks and contents.
fn varied() -> (tempfile::TempDir, LocalStore, Vec<foldspace::event::Digest>) {
    let (directory, mut random) = (tempfile::tempdir().unwrap(), Random(7));
    let (store, mut digests) = (LocalStore::open(directory.path(), small()).unwrap(), Vec::new());
    for round in 0..60_u64 {
        let (commit, digest) = with_content(session(round % 5), random.bytes(80 << 10));
        record(&store, commit);
        digests.push(digest);
        for number in 0..10 {
            let link = if number % 3 == 0 { CallLink::Opens } else { CallLink::None };
            record(&store, note(session(number % 5), &random.bytes(300)).of_call(link));
        }
    }
    let seq = store.head(session(1)).unwrap() / 2;
    let fork = note(session(9), b"fork").expecting(Expected::ForkOf(ForkPoint { session: session(1), seq }));
    record(&store, fork);
    record(&store, note(session(9), b"more"));
    store.remove(session(4)).unwrap();
    (directory, store, digests)
}

fn assert_reads_all(found: &LocalStore, store: &LocalStore, digests: &[foldspace::event::Digest], context: &str) {
    assert_eq!(found.entries().unwrap(), store.entries().unwrap(), "{context}");
    for entry in found.entries().unwrap() {
        let begins_call = |event: &&foldspace::Recorded| event.call == Some(event.seq);
        let calls = history(store)[&entry.id].iter().filter(begins_call).count() as u64;
        assert_eq!(entry.calls, Some(calls), "{context}: session {}", entry.id);
    }
    // From anywhere, in any order.
    for entry in store.entries().unwrap() {
        for from in [entry.head, 1, entry.head / 2, entry.head / 3] {
            let first = |store: &LocalStore| {
                let mut first = None;
                let visit = store.visit(entry.id, from, &mut |event| {
                    first = Some(event.to_recorded());
                    ControlFlow::Break(())
                });
                visit.map(|()| first).unwrap()
            };
            assert_eq!(first(found), first(store), "{context}: {from}");
        }
    }
    assert_same(&history(found), &history(store), context);
    for digest in digests {
        assert!(found.has_content(digest).unwrap(), "{context}");
        assert_eq!(found.content(digest).unwrap(), store.content(digest).unwrap(), "{context}");
    }
}

#[test]
fn reading_beside_owner_sees_everything() {
    let (directory, store, digests) = varied();
    assert_reads_all(&reading(directory.path()), &store, &digests, "no catalogue yet, or an old one");
    drop(store);
    let store = open(directory.path());
    let file = directory.path().join("catalogue");
    let beside = reading(directory.path());
    assert_reads_all(&beside, &store, &digests, "a catalogue that has it all");
    record(&store, note(session(1), b"later"));
    let (commit, later) = with_content(session(2), vec![3; 100]);
    record(&store, commit);
    let digests = [&digests[..], &[later]].concat();
    assert_reads_all(&beside, &store, &digests, "what came since it was opened");
    assert_reads_all(&reading(directory.path()), &store, &digests, "what came after the catalogue");
    let whole = std::fs::read(&file).unwrap();
    for (damaged, context) in [(&whole[..whole.len() - 9], "cut"), (&[1; 300][..], "other bytes"), (&[], "empty")] {
        std::fs::write(&file, damaged).unwrap();
        let beside = reading(directory.path());
        assert!(!beside.is_doubtful());
        assert_reads_all(&beside, &store, &digests, context);
    }
}

#[test]
fn catalogue_is_made_again_after_collection() {
    let (directory, store, digests) = varied();
    drop(store);
    assert!(LocalStore::collect(directory.path(), false).unwrap().commits > 0);
    let store = open(directory.path());
    let left: Vec<_> = digests.into_iter().filter(|digest| store.has_content(digest).unwrap()).collect();
    assert!(left.len() < 60);
    assert_reads_all(&reading(directory.path()), &store, &left, "after a collection");
    let elsewhere = copied(directory.path(), true);
    std::fs::remove_file(elsewhere.path().join("catalogue")).unwrap();
    assert_reads_all(&reading(elsewhere.path()), &store, &left, "without it");
}

#[test]
fn catalogue_of_owner_that_found_none_leads_to_every_event() {
    let (directory, store, digests) = varied();
    drop(store);
    // As a killed owner leaves it, whose index knew of everything.
    std::fs::remove_file(directory.path().join("catalogue")).unwrap();
    let store = open(directory.path());
    record(&store, note(session(1), b"later"));
    drop(store);
    let store = open(directory.path());
    assert_reads_all(&reading(directory.path()), &store, &digests, "a catalogue that lacks most segments");
}

#[test]
fn reading_a_journal_that_lost_its_end_is_doubtful() {
    let (directory, store, _) = varied();
    drop(store);
    assert!(!reading(directory.path()).is_doubtful());
    let last = super::files_below(&directory.path().join("journal")).pop().unwrap();
    let length = std::fs::metadata(&last).unwrap().len();
    std::fs::OpenOptions::new().write(true).open(&last).unwrap().set_len(length.min(200)).unwrap();
    assert!(reading(directory.path()).is_doubtful());
    assert!(MemoryStore::default().check_own().is_ok());
}
