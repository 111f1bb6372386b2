//! A session with a workspace of many files, all of them recorded.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use foldspace::session::SnapshotPolicy;
use foldspace::store::Durability;
use foldspace::tools::{AllowedRoots, CommandPolicy, Forker, ShellRules, materialise};
use foldspace::{NewSession, SessionId, ToolCall, ToolRunner, Tools, WorkspaceSpec};
use serde_json::{Value, json};

use crate::disk::Scratch;
use crate::journal;
use crate::sample::Noise;

/// Bytes of each file.
const FILE: usize = 4 << 10;
/// Files in a directory.
const DIRECTORY: u64 = 100;

/// The path of the file with that number.
pub fn path(number: u64) -> String {
    format!("d{:04}/f{:02}.txt", number / DIRECTORY, number % DIRECTORY)
}

/// The line with which the file with that number begins, and which is in it once.
fn first_line(number: u64) -> String {
    format!("#{:04}{:02}\n", number / DIRECTORY, number % DIRECTORY)
}

/// A session whose commits are on the disk when they count as made, and its workspace.
pub struct Grown {
    /// Where its children begin.
    pub forker: Forker,
    /// Makes its calls.
    pub tool_runner: ToolRunner,
    runtime: tokio::runtime::Runtime,
    spec: WorkspaceSpec,
    noise: Noise,
    scratch: Scratch,
}

impl Grown {
    /// Makes the files, a directory of a hundred a command or, where none can run, a file a call.
    ///
    /// # Errors
    /// When the store or the workspace fails.
    pub fn of(spec: WorkspaceSpec, files: u64) -> Result<Self> {
        let scratch = Scratch::new("grown")?;
        let home = scratch.path().join("store");
        let sessions = journal::open(&home, Durability::default(), true, SnapshotPolicy::default())?;
        let new = NewSession {
            name: Some("grown".to_owned()),
            backend: Some(spec.backend_name().to_owned()),
            options: spec.options(),
            id: None,
        };
        let session = sessions.create(new)?.as_agent("agent-1");
        let workspace = spec.open(session.id(), &home)?;
        let policy = CommandPolicy { auto_confirm: true, ..CommandPolicy::default() };
        let rules = ShellRules { policy, ..ShellRules::default() };
        let tool_runner = ToolRunner::with_rules(session, Tools::standard(), workspace, rules)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let forker = Forker { sessions, home, roots: AllowedRoots::default() };
        let mut grown = Self { forker, tool_runner, runtime, spec, noise: Noise::new(files), scratch };
        grown.fill(files)?;
        Ok(grown)
    }

    fn fill(&mut self, files: u64) -> Result<()> {
        if self.tool_runner.workspace().unrecorded_shell().is_none() {
            return (0..files).try_for_each(|number| self.write(number).map(drop));
        }
        // Text that differs from file to file, as fast as a shell without programs makes it.
        let text = self.noise.text(FILE / 8 - 1);
        let script = r#"T=$TEXT$TEXT$TEXT$TEXT$TEXT$TEXT$TEXT$TEXT; d=$1; end=$2; while [ $d -lt $end ]; do
            n=$(printf d%04d $d); mkdir $n; f=0
            while [ $f -lt 100 ]; do printf '#%04d%02d\n%s' $d $f "$T" >$n/f$(printf %02d $f).txt; f=$((f+1)); done
            d=$((d+1)); done"#;
        for from in (0..files / DIRECTORY).step_by(20) {
            let until = (from + 20).min(files / DIRECTORY);
            let command = ["/bin/sh", "-c", script, "sh", &from.to_string(), &until.to_string()];
            self.call("shell_execute", json!({ "command": command, "env": { "TEXT": &text } }))?;
        }
        Ok(())
    }

    /// Waits for something.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// Makes a call.
    ///
    /// # Errors
    /// When it fails.
    pub fn call(&self, tool: &str, params: Value) -> Result<()> {
        self.call_of(&self.tool_runner, tool, params)
    }

    /// Makes a call in a child.
    ///
    /// # Errors
    /// When it fails.
    pub fn call_of(&self, tool_runner: &ToolRunner, tool: &str, params: Value) -> Result<()> {
        let outcome = self.block_on(tool_runner.call(ToolCall::new(tool, params)))?;
        ensure!(outcome.is_ok(), "{tool}: {}", outcome.text);
        Ok(())
    }

