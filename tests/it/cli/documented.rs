//! The blocks of commands in the documents, typed in order.
//!
//! A block is marked by a comment before it: `typed: empty` in an empty directory and store, `typed: demo` with a session
//! `demo` as in [`demo`], and `covered by` the module of another test. What a block for
//! a console prints is compared, apart from times and ids; `...` stands for any lines.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use super::fixture;
use crate::rig::{Program, eventually, told};

/// The project's directory in the documents.
const HERE: &str = "/home/me/project";

struct Block {
    place: String,
    mark: String,
    is_console: bool,
    lines: Vec<String>,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn documents() -> Vec<PathBuf> {
    let docs = std::fs::read_dir(root().join("docs")).unwrap().flatten().map(|entry| entry.path());
    let mut all: Vec<PathBuf> = docs.filter(|path| path.extension().is_some_and(|ending| ending == "md")).collect();
    all.push(root().join("README.md"));
    all.sort();
    all
}

fn is_command(line: &str) -> bool {
    line.trim_start_matches("$ ").starts_with("foldspace ")
}

/// Returns the blocks for a shell that name the program.
fn blocks() -> Vec<Block> {
    let mut found = Vec::new();
    for path in documents() {
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate().filter(|(_, line)| ["```sh", "```console"].contains(line)) {
            let inside = lines[at + 1..].iter().take_while(|line| **line != "```").map(|line| (*line).to_owned());
            let lines_inside: Vec<String> = inside.collect();
            if !lines_inside.iter().any(|line| is_command(line)) {
                continue;
            }
            let before = lines[..at].last().copied().unwrap_or_default();
            let mark = before.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->")).unwrap_or_default();
            let name = path.file_name().unwrap().to_string_lossy();
            let (place, is_console) = (format!("{name}:{}", at + 2), *line == "```console");
            found.push(Block { place, mark: mark.to_owned(), is_console, lines: lines_inside });
        }
    }
    found
}

#[test]
fn documented_blocks_are_marked() {
    for block in blocks() {
        let module =
            block.mark.strip_prefix("covered by ").map(|name| root().join("tests/it").join(name.replace("::", "/")));
        let is_there = module.is_some_and(|path| path.is_dir() || path.with_extension("rs").is_file());
        let is_marked = is_there || ["typed: empty", "typed: demo"].contains(&block.mark.as_str());
        assert!(is_marked, "{}: no comment says how the block is tested", block.place);
    }
}

/// A shell in a project, in which the program is called `foldspace`.
struct Typist {
    program: Program,
    project: PathBuf,
}

impl Typist {
    fn new(program: Program) -> Self {
        let (bin, project) = (program.path("bin"), program.path("project"));
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::create_dir_all(program.path("home")).unwrap();
        std::fs::create_dir_all(&project).unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_foldspace"), bin.join("foldspace")).unwrap();
        Self { program: program.through_owner(), project }
    }

