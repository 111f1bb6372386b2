//! Forks of any position, of any generation, of sessions in any condition.

use foldspace::event::{Isolation, SystemClock};
use foldspace::history::{export_session, import_session};
use foldspace::session::SnapshotPolicy;
use foldspace::store::LocalStoreOptions;
use foldspace::{ForkOptions, LocalStore, MemoryStore, NewSession, Registry, SessionError, Sessions, WorkspaceSpec};
use serde_json::json;
use std::io::Cursor;
use std::sync::Arc;

use super::digests;
use crate::rig::{Family, rounds, texts, texts_at};

#[test]
fn fork_at_every_seq_has_its_files() {
    for family in Family::everywhere() {
        let parent = family.founder();
        family.write(&parent, "a", "1");
        family.write(&parent, "d/b", "2");
        family.write(&parent, "a", "3");
        assert!(family.call(&parent, "rm", json!({ "path": "d" })).is_ok());
        family.write(&parent, "d", "a file now");
        let head = parent.session().head().unwrap();
        // A container for each takes long.
        let step = if matches!(family.spec, WorkspaceSpec::Podman(_)) && rounds(1) == 1 { 3 } else { 1 };
        for at in (1..=head).step_by(step) {
            let child = family.fork_at(&parent, at);
            // Inside a commit it is at its end.
            let at = parent.session().commit_end(at).unwrap();
            assert_eq!(family.texts(&child), texts_at(parent.session(), at), "{at} of {}", family.spec.backend_name());
            // What was before it is the same, and so is what is folded from it.
            for seq in 1..=at {
                assert_eq!(digests(child.session(), seq), digests(parent.session(), seq), "{seq} of the fork at {at}");
            }
            assert_eq!(child.session().origin().map(|origin| origin.at), Some(at));
            child.close().unwrap();
        }
        family.verify();
    }
}

#[test]
fn fork_keeps_its_past_when_ancestors_go() {
    for family in Family::everywhere() {
        let mut line = vec![family.founder()];
        family.write(&line[0], "0", "0");
        for generation in 1..6 {
            let child = family.fork(&line[generation - 1]);
            family.write(&child, &generation.to_string(), &generation.to_string());
            line.push(child);
        }
        let youngest = line.pop().unwrap();
        let expected = family.texts(&youngest);
        assert_eq!(expected.len(), 6);
        for ancestor in line {
            ancestor.close().unwrap();
            let id = ancestor.session().id();
            let spec = WorkspaceSpec::of_session(ancestor.session().started().unwrap()).unwrap();
            drop(ancestor);
            spec.remove(id, family.path()).unwrap();
            family.sessions.remove(id).unwrap();
            assert_eq!(family.texts(&youngest), expected);
        }
        let session = youngest.session().clone();
        youngest.close().unwrap();
        drop(youngest);
        // Also for the next process, and from nothing but its history.
        let spec = WorkspaceSpec::of_session(session.started().unwrap()).unwrap();
        spec.remove(session.id(), family.path()).unwrap();
        assert_eq!(family.texts(&family.open(&session)), expected);
        assert_eq!(family.sessions.list().unwrap().len(), 1);
        family.verify();
    }
}

#[test]
fn fork_has_command_changes_and_drift() {
    for family in Family::everywhere().into_iter().filter(Family::has_shell) {
        let parent = family.founder();
        family.sh(&parent, "mkdir d && echo -n made > d/made");
        if family.spec.backend_name() == "host" {
            let place = WorkspaceSpec::directory(parent.session().id(), family.path());
            std::fs::write(place.join("d/outside"), "drift").unwrap();
            let child = family.fork(&parent);
            assert_eq!(family.texts(&child), texts([("d/made", "made"), ("d/outside", "drift")]));
            continue;
        }
        let child = family.fork(&parent);
        assert_eq!(family.texts(&child), texts([("d/made", "made")]));
        // Of a session whose container and files are gone as well.
        let session = parent.session().clone();
        parent.close().unwrap();
        drop(parent);
        family.spec.remove(session.id(), family.path()).unwrap();
        let late = family.fork(&family.open(&session));
        assert_eq!(family.texts(&late), texts([("d/made", "made")]));
        assert_eq!(family.texts(&child), texts([("d/made", "made")]));
    }
}

