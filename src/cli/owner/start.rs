//! Starts the owner in the background, in its own process session, without inherited files.

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
/// The maximum size in bytes; a larger log is truncated first.
const LOG_MAX: u64 = 4 << 20;

/// The outcome of a start.
pub(in crate::cli) enum Begun {
    Ready,
    /// Another process has the store.
    Taken(Failure),
}

/// The message of a background process about its start.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StartWords {
    Ready,
    Failed { exit: u8, message: String, hint: Option<String> },
}

/// Returns the command that runs the owner of the data. It prints on standard output when it is ready or has failed.
#[expect(clippy::disallowed_methods, reason = "the owner is a separate process")]
pub(in crate::cli) fn owner_command(data: &Path) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    // Rules come with each call, since the owner serves other processes, too.
    command.env_remove(AUTO_CONFIRM_VARIABLE).env_remove(MAX_TIMEOUT_VARIABLE);
    // Returns freed memory after a millisecond: an attach of 100,000 files then takes at most 120 MB instead of 160.
    command.env("MIMALLOC_PURGE_DELAY", "1");
    // The lock has only the first words of the command, and other processes look for this one.
    command.args(["serve", "--background", "--data"]).arg(data).current_dir("/");
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
        // A failed start leaves no process behind.
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

/// The background process's side of a start: the process that started it waits for its message.
pub(in crate::cli) struct Starter(());

impl Starter {
    /// Detaches from the process that started this one: its session and file descriptors. Must be called before
    /// anything is opened.
    pub(in crate::cli) fn leave() -> Self {
        close_inherited();
        // It fails only if this process already leads a session.
        let _ = rustix::process::setsid();
        Self(())
    }

    /// Redirects the log to a file in the data directory.
    pub(in crate::cli) fn log_to(&self, directory: &Path) {
        let log = log_file(&directory.join(LOG)).and_then(|log| Ok(rustix::stdio::dup2_stderr(log)?));
        if let Err(error) = log {
            tracing::debug!(%error, "failed to open the log");
        }
    }

    pub(in crate::cli) fn ready(self) {
        say(&StartWords::Ready);
    }

    /// Sends a message of another kind of process.
    #[cfg(feature = "mount")]
    pub(in crate::cli) fn say(self, words: &str) {
        send(words.as_bytes());
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

fn say(words: &StartWords) {
    send(&serde_json::to_vec(words).unwrap_or_default());
}

/// Sends the message, and closes the pipe: its end marks the end of the start.
fn send(text: &[u8]) {
    // The process that started this one may be gone.
    drop(io::stdout().write_all(text).and_then(|()| io::stdout().flush()));
    if let Ok(null) = null() {
        // Nothing else is printed there.
        let _ = rustix::stdio::dup2_stdout(null);
    }
}

#[expect(clippy::disallowed_methods, reason = "an owner's log is not part of the store")]
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

/// Closes all inherited file descriptors except the standard streams, such as a pipe of the first command.
#[expect(clippy::disallowed_methods, reason = "the kernel lists descriptors in a directory")]
fn close_inherited() {
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers = open.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    // They include the directory itself, which is closed by then.
    for number in numbers.filter(|number| *number > 2).collect::<Vec<_>>() {
        let _ = nix::unistd::close(number);
    }
}
