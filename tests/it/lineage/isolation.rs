//! What relatives can see of each other: nothing, but what both began with.

use std::time::Duration;

use foldspace::event::{ChildStarted, Isolation, SessionAllow};
use foldspace::reducers::{Allowances, ToolCalls};
use foldspace::tools::{MountSpec, hydrate};
use foldspace::{EntryPath, Event, Filter, ForkOptions, ToolCall, WorkspaceSpec};
use serde_json::json;

use super::shared;
use crate::rig::{Family, eventually, is_running, texts};

#[test]
fn relatives_do_not_share_files() {
    for family in Family::everywhere() {
        let parent = family.founder();
        family.write(&parent, "a", "one");
        family.write(&parent, "d/b", "two");
        let (first, second) = (family.fork(&parent), family.fork(&parent));
        let fresh = family.start(&parent, ForkOptions::new(Isolation::Full));
        let common = texts([("a", "one"), ("d/b", "two")]);
        for tool_runner in [&parent, &first, &second] {
            assert_eq!(family.texts(tool_runner), common);
        }
        assert_eq!(family.texts(&fresh), texts([]));

        family.write(&parent, "a", "parent's");
        family.write(&first, "a", "first's");
        family.write(&first, "own", "first's");
        family.write(&fresh, "a", "fresh");
        assert!(family.call(&second, "rm", json!({ "path": "d" })).is_ok());
        assert_eq!(family.texts(&parent), texts([("a", "parent's"), ("d/b", "two")]));
        assert_eq!(family.texts(&first), texts([("a", "first's"), ("d/b", "two"), ("own", "first's")]));
        assert_eq!(family.texts(&second), texts([("a", "one")]));
        assert_eq!(family.texts(&fresh), texts([("a", "fresh")]));
        family.verify();
    }
}

#[test]
fn relatives_do_not_share_processes() {
    for family in Family::everywhere().into_iter().filter(Family::has_shell) {
        let parent = shared(family.founder());
        family.write(&parent, "a", "one");
        let variables = json!({ "command": "echo $SECRET", "env": { "SECRET": "parent's" } });
        assert_eq!(family.call(&parent, "shell_execute", variables).result["stdout"], "parent's\n");
        let in_container = matches!(family.spec, WorkspaceSpec::Podman(_));
        if in_container {
            family.sh(&parent, "echo parent > /tmp/left");
        }
        let (child, sibling) = (family.fork(&parent), family.fork(&parent));
        let fresh = family.start(&parent, ForkOptions::new(Isolation::Full));
        let relatives = [&child, &sibling, &fresh];
        for relative in relatives {
            assert_eq!(family.sh(relative, "echo $SECRET"), "\n");
        }
        if !in_container {
            // A directory of this machine is no sandbox: its processes are the machine's.
            continue;
        }
        let running = {
            let parent = parent.clone();
            let call = ToolCall::new("shell_execute", json!({ "command": "touch begun; sleep 987" }));
            let cancel = call.cancel.clone();
            (family.runtime.spawn(async move { parent.call(call).await }), cancel)
        };
        let (running, cancel) = running;
        eventually("the parent's command runs", || {
            let outcome = family.call(&child, "shell_execute", json!({ "command": "true" }));
            outcome.is_ok() && parent.session().state().unwrap().slice::<ToolCalls>().unwrap().open().count() == 1
        });
        eventually("it has come to its last command", || is_running("sleep 987"));
        let processes = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '; ls -A /tmp";
        for relative in relatives {
            let seen = family.sh(relative, processes);
            assert!(!seen.contains("sleep 987") && !seen.contains("left"), "{seen}");
        }
        cancel.cancel();
        family.runtime.block_on(running).unwrap().unwrap();
        let containers: std::collections::BTreeSet<String> =
            relatives.iter().map(|relative| family.sh(relative, "cat /proc/sys/kernel/hostname")).collect();
        assert_eq!(containers.len(), 3, "each has a container of its own");
    }
}

#[test]
fn relatives_do_not_share_events_or_approvals() {
    for family in Family::everywhere() {
        let parent = family.founder();
        let mut commit = parent.session().commit();
        commit.push(&SessionAllow { programs: vec!["make".to_owned()], everything: false }).unwrap();
        parent.session().record(commit).unwrap();
        let child = family.fork(&parent);
        let programs = |tool_runner: &foldspace::ToolRunner| {
            tool_runner.session().state().unwrap().slice::<Allowances>().unwrap().programs.len()
        };
        assert_eq!((programs(&parent), programs(&child)), (1, 0));

        let mut heard = child.session().subscribe(child.session().head().unwrap() + 1, Filter::default());
        family.write(&parent, "a", "parent's");
        family.write(&child, "b", "child's");
        let first = heard.next_within(Duration::from_secs(60)).unwrap().unwrap();
        assert_eq!((first.session, &*first.event.kind), (child.session().id(), "CallStarted"));
        let events = |tool_runner: &foldspace::ToolRunner| tool_runner.session().events(1, 1000).unwrap();
        assert!(events(&child).iter().all(|event| event.session == child.session().id()));
        let named = |tool_runner: &foldspace::ToolRunner, text: &[u8]| {
            events(tool_runner).iter().any(|event| event.event.bytes.windows(text.len()).any(|bytes| bytes == text))
        };
        assert!(named(&child, b"child's") && !named(&child, b"parent's"));
        assert!(named(&parent, b"parent's") && !named(&parent, b"child's"));
        assert_eq!(events(&parent).iter().filter(|event| *event.event.kind == *ChildStarted::KIND).count(), 1);
        family.verify();
    }
}

#[test]
fn fully_isolated_child_has_fresh_mounts() {
    for family in Family::everywhere() {
        let parent = family.founder();
        let source = family.path().join("source");
        std::fs::create_dir(&source).unwrap();
        std::fs::write(source.join("notes"), "as it was").unwrap();
        std::fs::write(source.join("left-out"), "").unwrap();
        let mount_path = Some(EntryPath::lookup("in").unwrap());
        let mount = MountSpec {
            host_path: source.clone(),
            mount_path,
            exclude_glob: vec!["left*".to_owned()],
            ..Default::default()
        };
        let roots = foldspace::tools::AllowedRoots::new([family.path()]).unwrap();
        let mounts = [mount];
        let hydrated = hydrate(parent.session(), parent.workspace().as_ref(), &mounts, &roots);
        family.runtime.block_on(hydrated).unwrap();
        family.write(&parent, "in/notes", "edited");
        std::fs::write(source.join("notes"), "as it is").unwrap();
        let child = family.start(&parent, ForkOptions::new(Isolation::Full));
        assert_eq!(family.texts(&child), texts([("in/notes", "as it is")]));
        assert_eq!(family.texts(&parent), texts([("in/notes", "edited")]));
        // Where that is not allowed any more, the child says so.
        let nowhere = foldspace::tools::AllowedRoots::new([tempfile::tempdir().unwrap().path()]).unwrap();
        let forker = foldspace::tools::Forker { roots: nowhere, ..family.forker() };
        let refused = family.runtime.block_on(forker.start(&parent, ForkOptions::new(Isolation::Full))).unwrap_err();
        assert!(refused.to_string().contains("without the parent's mounts"), "{refused}");
    }
}
