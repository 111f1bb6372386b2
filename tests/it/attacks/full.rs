//! A file system that is full: under the files, and under the journal.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use foldspace::backends::HostOptions;
use foldspace::event::{CallFinished, CallStatus, CommandResult};
use foldspace::tools::CaptureBudget;
use foldspace::{EntryPath, Recorded, ToolCall, WorkspaceSpec};
use serde_json::json;

use crate::rig::{Disk, Kind, Rig, container, process, skip, walk};

/// Leaves no byte on a disk; returns the file that fills it, to be removed again.
fn fill(disk: &Path) -> PathBuf {
    let path = disk.join("filler");
    let mut file = std::fs::File::create(&path).unwrap();
    let mut piece = vec![b'x'; 1 << 16];
    loop {
        if file.write_all(&piece).is_err() {
            match piece.len() {
                1 => return path,
                length => piece.truncate(length / 2),
            }
        }
    }
}

/// A session whose files lie in a directory of the host, on a small file system.
fn on_small_disk() -> Option<(Disk, Rig)> {
    let mut rig = Rig::new(Kind::Host)?;
    rig.close();
    let disk = Disk::over(&rig.data().join("workspaces"), 8)?;
    rig.reopen();
    Some((disk, rig))
}

fn what_does_not_fit_is_an_error_and_harms_nothing(disk: &Path, rig: &mut Rig) {
    rig.ok("echo kept > f && mkdir d && seq 1000 > d/g");
    // A command fills it by itself, and then another finds it full.
    let step = rig.sh("head -c 20M /dev/zero > big; echo after");
    assert!(step.outcome.text.contains("No space left"), "{}", step.outcome.text);
    assert_eq!((step.stdout(), step.paths().0), ("after", vec!["big".to_owned()]));
    let step = rig.sh("seq 100000 > more");
    assert!(step.exit_code() != 0 && step.outcome.text.contains("No space left"), "{}", step.outcome.text);
    rig.ok("rm -f big more");
    // What a tool writes does not fit.
    let filler = fill(disk);
    let large = "x".repeat(40_000);
    let known = rig.known();
    for (tool, params) in [
        ("write_file", json!({ "file_path": "new", "content": large })),
        ("write_file", json!({ "file_path": "a/b/new", "content": large })),
        ("edit_file", json!({ "file_path": "f", "old_string": "kept", "new_string": large })),
    ] {
        let step = rig.call(tool, params);
        assert!(!step.outcome.is_ok() && step.outcome.text.contains("No space left"), "{tool}: {}", step.outcome.text);
        assert_eq!((step.writes_and_deletes(), rig.known() == known), ((0, 0), true), "{tool}: it is as it was");
    }
    assert!(rig.call("read_file", json!({ "file_path": "f" })).outcome.text.contains("kept"));
    assert_eq!(rig.ok("cat f").stdout(), "kept");
    std::fs::remove_file(filler).unwrap();
    assert!(rig.call("write_file", json!({ "file_path": "a/b/new", "content": large })).outcome.is_ok());
    assert_eq!(rig.ok("cat f && wc -c < a/b/new").stdout(), "kept\n40000");
    rig.reopen();
    assert_eq!(rig.ok("cat f").drift, []);
    rig.verify();
}

#[test]
fn full_disk_on_host_fails_call_without_harm() {
    let Some((disk, mut rig)) = on_small_disk() else { return };
    what_does_not_fit_is_an_error_and_harms_nothing(disk.root(), &mut rig);
    rig.close();
    drop(disk);
}

/// Does a check in a process whose cache is on a small disk that the engine sees, too.
fn with_small_cache(check: &str) {
    static ALONE: Mutex<()> = Mutex::new(());
    let Some(disk) = std::env::var_os("FOLDSPACE_SMALL_DISK") else {
        return skip("there is no small disk that the engine sees; tests/podman/ready.sh makes one");
    };
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let cache = tempfile::tempdir_in(disk).unwrap();
    let output = process("fill_overlay", check).env("FOLDSPACE_CACHE", cache.path()).output().unwrap();
    assert!(output.status.success(), "{check}: {output:?}");
}

/// Does the check that was ordered, on an overlay in this process's cache.
pub(crate) fn fill_overlay(check: &str) {
    let Some(mut rig) = Rig::new(Kind::Overlay) else { return };
    let layers = container::cache().join("layers");
    match check {
        "writes" => what_does_not_fit_is_an_error_and_harms_nothing(&layers, &mut rig),
        "command" => command_that_fills_the_disk_is_ended(&mut rig),
        _ => files_that_can_t_come_back_come_back_later(&layers, &mut rig),
    }
    rig.close();
}

