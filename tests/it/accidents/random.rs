//! Random histories of an agent, a person and another program, with undos and redos, against a model of who wrote what.
//!
//! Each line is written once, so it says who wrote it. No undo may lose a line that no agent wrote, and what nobody else
//! touched since is exactly as it was before the calls.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use foldspace::backends::HostOptions;
use foldspace::event::SystemClock;
use foldspace::reducers::Change;
use foldspace::session::SnapshotPolicy;
use foldspace::tools::{CommandPolicy, ShellRules, UndoOptions, UndoReport, UndoSubject, WorkspaceError};
use foldspace::{HostWorkspace, MemoryStore, NewSession, Registry, Seq, Sessions, ToolCall, ToolRunner, Tools};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::json;
use tokio::runtime::Runtime;

use crate::rig::rounds;

const FILES: [&str; 4] = ["one", "two", "dir/three", "dir/four"];

#[derive(Debug, Clone)]
enum Edit {
    Write { file: usize, lines: usize },
    Append { file: usize },
    Replace { file: usize, line: usize },
    Insert { file: usize, line: usize },
    Cut { file: usize, line: usize },
    Remove { file: usize },
    Move { from: usize, to: usize },
}

#[derive(Debug, Clone)]
enum Step {
    /// A call of the agent with one change or more.
    Call(Vec<Edit>),
    Person(Edit),
    /// A formatter or the like, which no call has run.
    Program(Edit),
    Undo,
    /// Undo of a call that need not be the latest one.
    UndoCall(usize),
    /// Undo of all calls from one on.
    UndoFrom(usize),
    /// Undo of the latest undo, where nothing was done since but by others.
    Redo,
}

