//! Contents that a git repository has, and the store has not.

use std::io::Cursor;
use std::path::Path;
use std::process::Command;

use foldspace::event::{Digest, FileMode, Node, WriteFile, WriteMode};
use foldspace::history::{export_session, import_session};
use foldspace::store::Content;
use foldspace::{EntryPath, EventStore, MemoryStore, NewSession, Registry, SessionId, Sessions, StoreError};

use super::open;

const TEXT: &[u8] = b"lent by git\n";

fn git(directory: &Path, words: &[&str]) {
    assert!(Command::new("git").arg("-C").arg(directory).args(words).status().unwrap().success());
}

/// A repository with one blob.
fn repository() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    git(directory.path(), &["init", "-q"]);
    std::fs::write(directory.path().join("a"), TEXT).unwrap();
    git(directory.path(), &["add", "a"]);
    directory
}

#[test]
fn borrowed_content_is_read_from_git_until_it_is_gone() {
    let (place, repository) = (tempfile::tempdir().unwrap(), repository());
    let (store, digest) = (open(place.path()), Digest::as_git_blob(TEXT));
    assert!(matches!(store.content(&digest), Err(StoreError::NoContent(_))));
    assert!(store.borrow_from(&repository.path().join(".git")).unwrap());
    assert_eq!(&store.content(&digest).unwrap()[..], TEXT);
    assert!(!store.has_content(&digest).unwrap(), "it is not kept");
    let other = Digest::as_git_blob(b"in no repository");
    assert!(store.content(&other).unwrap_err().to_string().contains("git blob"));
    // The list is the store's, so a later process reads it, too.
    drop(store);
    let store = open(place.path());
    assert_eq!(&store.content(&digest).unwrap()[..], TEXT);
    std::fs::remove_dir_all(repository.path().join(".git")).unwrap();
    drop(store);
    assert!(matches!(open(place.path()).content(&digest), Err(StoreError::NoContent(_))));
}

/// Makes a store with a session whose one file only a repository has.
pub(crate) fn store_that_borrows(place: &Path) -> (tempfile::TempDir, Sessions, SessionId) {
    let (repository, sessions) = (repository(), Sessions::open(place, Registry::standard()).unwrap());
    assert!(sessions.store().borrow_from(&repository.path().join(".git")).unwrap());
    let (session, content) = (sessions.create(NewSession::named("s")).unwrap(), Digest::as_git_blob(TEXT));
    let node = Node::File { content, size: TEXT.len() as u64, mode: FileMode::FILE, text: true, incomplete: false };
    let mut commit = session.commit();
    let path = EntryPath::for_creation("a").unwrap();
    commit.push(&WriteFile { path, mode: WriteMode::Create, node }).unwrap();
    session.record(commit).unwrap();
    (repository, sessions, session.id())
}

#[test]
fn borrowed_content_goes_along_with_an_export() {
    let place = tempfile::tempdir().unwrap();
    let (_repository, sessions, session) = store_that_borrows(place.path());
    let digest = Digest::as_git_blob(TEXT);
    let mut file = Vec::new();
    export_session(&sessions, session, &mut file).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let there = Sessions::open(elsewhere.path(), Registry::standard()).unwrap();
    import_session(&there, &mut Cursor::new(&file), None).unwrap();
    assert!(there.store().has_content(&digest).unwrap(), "there it is kept");
    assert_eq!(&there.store().content(&digest).unwrap()[..], TEXT);
}

#[test]
fn borrowed_content_can_be_kept_and_other_stores_do_not_borrow() {
    let place = tempfile::tempdir().unwrap();
    let sessions = Sessions::open(place.path(), Registry::standard()).unwrap();
    let session = sessions.create(NewSession::named("s")).unwrap();
    let large = vec![7_u8; 400_000];
    let digest = Digest::as_git_blob(&large);
    let mut commit = session.commit();
    commit.push_encoded("Note", 1, digest.as_bytes()).unwrap();
    commit.keep(Content { digest, bytes: large.clone().into() });
    session.record(commit).unwrap();
    assert_eq!(session.content(&digest).unwrap(), large, "in chunks, checked against the id");
    assert!(!MemoryStore::default().borrow_from(place.path()).unwrap());
}
