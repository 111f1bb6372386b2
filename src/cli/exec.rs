//! `foldspace exec`: a command in a session's workspace.

use std::io::Read;
use std::time::Duration;

use foldspace::{CallStatus, Durability, ToolCall, ToolOutcome};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::Globals;
use super::exit::{Exit, Failure};
use super::live::Live;
use super::output::{self, Out};
use super::workspace::{self, RuleArgs};
use super::{interrupt, open};

/// Characters that a command reads on its standard input at most.
const STDIN_MAX: u64 = 48_000;

/// Runs a command in a session's workspace, and records it with everything that it changes
///
/// What it prints is shown as it comes, and its exit status is this program's: 124 when it took too long,
/// 127 when there is no such program.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foldspace exec NAME -- cargo test
  foldspace exec NAME --sh -- 'ls | wc -l'
  generate | foldspace exec NAME -i -- sort")]
pub(super) struct Exec {
    /// The session, by name or by the beginning of its id
    session: String,
    /// The program and its arguments
    #[arg(required = true, last = true, value_name = "CMD")]
    command: Vec<String>,
    /// Gives the words to /bin/sh -c as one text
    #[arg(long)]
    sh: bool,
    /// The directory in the workspace to run it in
    #[arg(long, value_name = "PATH", default_value = "/")]
    cwd: String,
    /// Sets a variable; may be given several times
    #[arg(short, long, value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,
    /// Passes on standard input, at most 48,000 characters
    #[arg(short = 'i', long)]
    stdin: bool,
    /// How long it may run, 1 to 120 seconds [default: 30]
    #[arg(long, value_name = "SECS")]
    timeout: Option<f64>,
    /// Who runs it
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    #[command(flatten)]
    rules: RuleArgs,
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("give it as NAME=VALUE".to_owned()),
    }
}

impl Exec {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        let params = self.params()?;
        open::existing(globals)?;
        let opened = open::writing(globals, Durability::default())?;
        let found = opened.find(&self.session)?;
        let session = match &self.agent {
            Some(agent) => found.session.as_agent(agent.as_str()),
            None => found.session,
        };
        let runtime = super::runtime()?;
        out.go_live_for_good()?;
        let outcome = runtime.block_on(async {
            let workspace = workspace::of_session(globals, &session)?;
            let dispatcher = workspace::dispatcher(session.clone(), workspace.clone(), self.rules.rules(true))?;
            let cancel = CancellationToken::new();
            interrupt::watch(cancel.clone());
            let mut call = ToolCall::new("shell_execute", params);
            call.cancel = cancel;
            let live = (!out.is_json()).then(|| Live::begin(&session));
            let outcome = dispatcher.call(call).await;
            drop(live);
            workspace.close();
            Ok::<ToolOutcome, Failure>(outcome?)
        })?;
        report(&outcome, out)
    }

    fn params(&self) -> Result<Value, Failure> {
        let command = if self.sh { json!(self.command.join(" ")) } else { json!(self.command) };
        let mut params = json!({ "command": command, "cwd": self.cwd });
        if !self.env.is_empty() {
            params["env"] = self.env.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        }
        if let Some(seconds) = self.timeout {
            if Duration::try_from_secs_f64(seconds).is_err() {
                return Err(Failure::new(Exit::Usage, "--timeout: give a number of seconds from 1 to 120"));
            }
            params["timeout_seconds"] = json!(seconds);
        }
        if self.stdin {
            params["stdin"] = json!(standard_input()?);
        }
        Ok(params)
    }
}

fn standard_input() -> Result<String, Failure> {
    let mut input = String::new();
    // A character has at most four bytes.
    let read = std::io::stdin().lock().take(STDIN_MAX * 4 + 1).read_to_string(&mut input);
    read.map_err(|error| Failure::io("read", "standard input", &error))?;
    Ok(input)
}

/// Tells how the program is to end after a call of `shell_execute`.
pub(super) fn report(outcome: &ToolOutcome, out: &mut Out) -> Result<Exit, Failure> {
    if out.is_json() {
        out.document(&json!({
            "call": outcome.call,
            "finished": outcome.finished,
            "status": outcome.status,
            "message": if outcome.is_ok() { "" } else { outcome.text.as_str() },
            "micros": outcome.micros,
            "result": outcome.result,
        }))?;
    }
    match outcome.status {
        CallStatus::Interrupted => Ok(Exit::Interrupted),
        CallStatus::Error => Err(Failure::new(Exit::Failed, outcome.text.clone())),
        CallStatus::Ok => {
            if outcome.result["timed_out"] == true {
                output::note("it took too long and was ended; --timeout allows up to 120 seconds");
            }
            let code = outcome.result["exit_code"].as_i64().unwrap_or(1);
            Ok(Exit::Command(u8::try_from(code).unwrap_or(1)))
        }
    }
}
