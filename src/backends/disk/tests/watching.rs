//! A disk with kernel reports of changes: a full walk finds the unreported ones.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use proptest::prelude::*;

use super::model::{Act, PATHS, act, begin, perform};
use super::rig::{Rig, WATCHED, assert_covered, names, plain_in, tick, watched, world};
use crate::backends::DirtyPath;
use crate::backends::disk::PlainOptions;
use crate::backends::disk::watch::Watch;
use crate::backends::disk::workspace_disk::WorkspaceDisk;
use crate::engine::path::EntryPath;

/// Steps across the border of the tree, and to many directories at once.
#[derive(Debug, Clone)]
enum Move {
    Within(Act),
    Out(usize),
    Back(usize, usize),
    WriteOutside(u8),
    Deep(usize),
    Swap(usize, usize),
}

fn moves() -> impl Strategy<Value = Move> {
    let at = || 0..PATHS.len();
    prop_oneof![
        6 => act().prop_map(Move::Within),
        2 => at().prop_map(Move::Out),
        2 => (at(), at()).prop_map(|(from, to)| Move::Back(from, to)),
        1 => any::<u8>().prop_map(Move::WriteOutside),
        2 => at().prop_map(Move::Deep),
        2 => (at(), at()).prop_map(|(one, other)| Move::Swap(one, other)),
    ]
}

/// Each path has its own place outside; its contents change, too.
fn make(top: &Path, outside: &Path, step: &Move) {
    let place = |path: &usize| outside.join(PATHS[*path].replace('/', "-"));
    let _ = match step {
        Move::Within(Act::Hard(..)) => Ok(()),
        Move::Within(act) => {
            perform(top, act);
            Ok(())
        }
        Move::Out(path) => fs::rename(top.join(PATHS[*path]), place(path)),
        Move::Back(from, to) => fs::rename(place(from), top.join(PATHS[*to])),
        Move::WriteOutside(byte) => fs::read_dir(outside).unwrap().try_for_each(|entry| {
            let path = entry.unwrap().path();
            if path.is_dir() { fs::write(path.join("a"), [*byte]) } else { Ok(()) }
        }),
        Move::Deep(path) => {
            let deep = top.join(PATHS[*path]).join("a/b/c");
            fs::create_dir_all(&deep).and_then(|()| fs::write(deep.join("d"), "deep"))
        }
        Move::Swap(one, other) => {
            let (one, other) = (top.join(PATHS[*one]), top.join(PATHS[*other]));
            let flags = rustix::fs::RenameFlags::EXCHANGE;
            rustix::fs::renameat_with(rustix::fs::CWD, one, rustix::fs::CWD, other, flags).map_err(Into::into)
        }
    };
}

fn rig(fill: &dyn Fn(&Path)) -> Option<Rig> {
    watched(fill).map(|(disk, directory)| Rig { kind: WATCHED, disk: Box::new(disk), directory })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn watch_reports_random_moves(steps in proptest::collection::vec(moves(), 1..80)) {
        if let Some(mut rig) = rig(&begin) {
            let outside = rig.directory.path().join("outside");
            fs::create_dir(&outside).unwrap();
            for steps in steps.split(|step| matches!(step, Move::Within(Act::Settle))) {
                rig.watch(|top| steps.iter().for_each(|step| make(top, &outside, step)));
            }
        }
    }

    /// The kernel reports a change of a file under only one of its names. A full walk finds the others.
    #[test]
    fn walk_reports_what_hard_links_hide(acts in proptest::collection::vec(act(), 1..60)) {
        if let Some(mut rig) = rig(&begin) {
            for acts in acts.split(|act| matches!(act, Act::Settle)) {
                let before = rig.world();
                acts.iter().for_each(|act| perform(&rig.view(), act));
                let after = rig.world();
                let mut touched = rig.take();
                touched.extend(rig.disk.walk().unwrap().dirty);
                assert_covered(rig.kind, &before, &after, &touched);
                rig.disk.mark_clean().unwrap();
            }
        }
    }
}

#[test]
fn watch_of_changed_file_looks_at_nothing_else() {
    let Some(mut rig) = rig(&begin) else { return };
    assert_eq!(rig.take(), []);
    fs::write(rig.at("a/b"), "changed").unwrap();
    assert_eq!(rig.take(), [DirtyPath::Entry(EntryPath::lookup("a/b").unwrap())]);
    assert_eq!(rig.take(), [], "a reported change is not fresh");
}

