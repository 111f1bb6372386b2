use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use foldspace::backends::HostPath;
use foldspace::event::{Clock, SystemClock};
use foldspace::hub::attached_at;
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tokio::time::Instant;

use super::interrupt::Interruption;
use super::{Exit, Failure, Globals, Out, OwnerClient, Signals, open, output, text};

/// The shortest time between two scans of the disk while the command runs.
const PAUSE: Duration = Duration::from_millis(500);
/// The pause before the next scan, as a multiple of the time that the last scan took.
const SPARE: u32 = 10;
const TOOL: &str = "process";

/// Runs an agent that has no hooks, and records its changes in an attached directory
///
/// The command uses this terminal directly. It is one call of a run: each of its changes, and each git commit, is
/// recorded within about a second. The exit status is the command's.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foldspace record aider --message 'add tests'
  foldspace undo --run last                     undoes all its changes")]
pub(super) struct RecordArgs {
    /// The command
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<String>,
}

/// The reports of a run, as an agent's hooks send them.
struct RunReports<'a> {
    owner: &'a OwnerClient,
    directory: HostPath,
    name: String,
    run: String,
    line: String,
}

impl RecordArgs {
    pub(super) fn run(&self, globals: &Globals, _: &mut Out) -> Result<Exit, Failure> {
        let here = std::env::current_dir().map_err(|error| Failure::io("find", "the current directory", &error))?;
        if attached_at(&open::directory(globals)?, &here).is_none() {
            return Err(Failure::usage("this directory is not attached, so its changes are not recorded")
                .with_hint("`foldspace attach` attaches it"));
        }
        let (program, line) = (self.command.first().map_or("", String::as_str), self.command.join(" "));
        let name = program.rsplit('/').next().unwrap_or(program).to_owned();
        let since = SystemClock::default().now().0;
        let run = format!("{:x}-{since:x}", std::process::id());
        super::block_on(async {
            let owner = OwnerClient::of_existing(globals).await?;
            let reports = RunReports { owner: &owner, directory: HostPath(here), name, run, line };
            reports.send("SessionStart", json!({ "source": "record" })).await?;
            reports.send("PreToolUse", reports.call()).await?;
            let mut signals = Signals::listen();
            let ended = match self.start() {
                Ok(child) => reports.attend(child, &mut signals).await,
                Err(error) => Err(error),
            };
            let mut end = reports.call();
            let event = match &ended {
                Ok(status) => {
                    end["tool_response"] = json!({ "exit_code": code(*status) });
                    "PostToolUse"
                }
                Err(error) => {
                    end["error"] = error.to_string().into();
                    "PostToolUseFailure"
                }
            };
            // The command has ended, so its status counts even if the end can't be recorded.
            let told = reports.send(event, end).await;
            let told = told.and(reports.send("SessionEnd", json!({ "reason": "exit" })).await);
            owner.end().await;
            if let Err(failure) = told {
                output::tell(&failure);
            }
            ended.map(|status| Exit::of_code(code(status))).map_err(|error| Failure::io("run", program, &error))
        })?
    }

    fn start(&self) -> std::io::Result<Child> {
        let mut words = self.command.iter();
        Command::new(words.next().map_or("", String::as_str)).args(words).spawn()
    }
}

impl RunReports<'_> {
    fn call(&self) -> Value {
        json!({ "tool_name": TOOL, "tool_use_id": format!("{}-1", self.run), "tool_input": { "command": self.line } })
    }

    async fn send(&self, event: &str, mut payload: Value) -> Result<(), Failure> {
        payload["session_id"] = self.run.as_str().into();
        payload["hook_event_name"] = event.into();
        self.post(payload).await
    }

    async fn post(&self, payload: Value) -> Result<(), Failure> {
        let Self { directory, name, .. } = self;
        let message = json!({ "agent": "claude", "name": name, "directory": directory, "payload": payload });
        let told = self.owner.client.post::<Value>("/v1/hooks", &message).await?;
        match &told["outcome"] {
            Value::String(outcome) if outcome == "unattached" => {
                Err(Failure::failed(format!("{} is no longer attached", text::visible(&directory.0.to_string_lossy()))))
            }
            _ => Ok(()),
        }
    }

    /// Scans the disk until the command has ended. Forwards signals to the command.
    async fn attend(&self, mut child: Child, signals: &mut Signals) -> std::io::Result<ExitStatus> {
        let mut next = Instant::now() + PAUSE;
        loop {
            tokio::select! {
                ended = child.wait() => return ended,
                signal = signals.next() => pass_on(&child, signal),
                () = tokio::time::sleep_until(next) => {
                    let began = Instant::now();
                    if let Err(failure) = self.post(Value::Null).await {
                        output::tell(&failure);
                    }
                    next = Instant::now() + PAUSE.max(began.elapsed() * SPARE);
                }
            }
        }
    }
}

/// Forwards a signal to the command, unless its terminal has sent it already.
fn pass_on(child: &Child, signal: Interruption) {
    use std::io::IsTerminal;
    let signal = match signal {
        Interruption::Stop if std::io::stdin().is_terminal() => return,
        Interruption::Stop => rustix::process::Signal::INT,
        Interruption::End => rustix::process::Signal::TERM,
    };
    let id = child.id().and_then(|id| rustix::process::Pid::from_raw(i32::try_from(id).ok()?));
    if let Some(id) = id {
        // The command may have ended already.
        let _ = rustix::process::kill_process(id, signal);
    }
}

/// Returns the exit code, as a shell reports it.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