#[test]
fn fork_of_own_directory_gets_another() {
    let given = tempfile::tempdir().unwrap();
    std::fs::write(given.path().join("a"), "mine").unwrap();
    let directory = Some(given.path().to_owned());
    let family = Family::new(WorkspaceSpec::Host(foldspace::backends::HostOptions { directory, ..Default::default() }));
    let parent = family.founder();
    let child = family.fork(&parent);
    family.write(&child, "a", "the child's");
    assert_eq!(std::fs::read(given.path().join("a")).unwrap(), b"mine");
    assert_eq!(family.texts(&child), texts([("a", "the child's")]));
    let same = ("host".to_owned(), parent.session().started().unwrap().options.clone());
    let refused = family
        .forker()
        .begin(parent.session(), ForkOptions { workspace: Some(same), ..ForkOptions::new(Isolation::Fork) });
    assert!(refused.unwrap_err().to_string().contains("the parent's own directory"));
    let begun = family.forker().begin(parent.session(), ForkOptions::new(Isolation::Fork)).unwrap();
    assert_eq!(family.texts(&family.open(&begun)), texts([("a", "mine")]));
}

#[test]
fn fork_with_wrong_options_leaves_nothing() {
    for family in Family::everywhere() {
        let parent = family.founder();
        let head = parent.session().head().unwrap();
        let start = |new: ForkOptions| family.runtime.block_on(family.forker().start(&parent, new));
        for at in [0, head + 1, u64::MAX] {
            let refused = start(ForkOptions::fork_at(at)).unwrap_err().to_string();
            assert!(refused.contains(&format!("has no position {at}")), "{refused}");
        }
        for name in ["founder", "", "a/b", &"x".repeat(81)] {
            let new = ForkOptions { name: Some(name.to_owned()), ..ForkOptions::new(Isolation::Fork) };
            assert!(start(new).is_err(), "{name}");
        }
        assert_eq!(parent.session().head().unwrap(), head, "nothing is noted in the parent");
        assert_eq!(family.sessions.list().unwrap().len(), 1);
        let left = foldspace::WorkspaceSpec::abandoned(family.path(), |id| id == parent.session().id()).unwrap();
        assert_eq!(left, Vec::<std::path::PathBuf>::new());
        // A name that was refused is free.
        start(ForkOptions { name: Some("later".to_owned()), ..ForkOptions::new(Isolation::Fork) }).unwrap();
    }
}

#[test]
fn concurrent_forks_get_unique_names() {
    let family = Family::new(WorkspaceSpec::Memory);
    let parent = family.founder();
    family.write(&parent, "a", "one");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..25 {
                    let child = family.sessions.child_of(parent.session(), ForkOptions::new(Isolation::Fork)).unwrap();
                    assert_eq!(texts_at(&child, child.head().unwrap()), texts([("a", "one")]));
                }
            });
        }
    });
    let names: std::collections::BTreeSet<String> =
        family.sessions.list().unwrap().iter().map(|entry| entry.name()).collect();
    assert_eq!(names.len(), 201);
    assert!(names.contains("founder-200"));
    family.verify();
}

#[test]
fn concurrent_forks_of_one_name_let_one_win() {
    let directory = tempfile::tempdir().unwrap();
    let sessions = Sessions::open(directory.path(), Registry::standard()).unwrap();
    for round in 0..10 {
        let name = format!("wanted-{round}");
        let won = std::thread::scope(|scope| {
            let wanted = || sessions.create(NewSession::named(name.clone())).is_ok();
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(wanted)).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).filter(|won| *won).count()
        });
        assert_eq!(won, 1);
        let id = sessions.find(&name).unwrap().id;
        sessions.remove(id).unwrap();
        sessions.create(NewSession::named(name)).unwrap();
    }
}

