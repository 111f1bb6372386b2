//! Messages to a person about a store that lost something, about stray files in it, and on an odd machine.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::rig::{Disk, Program, STORY, told};

fn segment(program: &Program) -> PathBuf {
    program.data().join("journal/00000001.seg")
}

fn with_stray(bytes: &[u8]) -> (Program, PathBuf) {
    let program = Program::with_story();
    let stray = program.data().join("journal/99999999.seg");
    std::fs::write(&stray, bytes).unwrap();
    (program, stray)
}

#[test]
fn lost_events_are_reported_and_can_be_accepted() {
    let program = Program::with_story();
    let exported = program.run(&["export", "story", "whole.fold"]);
    assert!(exported.ends_with("[exit 0]"), "{exported}");
    let bytes = std::fs::read(segment(&program)).unwrap();
    std::fs::write(segment(&program), &bytes[..bytes.len() / 2]).unwrap();
    for reading in [&["log", "story"][..], &["state", "story"], &["export", "story", "left.fold"], &["sessions"]] {
        let told = program.run(reading);
        assert!(told.contains("note: acknowledged events are lost: the journal ends at byte "), "{told}");
        assert!(told.contains(" of segment 1, but the index goes up to byte") && told.ends_with("[exit 0]"), "{told}");
    }
    for checking in [&["verify"][..], &["verify", "story"], &["fsck"], &["fsck", "--repair"]] {
        let told = program.run(checking);
        assert!(told.contains(" to 15 were acknowledged and are lost") && told.ends_with("[exit 1]"), "{told}");
        assert!(told.contains("segment 1") && !told.contains("repaired: "), "{told}");
    }
    let other = program.file("other.jsonl", "");
    for changing in [&["run", &other][..], &["remove", "story", "--yes"], &["gc"], &["import", "whole.fold"]] {
        let told = program.run(changing);
        assert!(told.contains("hint: `foldspace check` names them") && told.ends_with("[exit 5]"), "{told}");
    }
    assert!(program.run(&["fsck", "--accept-loss"]).ends_with("[exit 2]"), "only with --repair");
    let accepted = program.run(&["fsck", "--repair", "--accept-loss"]);
    assert!(accepted.contains("; recorded in its history") && accepted.ends_with("[exit 0]"), "{accepted}");
    assert!(program.run(&["fsck"]).contains("no damage"));
    let verified = program.run(&["verify"]);
    assert!(verified.contains(" events lost earlier, and skipped\n") && verified.ends_with("[exit 0]"), "{verified}");
    assert!(program.printed(&["log", "story"]).contains(" to 15 before it"));
    assert!(program.run(&["run", &other]).ends_with("[exit 0]"));
}

/// Events behind the damage are kept, and a child whole; nothing is freed before a person asks for it.
#[test]
fn repair_keeps_what_is_behind_the_damage() {
    let program = Program::with_story();
    program.printed(&["clone", "story", "--isolation", "fork", "--name", "kid"]);
    program.printed(&["stop"]);
    let mut bytes = std::fs::read(segment(&program)).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 8].iter_mut().for_each(|byte| *byte ^= 0x5a);
    std::fs::write(segment(&program), &bytes).unwrap();
    let read = program.run(&["log", "story"]);
    assert!(!read.contains("the index failed"), "{read}");
    if read.ends_with("[exit 5]") {
        assert!(read.contains(" can't be read: ") && read.contains("foldspace check --bytes"), "{read}");
    }
    let repaired = program.run(&["fsck", "--repair"]);
    let has_gap = repaired.contains(" lost; intact events after the gap: ");
    assert!(repaired.ends_with(if has_gap { "[exit 1]" } else { "[exit 0]" }), "{repaired}");
    assert!(repaired.contains("repaired"), "{repaired}");
    assert!(program.run(&["fsck"]).contains("no damage"));
    assert_eq!(program.printed(&["log", "story", "--json"]).contains("EventsLost"), has_gap);
    assert!(program.run(&["log", "kid"]).ends_with("[exit 0]"));
    assert_eq!(program.printed(&["state", "kid"]).contains("incomplete: the changes of"), has_gap);
    assert!(program.run(&["gc"]).contains("kept 1 file with damaged bytes of the journal; `gc --torn` removes them"));
    assert!(program.run(&["gc", "--torn"]).contains("removed 1 file with damaged bytes"));
    assert!(program.run(&["fsck", "--repair", "--drop", "kid"]).ends_with("[exit 3]"), "nothing of it contradicts");
}

