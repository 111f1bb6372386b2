//! The process is killed in the middle of a merge, or of a rewind: it has happened, or it has not, and what somebody
//! else did meanwhile is there.
//!
//! The killed process is this test binary, started again to [`merge_or_rewind`], which kills itself.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldspace::backends::{BackendError, ChangeDetector, FileChange, HostOptions, Observed, Shell};
use foldspace::event::{ChildLimits, DriftFound, WriteFile};
use foldspace::reducers::MergeChoices;
use foldspace::tools::{RewindOptions, merge_child};
use foldspace::{EntryPath, Event, Session, ToolRunner, Tools, Workspace, WorkspaceSpec};

use super::{files, path};
use crate::rig::{Family, Kind, process};

/// What is cut off.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Merge,
    Rewind,
    /// The opening after either: half a merge lies there, from moment 6.
    PutBack,
}

/// A workspace at which the process is killed when so many things have happened: a note is made, an entry is put
/// onto the disk, all is recorded.
struct Dying {
    inner: Arc<dyn Workspace>,
    left: AtomicUsize,
}

impl Dying {
    fn moment(&self) {
        if self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_err() {
            let own = rustix::process::getpid();
            rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
            unreachable!("it is killed");
        }
    }
}

impl Workspace for Dying {
    fn backend_name(&self) -> &'static str {
        self.inner.backend_name()
    }

    fn apply(&self, changes: &[FileChange]) -> Result<(), BackendError> {
        changes.iter().try_for_each(|change| {
            self.moment();
            self.inner.apply(std::slice::from_ref(change))
        })
    }

    fn populate(&self, _: &[FileChange]) -> Result<(), BackendError> {
        panic!("what is put back is whole or not there: half a file would count as somebody's");
    }

    fn shell(&self) -> Option<Arc<dyn Shell>> {
        self.inner.shell()
    }

    fn capture(&self) -> Option<&dyn ChangeDetector> {
        self.inner.capture()
    }

    fn is_blank(&self) -> bool {
        self.inner.is_blank()
    }

    fn filling(&self) -> Result<(), BackendError> {
        panic!("nothing has to be filled anew");
    }

    fn unsettled(&self, intent: &[u8]) -> Result<(), BackendError> {
        self.moment();
        self.inner.unsettled(intent)
    }

    fn intent(&self) -> Result<Option<Vec<u8>>, BackendError> {
        self.inner.intent()
    }

    fn filled(&self) -> Result<(), BackendError> {
        self.moment();
        self.inner.filled()
    }
}

fn session(family: &Family, name: &str) -> Session {
    family.sessions.session(family.sessions.find(name).unwrap().id).unwrap()
}

/// Merges, rewinds or opens, and dies at the ordered moment.
pub(crate) fn merge_or_rewind(orders: &str) {
    let mut words = orders.splitn(4, ' ');
    let mut word = || words.next().unwrap();
    let (way, moment, to) = (word(), word().parse().unwrap(), word().parse().unwrap());
    let family = Family::at(Path::new(word()).to_owned());
    let main = session(&family, "founder");
    let workspace = Arc::new(Dying { inner: family.workspace(&main), left: AtomicUsize::new(moment) });
    let tool_runner = ToolRunner::new(main, Tools::standard(), workspace).unwrap();
    match way {
        "Merge" => {
            let worker = session(&family, "worker");
            family.runtime.block_on(merge_child(&tool_runner, &worker, &MergeChoices::default())).unwrap();
        }
        "Rewind" => drop(family.runtime.block_on(tool_runner.rewind(to, RewindOptions::default())).unwrap()),
        _ => {}
    }
}

/// Whether the child was killed.
fn is_killed(way: Way, moment: usize, to: u64, directory: &Path) -> bool {
    let orders = format!("{way:?} {moment} {to} {}", directory.display());
    let output = process("merge_or_rewind", orders).output().unwrap();
    assert!(output.status.success() || output.status.code().is_none(), "{way:?} {moment}: {output:?}");
    !output.status.success()
}

