use foldspace::ToolOutcome;
use foldspace::event::CallStatus;
use foldspace::tools::OnFailure;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::calling::{self, Calling};
use super::live::LiveOutput;
use super::local_terminal::{LocalInput, give_terminal};
use super::new::IfMissing;
use super::{Exit, Failure, Globals, Out, RuleArgs, interrupt, output, text, workspace};

/// The exit status of a command whose program was not found.
const NOT_FOUND: i64 = 127;

/// Runs a command in a session's workspace, and records it
///
/// Everything that the command changes is recorded. Its output is streamed, and its exit status becomes this
/// program's: 124 after a timeout, 127 if the command's program was not found.
#[derive(Debug, clap::Args)]
#[command(mut_args(workspace::unasked))]
#[command(after_help = "\
Examples:
  foldspace exec NAME cargo test
  foldspace exec -- cargo test      in the session of this directory
  foldspace exec NAME --sh 'ls | wc -l'
  generate | foldspace exec NAME -i sort
  foldspace exec NAME -t git rebase -i HEAD~3")]
pub(super) struct Exec {
    /// The session, by name or by the beginning of its id
    session: String,
    /// The program and its arguments; options of `exec` come before it
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<String>,
    /// Joins the arguments and runs them with /bin/sh -c
    #[arg(long)]
    sh: bool,
    /// The working directory, in the workspace [default: the session's --workdir, else /]
    #[arg(long, value_name = "PATH", default_value = "", hide_default_value = true)]
    cwd: String,
    /// Sets a variable; may be given several times
    #[arg(short, long, value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,
    /// Streams standard input to the command; it is not recorded
    #[arg(short = 'i', long)]
    stdin: bool,
    /// Runs it in a terminal, and forwards all keys that are typed here
    ///
    /// The terminal's output is recorded, and `show --play` plays it. Keys are not recorded.
    #[arg(short = 't', long, conflicts_with = "json")]
    tty: bool,
    /// Limits its running time: 1 to 86,400 seconds [default: no limit]
    #[arg(long, value_name = "SECS", value_parser = workspace::command_seconds)]
    timeout: Option<f64>,
    /// Undoes its changes if it fails: if it exits non-zero, times out or is interrupted
    #[arg(long)]
    undo_on_failure: bool,
    /// The agent that runs it
    #[arg(long, value_name = "NAME", value_parser = workspace::agent_name)]
    agent: Option<String>,
    /// An id for retries, 1 to 200 bytes: a second `exec` with the same id only shows the recorded outcome
    #[arg(long, value_name = "ID")]
    call_id: Option<String>,
    #[command(flatten)]
    missing: IfMissing,
    #[command(flatten)]
    rules: RuleArgs,
}

pub(super) fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

impl Exec {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        let params = self.params()?;
        out.go_live_for_good()?;
        let (outcome, shown) = super::block_on(self.call(globals, params, out.is_json()))??;
        let exit = report(&outcome, out)?;
        if let [text] = &self.command[..]
            && outcome.result["exit_code"] == NOT_FOUND
            && text.contains([' ', '|', ';', '&', '>', '<'])
            && !self.sh
        {
            output::note(&format!(
                "{} is one word, the name of a program; --sh runs it in a shell",
                text::shell_word(text)
            ));
        }
        shown.map(|()| exit)
    }

    async fn call(
        &self,
        globals: &Globals,
        params: Value,
        is_json: bool,
    ) -> Result<(ToolOutcome, Result<(), Failure>), Failure> {
        let rules = self.rules.typed()?;
        let owner = self.missing.owner(globals, &self.session).await?;
        let known = owner.client.session(&self.session).await?;
        if known.backend == "memory" {
            return Err(workspace::without_shell(&known.name));
        }
        workspace::check_runs_commands(&owner.sessions()?.find(&self.session)?.session)?;
        let mut request = calling::request("shell_execute", params, self.agent.as_deref(), &rules);
        request.call_id.clone_from(&self.call_id);
        if self.undo_on_failure {
            request.on_failure = OnFailure::Undo;
        }
        let cancel = CancellationToken::new();
        interrupt::watch(cancel.clone(), owner.closing());
        let mut live = if is_json { None } else { Some(LiveOutput::begin(&cancel)?) };
        let (client, session) = (&owner.client, self.session.as_str());
        let call = Calling { client, session, name: session, request, rules: &rules, cancel: cancel.clone() };
        let mut input = match (self.tty, self.stdin) {
            (true, _) => Some(LocalInput::terminal()?),
            (false, true) => Some(LocalInput::default()),
            (false, false) => None,
        };
        let outcome = match &mut input {
            Some(input) => call.make_typed(input, live.as_mut(), output::progress).await,
            None => call.make(live.as_mut(), output::progress).await,
        };
        let shown = match live {
            Some(live) => live.end().await,
            None => Ok(()),
        };
        // Restores the terminal before anything else is printed.
        drop(input);
        if let Ok(done) = &outcome
            && done.status == CallStatus::Interrupted
            && !cancel.is_cancelled()
        {
            output::note(&done.text);
        }
        owner.end().await;
        Ok((outcome?, shown))
    }

    fn params(&self) -> Result<Value, Failure> {
        let command = if self.sh { json!(self.command.join(" ")) } else { json!(self.command) };
        let mut params = json!({ "command": command, "cwd": self.cwd });
        if !self.env.is_empty() {
            params["env"] = self.env.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        }
        if let Some(seconds) = self.timeout {
            params["timeout_seconds"] = json!(seconds);
        }
        if self.tty {
            give_terminal(&mut params);
        }
        Ok(params)
    }
}

pub(super) const TOOK_TOO_LONG: &str = "the command exceeded --timeout and was ended";

pub(super) fn report(outcome: &ToolOutcome, out: &mut Out) -> Result<Exit, Failure> {
    if out.is_json() {
        let mut document = json!({
            "call": outcome.call,
            "finished": outcome.finished,
            "status": outcome.status,
            "message": if outcome.is_ok() { "" } else { outcome.text.as_str() },
            "micros": outcome.micros,
            "result": outcome.result,
        });
        if outcome.repeated {
            document["repeated"] = json!(true);
        }
        out.document(&document)?;
    }
    match outcome.status {
        CallStatus::Interrupted => Ok(Exit::Interrupted),
        CallStatus::Error => Err(Failure::failed(outcome.text.clone())),
        CallStatus::Ok => {
            if outcome.result["timed_out"] == true {
                output::note(TOOK_TOO_LONG);
            }
            if let Some(count) = outcome.result["undone"].as_u64() {
                output::note(&format!("undid its changes of {}", text::count(count, "entry")));
            }
            for note in [&outcome.result["outside"]["note"], &outcome.result["note"]] {
                note.as_str().iter().for_each(|note| output::note(note));
            }
            let code = outcome.result["exit_code"].as_i64().unwrap_or(1);
            Ok(Exit::Command(u8::try_from(code).unwrap_or(1)))
        }
    }
}