#[test]
fn stray_file_in_journal_is_named_and_set_aside() {
    let whole = std::fs::read(segment(&Program::with_story())).unwrap();
    for bytes in [&b""[..], b"what is this?", &[0xff; 100_000], &whole] {
        let (program, stray) = with_stray(bytes);
        let listed = program.run(&["clone", "story"]);
        assert!(listed.contains("99999999.seg is not a segment of this journal and is ignored"), "{listed}");
        assert!(listed.contains("story") && listed.ends_with("[exit 0]"), "{listed}");
        let checked = program.run(&["fsck"]);
        assert!(checked.contains("99999999.seg is not a segment of this journal\n"), "{checked}");
        assert!(checked.contains(": 1 problem\n") && checked.ends_with("[exit 1]"), "{checked}");
        assert!(stray.exists());
        let repaired = program.run(&["fsck", "--repair"]);
        assert!(repaired.contains(": moved to ") && repaired.ends_with("[exit 0]"), "{repaired}");
        assert!(!stray.exists());
        assert_eq!(std::fs::read(program.data().join("torn/99999999-fsck-1.bin")).unwrap(), bytes);
        assert!(program.run(&["verify"]).ends_with("[exit 0]"));
    }
}

#[test]
fn index_after_stray_file_still_proves_a_loss() {
    let (program, _) = with_stray(b"what is this?");
    assert!(program.run(&["fsck", "--repair"]).ends_with("[exit 0]"));
    let bytes = std::fs::read(segment(&program)).unwrap();
    std::fs::write(segment(&program), &bytes[..bytes.len() / 2]).unwrap();
    let checked = program.run(&["fsck"]);
    assert!(checked.contains(" were acknowledged and are lost") && checked.ends_with("[exit 1]"), "{checked}");
}