fn edit() -> impl Strategy<Value = Edit> {
    let (file, line) = (0..FILES.len(), 0..8usize);
    prop_oneof![
        3 => (file.clone(), 1..7usize).prop_map(|(file, lines)| Edit::Write { file, lines }),
        2 => file.clone().prop_map(|file| Edit::Append { file }),
        3 => (file.clone(), line.clone()).prop_map(|(file, line)| Edit::Replace { file, line }),
        2 => (file.clone(), line.clone()).prop_map(|(file, line)| Edit::Insert { file, line }),
        1 => (file.clone(), line).prop_map(|(file, line)| Edit::Cut { file, line }),
        2 => file.clone().prop_map(|file| Edit::Remove { file }),
        2 => (file.clone(), file).prop_map(|(from, to)| Edit::Move { from, to }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => prop::collection::vec(edit(), 1..4).prop_map(Step::Call),
        3 => edit().prop_map(Step::Person),
        1 => edit().prop_map(Step::Program),
        4 => Just(Step::Undo),
        2 => (0..8usize).prop_map(Step::UndoCall),
        2 => (0..8usize).prop_map(Step::UndoFrom),
        2 => Just(Step::Redo),
    ]
}

/// Texts by path.
type Texts = BTreeMap<&'static str, String>;

/// A call that is recorded, with the files before and after it.
struct Made {
    call: Seq,
    before: Texts,
    after: Texts,
}

struct Model {
    runtime: Runtime,
    runner: ToolRunner,
    root: PathBuf,
    /// The number of lines that were written.
    lines: usize,
    calls: Vec<Made>,
    undos: Vec<Made>,
    /// The files that others have changed, each with the latest position before that.
    others: Vec<(Seq, &'static str)>,
}

impl Model {
    fn new(directory: &Path) -> Self {
        let root = directory.join("files");
        let workspace = HostWorkspace::open(&root, &HostOptions::default()).unwrap();
        let clock = Arc::new(SystemClock::default());
        let store = Arc::new(MemoryStore::default());
        let sessions = Sessions::new(store, Registry::standard(), clock, SnapshotPolicy::default()).unwrap();
        let session = sessions.create(NewSession::named("random")).unwrap();
        let policy = CommandPolicy { auto_confirm: true, ..CommandPolicy::default() };
        let rules = ShellRules { policy, ..ShellRules::default() };
        let runner = ToolRunner::with_rules(session, Tools::standard(), Arc::new(workspace), rules).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (lines, calls, undos, others) = (0, Vec::new(), Vec::new(), Vec::new());
        let mut model = Self { runtime, runner, root, lines, calls, undos, others };
        for file in 0..3 {
            model.by_others("person", &Edit::Write { file, lines: 6 });
        }
        model
    }

    fn texts(&self) -> Texts {
        let read = |path: &'static str| Some((path, fs::read_to_string(self.root.join(path)).ok()?));
        FILES.into_iter().filter_map(read).collect()
    }

    /// Writes texts, and removes files that have none.
    fn put(&self, texts: &Texts) {
        for path in FILES {
            let place = self.root.join(path);
            match texts.get(path) {
                Some(text) => {
                    fs::create_dir_all(place.parent().unwrap()).unwrap();
                    if fs::read_to_string(&place).ok().as_ref() != Some(text) {
                        fs::write(place, text).unwrap();
                    }
                }
                None => drop(fs::remove_file(place)),
            }
        }
    }

    /// Returns a line that nobody has written yet.
    fn line(&mut self, owner: &str) -> String {
        self.lines += 1;
        format!("{owner} {}\n", self.lines)
    }

    fn changed(&mut self, owner: &str, texts: &mut Texts, change: &Edit) {
        let lines_of = |texts: &Texts, file: usize| -> Vec<String> {
            texts.get(FILES[file]).map_or(Vec::new(), |text| text.split_inclusive('\n').map(str::to_owned).collect())
        };
        let (file, lines) = match *change {
            Edit::Write { file, lines } => (file, (0..lines).map(|_| self.line(owner)).collect()),
            Edit::Append { file } => (file, [lines_of(texts, file), vec![self.line(owner)]].concat()),
            Edit::Replace { file, line } | Edit::Insert { file, line } | Edit::Cut { file, line } => {
                let mut lines = lines_of(texts, file);
                if lines.is_empty() {
                    return;
                }
                let at = line % lines.len();
                match change {
                    Edit::Replace { .. } => lines[at] = self.line(owner),
                    Edit::Insert { .. } => lines.insert(at, self.line(owner)),
                    _ => drop(lines.remove(at)),
                }
                (file, lines)
            }
            Edit::Remove { file } => {
                texts.remove(FILES[file]);
                return;
            }
            Edit::Move { from, to } => {
                let moved = texts.remove(FILES[from]);
                texts.extend(moved.map(|text| (FILES[to], text)));
                return;
            }
        };
        texts.insert(FILES[file], lines.concat());
    }

    fn by_others(&mut self, owner: &str, change: &Edit) {
        let before = self.texts();
        let mut texts = before.clone();
        self.changed(owner, &mut texts, change);
        self.put(&texts);
        let head = self.runner.session().head().unwrap();
        let touched = FILES.into_iter().filter(|path| before.get(path) != texts.get(path));
        self.others.extend(touched.map(|path| (head, path)));
    }

    /// Makes a call of a command that does all of the changes.
    fn by_agent(&mut self, changes: &[Edit]) {
        let before = self.texts();
        let mut after = before.clone();
        changes.iter().for_each(|change| self.changed("agent", &mut after, change));
        let mut command = "mkdir -p dir".to_owned();
        for path in FILES.into_iter().filter(|path| before.get(path) != after.get(path)) {
            match after.get(path) {
                Some(text) => {
                    let words: Vec<String> = text.lines().map(|line| format!("'{line}'")).collect();
                    let word = if words.is_empty() { format!("; : > {path}") } else { String::new() };
                    command +=
                        &if words.is_empty() { word } else { format!("; printf '%s\\n' {} > {path}", words.join(" ")) };
                }
                None => command += &format!("; rm {path}"),
            }
        }
        let call = ToolCall::new("shell_execute", json!({ "command": command }));
        let outcome = self.runtime.block_on(self.runner.call(call)).unwrap();
        assert_eq!(self.texts(), after, "{command}: {}", outcome.text);
        if before != after {
            self.calls.push(Made { call: outcome.call, before, after });
        }
    }

    /// Undoes, and checks all that may be said of any undo. `first` is the call of which the earlier ones are left.
    fn undo(&mut self, subject: UndoSubject, first: Option<&Made>) -> Option<UndoReport> {
        let before = self.texts();
        let options = UndoOptions { force: true, ..UndoOptions::default() };
        let planned =
            self.runtime.block_on(self.runner.undo(subject.clone(), UndoOptions { dry_run: true, ..options }));
        assert_eq!(self.texts(), before, "a plan changes nothing");
        let done = self.runtime.block_on(self.runner.undo(subject, options));
        let report = match (planned, done) {
            (Ok(planned), Ok(done)) => {
                let paths = |report: &UndoReport| report.changes.iter().map(Change::path).cloned().collect::<Vec<_>>();
                let plan = (&planned.calls, left(&planned), paths(&planned));
                assert_eq!(plan, (&done.calls, left(&done), paths(&done)), "the plan is what is done");
                done
            }
            (Err(WorkspaceError::NothingToUndo { .. }), Err(WorkspaceError::NothingToUndo { .. })) => {
                assert_eq!(self.texts(), before);
                return None;
            }
            (planned, done) => panic!("{planned:?} {done:?}"),
        };
        let (after, left) = (self.texts(), left(&report));
        // A line may be on its way back to a file that is left as it is.
        let waits = |line: &&str| {
            let back = first.into_iter().flat_map(|first| &first.before);
            back.filter(|(path, _)| left.contains(**path)).any(|(_, text)| text.lines().any(|held| held == *line))
        };
        let lost: Vec<&str> = lines(&before).difference(&lines(&after)).copied().filter(|line| !waits(line)).collect();
        let lost: Vec<&str> = lost.into_iter().filter(|line| !line.starts_with("agent ")).collect();
        assert_eq!(lost, Vec::<&str>::new(), "lost by {report:?}");
        if let Some(call) = report.call {
            // An undo is its person's change for whoever undoes later.
            self.others.extend(report.changes.iter().filter_map(|change| {
                let path = change.path().to_string();
                FILES.into_iter().find(|known| *known == path).map(|path| (call, path))
            }));
            self.undos.push(Made { call, before, after });
        }
        Some(report)
    }

    /// Undoes the latest call, or one of them.
    fn undo_one(&mut self, subject: UndoSubject) {
        let now = self.texts();
        let calls = std::mem::take(&mut self.calls);
        let undos = std::mem::take(&mut self.undos);
        let wanted = match &subject {
            UndoSubject::Call(call) => calls.iter().find(|made| made.call == *call),
            _ => None,
        };
        let report = self.undo(subject, wanted);
        if let Some(UndoReport { calls: undone, .. }) = &report
            && let [undone] = undone[..]
            && let Some(made) = calls.iter().chain(&undos).find(|made| made.call == undone)
        {
            // One that was undone before may have been changed again by others.
            if report.as_ref().is_some_and(|report| report.undos.is_empty()) {
                self.assert_exact(&now, made, report.as_ref().unwrap());
            }
        }
        self.calls = calls;
        self.undos.splice(0..0, undos);
    }

    /// Asserts that what is as a call left it is now as it was before the call.
    fn assert_exact(&self, now: &Texts, made: &Made, report: &UndoReport) {
        let then = self.texts();
        for path in FILES.into_iter().filter(|path| now.get(path) == made.after.get(path)) {
            assert_eq!(then.get(path), made.before.get(path), "{path} is exact: {report:?}");
        }
    }

    /// Undoes all calls from one on. What only calls have changed since is exact.
    fn undo_from(&mut self, at: usize) {
        let calls = std::mem::take(&mut self.calls);
        let first = &calls[at];
        if let Some(report) = self.undo(UndoSubject::After(first.call - 1), Some(first)) {
            let then = self.texts();
            let is_others = |path: &str| self.others.iter().any(|(seq, other)| *seq >= first.call && *other == path);
            for path in FILES.into_iter().filter(|path| !is_others(path)) {
                assert_eq!(then.get(path), first.before.get(path), "{path} is exact: {report:?}");
            }
        }
        self.calls = calls;
    }

    /// Undoes the latest undo. What it brought back may go again.
    fn redo(&mut self) {
        let Some(undo) = self.undos.pop() else { return };
        if self.calls.last().is_some_and(|made| made.call > undo.call) {
            return;
        }
        let now = self.texts();
        let options = UndoOptions { force: true, ..UndoOptions::default() };
        let done = self.runtime.block_on(self.runner.undo(UndoSubject::Call(undo.call), options)).unwrap();
        self.assert_exact(&now, &undo, &done);
        let (then, back) = (self.texts(), lines(&undo.after));
        let back: BTreeSet<&str> = back.difference(&lines(&undo.before)).copied().collect();
        let lost = lines(&now).difference(&lines(&then)).copied().collect::<Vec<_>>();
        let lost: Vec<&str> =
            lost.into_iter().filter(|line| !line.starts_with("agent ") && !back.contains(line)).collect();
        assert_eq!(lost, Vec::<&str>::new(), "lost by a redo: {done:?}");
        // What an undo may do from now on is asked of later calls only.
        self.undos.clear();
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Call(changes) => self.by_agent(changes),
            Step::Person(change) => self.by_others("person", change),
            Step::Program(change) => self.by_others("program", change),
            Step::Undo => self.undo_one(UndoSubject::Last),
            Step::UndoCall(at) if !self.calls.is_empty() => {
                let call = self.calls[at % self.calls.len()].call;
                self.undo_one(UndoSubject::Call(call));
            }
            Step::UndoFrom(at) if !self.calls.is_empty() => self.undo_from(at % self.calls.len()),
            Step::Redo => self.redo(),
            Step::UndoCall(_) | Step::UndoFrom(_) => {}
        }
    }
}

fn lines(texts: &Texts) -> BTreeSet<&str> {
    texts.values().flat_map(|text| text.lines()).collect()
}

/// Returns the paths that an undo has left as they are.
fn left(report: &UndoReport) -> BTreeSet<String> {
    report.left.iter().map(|left| left.path.to_string()).collect()
}

fn run(steps: &[Step]) {
    let directory = tempfile::tempdir().unwrap();
    let mut model = Model::new(directory.path());
    steps.iter().for_each(|step| model.take(step));
    model.runner.close().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: u32::try_from(rounds(100)).unwrap(), failure_persistence: None, max_shrink_iters: 300,
        rng_seed: RngSeed::Fixed(rounds(1)),
        ..ProptestConfig::default()
    })]
    #[test]
    fn random_undos_lose_nothing_of_others_and_are_exact(steps in prop::collection::vec(step(), 1..14)) {
        run(&steps);
    }
}