#[test]
fn watch_overflow_looks_at_everything() {
    let Some(mut rig) = rig(&begin) else { return };
    let queued = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let files = queued.trim().parse::<usize>().unwrap() / 3 + 100;
    rig.watch(|top| {
        // Three events each: create, write and close.
        (0..files).for_each(|number| fs::write(top.join(format!("a/{number}")), "x").unwrap());
        fs::write(top.join("b/a/a"), "behind all others").unwrap();
        fs::create_dir_all(top.join("b/new/below")).unwrap();
    });
    rig.watch(|top| fs::write(top.join("b/new/below/file"), "it is watched").unwrap());
}

#[test]
fn watch_without_enough_watches_looks_at_everything() {
    let directory = super::rig::unknown(&begin).directory;
    let mut disk = plain_in(directory.path(), PlainOptions::default());
    let Some(watch) = Watch::of_at_most(0) else { return };
    disk.watch_with(watch);
    assert_eq!(disk.dirty().unwrap(), [DirtyPath::Subtree(EntryPath::root())]);
    assert!(!disk.is_watching() && !disk.is_walk_due());
    let mut rig = Rig { kind: "unwatched", disk: Box::new(disk), directory };
    rig.rest();
    rig.watch(|top| fs::write(top.join("a/b"), "changed").unwrap());
}

/// A process that keeps a file mapped and writes to it on request.
struct Mapped(Child, BufReader<std::process::ChildStdout>);

const MAPPED: &str = "import mmap, sys
file = open(sys.argv[1], 'r+b')
mapped = mmap.mmap(file.fileno(), 0)
print('mapped', flush=True)
for line in sys.stdin:
    mapped[0:1] = line[0:1].encode()
    print('written', flush=True)
";

impl Mapped {
    fn start(file: &Path) -> Self {
        let mut python = Command::new("python3");
        python.args(["-c", MAPPED]).arg(file).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = python.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut mapped = Self(child, output);
        mapped.wait();
        mapped
    }

    fn wait(&mut self) {
        let mut line = String::new();
        assert!(self.1.read_line(&mut line).unwrap() > 0, "it ended");
    }

    fn write(&mut self, byte: char) {
        writeln!(self.0.stdin.as_ref().unwrap(), "{byte}").unwrap();
        self.wait();
    }

    fn end(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

#[test]
fn walk_finds_late_what_was_written_through_a_mapping() {
    let Some((mut disk, directory)) = watched(&begin) else { return };
    let file = directory.path().join("files/a/b");
    let mut mapped = Mapped::start(&file);
    let look = |disk: &mut dyn WorkspaceDisk| {
        let touched = disk.dirty().unwrap();
        disk.mark_clean().unwrap();
        touched
    };
    look(&mut disk);
    tick();
    mapped.write('x');
    assert_eq!(fs::read(&file).unwrap()[0], b'x');
    assert_eq!(look(&mut disk), [], "the kernel does not report it");
    fs::write(directory.path().join("files/b/b"), "reported").unwrap();
    let walked = disk.walk().unwrap();
    disk.mark_clean().unwrap();
    let late = [DirtyPath::Entry(EntryPath::lookup("a/b").unwrap())];
    assert!(names(&walked.dirty, "a/b") && names(&walked.dirty, "b/b"), "{walked:?}");
    assert_eq!(walked.late, late);
    // Its page is already dirty, so that not even the file's times change.
    mapped.write('y');
    mapped.end();
    assert!(names(&look(&mut disk), "a/b"), "unmapping is reported");
    assert_eq!(
        world(&directory.path().join("files"))[&late_path()],
        super::rig::Seen::File { bytes: b"y/b".to_vec(), executable: false }
    );
}

fn late_path() -> EntryPath {
    EntryPath::lookup("a/b").unwrap()
}

#[test]
fn walk_is_due_after_its_time() {
    let Some((disk, directory)) = watched(&begin) else { return };
    assert!(!disk.is_walk_due());
    drop(disk);
    let mut disk =
        plain_in(directory.path(), PlainOptions { may_watch: true, walk_every: Duration::ZERO, ..Default::default() });
    assert!(!disk.is_walk_due(), "nothing is watched yet, so the next scan is a full one");
    disk.dirty().unwrap();
    assert!(disk.is_walk_due());
}
