//! The shell as a tool sees it: what it runs is decided on, recorded, and captured.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::asking::{Answer, CommandQuestion};
use super::context::{RunningCommand, ToolContext};
use super::error::ToolError;
use super::policy::{AllowedBy, Decision};
use crate::backends::{OutputWatch, Shell, ShellCommand, ShellEnv, ShellError, ShellProperties, ShellResult, Which};
use crate::engine::commit::Content;
use crate::engine::event::{
    CommandDecided, CommandLine, CommandResult, DecidedBy, PolicyDecision, RecordedOutput, SessionAllow,
};
use crate::engine::live::CommandOutput;
use crate::engine::recorded::Seq;
use crate::engine::session::Session;
use crate::reducers::Allowances;

/// How long an evaluation may run.
pub(super) const EVALUATION: Duration = Duration::from_secs(5);

/// Where a tool's commands run.
///
/// A command sees what the call has changed before it. What it changes, the call sees after it, and it
/// is recorded whatever becomes of the call.
pub struct ToolShell<'a> {
    context: &'a mut ToolContext,
    shell: Arc<dyn Shell>,
}

impl<'a> ToolShell<'a> {
    pub(super) fn new(context: &'a mut ToolContext, shell: Arc<dyn Shell>) -> Self {
        Self { context, shell }
    }

    /// What is fixed about the shell.
    pub fn properties(&self) -> ShellProperties {
        self.shell.properties()
    }

    /// Runs a command that the policy allows, and records it.
    ///
    /// # Errors
    /// [`ToolError::Shell`] when the command is not right, not allowed, or the backend failed.
    pub async fn execute(&mut self, command: ShellCommand) -> Result<ShellResult, ToolError> {
        command.check()?;
        self.decide(&command.command).await?;
        let result = self.run(command).await?;
        let facts = &mut self.context.facts;
        record_result(facts, self.shell.properties().backend_name, &result)?;
        Ok(result)
    }

    /// Runs code by an interpreter; the policy is asked about the interpreter, and the caller records what
    /// came of it.
    pub(super) async fn evaluate(&mut self, interpreter: &[&str], code: &str) -> Result<ShellResult, ToolError> {
        let mut args: Vec<String> = interpreter.iter().map(|&word| word.to_owned()).collect();
        self.decide(&CommandLine::Args(args.clone())).await?;
        args.push(code.to_owned());
        let mut command = ShellCommand { is_code: true, ..ShellCommand::args(args) };
        command.timeout = Some(EVALUATION);
        // So that what was printed before the end is there.
        command.env.insert("PYTHONUNBUFFERED".to_owned(), "1".to_owned());
        command.check()?;
        self.run(command).await
    }

    async fn run(&mut self, command: ShellCommand) -> Result<ShellResult, ToolError> {
        self.context.land()?;
        let (session, call) = (self.context.session().clone(), self.context.call());
        let watch = shown_to_subscribers(session, call);
        let cancel = self.context.cancellation().child_token();
        let running = self.shell.execute(command, watch, cancel.clone());
        let backend = self.shell.properties().backend_name;
        self.context.running = Some(RunningCommand::new(tokio::spawn(running), cancel, backend));
        self.context.finish_running().await
    }

    /// Where a program is found by its name.
    ///
    /// # Errors
    /// [`ToolError::Shell`] when the backend failed.
    pub async fn which(&self, program: &str) -> Result<Which, ToolError> {
        Ok(self.shell.which(program).await?)
    }

    /// What commands find in their environment.
    ///
    /// # Errors
    /// [`ToolError::Shell`] when the backend failed.
    pub async fn env(&self) -> Result<ShellEnv, ToolError> {
        Ok(self.shell.env().await?)
    }