/// A session with files of all kinds, and a child that has changed all of them; the session's own changes are others,
/// or the child's where it is rewound. Gives the position before these.
fn prepare(family: &Family, spec: &WorkspaceSpec, way: Way) -> u64 {
    let parent = family.founder_on(spec);
    for name in ["a.txt", "d/old.txt", "d/deep/old.txt", "e/old.txt", "same.txt", "t"] {
        family.create(&parent, name, &format!("1\n2\n3\n4\n{name}\n"));
    }
    let before = parent.session().head().unwrap();
    let child = family.child(&parent, "worker", ChildLimits::default());
    let changing = if way == Way::Rewind { &parent } else { &child };
    family.edit(changing, "a.txt", "4\n", "four\n");
    family.edit(changing, "same.txt", "1\n", "one\n");
    for gone in ["d", "e", "t"] {
        family.remove(changing, gone);
    }
    for name in ["e", "new/deep.txt", "new/er/deep.txt", "t/x/y", "z"] {
        family.create(changing, name, &format!("the child's {name}\n"));
    }
    if way != Way::Rewind {
        family.edit(&parent, "a.txt", "1\n", "one\n");
    }
    drop((parent, child));
    before
}

/// What lies on the disk: the files' bytes by their paths, none for directories.
fn on_disk(workspace: &dyn Workspace) -> BTreeMap<String, Option<Vec<u8>>> {
    let disk = workspace.capture().unwrap();
    let entries = disk.below(&EntryPath::root()).unwrap().entries.into_iter().map(|(path, observed)| {
        let bytes = matches!(observed, Observed::File { .. }).then(|| {
            let mut bytes = Vec::new();
            disk.open(&path).unwrap().unwrap().read_to_end(&mut bytes).unwrap();
            bytes
        });
        (path.to_string(), bytes)
    });
    entries.collect()
}

/// What the history says should lie there.
fn recorded(session: &Session) -> BTreeMap<String, Option<Vec<u8>>> {
    let files = files(session);
    let entries = files.iter().map(|(path, entry)| {
        let bytes = match &entry.node {
            foldspace::event::Node::File { content, .. } => Some(session.content(content).unwrap().to_vec()),
            _ => None,
        };
        (path.to_string(), bytes)
    });
    entries.collect()
}

/// The drift that was recorded since a position: what was written, by path.
fn drift(session: &Session, since: u64) -> Vec<String> {
    let events = session.events(since + 1, 1000).unwrap();
    let Some(at) = events.iter().position(|event| *event.event.kind == *DriftFound::KIND) else { return Vec::new() };
    let written = events[at..].iter().filter_map(|event| event.typed::<WriteFile>());
    written.map(|write| write.unwrap().event.path.to_string()).collect()
}

/// Kills a process at one moment after the other until it comes to its end, and looks at what is there when the
/// workspace is opened again.
fn at_every_moment(spec: &WorkspaceSpec, way: Way) {
    for moment in 0.. {
        let family = Family::on_host();
        let to = prepare(&family, spec, way);
        let main = session(&family, "founder");
        let (before, old) = (main.head().unwrap(), recorded(&main));
        drop(main);
        let directory = family.leave();
        if way == Way::PutBack {
            assert!(is_killed(Way::Merge, 6, to, directory.path()));
        }
        let killed = is_killed(way, moment, to, directory.path());
        let family = Family::at(directory.path().to_owned());
        let main = session(&family, "founder");
        let has_happened = main.head().unwrap() > before;
        let tool_runner = family.open(&main);
        let after = main.head().unwrap();
        assert!(after == before || has_happened, "{way:?} {moment}: {:?}", main.events(before + 1, 100).unwrap());
        assert_eq!(recorded(&main) == old, !has_happened, "{way:?} {moment}");
        assert_eq!(on_disk(tool_runner.workspace().as_ref()), recorded(&main), "{way:?} {moment}");
        // It can be done, or done again, after that.
        if way != Way::Rewind {
            let worker = session(&family, "worker");
            family.runtime.block_on(merge_child(&tool_runner, &worker, &MergeChoices::default())).unwrap();
        } else {
            family.runtime.block_on(tool_runner.rewind(to, RewindOptions::default())).unwrap();
        }
        assert_eq!(files(&main).get(&path("e/old.txt")).is_some(), way == Way::Rewind);
        assert_eq!(on_disk(tool_runner.workspace().as_ref()), recorded(&main), "{way:?} {moment}");
        assert_eq!(drift(&main, before), Vec::<String>::new());
        let sessions = family.sessions.clone();
        drop((tool_runner, main, family));
        sessions.close();
        if !killed {
            assert!(has_happened || way == Way::PutBack, "it came to its end");
            assert!(moment >= 5, "it was killed {moment} times only");
            return;
        }
    }
}

