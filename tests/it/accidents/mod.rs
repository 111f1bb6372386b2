//! A laboratory of accidents: what agents' commands have done to repositories, taken back and compared to the byte.
//!
//! Each accident happens alone, as the middle of a run and as its end, and is selected in every way. What is not as it was
//! must be named by the undo, and `.git` must be as the accident left it.

mod disk;
mod random;
mod table;
mod trees;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use foldspace::http::HttpClient;
use foldspace::reducers::AgentRuns;
use foldspace::{Seq, Session};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::attached::Repository;
use crate::rig::{rounds, told};
use disk::Tree;
use table::{Accident, accidents};
use trees::{FILTERS, Ground, LARGE, LINKS, SUBMODULE, WORK};

/// Ways in which an accident comes about and is taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Alone: undone call by call, redone, and undone again.
    Alone,
    /// Between other calls of its run: by `--call`, then the rest by `--run`.
    Middle,
    /// As the last calls of its run: by `--run` or `--to`.
    End,
    /// Without a hook: by `--external`.
    Unseen,
}

/// An undo, as the program told of it.
struct Undone {
    code: Option<i32>,
    /// The call as which it is recorded.
    call: Option<Seq>,
    left: BTreeSet<PathBuf>,
    told: String,
}

/// An attached tree to which one accident after the other happens.
struct Laboratory {
    ground: &'static Ground,
    repository: Repository,
    session: Session,
    client: HttpClient,
    runtime: Runtime,
    base: Tree,
    reports: u64,
}

/// Outcome of a check, with the problem that it found.
type Wrong = Result<(), String>;

