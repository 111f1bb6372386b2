//! Rewind: log and files go back together, whole or not at all.

use std::sync::Arc;

use bytes::Bytes;
use foldspace::event::{
    ChildLimits, Isolation, Node, Origin, SessionAllow, SessionRewound, SessionStarted, SliceRestored, WriteFile,
    WriteMode,
};
use foldspace::reducers::{Allowances, Change};
use foldspace::store::Expected;
use foldspace::tools::WorkspaceError;
use foldspace::tools::{CaptureBudget, RewindOptions, rewind};
use foldspace::{
    Commit, EntryPath, Event, ForkOptions, NewSession, Recorded, Registry, Session, SessionId, Sessions, Slice,
    ToolRunner, Tools, Workspace,
};
use serde_json::json;

use crate::rig::{Kind, Rig, differences, everywhere, walk};

const FORCED: RewindOptions = RewindOptions { force: true, keep_earlier: false, git: false, dry_run: false, id: None };

mod exact;
mod failing;
mod hard_links;

mod everywhere {
    use super::*;

    everywhere!(rewind_reaches_every_moment, rewind_over_drift_needs_force, rewind_survives_its_process);

    fn rewind_reaches_every_moment(rig: Rig) {
        let moments = rig.moments();
        // Back and forth, so that each difference is gone both ways.
        for at in [4, 0, 5, 2, 1, 3, 0, 4, 5, 0] {
            let (seq, then) = &moments[at];
            let rewound = rig.rewind(*seq, RewindOptions::default()).unwrap();
            assert_eq!((rewound.to, rewound.left.len(), rewound.drift.len()), (*seq, 0, 0));
            assert_eq!(differences(then, &walk(&rig.root())), Vec::<String>::new(), "at {seq}");
            rig.check(&format!("rewind to {seq}"));
            assert_eq!(rig.slice().diff(&rig.slice_at(*seq)), Vec::new());
        }
        // What was put back is known: nobody takes it for changed from outside.
        assert_eq!(rig.ok("cat src/a").stdout(), "one");
        assert_eq!(rig.ok("true").drift, []);
        let head = rig.session().head().unwrap();
        let again = rig.rewind(head, RewindOptions::default()).unwrap();
        assert_eq!((again.recorded, rig.session().head().unwrap()), (None, head));
        rig.verify();
    }

    fn rewind_over_drift_needs_force(rig: Rig) {
        let first = rig.ok("echo one > a && echo one > b").outcome.finished;
        rig.ok("echo two > a && mkdir d && echo two > d/c");
        std::fs::write(rig.root().join("b"), "by somebody").unwrap();
        std::fs::write(rig.root().join("d/new"), "by somebody").unwrap();
        let (head, before) = (rig.session().head().unwrap(), walk(&rig.root()));
        for options in [RewindOptions::default(), RewindOptions { dry_run: true, ..RewindOptions::default() }] {
            let Err(WorkspaceError::Drifted(paths)) = rig.rewind(first, options) else { panic!("it must be refused") };
            assert_eq!(paths, ["b", "d/new"].map(|path| EntryPath::lookup(path).unwrap()));
        }
        assert_eq!(rig.session().head().unwrap(), head, "nothing was recorded");
        assert_eq!(differences(&before, &walk(&rig.root())), Vec::<String>::new());
        let dry = rig.rewind(first, RewindOptions { dry_run: true, ..FORCED }).unwrap();
        assert_eq!((dry.recorded, rig.session().head().unwrap()), (None, head));

        let forced = rig.rewind(first, FORCED).unwrap();
        let paths = |changes: &[Change]| changes.iter().map(|change| change.path().clone()).collect::<Vec<_>>();
        assert_eq!((forced.drift.len(), paths(&forced.changes)), (2, paths(&dry.changes)));
        let shown = |path: &str| std::fs::read_to_string(rig.root().join(path)).unwrap();
        assert_eq!((shown("a"), shown("b"), rig.root().join("d").exists()), ("one\n".into(), "one\n".into(), false));
        rig.check("a forced rewind");
        // What somebody did can be had again.
        rig.rewind(forced.from, RewindOptions::default()).unwrap();
        assert_eq!((shown("b"), shown("d/new")), ("by somebody".into(), "by somebody".into()));
        rig.verify();
    }