#[test]
fn concurrent_parent_removal_keeps_children() {
    for round in 0..4 {
        let directory = tempfile::tempdir().unwrap();
        let sessions = Sessions::open(directory.path(), Registry::standard()).unwrap();
        let mut parents = Vec::new();
        for _ in 0..16 {
            let parent = sessions.create(NewSession::default()).unwrap();
            sessions.child_of(&parent, ForkOptions::new(Isolation::Fork)).unwrap();
            parents.push(parent.id());
        }
        std::thread::scope(|scope| {
            for some in parents.chunks(4) {
                let sessions = &sessions;
                scope.spawn(move || some.iter().for_each(|parent| sessions.remove(*parent).unwrap()));
            }
        });
        sessions.close();
        if round % 2 == 1 {
            LocalStore::collect(directory.path(), false).unwrap();
        }
        for _ in 0..2 {
            let sessions = Sessions::open(directory.path(), Registry::standard()).unwrap();
            let children = sessions.list().unwrap();
            assert_eq!(children.len(), 16);
            assert!(children.iter().all(|entry| entry.origin.seq == 2 && !parents.contains(&entry.id)));
            assert_eq!(sessions.verify(None).unwrap().differences, Vec::new());
            sessions.close();
        }
    }
}

#[test]
fn export_of_child_is_self_contained() {
    let family = Family::new(WorkspaceSpec::Memory);
    let parent = family.founder();
    family.write(&parent, "a", "one");
    let child = family.fork(&parent);
    family.write(&child, "b", "two");
    let mut file = Vec::new();
    export_session(&family.sessions, child.session().id(), &mut file).unwrap();
    let clock = Arc::new(SystemClock::default());
    let other = Sessions::new(Arc::new(MemoryStore::default()), Registry::standard(), clock, SnapshotPolicy::default())
        .unwrap();
    // Its name, not its parent's, which may be taken there.
    other.create(NewSession::named("founder")).unwrap();
    let summary = import_session(&other, &mut Cursor::new(&file), None).unwrap();
    assert_eq!(summary.name, "founder-1");
    let there = other.session(summary.session).unwrap();
    assert_eq!(texts_at(&there, there.head().unwrap()), texts([("a", "one"), ("b", "two")]));
    assert_eq!(there.origin(), child.session().origin());
    assert_eq!(digests(&there, there.head().unwrap()), digests(child.session(), child.session().head().unwrap()));
    // Where it is already, there is nothing to add.
    let again = import_session(&family.sessions, &mut Cursor::new(&file), None).unwrap();
    assert_eq!((again.added, again.name.as_str()), (0, "founder-1"));
}

#[test]
fn session_id_used_as_past_cannot_begin_again() {
    let family = Family::new(WorkspaceSpec::Memory);
    let parent = family.founder();
    let mut file = Vec::new();
    export_session(&family.sessions, parent.session().id(), &mut file).unwrap();
    let child = family.fork(&parent);
    family.sessions.remove(parent.session().id()).unwrap();
    assert!(matches!(family.sessions.find("founder"), Err(SessionError::NotFound { .. })));
    let refused = import_session(&family.sessions, &mut Cursor::new(&file), None).unwrap_err().to_string();
    assert!(refused.contains("was removed and has children"), "{refused}");
    family.sessions.remove(child.session().id()).unwrap();
    import_session(&family.sessions, &mut Cursor::new(&file), None).unwrap();
    assert_eq!(family.sessions.list().unwrap().len(), 1);
}

#[test]
fn fork_survives_restart_and_collection() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Sessions::open(directory.path(), Registry::standard()).unwrap();
    let sessions = open();
    let parent = sessions.create(NewSession::named("parent")).unwrap();
    let child = sessions.child_of(&parent, ForkOptions::new(Isolation::Fork)).unwrap();
    let ids = (parent.id(), child.id());
    drop((parent, child));
    let (parent, child) = ids;
    sessions.remove(parent).unwrap();
    sessions.close();
    for _ in 0..2 {
        let sessions = open();
        let child = sessions.session(child).unwrap();
        assert_eq!((child.name(), child.events(1, 10).unwrap().len()), ("parent-1", 2));
        assert!(sessions.session(parent).is_err());
        drop(child);
        sessions.close();
        LocalStore::collect(directory.path(), false).unwrap();
    }
    let store = LocalStore::open(directory.path(), LocalStoreOptions::default()).unwrap();
    drop(store);
    assert_eq!(LocalStore::fsck(directory.path(), false).unwrap().problems, Vec::new());
}
