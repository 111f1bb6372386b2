//! References of events: an export takes it along and a collection keeps it; what a text names it does not.

use std::collections::BTreeSet;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use foldspace::event::{CallStarted, Digest, Node, SystemClock, WriteFile, WriteMode};
use foldspace::history::{PortableSummary, export_session, import_session};
use foldspace::session::SnapshotPolicy;
use foldspace::store::{Content, RemoteStore, StoreServer};
use foldspace::{EntryPath, Event, EventStore, LocalStore, MemoryStore, NewSession, Registry, Sessions};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{note, open, record, session, unpacked};

/// An event of another program, which declares the digest of its picture; its text may name others.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Painted {
    picture: Option<Digest>,
    text: String,
}

impl Event for Painted {
    const KIND: &'static str = "studio/Painted";

    fn references(&self) -> Option<Vec<Digest>> {
        Some(self.picture.into_iter().collect())
    }
}

fn sessions(store: impl EventStore) -> Sessions {
    let clock = Arc::new(SystemClock::default());
    Sessions::new(Arc::new(store), Registry::standard(), clock, SnapshotPolicy::default()).unwrap()
}

/// Session 1 paints, writes and notes; session 2 keeps contents which the texts of session 1 name.
/// Gives what session 1 refers to, and what it merely names.
fn paint(store: &dyn EventStore) -> (BTreeSet<Digest>, BTreeSet<Digest>) {
    let named: Vec<Content> = ["in json", "in a file's name", "in a call", "in a link"].map(Content::of).into();
    let (picture, written, lifted, noted) =
        (Content::of("picture"), Content::of("written"), Content::of("lifted"), Content::of("noted"));
    let mut other = note(session(2), b"mine");
    named.iter().for_each(|content| other.keep(content.clone()));
    record(store, other);

    let mut commit = foldspace::Commit::new(session(1), foldspace::Timestamp(1));
    let text = format!("like {}", named[0].digest);
    commit.push(&Painted { picture: Some(picture.digest), text: text.clone() }).unwrap();
    commit.push(&Painted { picture: None, text }).unwrap();
    let file = |path: &str, node| {
        let path = EntryPath::lookup(path).unwrap();
        WriteFile { path, mode: WriteMode::Create, node }
    };
    commit.push(&file(&named[1].digest.to_string(), Node::file(b"written", false))).unwrap();
    let target = named[3].digest.to_string().into_bytes();
    commit.push(&file("link", Node::Symlink { target })).unwrap();
    let mark = json!({ "$content": lifted.digest, "bytes": 6 });
    let literal = json!({ "$literal": { "$content": named[2].digest.to_string() } });
    let params = json!({ "digest": named[2].digest, "odd": literal, "text": [mark, "$ and \u{7}"] });
    commit.push(&CallStarted { tool: "t".to_owned(), params }).unwrap();
    let known = [picture, written, lifted];
    known.iter().for_each(|content| commit.keep(content.clone()));
    record(store, commit);
    // One that does not say is searched.
    let mut commit = note(session(1), format!("see {}", noted.digest).as_bytes());
    commit.keep(noted.clone());
    record(store, commit);
    let digests = |contents: &[Content]| contents.iter().map(|content| content.digest).collect();
    let mut referred: BTreeSet<Digest> = digests(&known);
    referred.insert(noted.digest);
    (referred, digests(&named))
}

/// The contents in an export of session 1, and the export.
fn exported(sessions: &Sessions) -> (BTreeSet<Digest>, Vec<u8>, PortableSummary) {
    let mut file = Vec::new();
    let summary = export_session(sessions, session(1), &mut file).unwrap();
    let (bytes, mut at, mut contents) = (unpacked(&file), 28, BTreeSet::new());
    while bytes[at] != 3 {
        let length = u32::from_le_bytes(bytes[at + 1..at + 5].try_into().unwrap()) as usize;
        let payload = &bytes[at + 5..at + 5 + length];
        contents.extend((bytes[at] == 1).then(|| Digest::of(payload)));
        at += 5 + length;
    }
    (contents, file, summary)
}

#[test]
fn export_takes_referenced_contents_only() {
    let directory = tempfile::tempdir().unwrap();
    let first = sessions(open(directory.path()));
    let (referred, _) = paint(first.store().as_ref());
    let (contents, file, summary) = exported(&first);
    assert_eq!(contents, referred);
    assert_eq!((summary.events, summary.contents), (6, 4));
    // Through the process that owns the store, and after a restart, it is the same file.
    let server = StoreServer::start(&first, directory.path()).unwrap();
    let second = sessions(RemoteStore::connect(directory.path()).unwrap().unwrap());
    assert!(exported(&second).1 == file);
    second.close();
    drop(server);
    first.close();
    let again = sessions(open(directory.path()));
    assert!(exported(&again).1 == file);
    again.close();
    // And from where it was imported.
    let other = tempfile::tempdir().unwrap();
    let there = sessions(open(other.path()));
    import_session(&there, &mut Cursor::new(&file), None).unwrap();
    assert_eq!(exported(&there).0, referred);
    assert!(exported(&there).1 == file);
}

#[test]
fn collection_keeps_referenced_contents_only() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let (referred, named) = paint(&store);
    store.remove(session(2)).unwrap();
    drop(store);
    // The commit of session 1 that says nothing names none of them.
    LocalStore::collect(directory.path(), false).unwrap();
    let store = open(directory.path());
    let has = |digest: &Digest| store.has_content(digest).unwrap();
    assert!(referred.iter().all(has));
    assert!(!named.iter().any(has));
}

