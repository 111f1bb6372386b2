//! Files that others change between a scan and the reads of its findings.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::rig::{IN_NAMESPACE, Rig, SEALED, Seen, World, names, on_each_with, path, plain, tick, unknown, world};
use crate::backends::disk::locked::OnDisk;
use crate::backends::{ChangeDetector, DirtyPath, Observed};
use crate::engine::path::EntryPath;

/// Two directories that only have their names in common.
fn pair(top: &Path) {
    for (directory, text) in [("one", "of one"), ("two", "of the other")] {
        fs::create_dir_all(top.join(directory).join("sub")).unwrap();
        for file in ["a", "b", "sub/c"] {
            fs::write(top.join(directory).join(file), format!("{file} {text}")).unwrap();
        }
    }
    fs::write(top.join("two/sub/only"), "").unwrap();
}

fn exchange(top: &Path) {
    renameat_with(CWD, top.join("one"), CWD, top.join("two"), RenameFlags::EXCHANGE).unwrap();
}

/// Reads the reported places, as a caller does.
fn take_up(disk: &OnDisk, touched: &[DirtyPath], known: &mut World) {
    for one in touched {
        let at = named(one);
        let mut found = Vec::new();
        if !at.is_root() {
            let observed = disk.observe(at).unwrap();
            if !observed.as_ref().is_some_and(Observed::is_directory) {
                known.retain(|other, _| !other.is_below(at));
            }
            found.push((at.clone(), observed));
        }
        if matches!(one, DirtyPath::Subtree(_)) {
            known.retain(|other, _| !other.is_below(at));
            found.extend(disk.below(at).unwrap().entries.into_iter().map(|(path, observed)| (path, Some(observed))));
        }
        for (path, observed) in found {
            match observed.and_then(|observed| seen(disk, &path, observed)) {
                Some(seen) => known.insert(path, seen),
                None => known.remove(&path),
            };
        }
    }
}

fn seen(disk: &OnDisk, path: &EntryPath, observed: Observed) -> Option<Seen> {
    Some(match observed {
        Observed::Directory { .. } => Seen::Directory,
        Observed::Symlink { target } => Seen::Link(target),
        Observed::Special(_) => Seen::Other,
        Observed::File { mode, .. } => {
            let mut bytes = Vec::new();
            // If it is gone, that is a finding.
            let file = disk.open(path).or_else(|_| disk.observe(path).map(|_| None));
            file.unwrap()?.read_to_end(&mut bytes).unwrap();
            Seen::File { bytes, executable: mode.is_executable() }
        }
    })
}

/// Scans and reads the findings; `meanwhile` runs in between.
fn look(disk: &OnDisk, known: &mut World, meanwhile: impl FnOnce()) -> Vec<DirtyPath> {
    let touched = disk.dirty().unwrap();
    meanwhile();
    take_up(disk, &touched, known);
    disk.mark_clean().unwrap();
    touched
}

/// Runs a test on a disk of each kind. Nothing may run while a layer is sealed.
fn on_each_capture(fill: &dyn Fn(&Path), test: impl Fn(&OnDisk, &Path, &mut World)) {
    on_each_with(fill, |rig| {
        if rig.kind != SEALED {
            on_capture(rig, &test)
        }
    });
}

fn on_capture(rig: &mut Rig, test: impl Fn(&OnDisk, &Path, &mut World)) {
    let (mut known, top) = (rig.world(), rig.view());
    test(&rig.capture(), &top, &mut known);
}

/// Created here, because an overlay's directory in a lower layer can't be moved.
fn make_pair(disk: &OnDisk, top: &Path, known: &mut World) {
    pair(top);
    still(disk, known);
}

/// Scans until no entry changed in the tick of the scan.
fn still(disk: &OnDisk, known: &mut World) {
    look(disk, known, || {});
    tick();
    look(disk, known, || {});
}

#[test]
fn scan_reports_dir_moved_during_scan() {
    on_each_capture(&|_| {}, |disk, top, known| {
        make_pair(disk, top, known);
        fs::write(top.join("one/a"), "new").unwrap();
        fs::write(top.join("one/sub/new"), "new").unwrap();
        fs::remove_file(top.join("two/b")).unwrap();
        exchange(top);
        tick();
        let touched = look(disk, known, || exchange(top));
        for place in ["one/b", "two/a", "two/sub/new"] {
            assert!(names(&touched, place) || names(&touched, "one") && names(&touched, "two"), "{touched:?}");
        }
        exchange(top);
        // Now everything is as it was during that scan.
        look(disk, known, || {});
        assert_eq!(*known, world(top));
    });
}

struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn scan_reports_dir_away_during_scan_on_return() {
    on_each_capture(&|_| {}, |disk, top, known| {
        make_pair(disk, top, known);
        // Another directory, with entries that a scan can't recognise as new.
        fs::create_dir(top.join("other")).unwrap();
        fs::rename(top.join("one/sub"), top.join("other/sub")).unwrap();
        for file in ["a", "b"] {
            fs::hard_link(top.join("one").join(file), top.join("other").join(file)).unwrap();
        }
        fs::remove_dir_all(top.join("one")).unwrap();
        fs::rename(top.join("other"), top.join("one")).unwrap();
        tick();
        look(disk, known, || fs::rename(top.join("one"), top.join("away")).unwrap());
        assert!(!known.keys().any(|known| known.is_below(&path("one"))));
        fs::rename(top.join("away"), top.join("one")).unwrap();
        look(disk, known, || {});
        assert_eq!(*known, world(top));
    });
}