    fn rewind_survives_its_process(mut rig: Rig) {
        let first = rig.ok("mkdir d && echo one > d/a && echo gone > b").outcome.finished;
        rig.ok("echo two > d/a && rm b && echo new > c");
        rig.rewind(first, RewindOptions::default()).unwrap();
        let head = rig.session().head().unwrap();
        rig.reopen();
        assert_eq!(rig.session().head().unwrap(), head, "nothing is taken for changed from outside");
        assert_eq!(rig.ok("cat d/a b; ls").stdout(), "one\ngone\nb\nd");
        rig.verify();
    }
}

#[test]
fn rewind_removes_special_file_from_place_of_directory() {
    let rig = Rig::new(Kind::Host).unwrap();
    let first = rig.ok("mkdir -p x/d && echo a > x/a && echo b > x/d/b && echo c > c").outcome.finished;
    rig.ok("rm -r x c && mkfifo x");
    let rewound = rig.rewind(first, RewindOptions::default()).unwrap();
    assert_eq!((rewound.left.len(), rewound.lost.len()), (0, 0));
    assert_eq!(rig.ok("cat x/a x/d/b; ls -F").stdout(), "a\nb\nc\nx/");
    rig.verify();
}

#[test]
fn rewind_of_odd_imported_session_works() {
    let directory = tempfile::tempdir().unwrap();
    let sessions = Sessions::open(directory.path(), Registry::standard()).unwrap();
    let id = SessionId::from_bytes([0xab; 16]);
    let parent = SessionId::from_bytes([0xcd; 16]);
    let origin = Origin { parent, parent_name: "p".to_owned(), at: u64::MAX, isolation: Isolation::Fork };
    let started = SessionStarted {
        name: "odd".to_owned(),
        backend: "memory".to_owned(),
        program: "0".to_owned(),
        options: json!(null),
        origin: Some(origin),
        limits: ChildLimits { calls: Some(10), ..ChildLimits::default() },
    };
    let mut commit = Commit::new(id, foldspace::Timestamp(0)).expecting(Expected::NoSession);
    commit.push(&started).unwrap();
    sessions.store().submit(commit).unwrap().wait().unwrap();
    let session = sessions.session(id).unwrap();
    let tool_runner =
        ToolRunner::new(session.clone(), Tools::standard(), Arc::new(foldspace::MemoryWorkspace)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let params = json!({ "file_path": "a", "content": "a" });
    runtime.block_on(tool_runner.call(foldspace::ToolCall::new("write_file", params))).unwrap();
    let rewound = runtime.block_on(tool_runner.rewind(1, RewindOptions::default())).unwrap();
    assert_eq!(rewound.changes.len(), 1);
}

#[test]
fn rewind_leaves_files_never_kept() {
    let rig = Rig::with_budget(Kind::Host, CaptureBudget { file_bytes: 10, ..CaptureBudget::default() }).unwrap();
    let first =
        rig.ok("mkdir d && echo a longer text than is kept > d/big && echo a > a && mkfifo pipe").outcome.finished;
    rig.ok("echo short > d/big && echo b > a && rm pipe");
    let head = rig.session().head().unwrap();
    let Err(WorkspaceError::NotKept(paths)) = rig.rewind(first, RewindOptions::default()) else {
        panic!("not refused")
    };
    assert_eq!(paths, [EntryPath::lookup("d/big").unwrap()]);
    assert_eq!(rig.session().head().unwrap(), head);
    let rewound = rig.rewind(first, FORCED).unwrap();
    assert_eq!(rewound.left, paths);
    assert_eq!(rig.ok("cat d/big a; ls").stdout(), "short\na\na\nd\npipe");
    // What came since and could not be brought back goes, once that is said.
    rig.ok("mkdir e && echo a much longer text than is kept > e/big && echo new > e/new && mkfifo e/pipe");
    let Err(WorkspaceError::NotKept(paths)) = rig.rewind(first, RewindOptions::default()) else {
        panic!("not refused")
    };
    assert_eq!(paths, ["d/big", "e/big"].map(|path| EntryPath::lookup(path).unwrap()));
    let rewound = rig.rewind(first, FORCED).unwrap();
    assert_eq!((rewound.left.len(), &rewound.lost[..]), (1, &[EntryPath::lookup("e/big").unwrap()][..]));
    assert_eq!(rig.ok("ls").stdout(), "a\nd\npipe");
    rig.verify();
}

#[test]
fn rewind_into_a_commit_goes_to_its_end() {
    let rig = Rig::new(Kind::Host).unwrap();
    let step = rig.ok("echo 1 > a; echo 2 > b; echo 3 > c");
    let second = step.outcome.call + 4;
    let path = rig.session().event(second).unwrap().typed::<WriteFile>().unwrap().unwrap().event.path;
    assert_eq!(path.to_string(), "b", "the files of a call come in order, behind what is said of the command");
    rig.ok("rm b");
    for options in [RewindOptions { dry_run: true, ..FORCED }, RewindOptions::default()] {
        let rewound = rig.rewind(second, options).unwrap();
        assert_eq!((rewound.to, rewound.changes.len()), (step.outcome.finished, 1));
    }
    assert_eq!(rig.ok("ls").stdout(), "a\nb\nc");
    rig.rewind(0, RewindOptions::default()).unwrap();
    assert_eq!(rig.ok("ls").stdout(), "");
    let beyond = rig.rewind(99_999, RewindOptions::default()).unwrap_err();
    assert!(beyond.to_string().contains("no position 99999"), "{beyond}");
}

/// A slice of a user's own that is state, in many blocks.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
struct Notes {
    lines: Vec<String>,
}

impl Slice for Notes {
    const NAME: &'static str = "Notes";

    fn encode(&self) -> Result<Vec<Vec<u8>>, foldspace::fold::SliceError> {
        Ok(self.lines.iter().map(|line| line.as_bytes().to_vec()).collect())
    }

    fn decode(blocks: &[Bytes]) -> Result<Self, foldspace::fold::SliceError> {
        let line = |block: &Bytes| String::from_utf8(block.to_vec());
        let lines: Result<Vec<String>, _> = blocks.iter().map(line).collect();
        Ok(Self { lines: lines.map_err(|error| foldspace::fold::SliceError::new("Notes", error))? })
    }
}

#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
struct Noted {
    line: String,
}

impl Event for Noted {
    const KIND: &'static str = "Noted";
}

fn with_notes() -> Registry {
    let registry = Registry::standard().event::<Noted>().unwrap().slice::<Notes>().unwrap();
    let reducer = |mut notes: Notes, noted: &Recorded<Noted>| {
        notes.lines.push(noted.event.line.clone());
        notes
    };
    registry.reducer(reducer).unwrap()
}

fn record<E: Event>(session: &Session, event: &E) -> u64 {
    let mut commit = session.commit();
    commit.push(event).unwrap();
    session.record(commit).unwrap().last
}

#[test]
fn rewind_restores_state_slices_and_keeps_logs() {
    let directory = tempfile::tempdir().unwrap();
    let sessions = Sessions::open(directory.path(), with_notes()).unwrap();
    let session = sessions.create(NewSession::named("notes")).unwrap();
    let workspace: Arc<dyn Workspace> = Arc::new(foldspace::MemoryWorkspace);
    let tool_runner = ToolRunner::new(session.clone(), Tools::standard(), Arc::clone(&workspace)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    // Large: some three hundred blocks, a megabyte together.
    let lines: Vec<String> = (0..300).map(|number| format!("{number:04}").repeat(900)).collect();
    let mut first = 0;
    for line in &lines {
        first = record(&session, &Noted { line: line.clone() });
    }
    record(&session, &Noted { line: "late".to_owned() });
    record(&session, &SessionAllow { programs: vec!["make".to_owned()], everything: false });
    let call = foldspace::ToolCall::new("ls", json!({}));
    runtime.block_on(tool_runner.call(call)).unwrap();

    let rewound = runtime.block_on(tool_runner.rewind(first, RewindOptions::default())).unwrap();
    assert_eq!(rewound.slices, ["Allowances", "Notes"]);
    let state = session.state().unwrap();
    assert_eq!(state.slice::<Notes>().unwrap().lines, lines);
    assert!(state.slice::<Allowances>().unwrap().programs.is_empty());
    assert_eq!(state.slice::<foldspace::reducers::ToolCalls>().unwrap().total, 1, "a log keeps what it has");
    // Reducers go on from what was put back; and so does a fold from the beginning.
    record(&session, &Noted { line: "later".to_owned() });
    session.forget_states();
    let state = session.state().unwrap();
    assert_eq!(state.slice::<Notes>().unwrap().lines.last().unwrap(), "later");
    assert_eq!(state.slice::<Notes>().unwrap().lines.len(), 301);
    assert_eq!(state.unreadable(), 0);
    // The past is as it was, on both sides of the rewind.
    let late = session.state_at(rewound.from).unwrap();
    assert_eq!(late.slice::<Notes>().unwrap().lines.last().unwrap(), "late");
    runtime.block_on(tool_runner.rewind(rewound.from, RewindOptions::default())).unwrap();
    let programs = session.state().unwrap().slice::<Allowances>().unwrap().programs.len();
    assert_eq!(programs, 1, "undone");
    // A program that does not know the slice passes over it.
    let id = session.id();
    drop((tool_runner, session));
    sessions.close();
    let plain = Sessions::open(directory.path(), Registry::standard()).unwrap();
    let state = plain.session(id).unwrap().state().unwrap();
    assert_eq!((state.unreadable(), state.slice::<Allowances>().unwrap().programs.len()), (0, 1));
}

#[test]
fn rewind_of_fork_gives_no_parent_approvals() {
    let directory = tempfile::tempdir().unwrap();
    let sessions = Sessions::open(directory.path(), with_notes()).unwrap();
    let parent = sessions.create(NewSession::named("parent")).unwrap();
    let first = record(&parent, &Noted { line: "early".to_owned() });
    let allowed = record(&parent, &SessionAllow { programs: vec!["make".to_owned()], everything: false });
    record(&parent, &Noted { line: "late".to_owned() });
    let child = sessions.child_of(&parent, ForkOptions::new(Isolation::Fork)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let workspace: Arc<dyn Workspace> = Arc::new(foldspace::MemoryWorkspace);
    for to in [allowed, first, allowed] {
        let options = RewindOptions::default();
        runtime.block_on(rewind(&child, &workspace, CaptureBudget::default(), to, options)).unwrap();
        let state = child.state().unwrap();
        assert_eq!(state.slice::<Notes>().unwrap().lines, ["early"], "what is state goes back, also so far");
        assert!(state.slice::<Allowances>().unwrap().programs.is_empty(), "at {to}");
    }
    assert!(!parent.state().unwrap().slice::<Allowances>().unwrap().programs.is_empty());
}

#[test]
fn rewind_counts_unreadable_slices() {
    let directory = tempfile::tempdir().unwrap();
    let sessions = Sessions::open(directory.path(), with_notes()).unwrap();
    let session = sessions.create(NewSession::named("notes")).unwrap();
    record(&session, &Noted { line: "kept".to_owned() });
    let restored = |slice: &str, version, block: &'static [u8]| SliceRestored {
        slice: slice.to_owned(),
        version,
        blocks: vec![Bytes::from_static(block)],
    };
    // No UTF-8, a newer version, an older one, a log, and an unknown one.
    record(&session, &restored("Notes", 1, &[0xff]));
    record(&session, &restored("Notes", 2, b"new"));
    record(&session, &restored("Notes", 0, b"old"));
    record(&session, &restored("ToolCalls", 1, b"x"));
    record(&session, &restored("Nobody's", 1, b"x"));
    record(&session, &restored("Allowances", 1, b"{"));
    let mut commit = Commit::new(session.id(), session.now());
    commit.push_encoded(SliceRestored::KIND, 1, b"not an archive").unwrap();
    session.record(commit).unwrap();
    let state = session.state().unwrap();
    assert_eq!(state.slice::<Notes>().unwrap().lines, ["kept"]);
    assert_eq!(state.unreadable(), 5);
}

#[test]
fn rewind_is_one_commit() {
    let rig = Rig::new(Kind::Host).unwrap();
    let first = rig.ok("echo one > a").outcome.finished;
    rig.ok("echo two > a; echo b > b");
    let rewound = rig.rewind(first, RewindOptions::default()).unwrap();
    let (from, last) = rewound.recorded.unwrap();
    let events = rig.session().events(from, 100).unwrap();
    let kinds: Vec<_> = events.iter().map(|event| event.event.kind.to_string()).collect();
    assert_eq!(kinds, ["SessionRewound", "WriteFile", "DeleteEntry"]);
    assert_eq!(last, from + 2);
    assert!(events.iter().all(|event| event.time == events[0].time && event.call.is_none()));
    let said = events[0].typed::<SessionRewound>().unwrap().unwrap().event;
    assert_eq!(said, SessionRewound { to: first, from: from - 1, entries: 2, left: 0 });
    let write = events[1].typed::<WriteFile>().unwrap().unwrap().event;
    assert_eq!((write.mode, write.node), (WriteMode::Overwrite, Node::file(b"one\n", false)));
}
