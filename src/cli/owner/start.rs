//! Starting the owner in the background, as its own session, with nothing of the process that starts it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;

use crate::cli::workspace::{AUTO_CONFIRM_VARIABLE, MAX_TIMEOUT_VARIABLE};
use crate::cli::{Exit, Failure};

const LOG: &str = "owner.log";
/// Bytes of a log that is continued; a longer one begins anew.
const LOG_MAX: u64 = 4 << 20;

/// The outcome of a start.
pub(in crate::cli) enum Begun {
    Ready,
    /// Another process has the store.
    Taken(Failure),
}

/// The words of a background process about its start.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StartWords {
    Ready,
    Failed { exit: u8, message: String, hint: Option<String> },
}

/// Returns the command that is the owner of the data. On its output it says when it is ready, or why it is not.
#[expect(clippy::disallowed_methods, reason = "the owner is a process of its own")]
pub(in crate::cli) fn owner_command(data: &Path) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    // Its rules come with each call, and it serves other processes, too.
    command.env_remove(AUTO_CONFIRM_VARIABLE).env_remove(MAX_TIMEOUT_VARIABLE);
    // Freed memory goes back after a millisecond: an attach of 100,000 files then takes 120 MB at most, else 160.
    command.env("MIMALLOC_PURGE_DELAY", "1");
    command.arg("--data").arg(data).args(["serve", "--background"]).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    Ok(command)
}

/// Starts the owner of the data, and waits until it serves.
pub(in crate::cli) async fn begin_in_background(directory: &Path) -> Result<Begun, Failure> {
    let failed = |error: &io::Error| Failure::io("start", "the owner of the store", error);
    let directory = std::path::absolute(directory).map_err(|error| failed(&error))?;
    let command = owner_command(&directory).map_err(|error| failed(&error))?;
    let mut child = tokio::process::Command::from(command).spawn().map_err(|error| failed(&error))?;
    let mut said = Vec::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_end(&mut said).await.map_err(|error| failed(&error))?;
    }
    let words = serde_json::from_slice(&said);
    if !matches!(words, Ok(StartWords::Ready)) {
        // A start that failed leaves no process behind.
        child.wait().await.map_err(|error| failed(&error))?;
    }
    match words {
        Ok(StartWords::Ready) => Ok(Begun::Ready),
        Ok(StartWords::Failed { exit, message, hint }) => {
            let exit = Exit::of_code(exit);
            let failure = Failure::Told { exit, message, hint };
            if exit == Exit::Busy { Ok(Begun::Taken(failure)) } else { Err(failure) }
        }
        Err(_) => {
            let log = directory.join(LOG).display().to_string();
            Err(Failure::failed("the owner of the store ended before it was ready").with_hint(format!("see {log}")))
        }
    }
}

/// The background process's side: who started it waits for its words.
pub(in crate::cli) struct Starter(());

impl Starter {
    /// Leaves the session, the descriptors and the directory of the process that started this one. It is called before
    /// anything is opened.
    pub(in crate::cli) fn leave() -> Self {
        close_inherited();
        // It fails for the leader of a session only, which this process is then.
        let _ = rustix::process::setsid();
        Self(())
    }

    /// Sends what is logged to a file of the data.
    pub(in crate::cli) fn log_to(&self, directory: &Path) {
        let log = log_file(&directory.join(LOG)).and_then(|log| Ok(rustix::stdio::dup2_stderr(log)?));
        if let Err(error) = log {
            tracing::debug!(%error, "nothing is logged");
        }
    }

    pub(in crate::cli) fn ready(self) {
        say(&StartWords::Ready);
    }

    pub(in crate::cli) fn failed(self, failure: &Failure) {
        say(&match failure {
            Failure::Told { exit, message, hint } => {
                StartWords::Failed { exit: exit.code(), message: message.clone(), hint: hint.clone() }
            }
            Failure::Closed => return,
        });
    }
}

/// Says it, and closes the pipe: the end of what is said is the start's.
fn say(words: &StartWords) {
    let text = serde_json::to_vec(words).unwrap_or_default();
    // Who started this process may be gone.
    drop(io::stdout().write_all(&text).and_then(|()| io::stdout().flush()));
    if let Ok(null) = null() {
        // Nothing more is said there.
        let _ = rustix::stdio::dup2_stdout(null);
    }
}

#[expect(clippy::disallowed_methods, reason = "an owner's log is no part of the store")]
fn log_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).mode(0o600);
    match path.metadata() {
        Ok(known) if known.len() > LOG_MAX => options.write(true).truncate(true),
        _ => options.append(true),
    };
    options.open(path)
}

#[expect(clippy::disallowed_methods, reason = "a process without a reader writes to nothing")]
fn null() -> io::Result<File> {
    OpenOptions::new().write(true).open("/dev/null")
}

/// Closes what this process was given beyond its standard streams, such as a pipe behind the first command.
#[expect(clippy::disallowed_methods, reason = "the kernel tells of descriptors in a directory")]
fn close_inherited() {
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers = open.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    // The directory itself is among them, and closed by then.
    for number in numbers.filter(|number| *number > 2).collect::<Vec<_>>() {
        let _ = nix::unistd::close(number);
    }
}