impl Laboratory {
    fn new(ground: &'static Ground) -> Self {
        let repository = ground.attached();
        let client = HttpClient::at(repository.program.data().join("http.sock"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (session, base) = (repository.session(), Tree::of(&repository.root()));
        Self { ground, repository, session, client, runtime, base, reports: 0 }
    }

    /// The directory outside of the tree that commands may use.
    fn out(&self) -> PathBuf {
        self.repository.program.path("out")
    }

    fn now(&self) -> Tree {
        Tree::of(&self.repository.root())
    }

    fn sh(&self, directory: &Path, command: &str) -> Output {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).current_dir(directory).env("OUT", self.out()).env("LC_ALL", "C");
        shell.env("HOME", self.repository.program.path("home")).env("GIT_CONFIG_NOSYSTEM", "1");
        shell.output().unwrap()
    }

    /// Runs a person's command, which must do well.
    fn person(&self, command: &str) {
        let ran = self.sh(&self.repository.root(), command);
        assert!(ran.status.success(), "{command}: {}", told(&ran));
    }

    /// Returns what a person's command makes of a tree.
    fn changed(&self, tree: &Tree, command: &str) -> Tree {
        if command.is_empty() {
            return tree.clone();
        }
        let scratch = self.repository.program.path("scratch");
        tree.put(&scratch);
        let ran = self.sh(&scratch, command);
        assert!(ran.status.success(), "{command}: {}", told(&ran));
        Tree::of(&scratch)
    }

    /// Reports to the owner as a hook does, and waits until that is recorded. A hook ends well also where it is refused.
    fn post(&self, payload: &Value) -> Wrong {
        let mut message = json!({ "agent": "claude", "directory": self.repository.root(), "payload": payload });
        loop {
            let told = self.runtime.block_on(self.client.post::<Value>("/v1/hooks", &message));
            match told.map_err(|error| error.to_string())?["outcome"].as_str() {
                Some("recorded") => return Ok(()),
                // Those that come later are recorded in their turn.
                Some("later") => message["payload"] = Value::Null,
                other => return Err(format!("a report was {other:?}")),
            }
        }
    }

    /// Has the owner look at the disk: what has changed is nobody's.
    fn look(&self) {
        self.post(&Value::Null).unwrap();
    }

    /// Makes a call of a run, and returns its position.
    fn call(&mut self, run: &str, command: &str, edits: Option<&str>) -> Seq {
        self.reports += 1;
        let (tool, input) = match edits {
            Some(path) => ("Edit", json!({ "file_path": self.repository.root().join(path), "old_string": "line 5" })),
            None => ("Bash", json!({ "command": command })),
        };
        let id = format!("t{}", self.reports);
        let mut payload = json!({ "session_id": run, "cwd": self.repository.root(), "hook_event_name": "PreToolUse",
            "tool_name": tool, "tool_input": input, "tool_use_id": id });
        drop(self.post(&payload));
        self.sh(&self.repository.root(), command);
        payload["hook_event_name"] = json!("PostToolUse");
        payload["tool_response"] = json!({ "stdout": "", "stderr": "" });
        drop(self.post(&payload));
        let state = self.session.state().unwrap();
        state.slice::<AgentRuns>().and_then(|runs| runs.ended.last()).map_or(0, |ended| ended.call)
    }

    fn undo(&self, words: &[&str]) -> Undone {
        let output = self.repository.program.output(&[&["--json", "undo", "repo", "--yes"], words].concat());
        let document = serde_json::from_slice::<Value>(&output.stdout).unwrap_or_default();
        let left = document["left"].as_array().into_iter().flatten();
        Undone {
            code: output.status.code(),
            call: document["call"].as_u64(),
            left: left.filter_map(|left| Some(PathBuf::from(left["path"].as_str()?))).collect(),
            told: format!("undo {}: {}", words.join(" "), told(&output)),
        }
    }

    /// Compares the tree after an undo: all is as expected, or is named, may be, and was not touched.
    fn compare(&self, accident: &Accident, undone: &Undone, before: &Tree, expected: &Tree) -> Wrong {
        let after = self.now();
        let within = |path: &Path, of: &[&str]| of.iter().any(|above| path.starts_with(above));
        let may_stay = |path: &Path| within(path, accident.left) || within(path, self.ground.hard);
        let is_named = |path: &Path| path.ancestors().any(|above| undone.left.contains(above));
        let mut wrong = Vec::new();
        for path in expected.part(false).differing(&after.part(false)) {
            let is_untouched = before.0.get(&path) == after.0.get(&path);
            if !(may_stay(&path) && is_named(&path) && is_untouched) {
                let words = [expected, &after].map(|tree| tree.word(&path));
                wrong.push(format!("{} is {}, not {}", path.display(), words[1], words[0]));
            }
        }
        let missed = accident.left.iter().filter(|path| !undone.left.contains(Path::new(path)));
        wrong.extend(missed.map(|path| format!("{path} is not named")));
        let others = undone.left.iter().filter(|path| !may_stay(path) && !within(path, accident.may_be_named));
        wrong.extend(others.map(|path| format!("{} is named", path.display())));
        let of_git = before.part(true).differing(&after.part(true));
        wrong.extend(of_git.iter().map(|path| format!("git's {} has changed", path.display())));
        let code = i32::from(!undone.left.is_empty());
        if undone.code != Some(code) {
            wrong.push(format!("the exit status is {:?}, not {code}", undone.code));
        }
        match wrong.len() {
            0 => Ok(()),
            more => Err(format!("{more} wrong: {}\n    {}", wrong[..more.min(4)].join("; "), short(&undone.told))),
        }
    }

    /// Undoes, and compares.
    fn back(&self, accident: &Accident, words: &[&str], expected: &Tree) -> Result<Undone, String> {
        let before = self.now();
        let undone = self.undo(words);
        self.compare(accident, &undone, &before, expected).map(|()| undone)
    }

    /// Makes the calls of an accident with what others do before and after. Returns the calls' positions and the tree
    /// before each.
    fn happen(&mut self, run: &str, accident: &Accident) -> Result<Vec<(Seq, Tree)>, String> {
        let before: Vec<(Seq, Tree)> = accident
            .calls
            .iter()
            .map(|command| {
                let before = self.now();
                (self.call(run, command, accident.edits), before)
            })
            .collect();
        let is_same = self.now().part(false) == before[0].1.part(false);
        if is_same != accident.changes_nothing {
            return Err("the accident does not happen".to_owned());
        }
        self.person(accident.after);
        Ok(before)
    }

    fn alone(&mut self, run: &str, accident: &Accident) -> Wrong {
        let calls = self.happen(run, accident)?;
        let (mut trees, mut last) = (vec![self.now()], None);
        for (_, before) in calls.iter().rev() {
            last = Some(self.back(accident, &[], &self.changed(before, accident.after))?);
            trees.push(self.now());
        }
        if last.is_some_and(|undone| undone.call.is_none()) {
            return Ok(());
        }
        let plain = Accident { left: &[], ..*accident };
        for tree in trees.iter().rev().skip(1) {
            self.back(&plain, &["--redo"], tree)?;
        }
        let to = (calls[0].0 - 1).to_string();
        let words: &[&str] = if calls.len() == 1 { &[] } else { &["--to", &to] };
        self.back(accident, words, trees.last().unwrap()).map(drop)
    }

    fn middle(&mut self, run: &str, accident: &Accident) -> Wrong {
        let last = "echo third > lab-third.txt";
        self.call(run, "echo first > lab-first.txt; echo first >> b.txt", None);
        let calls = self.happen(run, accident)?;
        self.call(run, last, None);
        for (call, before) in calls.iter().rev() {
            let expected = self.changed(before, &format!("{last}; {}", accident.after));
            self.back(accident, &["--call", &call.to_string()], &expected)?;
        }
        self.back(accident, &["--run", run], &self.expected(accident)).map(drop)
    }

    fn end(&mut self, run: &str, accident: &Accident) -> Wrong {
        let start = self.session.head().unwrap();
        self.call(run, "echo first > lab-first.txt; echo first >> b.txt", None);
        self.call(run, "echo second >> lab-first.txt; rm -f docs/two.md", None);
        self.happen(run, accident)?;
        let to = start.to_string();
        let words = if accident.name.len().is_multiple_of(2) { ["--run", run] } else { ["--to", &to] };
        self.back(accident, &words, &self.expected(accident)).map(drop)
    }

    fn unseen(&mut self, accident: &Accident) -> Wrong {
        accident.calls.iter().for_each(|command| drop(self.sh(&self.repository.root(), command)));
        self.back(accident, &["--external"], &self.base).map(drop)
    }

    /// Returns the tree without the calls, and with what others did.
    fn expected(&self, accident: &Accident) -> Tree {
        let before = self.changed(&self.base, accident.before);
        self.changed(&before, accident.after)
    }

    /// Makes an accident happen in one way, and restores the tree, so that the next one begins with the same.
    fn try_one(&mut self, number: usize, accident: &Accident, way: Way) -> Wrong {
        drop(fs::remove_dir_all(self.out()));
        fs::create_dir_all(self.out()).unwrap();
        let _socket = UnixListener::bind(self.out().join("socket")).unwrap();
        self.person(accident.before);
        self.look();
        let run = format!("{number}-{way:?}");
        let done = match way {
            Way::Alone => self.alone(&run, accident),
            Way::Middle => self.middle(&run, accident),
            Way::End => self.end(&run, accident),
            Way::Unseen => self.unseen(accident),
        };
        self.base.put(&self.repository.root());
        assert_eq!(self.base.differing(&self.now()), Vec::<PathBuf>::new(), "the laboratory is as it was");
        self.look();
        done
    }
}

/// Returns the first lines of what a program told.
fn short(told: &str) -> String {
    let told: Vec<&str> = told.lines().collect();
    let text: String = told.join(" | ").chars().take(300).collect();
    format!("{text} {}", told.last().unwrap_or(&""))
}

/// Chooses the ways for an accident: those beside the first are spread over the trees.
fn ways(ground: &Ground, number: usize, accident: &Accident) -> Vec<Way> {
    let tree = ground.letter as usize;
    let is_alone = accident.trees.len() == 1 || rounds(1) > 1;
    let is_seen = !accident.before.is_empty() || !accident.after.is_empty() || accident.changes_nothing;
    let chosen = [
        (Way::Alone, true),
        (Way::Middle, is_alone || (number + tree).is_multiple_of(4)),
        (Way::End, is_alone || (number + tree) % 4 == 1),
        (Way::Unseen, !is_seen && (number + tree) % 4 == 2),
    ];
    chosen.into_iter().filter(|(_, is_chosen)| *is_chosen).map(|(way, _)| way).collect()
}

/// Makes all accidents of a tree happen. `FOLDSPACE_ACCIDENT` chooses one by a part of its name.
fn check(ground: &'static Ground) {
    let is_root = rustix::process::geteuid().is_root();
    let wanted = std::env::var("FOLDSPACE_ACCIDENT").unwrap_or_default();
    let mut laboratory = Laboratory::new(ground);
    let mut wrong = BTreeMap::new();
    let possible = accidents(ground.letter).filter(|(_, accident)| is_root || !accident.needs_root);
    for (number, accident) in possible.filter(|(_, accident)| accident.name.contains(&wanted)) {
        for way in ways(ground, number, accident) {
            if let Err(why) = laboratory.try_one(number, accident, way) {
                wrong.insert((number, format!("{way:?}")), format!("{} / {way:?}: {why}", accident.name));
            }
        }
    }
    laboratory.repository.git(&["fsck", "--no-dangling"]);
    let wrong: Vec<String> = wrong.into_values().collect();
    assert!(wrong.is_empty(), "{}: {} failures:\n{}", ground.name, wrong.len(), wrong.join("\n"));
}

#[test]
fn accidents_in_a_tree_with_a_submodule_are_undone() {
    check(&SUBMODULE);
}

#[test]
fn accidents_in_a_tree_with_filters_are_undone() {
    check(&FILTERS);
}

#[test]
fn accidents_in_a_tree_with_links_and_odd_names_are_undone() {
    check(&LINKS);
}

#[test]
fn accidents_in_the_middle_of_work_are_undone() {
    check(&WORK);
}

/// Runs in `.ci/long` only.
#[test]
fn accidents_in_a_large_tree_are_undone() {
    if rounds(1) > 1 {
        check(&LARGE);
    }
}

#[test]
fn laboratory_has_forty_accidents_or_more() {
    let letters: BTreeSet<char> = "abcde".chars().collect();
    let names: BTreeSet<&str> =
        letters.iter().flat_map(|letter| accidents(*letter)).map(|(_, accident)| accident.name).collect();
    assert!(names.len() >= 40, "{}", names.len());
}
