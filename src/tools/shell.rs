//! The shell as a tool sees it: what it runs is decided on, recorded, and captured.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::asking::{Answer, CommandQuestion};
use super::context::{RunningCommand, ToolContext};
use super::error::ToolError;
use super::policy::{AllowedBy, Decision};
use super::ran::RecordAs;
use crate::backends::{OutputWatch, Shell, ShellCommand, ShellEnv, ShellError, ShellProperties, ShellResult, Which};
use crate::engine::event::{CommandDecided, CommandLine, DecidedBy, PolicyDecision, SessionAllow};
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
        let backend = self.shell.properties().backend_name;
        self.run(command, RecordAs::Command { backend }).await
    }

    /// Runs code by an interpreter, and records it; the policy is asked about the interpreter.
    pub(super) async fn evaluate(
        &mut self,
        language: &'static str,
        interpreter: &[&str],
        code: &str,
    ) -> Result<ShellResult, ToolError> {
        let mut args: Vec<String> = interpreter.iter().map(|&word| word.to_owned()).collect();
        self.decide(&CommandLine::Args(args.clone())).await?;
        args.push(code.to_owned());
        let mut command = ShellCommand { is_code: true, ..ShellCommand::args(args) };
        command.timeout = Some(EVALUATION);
        // So that what was printed before the end is there.
        command.env.insert("PYTHONUNBUFFERED".to_owned(), "1".to_owned());
        command.check()?;
        self.run(command, RecordAs::Evaluation { language, code: code.to_owned() }).await
    }

    async fn run(&mut self, command: ShellCommand, record_as: RecordAs) -> Result<ShellResult, ToolError> {
        // One that nobody waits for any more.
        self.context.stop_running().await;
        self.context.land()?;
        let (session, call) = (self.context.session().clone(), self.context.call());
        let watch = shown_to_subscribers(session, call);
        let cancel = self.context.cancellation().child_token();
        let running = self.shell.execute(command, watch, cancel.clone());
        self.context.running = Some(RunningCommand::new(tokio::spawn(running), cancel, record_as));
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
        session.show_output(|| CommandOutput { call, stream, bytes: Bytes::copy_from_slice(bytes) });
    })
}
