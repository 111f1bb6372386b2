//! The shell of a tool: its commands are subject to the policy, recorded and captured.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::approval::Decided;
use super::approver::CommandQuestion;
use super::context::{RunningCommand, ToolContext};
use super::error::ToolError;
use super::record_command::RecordAs;
use crate::backends::{
    CallerProcess, OutputWatch, Shell, ShellCommand, ShellEnv, ShellError, ShellProperties, ShellResult, Which,
    unwatched,
};
use crate::engine::Digest;
use crate::engine::commit::Content;
use crate::engine::event::{CommandDecided, CommandLine, EffectOutcome, ExternalEffect, PolicyDecision, SessionAllow};
use crate::engine::session::error::SessionError;
use crate::reducers::{Allowances, EffectEntry, Effects};
use crate::tools::policy::Decision;
use crate::tools::policy::effects::effects_of;
use crate::tools::policy::rules::ShellRules;
use crate::tools::words;
use crate::tools::workspace::output_stream::CommandOutput;
use crate::tools::workspace::runtime::SessionRuntime;

/// Maximum number of characters of code in a recorded decision; the whole code is stored under its digest.
const CODE_SHOWN: usize = 1000;
/// The value of `TERM` for commands.
pub const TERMINAL: &str = "xterm-256color";
/// Variables of every command, unless it has its own: a killed script must not lose buffered output.
const ADDED: [(&str, &str); 1] = [("PYTHONUNBUFFERED", "1")];
pub(crate) const EVALUATION: Duration = Duration::from_secs(5);

/// Shell for a tool's commands. Commands see the call's earlier changes, and the call sees theirs, which are recorded
/// whatever the outcome.
pub struct ToolShell<'a> {
    context: &'a mut ToolContext,
    shell: Arc<dyn Shell>,
}

impl ToolContext {
    /// Returns the shell; `None` if the backend runs no commands, or the tool is read-only.
    pub fn shell(&mut self) -> Option<ToolShell<'_>> {
        if !self.may_change {
            return None;
        }
        let shell = self.machine.workspace.unrecorded_shell()?;
        Some(ToolShell { context: self, shell })
    }
}