    /// Makes a file that is not there.
    ///
    /// # Errors
    /// When it fails.
    pub fn write(&mut self, number: u64) -> Result<()> {
        let content = first_line(number) + &self.noise.text(FILE);
        self.call("write_file", json!({ "file_path": path(number), "content": content }))
    }

    /// Changes a file that is there.
    ///
    /// # Errors
    /// When it fails.
    pub fn edit(&mut self, number: u64) -> Result<()> {
        let old = first_line(number);
        let new = format!("{old}{}\n", self.noise.word());
        self.call("edit_file", json!({ "file_path": path(number), "old_string": old, "new_string": new }))
    }

    /// Ends a child, with all that there is of it.
    ///
    /// # Errors
    /// When something of it can't be removed.
    pub fn remove(&self, child: ToolRunner) -> Result<()> {
        let id = child.session().id();
        child.close()?;
        drop(child);
        self.spec.remove(id, &self.forker.home)?;
        Ok(self.forker.sessions.remove(id)?)
    }

    /// Whose workspace it is.
    pub fn id(&self) -> SessionId {
        self.tool_runner.session().id()
    }

    /// The same files in a plain directory.
    ///
    /// # Errors
    /// When they can't be written.
    pub fn plain(&self) -> Result<Plain> {
        let session = self.tool_runner.session();
        Plain::of(|directory| {
            materialise(session, &session.state()?, directory)?;
            Ok(())
        })
    }

    /// Below it lies all that there is of the session.
    pub fn directory(&self) -> &Path {
        self.scratch.path()
    }
}

impl Drop for Grown {
    fn drop(&mut self) {
        // What is left is seen by who looks for it; a bench has nothing better to do about it.
        drop(self.tool_runner.close());
        drop(self.spec.remove(self.id(), &self.forker.home));
    }
}

/// Files in a plain directory, in a commit of git, too; copies of them are removed at the end.
pub struct Plain {
    scratch: Scratch,
    copies: u32,
}

impl Plain {
    /// Has the files that are written into the directory it names.
    ///
    /// # Errors
    /// When they can't be written.
    pub fn of(write: impl FnOnce(&Path) -> Result<()>) -> Result<Self> {
        let plain = Self { scratch: Scratch::new("plain")?, copies: 0 };
        write(&plain.files())?;
        for words in [
            &["init", "-q"][..],
            &["add", "-A"],
            &["-c", "user.name=bench", "-c", "user.email=bench@localhost", "commit", "-q", "-m", "files"],
        ] {
            plain.git(words)?;
        }
        Ok(plain)
    }

    fn files(&self) -> PathBuf {
        self.scratch.path().join("files")
    }

    fn git(&self, words: &[&str]) -> Result<Duration> {
        // Else it would pack the files behind everybody's back, while something is measured.
        timed(Command::new("git").args(["-c", "gc.auto=0", "-C"]).arg(self.files()).args(words))
    }

    /// A directory that is not there.
    pub fn fresh(&mut self) -> PathBuf {
        self.copies += 1;
        self.scratch.path().join(format!("copy-{}", self.copies))
    }

    /// `cp -a` of the files, without git's.
    ///
    /// # Errors
    /// When it fails.
    pub fn copy(&mut self) -> Result<Duration> {
        let (to, files) = (self.fresh(), self.files());
        std::fs::create_dir(&to)?;
        let mut command = Command::new("cp");
        command.arg("-a");
        for entry in std::fs::read_dir(&files).with_context(|| files.display().to_string())? {
            let entry = entry?;
            if entry.file_name() != ".git" {
                command.arg(entry.path());
            }
        }
        timed(command.arg(to))
    }

    /// `git worktree add` of them.
    ///
    /// # Errors
    /// When it fails.
    pub fn worktree(&mut self) -> Result<Duration> {
        let to = self.fresh();
        self.git(&["worktree", "add", "-q", "--detach", &to.to_string_lossy()])
    }
}

fn timed(command: &mut Command) -> Result<Duration> {
    let start = Instant::now();
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status()?;
    let took = start.elapsed();
    ensure!(status.success(), "{command:?}: {status}");
    Ok(took)
}