#[test]
fn store_in_existing_directory_is_private() {
    let program = Program::new();
    std::fs::create_dir(program.data()).unwrap();
    std::fs::set_permissions(program.data(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let script =
        program.file("s.jsonl", r#"{"tool": "write_file", "params": {"file_path": "a", "content": "secret"}}"#);
    let umask = program.command(&[]).get_program().to_owned();
    for backend in ["memory", "host"] {
        let mut command = Command::new("sh");
        command.args(["-c", "umask 022; exec \"$@\"", "sh"]).arg(&umask);
        command
            .args(["run", &script, "--backend", backend, "--session", backend])
            .env("FOLDSPACE_DATA", program.data());
        let told = told(&command.output().unwrap());
        assert!(told.ends_with("[exit 0]"), "{told}");
    }
    let mode = |path: &Path| path.symlink_metadata().unwrap().permissions().mode() & 0o777;
    let listed = |directory: &Path| -> Vec<PathBuf> {
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    let mut made = listed(&program.data());
    assert!(made.contains(&program.data().join("workspaces")) && made.contains(&program.data().join("index")));
    made.extend(listed(&program.data().join("journal")));
    let open: Vec<_> = made.iter().filter(|path| mode(path) & 0o077 != 0).collect();
    assert!(open.is_empty(), "{open:?}");
    assert_eq!(mode(&program.data()), 0o755, "what was there stays as it was");
}

/// The program on a machine that `machine.c` describes.
struct Machine {
    program: Program,
    library: PathBuf,
}

impl Machine {
    fn new() -> Self {
        let program = Program::new();
        let library = program.path("machine.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/cli/machine.c");
        let made = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).output();
        let made = made.expect("a C compiler is needed: on Debian, `apt-get install gcc libc6-dev`");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Self { program, library }
    }

    fn run(&self, set: (&str, &str), arguments: &[&str]) -> String {
        let mut command = self.program.command(arguments);
        told(&command.env("LD_PRELOAD", &self.library).env(set.0, set.1).output().unwrap())
    }
}

#[test]
fn clock_before_1970_stops_nothing() {
    let machine = Machine::new();
    let script = machine.program.file("s.jsonl", STORY);
    let early = ("MACHINE_SHIFT", "-3000000000");
    for arguments in [&["run", &script, "--session", "early"][..], &["log", "early"], &["verify"], &["fsck"], &["gc"]] {
        let told = machine.run(early, arguments);
        assert!(told.ends_with("[exit 0]") && !told.contains("panicked"), "{arguments:?}: {told}");
    }
    assert!(machine.run(early, &["clone", "early"]).contains("note: running without an index: the machine's clock"));
    let verified = machine.program.run(&["verify"]);
    assert!(verified.ends_with("[exit 0]"), "{verified}");
}

#[test]
fn event_times_ahead_of_clock_are_reported() {
    let machine = Machine::new();
    let script = machine.program.file("s.jsonl", STORY);
    let ran = machine.run(("MACHINE_SHIFT", "9000000000"), &["run", &script, "--session", "ahead"]);
    assert!(ran.ends_with("[exit 0]"), "{ran}");
    let verified = machine.program.run(&["verify"]);
    assert!(verified.contains(", ahead of this machine's clock") && verified.ends_with("[exit 0]"), "{verified}");
}

#[test]
fn store_directory_name_is_synced() {
    let machine = Machine::new();
    let script = machine.program.file("s.jsonl", "");
    let log = machine.program.path("synced");
    let below = machine.program.path("a/b").to_string_lossy().into_owned();
    let ran = machine.run(("MACHINE_SYNCED", &log.to_string_lossy()), &["--data", &below, "run", &script]);
    assert!(ran.ends_with("[exit 0]"), "{ran}");
    let synced = std::fs::read_to_string(log).unwrap();
    let place = machine.program.path("").canonicalize().unwrap();
    for directory in ["", "a", "a/b", "a/b/journal"] {
        let path = place.join(directory).to_string_lossy().trim_end_matches('/').to_owned();
        assert!(synced.lines().any(|line| line == path), "{path} is not in\n{synced}");
    }
}

#[test]
fn fsck_works_on_read_only_store() {
    let machine = Machine::new();
    let script = machine.program.file("s.jsonl", STORY);
    machine.program.printed(&["run", &script]);
    let data = machine.program.data();
    let read_only = ("MACHINE_READ_ONLY", data.to_str().unwrap());
    assert!(machine.run(read_only, &["run", &script]).ends_with("[exit 6]"), "nothing may be written");
    let checked = machine.run(read_only, &["fsck"]);
    assert!(checked.contains("no damage") && checked.ends_with("[exit 0]"), "{checked}");
    assert!(machine.run(read_only, &["fsck", "--repair"]).ends_with("[exit 6]"));
    std::fs::remove_file(data.join("lock")).unwrap();
    assert!(machine.run(read_only, &["fsck"]).ends_with("[exit 0]"), "there is no lock to take either");
    assert!(!data.join("lock").exists());
}

#[test]
fn full_disk_is_told_with_the_file_that_has_no_room() {
    let program = Program::new().through_owner();
    std::fs::create_dir_all(program.data()).unwrap();
    let Some(_disk) = Disk::over(&program.data(), 24) else { return };
    let run = |arguments: &[&str]| program.run(arguments);
    assert!(run(&["new", "s"]).contains("session s "));
    let noise = |name: &str, bytes: u32| run(&["exec", "s", "--sh", &format!("head -c {bytes} /dev/urandom > {name}")]);
    assert!(noise("a", 6_000_000).ends_with("[exit 0]"));
    let told = noise("b", 9_000_000);
    assert!(told.contains("No space left") && told.contains("hint: make room on the disk"), "{told}");
    let told = run(&["exec", "s", "rm", "b"]);
    assert!(told.contains("error: can't record /b, which changed in the workspace"), "{told}");
    let place = told.split_once("make room by hand: delete ").unwrap().1.split_once(" or another file").unwrap().0;
    // The store is opened again for the next command, also of another session.
    assert!(run(&["new", "t"]).contains("session t "));
    assert!(run(&["log", "s", "--calls"]).contains("interrupted"));
    assert!(run(&["check"]).ends_with("[exit 0]"));
    std::fs::remove_file(place).unwrap();
    assert_eq!(run(&["exec", "s", "ls"]), "a\n[exit 0]");
    run(&["stop"]);
}
