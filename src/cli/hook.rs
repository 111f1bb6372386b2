//! Passing on what the hooks of coding agents are given to the owner of the store.
//!
//! It never stands in an agent's way: it ends with 0 whatever happens, prints nothing but the `{}` that some agents want,
//! and waits two seconds at most. What goes wrong is in a log that `doctor` shows.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use foldspace::backends::{HostPath, agent_process};
use foldspace::hub::{ATTACHED, attached_file, keep_report, kept_reports, worktree_at};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;

use super::owner::{SOCKET, owner_command};
use super::{hook_log, open, output, text};

/// Bytes of a payload that is passed on.
const PAYLOAD_MAX: u64 = 64 << 20;
/// Bytes of an answer that are read.
const ANSWER_MAX: u64 = 64 << 10;
/// Time for the owner to answer; its own is a little shorter.
const PATIENCE: Duration = Duration::from_millis(2200);
/// Time for an owner that is started to be ready.
const START: Duration = Duration::from_millis(1500);
/// Agents that take an answer in JSON for granted.
const ANSWERED: [&str; 2] = ["gemini", "cursor"];

/// The words after `hook`: an agent, perhaps an event, and options.
struct HookWords {
    agent: String,
    event: Option<String>,
    name: Option<String>,
    data: Option<PathBuf>,
}

/// A payload, as far as it is read here.
#[derive(Default, Deserialize)]
struct Glance {
    cwd: Option<PathBuf>,
    directory: Option<PathBuf>,
}

/// A refusal of the owner, as far as it is read here.
#[derive(Deserialize)]
struct Problem {
    detail: String,
}

/// Passes on what standard input has. Its words are those after `hook`.
pub(super) fn run(words: impl Iterator<Item = String>) {
    std::panic::set_hook(Box::new(|_| {}));
    let words = HookWords::of(words);
    let data = words.data.clone().or_else(open::default_directory);
    let passed = std::panic::catch_unwind(|| pass(&words, data.as_deref()));
    if let Some(data) = data {
        match passed {
            Ok(Ok(())) => {}
            Ok(Err(error)) => hook_log::note(&data, &words.agent, &error.to_string()),
            Err(_) => hook_log::note(&data, &words.agent, "the hook panicked, which is a fault of foldspace"),
        }
    }
    if ANSWERED.contains(&&*words.agent) {
        drop(io::stdout().write_all(b"{}\n"));
    }
}

impl HookWords {
    fn of(mut words: impl Iterator<Item = String>) -> Self {
        let mut read = Self { agent: String::new(), event: None, name: None, data: None };
        while let Some(word) = words.next() {
            match &*word {
                "--data" => read.data = words.next().map(PathBuf::from),
                "--name" => read.name = words.next(),
                _ if read.agent.is_empty() => read.agent = word,
                _ => read.event = Some(word),
            }
        }
        read
    }
}

fn pass(words: &HookWords, data: Option<&Path>) -> io::Result<()> {
    let mut payload = Vec::new();
    io::stdin().take(PAYLOAD_MAX).read_to_end(&mut payload)?;
    let Some(data) = data.filter(|data| data.join(ATTACHED).is_dir()) else { return Ok(()) };
    let glance: Glance = serde_json::from_slice(&payload).unwrap_or_default();
    let own = || std::env::current_dir().ok();
    let Some(directory) = glance.cwd.or(glance.directory).or_else(own) else { return Ok(()) };
    let directory = directory.canonicalize().unwrap_or(directory);
    let is_attached = directory.ancestors().any(|above| attached_file(data, above).exists());
    if !is_attached && worktree_at(data, &directory).is_none() {
        return Ok(());
    }
    let message = message(words, &directory, &payload);
    match reach(data, &message) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(error),
        Err(error) => {
            keep_report(data, message.as_bytes())?;
            Err(io::Error::other(format!("the report is kept for later: {error}")))
        }
    }
}

/// Makes the owner record the reports in the spool, before a command reads the store. Notes what can't be recorded.
pub(super) fn record_kept(data: &Path) {
    let mut directories = kept_reports(data);
    directories.sort_by(|one, other| one.0.cmp(&other.0));
    directories.dedup();
    for directory in directories {
        // Without a payload it is only a request to look at the disk.
        let message = json!({ "agent": "claude", "directory": directory, "payload": null }).to_string();
        if let Err(error) = reach(data, &message) {
            return output::note(&format!(
                "the history lacks hook reports: {}",
                text::one_line(&error.to_string(), 300)
            ));
        }
    }
}

/// Makes the message for the owner, with the payload as it is if it is JSON.
fn message(words: &HookWords, directory: &Path, payload: &[u8]) -> String {
    let payload = match serde_json::from_slice::<IgnoredAny>(payload) {
        Ok(_) => String::from_utf8_lossy(payload).into_owned(),
        Err(_) => json!({ "unreadable": String::from_utf8_lossy(payload) }).to_string(),
    };
    let HookWords { agent, event, name, .. } = words;
    let (directory, process) = (HostPath(directory.to_owned()), agent_process());
    let head = json!({ "agent": agent, "event": event, "name": name, "directory": directory, "process": process });
    let head = head.to_string();
    format!("{},\"payload\":{payload}}}", head.trim_end_matches('}'))
}

/// Sends a message to the owner, and starts an owner if none answers.
fn reach(data: &Path, message: &str) -> io::Result<()> {
    let has_answered = |error: &io::Error| matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::Other);
    match send(data, message) {
        Err(error) if !has_answered(&error) => start(data)?,
        sent => return sent,
    }
    let unanswered = |error| io::Error::other(format!("no owner answers yet: {error}"));
    send(data, message).map_err(|error| if has_answered(&error) { error } else { unanswered(error) })
}

/// Sends a message to the owner. The error is `Other` if it can't be recorded now, `InvalidData` if it is refused.
fn send(data: &Path, message: &str) -> io::Result<()> {
    let mut owner = UnixStream::connect(data.join(SOCKET))?;
    owner.set_read_timeout(Some(PATIENCE))?;
    owner.set_write_timeout(Some(PATIENCE))?;
    let length = message.len();
    let head = "POST /v1/hooks HTTP/1.1\r\nhost: foldspace\r\nconnection: close\r\ncontent-type: application/json\r\n";
    owner.write_all(format!("{head}content-length: {length}\r\n\r\n{message}").as_bytes())?;
    let mut answer = Vec::new();
    match owner.take(ANSWER_MAX).read_to_end(&mut answer) {
        // It has the message, and goes on.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
        other => other?,
    };
    let answer = String::from_utf8_lossy(&answer);
    let said = || {
        let line = answer.lines().last().unwrap_or_default();
        serde_json::from_str(line).map_or_else(|_| line.to_owned(), |Problem { detail }| detail)
    };
    match answer.split(' ').nth(1) {
        Some("200") => Ok(()),
        // It ends at this moment.
        None | Some("503") => Err(io::Error::from(io::ErrorKind::ConnectionReset)),
        Some("400" | "413" | "422") => Err(io::Error::new(io::ErrorKind::InvalidData, said())),
        Some(_) => Err(io::Error::other(said())),
    }
}

/// Starts the owner, and waits until it is ready.
fn start(data: &Path) -> io::Result<()> {
    let mut owner = owner_command(data)?.spawn()?;
    let Some(words) = owner.stdout.take() else { return Ok(()) };
    // It says when it is ready, or why it is not.
    poll(&mut [PollFd::new(&words, PollFlags::IN)], Timespec::try_from(START).ok().as_ref())?;
    Ok(())
}