#[test]
fn full_disk_under_overlay_fails_call_without_harm() {
    with_small_cache("writes");
}

#[test]
fn disk_limit_kills_only_offending_command() {
    with_small_cache("command");
}

#[test]
fn populate_on_full_overlay_succeeds_later() {
    with_small_cache("populate");
}

fn command_that_fills_the_disk_is_ended(rig: &mut Rig) {
    let step = rig.sh("while :; do head -c 200k /dev/zero >> big; sleep 0.01; done");
    assert!(step.outcome.text.contains("the disk that holds the workspace has less than"), "{}", step.outcome.text);
    let results = step.of::<CommandResult>();
    assert_eq!((results[0].cancelled, results[0].timed_out, results[0].signal.is_some()), (false, false, true));
    assert_eq!(step.paths().0, ["big"]);
    // It says what to do, and that can be done.
    rig.ok("rm big && echo x > f");
    rig.verify();
}

/// What came only halfway onto the disk is not taken for the files later.
fn files_that_can_t_come_back_come_back_later(disk: &Path, rig: &mut Rig) {
    rig.python("import os\nfor n in range(20):\n    open(f'f{n:02}', 'wb').write(os.urandom(100_000))\n");
    let (known, head) = (rig.known(), rig.session().head().unwrap());
    rig.close();
    for entry in std::fs::read_dir(disk).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        std::fs::remove_dir_all(entry).unwrap();
    }
    let filler = fill(disk);
    let file = std::fs::OpenOptions::new().write(true).open(&filler).unwrap();
    file.set_len(file.metadata().unwrap().len() - 1_200_000).unwrap();
    drop(file);
    let error = rig.try_reopen().unwrap_err().to_string();
    assert!(error.contains("No space left"), "{error}");
    std::fs::remove_file(filler).unwrap();
    rig.reopen();
    let since = rig.session().events(head + 1, 100).unwrap();
    assert!(since.iter().all(|event| crate::rig::kind(event) == "ContainerStopped"), "they are the same: {since:?}");
    assert_eq!(rig.ok("ls").drift, []);
    assert_eq!(rig.known(), known);
    rig.verify();
}

#[test]
fn populate_on_full_host_disk_succeeds_later() {
    let Some((disk, mut rig)) = on_small_disk() else { return };
    files_that_can_t_come_back_come_back_later(disk.root(), &mut rig);
    rig.close();
    drop(disk);
}

/// The command has run when there is no room for what it did; nothing is lost but that call's own record.
#[test]
fn full_journal_loses_only_the_record_of_its_call() {
    let Some(disk) = Disk::new(320) else { return };
    let data = tempfile::tempdir_in(disk.root()).unwrap();
    let mut rig = Rig::within(&WorkspaceSpec::Host(HostOptions::default()), CaptureBudget::default(), data);
    rig.ok("echo kept > f");
    let known = rig.known();
    let (root, fill) = (rig.root(), "for n in 1 2 3; do head -c 50M /dev/urandom > $n; done; cat /dev/zero > filler");
    let params = json!({ "command": fill, "timeout_seconds": 100 });
    let call = ToolCall::new("shell_execute", params);
    let error = rig.runtime.block_on(rig.tool_runner().call(call)).unwrap_err().to_string();
    assert!(error.contains("No space left"), "{error}");
    std::fs::remove_file(root.join("filler")).unwrap();
    // It is not known what was written of it, so nothing more is until the store is opened again.
    rig.close();
    for file in ["1", "2"] {
        std::fs::remove_file(root.join(file)).unwrap();
    }
    let copy = walk(&root);
    rig.reopen();
    assert_eq!(rig.known(), copy, "what is there is found");
    let three = EntryPath::lookup("3").unwrap();
    assert!(
        copy.len() == 2 && copy.contains_key(&three) && known.iter().all(|(path, seen)| copy.get(path) == Some(seen))
    );
    let events = rig.session().events(1, 1000).unwrap();
    let ends: Vec<_> =
        events.iter().filter_map(Recorded::typed::<CallFinished>).map(|e| e.unwrap().event.status).collect();
    assert_eq!(ends, [CallStatus::Ok, CallStatus::Interrupted]);
    assert_eq!(rig.ok("cat f").stdout(), "kept");
    rig.verify();
    drop(rig);
    drop(disk);
}