    /// Asks the policy, and whoever may know where it does not. The decision is recorded.
    async fn decide(&mut self, command: &CommandLine) -> Result<(), ToolError> {
        let rules = Arc::clone(self.context.rules());
        let session = self.context.session().clone();
        let allowances = session.state()?.slice::<Allowances>().cloned().unwrap_or_default();
        let decided = |decision, by, reason: String| CommandDecided { command: command.clone(), decision, by, reason };
        let (event, programs) = match rules.policy.check(command, &allowances.programs) {
            Decision::Allow { because } => (decided(PolicyDecision::Allow, by(because), String::new()), Vec::new()),
            Decision::Deny { reason } => (decided(PolicyDecision::Deny, DecidedBy::Policy, reason), Vec::new()),
            Decision::Ask { programs } => match &rules.asker {
                None => {
                    let names = programs.join(", ");
                    let reason = format!(
                        "nothing allows {names}, and there is nobody to ask; allow what is missing (--allow PROGRAM), or \
                         have every question answered with yes (--yes)"
                    );
                    (decided(PolicyDecision::Deny, DecidedBy::Nobody, reason), Vec::new())
                }
                Some(asker) => {
                    let question = CommandQuestion {
                        session: session.name().to_owned(),
                        call: self.context.call(),
                        agent: session.agent().to_string(),
                        command: command.clone(),
                        programs: programs.clone(),
                    };
                    match asker.ask(question).await {
                        Answer::Once => (decided(PolicyDecision::Allow, DecidedBy::Answer, String::new()), Vec::new()),
                        Answer::Session => {
                            (decided(PolicyDecision::Allow, DecidedBy::Answer, "for the session".to_owned()), programs)
                        }
                        Answer::Refuse(why) => (decided(PolicyDecision::Deny, DecidedBy::Answer, why), Vec::new()),
                    }
                }
            },
        };
        let facts = &mut self.context.facts;
        facts.push(&event).map_err(|e| ToolError::new(e.to_string()))?;
        if !programs.is_empty() {
            facts.push(&SessionAllow { programs }).map_err(|e| ToolError::new(e.to_string()))?;
        }
        match event.decision {
            PolicyDecision::Allow => Ok(()),
            PolicyDecision::Deny => Err(ShellError::Blocked(event.reason).into()),
        }
    }
}

fn by(because: AllowedBy) -> DecidedBy {
    match because {
        AllowedBy::Harmless | AllowedBy::List => DecidedBy::Policy,
        AllowedBy::Session => DecidedBy::Session,
        AllowedBy::AutoConfirm => DecidedBy::AutoConfirm,
    }
}

/// Shows what a command prints to those who watch the session.
fn shown_to_subscribers(session: Session, call: Seq) -> OutputWatch {
    Arc::new(move |stream, bytes| {
        session.show_output(CommandOutput { call, stream, bytes: Bytes::copy_from_slice(bytes) });
    })
}

/// Records how a command ended, with what it printed as contents.
pub(super) fn record_result(
    facts: &mut crate::engine::commit::Commit,
    backend: &str,
    result: &ShellResult,
) -> Result<(), ToolError> {
    let event = CommandResult {
        backend: backend.to_owned(),
        command: result.command.clone(),
        cwd: result.cwd.clone(),
        exit_code: result.exit_code,
        signal: result.signal,
        timed_out: result.timed_out,
        cancelled: result.cancelled,
        micros: u64::try_from(result.duration.as_micros()).unwrap_or(u64::MAX),
        stdout: recorded(facts, &result.stdout),
        stderr: recorded(facts, &result.stderr),
    };
    facts.push(&event).map_err(|e| ToolError::new(e.to_string()))
}

/// Keeps what a command printed.
pub(super) fn recorded(facts: &mut crate::engine::commit::Commit, output: &crate::backends::Output) -> RecordedOutput {
    let content = Content::of(output.kept.clone());
    let recorded = RecordedOutput { content: content.digest, kept: content.bytes.len() as u64, bytes: output.bytes };
    facts.keep(content);
    recorded
}
