//! `foldspace exec` as a whole process, beside `git status` and `podman exec`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Result, ensure};

use super::Size;
use crate::disk::Scratch;
use crate::sample::median;
use crate::served::program;
use crate::table::{Table, against, number};

/// A store with an owner, which this stops.
struct Owned {
    program: PathBuf,
    scratch: Scratch,
    inotify: &'static str,
}

impl Owned {
    fn new(inotify: bool) -> Result<Self> {
        Ok(Self { program: program()?, scratch: Scratch::new("exec")?, inotify: if inotify { "1" } else { "0" } })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.env("FOLDSPACE_INOTIFY", self.inotify).env_remove("CI").env_remove("FOLDSPACE_IDLE");
        command.arg("--data").arg(self.scratch.path().join("data")).args(arguments);
        command
    }

    /// Records a session whose workspace these options describe.
    fn begin(&self, options: &[&str]) -> Result<()> {
        let script = self.scratch.path().join("script.jsonl");
        std::fs::write(&script, "{\"tool\": \"ls\", \"params\": {}}\n")?;
        let mut command = self.command(&["run", "--yes", "--session", "s"]);
        command.args(options).arg(&script);
        done(&mut command).map(drop)
    }

    fn exec(&self) -> Command {
        self.command(&["exec", "s", "--", "true"])
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let _ = done(&mut self.command(&["stop"]));
    }
}

/// Runs a command; gives the milliseconds that it took.
fn done(command: &mut Command) -> Result<f64> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let start = Instant::now();
    let output = command.spawn()?.wait_with_output()?;
    let took = start.elapsed().as_secs_f64() * 1e3;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(took)
}

/// Runs both in turn; gives the median milliseconds of each.
fn in_turn(size: Size, mut one: Command, mut other: Command) -> Result<(f64, f64)> {
    let mut took = [Vec::new(), Vec::new()];
    for _ in 0..3 {
        done(&mut one)?;
        done(&mut other)?;
    }
    for _ in 0..size.of(11, 101) {
        took[0].push(done(&mut one)?);
        took[1].push(done(&mut other)?);
    }
    Ok((median(&took[0]), median(&took[1])))
}

/// A committed tree of files of a few bytes, a hundred in each directory.
fn tree(top: &Path, files: u64) -> Result<()> {
    for file in 0..files {
        let directory = top.join(format!("d{}", file / 100));
        if file % 100 == 0 {
            std::fs::create_dir_all(&directory)?;
        }
        std::fs::write(directory.join(format!("f{}", file % 100)), format!("file {file}\n"))?;
    }
    std::fs::create_dir_all(top)?;
    let identity = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"];
    for arguments in [&["init", "-q"][..], &["add", "."], &["commit", "-q", "--allow-empty", "-m", "all"]] {
        done(Command::new("git").arg("-C").arg(top).args(identity).args(arguments))?;
    }
    Ok(())
}

/// Runs a command in a session's container and in another one of the same image.
fn in_container(size: Size, engine: &str, image: &str) -> Result<(f64, f64)> {
    let owned = Owned::new(true)?;
    owned.begin(&["--backend", "podman", "--engine", engine, "--image", image])?;
    let podman = std::env::var("FOLDSPACE_PODMAN").unwrap_or_else(|_| "podman".to_owned());
    let name = format!("foldspace-bench-exec-{}", std::process::id());
    let peer = |arguments: &[&str]| {
        let mut command = Command::new(&podman);
        command.args(["--url", engine]).args(arguments);
        command
    };
    done(&mut peer(&["run", "-d", "--rm", "--name", &name, image, "sleep", "1000"]))?;
    let figures = in_turn(size, owned.exec(), peer(&["exec", &name, "true"]));
    done(&mut peer(&["rm", "-f", "-t", "0", &name]))?;
    figures
}

/// Measures a command on the host in directories of several sizes, and one in a kept container.
///
/// # Errors
/// The program's own, and those of `git` and `podman`.
pub fn report(size: Size) -> Result<Vec<Table>> {
    let head = ["`exec S -- true`, owner running", "p50 ms", "beside it", "its p50 ms", "ratio"];
    let mut table = Table::new("exec: whole processes, in turn", &head);
    let mut row = |what: &str, (own, peer): (f64, f64), target: f64, beside: &str, ratio: Option<f64>| {
        let own_cell = if target.is_nan() { number(own) } else { against(own, target, false) };
        let ratio = ratio.map_or_else(|| number(own / peer), |most| against(own / peer, most, false));
        table.row([what.to_owned(), own_cell, beside.to_owned(), number(peer), ratio]);
    };
    let spawn = || Command::new("/bin/true");
    let empty = Owned::new(true)?;
    empty.begin(&["--backend", "host"])?;
    row(
        "host, nothing in it (target 12 + spawn)",
        in_turn(size, empty.exec(), spawn())?,
        12.0,
        "spawn of `true`",
        None,
    );
    for (files, bar) in [(size.of(1_000, 10_000), 15.0), (size.of(5_000, 100_000), 30.0)] {
        for inotify in [true, false] {
            let owned = Owned::new(inotify)?;
            let top = owned.scratch.path().join("files");
            tree(&top, files)?;
            owned.begin(&["--backend", "host", "--dir", &top.to_string_lossy()])?;
            let mut git = Command::new("git");
            git.arg("-C").arg(&top).args(["status", "--porcelain"]);
            let figures = in_turn(size, owned.exec(), git)?;
            let what = format!("host, {files} files, {} inotify", if inotify { "with" } else { "without" });
            let (bar, ratio) = if inotify { (bar, None) } else { (f64::NAN, Some(1.5)) };
            row(&what, figures, bar, "`git status`", ratio);
        }
    }
    match (std::env::var("CONTAINER_HOST"), std::env::var("FOLDSPACE_IMAGE")) {
        (Ok(engine), Ok(image)) => {
            let figures = in_container(size, &engine, &image)?;
            row("Podman, container kept", figures, 20.0, "`podman exec`", None);
        }
        _ => row(
            "Podman: left out, it needs CONTAINER_HOST and FOLDSPACE_IMAGE",
            (f64::NAN, f64::NAN),
            f64::NAN,
            "",
            None,
        ),
    }
    Ok(vec![table])
}
