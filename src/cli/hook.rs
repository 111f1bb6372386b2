//! `foldspace hook`: forwards the input of coding agents' hooks to the owner of the store.
//!
//! It never blocks an agent: it always exits with 0, prints nothing but the `{}` that some agents need, and waits two
//! seconds at most. A report that the owner has not recorded by then goes to the spool. `doctor` shows the error log.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use foldspace::backends::{HostPath, agent_process};
use foldspace::hub::{ATTACHED, ReportId, ReportOutcome, attached_file, keep_report, kept_reports, worktree_at};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Deserialize;
use serde_json::{Value, json};

use super::data_directory::default_directory;
use super::owner::{SOCKET, owner_command};
use super::{hook_log, hook_payload, output, text};

/// The largest number of bytes read from an answer.
const ANSWER_MAX: u64 = 64 << 10;
/// The time limit for the owner's answer; the owner's own limit is a little shorter.
const OWNER_REPLY_TIMEOUT: Duration = Duration::from_millis(2200);
/// The time limit for a new owner to be ready.
const START: Duration = Duration::from_millis(1500);
/// Agents that require an answer in JSON.
const ANSWERED: [&str; 2] = ["gemini", "cursor"];
/// Agents with the variables that name their project directory in a hook.
const PROJECTS: [(&str, &str); 3] =
    [("claude", "CLAUDE_PROJECT_DIR"), ("copilot", "CLAUDE_PROJECT_DIR"), ("gemini", "GEMINI_PROJECT_DIR")];

/// The arguments after `hook`: an agent, an optional event, and options.
struct HookWords {
    agent: String,
    event: Option<String>,
    name: Option<String>,
    data: Option<PathBuf>,
}

/// The part of an owner's answer that the hook reads.
#[derive(Deserialize)]
struct ReportAnswer {
    outcome: ReportOutcome,
}

/// The part of an owner's refusal that the hook reads.
#[derive(Deserialize)]
struct Problem {
    detail: String,
}