impl ToolShell<'_> {
    /// Returns the fixed properties of the shell.
    pub fn properties(&self) -> ShellProperties {
        self.shell.properties()
    }

    /// Runs a command that the policy allows, and records it.
    ///
    /// # Errors
    /// [`ToolError::Shell`] if the command is invalid or not allowed, or the backend failed.
    pub async fn execute(&mut self, mut command: ShellCommand) -> Result<ShellResult, ToolError> {
        self.context.command_time().bound(&mut command)?;
        command.input = self.context.input.take();
        if let (Some(terminal), Some(input)) = (&mut command.terminal, &command.input) {
            *terminal = input.window().unwrap_or(*terminal);
        }
        self.admit(&command).await?;
        let backend = self.shell.properties().backend_name;
        self.run(command, RecordAs::Command { backend, began_in: None }).await
    }

    /// Starts a command that the policy allows, as the call's running command. It ends with the call unless that lets
    /// it outlive itself.
    pub(super) async fn start(&mut self, command: ShellCommand, watch: OutputWatch) -> Result<(), ToolError> {
        self.admit(&command).await?;
        let backend = self.shell.properties().backend_name;
        self.spawn(command, RecordAs::Command { backend, began_in: None }, Some(watch), CancellationToken::new()).await
    }

    async fn admit(&mut self, command: &ShellCommand) -> Result<(), ToolError> {
        command.check()?;
        self.decide(command, None).await?;
        self.begin(&effects_of(command)).await?;
        if let Some(note) = self.see_to_daemon(command).await? {
            self.note(note);
        }
        Ok(())
    }

    /// Runs code. The policy decides about `interpreter` with the code; `command` runs the same code in a wrapper.
    pub(crate) async fn evaluate(
        &mut self,
        language: &'static str,
        interpreter: &[&str],
        code: &str,
        command: ShellCommand,
    ) -> Result<ShellResult, ToolError> {
        let words = interpreter.iter().copied().chain([code]);
        let decided = ShellCommand { is_code: true, ..ShellCommand::args(words) };
        let command = ShellCommand { is_code: true, timeout: Some(EVALUATION), ..command };
        command.check()?;
        self.decide(&decided, Some(code)).await?;
        self.begin(&[]).await?;
        let place = self.shell.properties().backend_name;
        self.run(command, RecordAs::Evaluation { language, place, code: code.to_owned() }).await
    }

    /// Runs an internal command, which changes nothing in the workspace. It bypasses the policy and is not recorded.
    pub(crate) async fn aside(&self, command: ShellCommand) -> Result<ShellResult, ToolError> {
        let command = ShellCommand { caller: self.caller()?, ..command };
        let cancel = self.context.cancellation().child_token();
        Ok(self.shell.execute(command, unwatched(), cancel).await?)
    }

    async fn run(&mut self, command: ShellCommand, record_as: RecordAs) -> Result<ShellResult, ToolError> {
        let hooks = self.context.hooks.clone();
        let watch = hooks.as_ref().map(|hooks| Arc::clone(&hooks.watch));
        let cancel =
            hooks.map_or_else(|| self.context.cancellation().child_token(), |hooks| hooks.cancel.child_token());
        self.spawn(command, record_as, watch, cancel).await?;
        self.context.finish_running().await
    }

    async fn spawn(
        &mut self,
        mut command: ShellCommand,
        record_as: RecordAs,
        watch: Option<OutputWatch>,
        cancel: CancellationToken,
    ) -> Result<(), ToolError> {
        // The future of an earlier command may have been dropped.
        self.context.stop_running().await;
        self.context.check_changes(true)?;
        self.surround(&mut command)?;
        self.context.land()?;
        let watch = self.watch(watch);
        let task = tokio::spawn(self.shell.execute(command, watch, cancel.clone()));
        let (cancel, stopped) = (Some(cancel.drop_guard()), self.context.stop_clock());
        self.context.running = Some(RunningCommand { task, ended: None, cancel, record_as, stopped });
        Ok(())
    }

    /// Applies the session's options to a command.
    fn surround(&self, command: &mut ShellCommand) -> Result<(), ToolError> {
        for (name, value) in ADDED {
            command.env.entry(name.to_owned()).or_insert_with(|| value.to_owned());
        }
        if command.terminal.is_some() {
            command.env.entry("TERM".to_owned()).or_insert_with(|| TERMINAL.to_owned());
        }
        command.caller = self.caller()?;
        let options = self.context.command_options();
        command.keep = command.keep.min(options.keep_output_bytes);
        command.merge_output |= options.merge_output;
        Ok(())
    }

    /// Returns a watch that passes output to `beside`, then to the watchers of the call.
    fn watch(&self, beside: Option<OutputWatch>) -> OutputWatch {
        let (runtime, call) = (SessionRuntime::of(self.context.session()), self.context.call());
        Arc::new(move |stream, bytes| {
            if let Some(beside) = &beside {
                beside(stream, bytes);
            }
            runtime.show_output(|| CommandOutput { call, stream, bytes: Bytes::copy_from_slice(bytes) });
        })
    }

    /// Records the decision, the start of the container, and the effects to come, before the command begins.
    pub(super) async fn begin(&mut self, effects: &[ExternalEffect]) -> Result<(), ToolError> {
        let mut recorded = None;
        if let Some(container) = self.context.workspace().container() {
            recorded = self.context.record_so_far().await?;
            let started = tokio::task::spawn_blocking(move || container.start()).await;
            started.map_err(|_| ToolError::new("the container was not started: the worker thread ended"))??;
        }
        self.announce(effects)?;
        // The later commit is durable after the earlier one.
        recorded = self.context.record_so_far().await?.or(recorded);
        match recorded {
            Some(pending) => pending.durable().await.map(drop).map_err(|error| SessionError::from(error).into()),
            None => Ok(()),
        }
    }

    /// Finds a program by its name.
    pub async fn which(&self, program: &str) -> Result<Which, ToolError> {
        Ok(self.shell.which(program).await?)
    }

    /// Returns the environment of commands.
    pub async fn env(&self) -> Result<ShellEnv, ToolError> {
        let mut env = self.shell.env().await?;
        let workdir = &self.context.command_options().workdir;
        if !workdir.is_root() {
            env.cwd = format!("{}{}", env.cwd.trim_end_matches('/'), workdir.rooted());
        }
        // The shell that runs a text sets it, even if it inherits another.
        env.variables.insert("PWD".to_owned(), env.cwd.clone());
        env.variables.extend(ADDED.map(|(name, value)| (name.to_owned(), value.to_owned())));
        Ok(env)
    }

    pub(super) fn rules(&self) -> &ShellRules {
        &self.context.machine.rules
    }

    /// Returns the calling process, if commands run on the host.
    pub(super) fn caller(&self) -> Result<Option<Arc<CallerProcess>>, ToolError> {
        Ok(self.rules().caller_in(self.shell.as_ref())?)
    }

    /// Returns the names of the variables that a command on the host inherits, and digests of their values, as JSON.
    fn inherited(&self) -> Result<Option<Bytes>, ToolError> {
        if self.shell.properties().sandboxed {
            return Ok(None);
        }
        let values: BTreeMap<String, Digest> = match self.caller()? {
            Some(caller) => caller.environ.iter().filter_map(|variable| digested(variable.as_bytes())).collect(),
            None => std::env::vars_os()
                .map(|(name, value)| (lossy(name.as_bytes()), Digest::of(value.as_bytes())))
                .collect(),
        };
        Ok(Some(serde_json::to_vec(&values).unwrap_or_default().into()))
    }

    async fn decide(&mut self, command: &ShellCommand, code: Option<&str>) -> Result<(), ToolError> {
        let rules = Arc::clone(&self.context.machine.rules);
        self.caller()?;
        let session = self.context.session().clone();
        let mut allowed = self.context.state().slice::<Allowances>().cloned().unwrap_or_default();
        // The answers to this call are not recorded yet.
        allowed.programs.extend(self.context.allowed.iter().cloned());
        allowed.everything |= self.context.allowed_everything;
        let call = self.context.call();
        let question = |programs| CommandQuestion {
            session: session.name().to_owned(),
            call,
            agent: session.agent().to_string(),
            command: command.command.clone(),
            env: command.env.clone(),
            stdin: command.stdin.clone(),
            programs,
            copies: None,
        };
        let decision = rules.policy.check_allowed(command, &allowed);
        if rules.asker.is_some() && matches!(decision, Decision::Ask { .. }) {
            self.shell.reach().await?;
        }
        let decided = Decided::of(decision, &rules, question).await;
        let refusal = match decided.decision {
            PolicyDecision::Allow => Ok(()),
            PolicyDecision::Deny => Err(ShellError::Blocked(decided.reason.clone()).into()),
        };
        self.record_decision(command, code, decided)?;
        refusal
    }

    /// Records effects before the command begins: a kill then leaves them unknown. Notes a possible repetition.
    fn announce(&mut self, effects: &[ExternalEffect]) -> Result<(), ToolError> {
        for effect in effects {
            self.context.facts.push(effect)?;
            let known = self.context.state().slice::<Effects>().and_then(|known| {
                let is_same = |one: &&EffectEntry| (&one.what, &one.target) == (&effect.what, &effect.target);
                known.entries.iter().rev().find(is_same).filter(|one| one.outcome == EffectOutcome::Unknown)
            });
            if let Some(known) = known {
                let at = known.call.unwrap_or(known.seq);
                self.note(format!("call {at} may have done this already, its outcome is unknown: {}", known.words()));
            }
        }
        Ok(())
    }

    fn note(&mut self, note: String) {
        let earlier = self.context.note.take();
        self.context.note = Some(earlier.map_or(note.clone(), |earlier| format!("{earlier}; {note}")));
    }

    pub(super) fn record_decision(
        &mut self,
        command: &ShellCommand,
        code: Option<&str>,
        Decided { decision, by, reason, programs, everything }: Decided,
    ) -> Result<(), ToolError> {
        let environment = match decision {
            PolicyDecision::Allow => self.inherited()?,
            PolicyDecision::Deny => None,
        };
        let facts = &mut self.context.facts;
        let mut keep = |bytes: Bytes| {
            let content = Content::of(bytes);
            let digest = content.digest;
            facts.keep(content);
            digest
        };
        let stdin = (!command.stdin.is_empty()).then(|| keep(command.stdin.clone()));
        let code = code.map(|code| keep(Bytes::copy_from_slice(code.as_bytes())));
        let environment = environment.map(keep);
        let shown = match code {
            Some(_) => beginning(&command.command),
            None => command.command.clone(),
        };
        let env = command.env.clone();
        let event = CommandDecided { command: shown, env, stdin, code, environment, decision, by, reason };
        facts.push(&event)?;
        if everything || !programs.is_empty() {
            let event = SessionAllow { programs, everything };
            facts.push(&event)?;
            self.context.allowed.extend(event.programs);
            self.context.allowed_everything |= everything;
        }
        Ok(())
    }
}

fn digested(variable: &[u8]) -> Option<(String, Digest)> {
    let at = variable.iter().position(|byte| *byte == b'=')?;
    Some((lossy(&variable[..at]), Digest::of(&variable[at + 1..])))
}

fn lossy(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

pub(crate) fn beginning(command: &CommandLine) -> CommandLine {
    let CommandLine::Args(args) = command else { return command.clone() };
    CommandLine::Args(args.iter().map(|arg| words::beginning(arg, CODE_SHOWN)).collect())
}