#[test]
fn scan_with_busy_file_reports_only_it() {
    let busy = |top: &Path| fs::write(top.join("one/a"), "written all the time").unwrap();
    let mut rig = unknown(&pair);
    let (top, disk, mut known) = (rig.view(), rig.capture(), World::new());
    // Nothing else has changed in the tick of the scan.
    tick();
    assert_eq!(look(&disk, &mut known, || busy(&top)), [DirtyPath::Subtree(EntryPath::root())]);
    for _ in 0..3 {
        let touched = look(&disk, &mut known, || busy(&top));
        assert!(touched.iter().all(|one| *one == DirtyPath::Entry(path("one/a"))), "{touched:?}");
    }
    assert_eq!(known, world(&top));
}

#[test]
fn scan_settles_special_files() {
    let mut rig = unknown(&pair);
    let (top, disk, mut known) = (rig.view(), rig.capture(), World::new());
    let device = rustix::fs::mknodat(
        CWD,
        top.join("zero"),
        rustix::fs::FileType::CharacterDevice,
        rustix::fs::Mode::RUSR,
        rustix::fs::makedev(0, 0),
    );
    assert!(device.is_ok() || !rustix::process::geteuid().is_root() || std::env::var_os(IN_NAMESPACE).is_some());
    std::os::unix::net::UnixListener::bind(top.join("socket")).unwrap();
    for _ in 0..2 {
        let touched = disk.dirty().unwrap();
        touched.iter().for_each(|one| drop(disk.below(named(one)).unwrap()));
        disk.mark_clean().unwrap();
        tick();
    }
    still(&disk, &mut known);
    assert_eq!(look(&disk, &mut known, || {}), []);
}

fn named(touched: &DirtyPath) -> &EntryPath {
    let (DirtyPath::Entry(path) | DirtyPath::Subtree(path)) = touched;
    path
}

#[test]
fn scan_settles_flickering_file() {
    on_capture(&mut plain(&pair), |disk, top, known| {
        for round in 0..30 {
            let done = AtomicBool::new(false);
            std::thread::scope(|scope| {
                // Also if a scan fails, because joining the thread would block forever.
                let ends = Ends(&done);
                let flickering = scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        exchange(top);
                    }
                });
                for step in 0..4 {
                    // Either directory may be at that path by then.
                    drop(fs::write(top.join("one/a"), format!("{round} {step}")));
                    drop(fs::write(top.join("two/sub/c"), format!("{round} {step}.")));
                    look(disk, known, || {});
                }
                drop(ends);
                flickering.join().unwrap();
            });
            look(disk, known, || {});
            assert_eq!(*known, world(top), "round {round}");
        }
    });
}

#[test]
fn scan_without_writers_settles_at_once() {
    let fill = |top: &Path| {
        pair(top);
        std::os::unix::fs::symlink("a", top.join("one/link")).unwrap();
    };
    on_each_capture(&fill, |disk, top, known| {
        let acts: [&dyn Fn(&Path); 6] = [
            &|top| fs::write(top.join("one/a"), "new").unwrap(),
            &|top| fs::remove_file(top.join("one/link")).unwrap(),
            &|top| fs::remove_dir_all(top.join("two")).unwrap(),
            &|top| fs::create_dir_all(top.join("two/x/y")).unwrap(),
            &|top| (0..20).for_each(|n| fs::write(top.join(format!("two/x/{n}")), [n]).unwrap()),
            &|top| drop(std::os::unix::net::UnixListener::bind(top.join("one/socket")).unwrap()),
        ];
        for act in acts {
            act(top);
            still(disk, known);
            assert_eq!(look(disk, known, || {}), []);
            assert_eq!(*known, world(top));
        }
    });
}

/// Another thread keeps changing files. In the end, a caller that read all reported places knows the final state.
#[test]
fn scan_loses_no_change_made_meanwhile() {
    on_each_capture(&pair, |disk, top, known| {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..300 {
                    let directory = top.join(format!("busy{}", round % 7));
                    let _ = fs::remove_dir_all(&directory);
                    let _ = fs::create_dir(&directory);
                    let _ = fs::write(directory.join("file"), format!("{round}"));
                    let _ = fs::rename(&directory, top.join(format!("moved{}", round % 3)));
                    let _ = fs::remove_dir_all(top.join(format!("moved{}", round % 2)));
                    let _ = fs::write(top.join("one/a"), format!("{round}"));
                }
                done.store(true, Ordering::Release);
            });
            while !done.load(Ordering::Acquire) {
                look(disk, known, || {});
            }
        });
        look(disk, known, || {});
        assert_eq!(*known, world(top));
    });
}