/// Forwards standard input to the owner. `words` are the arguments after `hook`.
pub(super) fn run(words: impl Iterator<Item = String>) {
    std::panic::set_hook(Box::new(|_| {}));
    let id = ReportId::of_now();
    let words = HookWords::of(words);
    let data = words.data.clone().or_else(default_directory);
    let passed = std::panic::catch_unwind(|| pass(id, &words, data.as_deref()));
    if let Some(data) = data {
        match passed {
            Ok(Ok(())) => {}
            Ok(Err(error)) => hook_log::note(&data, &words.agent, &error.to_string()),
            Err(_) => hook_log::note(&data, &words.agent, "the hook panicked, which is a bug in foldspace"),
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

fn pass(id: ReportId, words: &HookWords, data: Option<&Path>) -> io::Result<()> {
    let payload = hook_payload::read(io::stdin());
    let Some(data) = data.filter(|data| data.join(ATTACHED).is_dir()) else { return Ok(()) };
    let payload = payload?;
    let Some(directory) = attached_directory(data, &words.agent, &payload) else { return Ok(()) };
    let HookWords { agent, event, name, .. } = words;
    let (directory, process) = (HostPath(directory), agent_process());
    let message = json!({ "id": id, "agent": agent, "event": event, "name": name, "directory": directory,
        "process": process, "payload": payload })
    .to_string();
    match reach(data, &message) {
        Ok(ReportOutcome::Recorded | ReportOutcome::Unattached) => Ok(()),
        Ok(ReportOutcome::Later) => keep_report(data, id, message.as_bytes()),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(error),
        Err(error) => {
            keep_report(data, id, message.as_bytes())?;
            Err(io::Error::other(format!("the report is stored for later: {error}")))
        }
    }
}

/// Returns the agent's working directory or project directory, the first that is in an attached directory.
fn attached_directory(data: &Path, agent: &str, payload: &Value) -> Option<PathBuf> {
    let stated = [&payload["cwd"], &payload["directory"], &payload["workspace_roots"][0]];
    let works_in = match stated.into_iter().find_map(Value::as_str) {
        Some(stated) => Some(PathBuf::from(stated)),
        None => std::env::current_dir().ok(),
    };
    let variables = PROJECTS.into_iter().filter(|(named, _)| *named == agent);
    let projects = variables.filter_map(|(_, variable)| std::env::var_os(variable).map(PathBuf::from));
    let directories = works_in.into_iter().chain(projects);
    directories.map(|directory| directory.canonicalize().unwrap_or(directory)).find(|directory| {
        let is_attached = directory.ancestors().any(|above| attached_file(data, above).exists());
        is_attached || worktree_at(data, directory).is_some()
    })
}

/// Makes the owner record the reports in the spool, before a command reads the store. Prints a note if it can't.
pub(super) fn record_kept(data: &Path) {
    let mut directories = kept_reports(data);
    directories.sort_by(|one, other| one.0.cmp(&other.0));
    directories.dedup();
    for directory in directories {
        // A message without a payload only requests a scan of the disk.
        let message = json!({ "agent": "claude", "directory": directory, "payload": null }).to_string();
        if let Err(error) = reach(data, &message) {
            return output::note(&format!(
                "hook reports are missing from the history: {}",
                text::one_line(&error.to_string(), 300)
            ));
        }
    }
}

/// Sends a message to the owner, and starts an owner if none is running.
fn reach(data: &Path, message: &str) -> io::Result<ReportOutcome> {
    use io::ErrorKind::{InvalidData, Other, TimedOut};
    let is_there = |error: &io::Error| matches!(error.kind(), InvalidData | Other | TimedOut);
    match send(data, message) {
        Err(error) if !is_there(&error) => start(data)?,
        sent => return sent,
    }
    let unanswered = |error| io::Error::other(format!("no owner answers yet: {error}"));
    send(data, message).map_err(|error| if is_there(&error) { error } else { unanswered(error) })
}

/// Sends a message to the owner. Fails with `Other` if it can't be recorded now, with `InvalidData` if it is refused,
/// and with `TimedOut` if the owner does not answer.
fn send(data: &Path, message: &str) -> io::Result<ReportOutcome> {
    let waited = |error: io::Error| match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::new(io::ErrorKind::TimedOut, "the owner does not answer"),
        _ => error,
    };
    let mut owner = UnixStream::connect(data.join(SOCKET))?;
    owner.set_read_timeout(Some(OWNER_REPLY_TIMEOUT))?;
    owner.set_write_timeout(Some(OWNER_REPLY_TIMEOUT))?;
    let length = message.len();
    let head = "POST /v1/hooks HTTP/1.1\r\nhost: foldspace\r\nconnection: close\r\ncontent-type: application/json\r\n";
    owner.write_all(format!("{head}content-length: {length}\r\n\r\n{message}").as_bytes()).map_err(waited)?;
    let mut answer = Vec::new();
    owner.take(ANSWER_MAX).read_to_end(&mut answer).map_err(waited)?;
    let answer = String::from_utf8_lossy(&answer);
    let line = answer.lines().last().unwrap_or_default();
    let said = || serde_json::from_str(line).map_or_else(|_| line.to_owned(), |Problem { detail }| detail);
    match answer.split(' ').nth(1) {
        Some("200") => {
            Ok(serde_json::from_str(line).map_or(ReportOutcome::Recorded, |ReportAnswer { outcome }| outcome))
        }
        // The owner is just ending.
        None | Some("503") => Err(io::Error::from(io::ErrorKind::ConnectionReset)),
        Some("400" | "413" | "422") => Err(io::Error::new(io::ErrorKind::InvalidData, said())),
        Some(_) => Err(io::Error::other(said())),
    }
}

/// Starts the owner, and waits until it is ready.
fn start(data: &Path) -> io::Result<()> {
    let mut owner = owner_command(data)?.spawn()?;
    let Some(words) = owner.stdout.take() else { return Ok(()) };
    // The owner prints a line when it is ready or has failed.
    poll(&mut [PollFd::new(&words, PollFlags::IN)], Timespec::try_from(START).ok().as_ref())?;
    Ok(())
}