fn host() -> WorkspaceSpec {
    WorkspaceSpec::Host(HostOptions::default())
}

#[test]
fn merge_killed_anywhere_is_whole_or_absent() {
    at_every_moment(&host(), Way::Merge);
}

#[test]
fn rewind_killed_anywhere_is_whole_or_absent() {
    at_every_moment(&host(), Way::Rewind);
}

#[test]
fn rollback_killed_anywhere_is_completed_later() {
    at_every_moment(&host(), Way::PutBack);
}

#[test]
fn merge_killed_anywhere_on_overlay_is_whole_or_absent() {
    let Some(options) = crate::rig::Rig::options(Kind::Overlay) else { return };
    at_every_moment(&WorkspaceSpec::Podman(options), Way::Merge);
}

#[test]
fn rollback_keeps_changes_made_meanwhile() {
    // Before the first change, between two, and before the last.
    for (way, moment) in [Way::Merge, Way::Rewind].into_iter().flat_map(|way| [1, 4, 7, 9].map(|at| (way, at))) {
        let family = Family::on_host();
        let to = prepare(&family, &host(), way);
        let main = session(&family, "founder");
        let (before, place) = (main.head().unwrap(), family.files_of(&main));
        drop(main);
        let directory = family.leave();
        assert!(is_killed(way, moment, to, directory.path()), "{way:?} {moment}");
        let theirs = ["a.txt", "d/deep/mine.txt", "new/mine.txt", "untouched.txt", "same.txt"];
        for name in theirs {
            let place = place.join(name);
            std::fs::create_dir_all(place.parent().unwrap()).unwrap();
            std::fs::write(place, "somebody's\n").unwrap();
        }
        // A link in place of a directory leads nowhere.
        let elsewhere = directory.path().join("elsewhere");
        std::fs::create_dir(&elsewhere).unwrap();
        drop(std::fs::remove_dir_all(place.join("new/er")));
        std::os::unix::fs::symlink(&elsewhere, place.join("new/er")).unwrap();

        let family = Family::at(directory.path().to_owned());
        let main = session(&family, "founder");
        let tool_runner = family.open(&main);
        let shown = on_disk(tool_runner.workspace().as_ref());
        for name in theirs {
            assert_eq!(shown[name].as_deref(), Some(&b"somebody's\n"[..]), "{way:?} {moment}: {name}");
        }
        assert_eq!(shown["new/er"], None);
        assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
        assert_eq!(
            drift(&main, before),
            ["a.txt", "d/deep/mine.txt", "new/er", "new/mine.txt", "same.txt", "untouched.txt"]
        );
        let then = main.state_at(before).unwrap();
        let then = then.slice::<foldspace::VirtualFileSystem>().unwrap();
        assert_eq!(recorded(&main), shown);
        for name in ["d/old.txt", "e", "e/old.txt", "t", "t/x/y", "z", "new/deep.txt"] {
            let node = |files: &foldspace::VirtualFileSystem| files.get(&path(name)).map(|entry| entry.node.clone());
            assert_eq!(node(&files(&main)), node(then), "{way:?} {moment}: {name}");
        }
        let sessions = family.sessions.clone();
        drop((tool_runner, main, family));
        sessions.close();
    }
}
