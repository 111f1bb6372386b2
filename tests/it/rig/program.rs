//! The program as a person runs it: the real binary.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

/// Five calls: two files come, one is edited, one call fails, another agent removes one.
pub(crate) const STORY: &str = r#"
# A story of five calls.
{"tool": "write_file", "params": {"file_path": "a.txt", "content": "one\ntwo\nthree\n"}}
{"tool": "write_file", "params": {"file_path": "/src/main.rs", "content": "fn main() {}\n"}}

{"tool": "edit_file", "params": {"file_path": "a.txt", "old_string": "two", "new_string": "zwei"}}
// This one must fail.
{"tool": "read_file", "params": {"file_path": "missing.txt"}, "expect": "error"}
{"tool": "rm", "params": {"path": "a.txt"}, "agent": "tidy"}
"#;

/// The program in a directory of its own, with nothing of this machine in its environment.
pub(crate) struct Program {
    directory: tempfile::TempDir,
    /// Variables of the engine, where the program is to use one.
    pub(crate) engine: Vec<(&'static str, String)>,
    through_owner: bool,
    _filters: insta::internals::SettingsBindDropGuard,
}

impl Program {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut settings = insta::Settings::clone_current();
        let place = directory.path().canonicalize().unwrap();
        settings.add_filter(&place.to_string_lossy(), "[dir]");
        settings.add_filter(&directory.path().to_string_lossy(), "[dir]");
        settings.add_filter(env!("CARGO_BIN_EXE_foldspace"), "foldspace");
        settings.add_filter(r"\b[0-9a-f]{64}\b", "[digest]");
        // Durations are in these slices, so their sizes differ from run to run.
        settings.add_filter(r"\b(ToolCalls|Usage) +keep +\d+ B", "$1 keep [size]");
        settings.add_filter(r"\b[0-9a-f]{32}\b", "[session]");
        settings.add_filter(r"\b[0-9a-f]{12}\b", "[id]");
        settings.add_filter(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "[time]");
        settings.add_filter(r"(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d(\.\d{3})?", "[time]");
        settings.add_filter(r" *\b\d+(\.\d)? (ms|s)\b", " [duration]");
        settings.add_filter(r"process \d+ \([^)]*\)", "[process]");
        Self { directory, engine: Vec::new(), through_owner: false, _filters: settings.bind_to_scope() }
    }

    /// A program with which the story has been run, as session `story`.
    pub(crate) fn with_story() -> Self {
        let program = Self::new();
        let ran = program.run(&["run", &program.file("story.jsonl", STORY)]);
        assert!(ran.ends_with("[exit 0]"), "{ran}");
        program
    }

    /// The same program, whose commands act through an owner that the first of them starts.
    pub(crate) fn through_owner(mut self) -> Self {
        self.through_owner = true;
        self
    }

    /// The processes of owners in the background. A child that an owner has forked and that has not begun its own program
    /// yet shows the owner's words, but is none.
    pub(crate) fn owners(&self) -> Vec<u32> {
        let data = self.data().to_string_lossy().into_owned();
        let is_owner = |process: &u32| {
            let words = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            let words = String::from_utf8_lossy(&words).replace('\0', " ");
            words.contains(&data) && words.contains("serve --background")
        };
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let owners: Vec<u32> =
            processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_owner).collect();
        let is_own = |owner: &u32| !owners.contains(&parent(*owner));
        owners.iter().copied().filter(is_own).collect()
    }

    /// A program of which session `own` works in `mine`, a person's own directory with one file. Gives the script, which
    /// reads that.
    pub(crate) fn with_own_directory(file: &str, text: &str) -> (Self, String) {
        let program = Self::new();
        program.file(&format!("mine/{file}"), text);
        let call = serde_json::json!({ "tool": "read_file", "params": { "file_path": file } });
        let script = program.file("own.jsonl", call.to_string());
        let mine = program.path("mine").to_string_lossy().into_owned();
        program.printed(&["run", &script, "--backend", "host", "--dir", &mine, "--session", "own"]);
        (program, script)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path("data")
    }

    /// Writes a file and gives its path.
    pub(crate) fn file(&self, name: &str, contents: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, contents).unwrap();
        path.to_string_lossy().into_owned()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_foldspace"));
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.path("home")).env("TZ", "UTC").env("FOLDSPACE_DATA", self.data());
        // Most tests want nothing to run beside them.
        match self.through_owner {
            true => command.env("FOLDSPACE_IDLE", "120"),
            false => command.env("FOLDSPACE_IN_PROCESS", "1"),
        };
        // Else it would find this machine's own engine.
        command.env("CONTAINER_HOST", "unix:///nowhere").env("DOCKER_HOST", "unix:///nowhere");
        command.envs(self.engine.iter().cloned());
        command.current_dir(self.directory.path()).args(arguments).stdin(Stdio::null());
        command
    }

    /// Runs the program and gives everything that it printed, and how it ended.
    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        told(&self.output(arguments))
    }

    pub(crate) fn output(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Returns the output of a command, which must succeed.
    pub(crate) fn printed(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", told(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The same with something on standard input.
    pub(crate) fn fed(&self, arguments: &[&str], input: &[u8]) -> String {
        let mut command = self.command(arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        told(&child.wait_with_output().unwrap())
    }

    pub(crate) fn spawn(&self, arguments: &[&str]) -> Running {
        let mut command = self.command(arguments);
        Running(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Returns the output of a command as one JSON document.
    pub(crate) fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let text = self.printed(&[&["--json"], arguments].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{arguments:?} gives no JSON: {error}\n{text}"))
    }

    /// Returns the output of a command as JSON, one value a line.
    pub(crate) fn json_lines(&self, arguments: &[&str]) -> Vec<serde_json::Value> {
        let text = self.printed(&[&["--json"], arguments].concat());
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Drop for Program {
    /// No test leaves an owner behind.
    fn drop(&mut self) {
        if self.through_owner {
            self.run(&["stop"]);
            if !std::thread::panicking() {
                super::eventually("the owner has ended", || self.owners().is_empty());
            }
        }
    }
}

/// A program that is running; it ends with this.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Output and exit of a program.
/// Returns the parent of a process: the second number behind the name, which may hold anything.
fn parent(process: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let parent = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)?.parse().ok());
    parent.unwrap_or_default()
}

pub(crate) fn told(output: &Output) -> String {
    let mut told = String::from_utf8_lossy(&output.stdout).into_owned();
    told.push_str(&String::from_utf8_lossy(&output.stderr));
    let code = output.status.code().map_or("none".to_owned(), |code| code.to_string());
    format!("{}\n[exit {code}]", told.trim_end())
}