#[test]
fn collection_scans_commit_with_damaged_event() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let mut digests = Vec::new();
    for (kind, version) in [("WriteFile", 1), ("CallStarted", 1), ("CommandResult", 1), ("DeleteEntry", 2)] {
        let content = Content::of(format!("{kind}'s"));
        let mut commit = foldspace::Commit::new(session(1), foldspace::Timestamp(1));
        commit.push_encoded(kind, version, content.digest.as_bytes()).unwrap();
        digests.push(content.digest);
        commit.keep(content);
        record(&store, commit);
    }
    // A list that can't be: its bytes are the payload's.
    drop(store);
    LocalStore::collect(directory.path(), false).unwrap();
    let store = open(directory.path());
    assert!(digests.iter().all(|digest| store.has_content(digest).unwrap()));
}

#[test]
fn event_version_above_the_highest_is_refused() {
    let mut commit = note(session(1), b"");
    let refused = commit.push_encoded("Note", 1 << 15, b"").unwrap_err().to_string();
    assert!(refused.contains("an event's version: 32768 is over the limit of 32767"), "{refused}");
    assert_eq!(commit.len(), 1);
}

#[test]
fn commit_without_events_keeps_contents_until_collection() {
    let directory = tempfile::tempdir().unwrap();
    let first = sessions(open(directory.path()));
    let server = StoreServer::start(&first, directory.path()).unwrap();
    let second = RemoteStore::connect(directory.path()).unwrap().unwrap();
    let memory = MemoryStore::default();
    let stores: [&dyn EventStore; 3] = [first.store().as_ref(), &second, &memory];
    let content = Content::of("ahead");
    for store in stores {
        let mut commit = foldspace::Commit::new(session(1), foldspace::Timestamp(1));
        assert!(store.submit(commit.duplicate()).is_err(), "there is nothing in it");
        commit.keep(content.clone());
        store.submit(commit).unwrap().wait().unwrap();
        store.sync().unwrap();
        assert_eq!(store.content(&content.digest).unwrap(), content.bytes);
        assert!(store.entries().unwrap().is_empty());
    }
    drop((second, server));
    first.close();
    LocalStore::collect(directory.path(), false).unwrap();
    assert!(!open(directory.path()).has_content(&content.digest).unwrap());
}

#[test]
fn import_of_large_content_stores_same_bytes_as_recording() {
    let bytes = super::Random(11).bytes(3 << 20);
    let digest = Digest::of(&bytes);
    let file =
        crate::rig::portable::PortableFile::named("large").content(&bytes).event("Note", 1, digest.as_bytes()).whole();
    let recorded = tempfile::tempdir().unwrap();
    let store = open(recorded.path());
    record(&store, super::with_content(session(1), bytes.clone()).0);
    let here = store.usage().unwrap();
    let imported = tempfile::tempdir().unwrap();
    let owner = sessions(open(imported.path()));
    let _server = StoreServer::start(&owner, imported.path()).unwrap();
    let there = sessions(RemoteStore::connect(imported.path()).unwrap().unwrap());
    import_session(&there, &mut Cursor::new(&file), None).unwrap();
    assert!(owner.store().content(&digest).unwrap() == bytes, "through another process");
    let contents =
        |usage: Vec<foldspace::store::StorageUse>| usage.into_iter().find(|part| part.what == "contents").unwrap();
    assert_eq!(contents(owner.store().usage().unwrap()), contents(here), "the same chunks");
    let memory = sessions(MemoryStore::default());
    import_session(&memory, &mut Cursor::new(&file), None).unwrap();
    assert!(memory.store().content(&digest).unwrap() == bytes);
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/portable").join(name)
}

/// Writes a journal with sessions 1 and 2, and the export of session 1.
fn bless_portable() {
    let directory = tempfile::tempdir().unwrap();
    let store = sessions(open(directory.path()));
    paint(store.store().as_ref());
    let file = exported(&store).1;
    store.close();
    std::fs::create_dir_all(fixture("")).unwrap();
    std::fs::copy(directory.path().join("journal/00000001.seg"), fixture("sessions.seg")).unwrap();
    std::fs::write(fixture("sessions.fold"), file).unwrap();
}

/// A journal and an export of it, as the first program with these formats wrote them.
#[test]
fn golden_journal_and_export_read_the_same() {
    if std::env::var_os("FOLDSPACE_BLESS").is_some() && !fixture("sessions.seg").exists() {
        bless_portable();
    }
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("journal")).unwrap();
    std::fs::copy(fixture("sessions.seg"), directory.path().join("journal/00000001.seg")).unwrap();
    LocalStore::collect(directory.path(), false).unwrap();
    let opened = sessions(open(directory.path()));
    let golden = std::fs::read(fixture("sessions.fold")).unwrap();
    let (_, file, summary) = exported(&opened);
    assert_eq!((summary.events, summary.contents), (6, 4));
    assert!(unpacked(&file) == unpacked(&golden), "the journal gives another export");
    assert_eq!(opened.verify(None).unwrap().differences, []);
    let history = |sessions: &Sessions| super::events(sessions.store().as_ref(), session(1), 1).unwrap();
    let other = tempfile::tempdir().unwrap();
    let imported = sessions(open(other.path()));
    import_session(&imported, &mut Cursor::new(&golden), None).unwrap();
    assert!(history(&imported) == history(&opened));
    assert!(unpacked(&exported(&imported).1) == unpacked(&golden), "the import gives another export");
    assert!(imported.create(NewSession::named("after")).is_ok());
}