    fn shell(&self, line: &str) -> Command {
        let known = self.program.command(&[]);
        let mut shell = Command::new("/bin/sh");
        shell.env_clear().args(["-c", line]).current_dir(&self.project).stdin(Stdio::null());
        shell.envs(known.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let path = std::env::var("PATH").unwrap_or_default();
        shell.env("PATH", format!("{}:{path}", self.program.path("bin").display()));
        shell
    }

    fn output(&self, line: &str) -> Output {
        self.shell(line).output().unwrap()
    }

    fn printed(&self, line: &str) -> String {
        let output = self.output(line);
        assert!(output.status.success(), "{line}: {}", told(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Starts what serves until it is stopped, waits until it has printed something, and stops it.
    fn stop(&self, line: &str) {
        let printed = self.program.path("printed");
        let file = std::fs::File::create(&printed).unwrap();
        let mut shell = self.shell(&format!("exec {line}"));
        let mut child = shell.stdout(file.try_clone().unwrap()).stderr(file).process_group(0).spawn().unwrap();
        eventually(line, || printed.metadata().unwrap().len() > 0);
        let process = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
        let ended = child.wait().unwrap();
        let said = std::fs::read_to_string(&printed).unwrap();
        // An early signal ends it before it listens.
        assert!(matches!(ended.code(), Some(0 | 130) | None), "{line}: {ended} {said}");
    }

    /// Types the commands of a block, and compares what a console's block shows.
    fn type_block(&self, block: &Block) {
        let joined = block.lines.join("\n").replace("\\\n", "");
        let mut lines = joined.lines().peekable();
        while let Some(line) = lines.next() {
            let (line, note) = line.split_once(" # ").unwrap_or((line, ""));
            let line = line.trim_start_matches("$ ").trim();
            if line.is_empty() || line.starts_with('#') || note.contains("a terminal") {
                continue;
            }
            if serves(line) {
                self.stop(line);
                continue;
            }
            let output = self.output(line);
            let shown = String::from_utf8_lossy(&[output.stdout.clone(), output.stderr.clone()].concat()).into_owned();
            if !block.is_console {
                // No engine runs here, and the files of the session were not all made by its calls.
                let may_fail = line == "foldspace doctor" || note.contains("fails if");
                let is_right = output.status.success() || (may_fail && output.status.code() == Some(1));
                assert!(is_right, "{}: {line}: {}", block.place, told(&output));
                continue;
            }
            let mut expected = Vec::new();
            while let Some(next) = lines.next_if(|next| !next.starts_with("$ ")) {
                expected.push(next);
            }
            let here = self.project.to_string_lossy().into_owned();
            assert_shown(&expected, &shown.replace(&here, HERE), &format!("{}: {line}", block.place));
        }
    }
}

/// Returns true for commands that run until they are stopped.
fn serves(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    let is = |name| words.get(1) == Some(&name);
    (is("ui") && !words.contains(&"--export")) || words.contains(&"--follow")
}

/// Returns the words of lines, without times, durations and ids.
fn plain(lines: &str) -> Vec<String> {
    // A second after an event is as good as a moment.
    let lines = lines.replace(", 1 second ago", ", just now");
    let words: Vec<&str> = lines.split_whitespace().collect();
    let shown = words.iter().enumerate().map(|(at, word)| {
        let is_id =
            word.trim_matches(['(', ')']).len() == 12 && word.bytes().all(|b| b"()0123456789abcdef".contains(&b));
        let is_time = word.bytes().filter(u8::is_ascii_digit).count() >= 4 && word.contains([':', '-']);
        let is_duration = word.parse::<f64>().is_ok() && ["ms", "s"].iter().any(|unit| words.get(at + 1) == Some(unit));
        let is_volatile = is_id || is_time || is_duration;
        if is_volatile { "[_]".to_owned() } else { (*word).to_owned() }
    });
    shown.collect()
}

/// Fails unless the words are printed, and nothing else but for `...`.
fn assert_shown(expected: &[&str], shown: &str, place: &str) {
    let all = plain(shown);
    let mut rest = &all[..];
    let parts: Vec<Vec<String>> = expected.split(|line| *line == "...").map(|part| plain(&part.join("\n"))).collect();
    for (at, part) in parts.iter().enumerate() {
        let is_last = at + 1 == parts.len();
        let starts = 0..=rest.len().saturating_sub(part.len());
        let mut found = starts.filter(|start| rest[*start..].starts_with(part));
        let start = if at == 0 { found.next().filter(|start| *start == 0) } else { found.next() };
        let start = start.unwrap_or_else(|| panic!("{place}: `{}` was not printed:\n{shown}", part.join(" ")));
        rest = &rest[start + part.len()..];
        assert!(!is_last || part.is_empty() || rest.is_empty(), "{place}: more was printed: {rest:?}");
    }
    assert!(rest.is_empty() || parts.last().is_some_and(Vec::is_empty) && parts.len() > 1, "{place}: {rest:?}");
}

/// A session `demo` in a project with a Makefile. Call 42 ran in a terminal, and 46 broke the tests. `script.jsonl` has
/// its calls, and `other.jsonl` another one.
fn demo(typist: &Typist) {
    let write = |name: &str, text: &str| {
        let path = typist.project.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("app/Makefile", "all:\n\t@true\ntest:\n\t@grep -q main src/main.rs\n");
    write("app/src/main.rs", "fn main() {}\n");
    write("app/src/api.rs", "// TODO\n");
    typist.printed("foldspace new demo --dir app");
    let note = |n| json!({ "tool": "write_file", "params": { "file_path": format!("n{n}.txt"), "content": "a\n" } });
    let mut calls: Vec<Value> = (0..12).map(note).collect();
    let shell =
        |command: &str, tty: bool| json!({ "tool": "shell_execute", "params": { "command": command, "tty": tty } });
    calls.extend([shell("echo in a terminal", true), shell("echo oops > src/main.rs; echo log > out.log", false)]);
    calls.push(json!({ "tool": "read_file", "params": { "file_path": "nothing" }, "expect": "error" }));
    let line = |call: &Value| format!("{call}\n");
    let script = typist.program.file("calls.jsonl", calls.iter().map(line).collect::<String>());
    typist.printed(&format!("foldspace run {script} --session demo --yes"));
    assert!(typist.printed("foldspace show demo 42").contains("echo in a terminal"));
    assert!(typist.printed("foldspace show demo 47").contains("echo oops"), "{}", typist.printed("foldspace log demo"));
    std::fs::copy(&script, typist.project.join("script.jsonl")).unwrap();
    write("other.jsonl", &line(&note(99)));
    std::fs::copy(fixture("transcripts/codex.jsonl"), typist.project.join("run.jsonl")).unwrap();
}

fn typed(mark: &str) -> Vec<Block> {
    let found: Vec<Block> = blocks().into_iter().filter(|block| block.mark == format!("typed: {mark}")).collect();
    assert!(!found.is_empty(), "no block is marked `typed: {mark}`");
    found
}

#[test]
fn blocks_for_an_empty_store_work() {
    for block in typed("empty") {
        Typist::new(Program::new()).type_block(&block);
    }
}

#[test]
fn blocks_for_a_session_work() {
    for block in typed("demo") {
        let typist = Typist::new(Program::new());
        demo(&typist);
        typist.type_block(&block);
    }
}
