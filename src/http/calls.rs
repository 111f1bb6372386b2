//! Tool calls.

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::HttpFace;
use super::problem::{HttpProblem, ProblemKind};
use crate::engine::error::ValueError;
use crate::hub::OpenSession;
use crate::hub::operations::check_agent;
use crate::tools::{Asker, CommandTime, DenyRule, MAX_COMMAND_CHARS, PythonPlace, ToolCall};

/// Seconds that a call may take: the least and the most.
pub(super) const SECONDS: std::ops::RangeInclusive<f64> = 0.1..=86_400.0;

/// Bytes that a call may ask to have kept: they are in memory together.
pub(super) const KEPT_MAX: u64 = 4 << 30;

/// Makes a tool call and waits for its outcome. With `Accept: text/event-stream` it comes as server-sent events:
/// `progress` `{text}` while its workspace is made ready, `begun` `{call}`, `output` `{stream, text | base64}`, `missed`
/// `{bytes}` (with `all_output` only of a cancelled call), `question` `{call, command, programs, ...}` (answer it with
/// `POST .../calls/{call}/answer`), at last `outcome`, or `problem`. A client that goes away cancels its call.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CallRequest {
    /// The tool.
    pub tool: String,
    /// Its parameters.
    #[serde(default)]
    pub params: Map<String, Value>,
    /// The agent that makes the call; none by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The seconds that the whole call may take, from 0.1 to 86,400. By default 180 beside the time of its command, which
    /// has a limit of its own; 120 for tools that run none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<f64>,
    /// Programs, or programs with their first words, that this call's command may run without a question.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// Programs, or programs with their first words, that this call's command may not run, whatever allows them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
    /// The most that its command may ask for with `timeout_seconds`, from 1 to 86,400; the server's `--max-timeout` by
    /// default, which is 600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1.0, max = 86_400.0))]
    pub max_timeout_seconds: Option<f64>,
    /// Leaves its command without a time limit unless it asks for one, as for a command that a person typed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_time_limit: bool,
    /// Answers every question about a command with yes.
    #[serde(default)]
    pub auto_confirm: bool,
    /// Text for the host's shell that starts the Docker daemon when the call's command runs `docker` on the host and no
    /// daemon answers; the server's `--start-docker` by default. What the policy denies it does not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_docker: Option<String>,
    /// The place where `evaluate_python` runs code: `in-process` or `container`. By default it is the server's choice, or
    /// else the container of a session that has one, and in process for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python: Option<PythonPlace>,
    /// Characters that code in process may have, at most 48,000; 2,000 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 48_000))]
    pub python_chars: Option<usize>,
    /// Characters that its command may have, all arguments together; 1,048,576 by default. Linux takes 131,071 bytes of a
    /// text or of one argument.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = MAX_COMMAND_CHARS))]
    pub command_chars: Option<usize>,
    /// Bytes that are kept of a file which its command wrote, at most 4 GiB. A server keeps no more than it keeps when
    /// nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 4_294_967_296_u64))]
    pub keep_file_bytes: Option<u64>,
    /// Bytes that are kept of all files which its command wrote, at most 4 GiB. A server keeps no more than it keeps when
    /// nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 4_294_967_296_u64))]
    pub keep_step_bytes: Option<u64>,
    /// Of a call that is streamed: its commands wait for a client that is behind, so that it misses no output. One that
    /// takes nothing for 30 seconds is taken for gone, as ever.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all_output: bool,
    /// Of a call that is streamed: nothing that its commands print is sent before its outcome.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_output: bool,
}

impl CallRequest {
    pub(super) fn call(&mut self) -> Result<ToolCall, HttpProblem> {
        let unusable = |detail: String| Err(HttpProblem::new(ProblemKind::Unusable, detail));
        let seconds = self.timeout_seconds;
        if let Some(seconds) = seconds.filter(|seconds| !SECONDS.contains(seconds)) {
            return unusable(format!("timeout_seconds is {seconds}; it must be from 0.1 to 86400"));
        }
        check_agent(self.agent.as_deref().unwrap_or_default())?;
        for (name, kept) in [("keep_file_bytes", self.keep_file_bytes), ("keep_step_bytes", self.keep_step_bytes)] {
            if let Some(bytes) = kept.filter(|bytes| *bytes > KEPT_MAX) {
                return unusable(format!("{name} is {bytes}; at most {KEPT_MAX} are allowed"));
            }
        }
        self.deny()?;
        self.time(CommandTime::default())?;
        let mut call = ToolCall::new(std::mem::take(&mut self.tool), Value::Object(std::mem::take(&mut self.params)));
        call.limit = seconds.map(Duration::from_secs_f64);
        Ok(call)
    }

    pub(super) fn deny(&self) -> Result<Vec<DenyRule>, ValueError> {
        self.deny.iter().map(|words| DenyRule::words(words)).collect()
    }

    fn time(&self, usual: CommandTime) -> Result<CommandTime, ValueError> {
        let most = self.max_timeout_seconds.map(CommandTime::up_to).transpose();
        let time = most.map_err(|error| ValueError::new(format!("max_timeout_seconds: {error}")))?.unwrap_or(usual);
        Ok(if self.no_time_limit { time.unlimited() } else { time })
    }

    pub(super) fn caller(
        &self,
        open: OpenSession,
        face: &HttpFace,
        asker: Option<Arc<dyn Asker>>,
    ) -> Result<OpenSession, HttpProblem> {
        let open = match &self.agent {
            Some(agent) => open.as_agent(agent),
            None => open,
        };
        let keeps_usual = self.keep_file_bytes.or(self.keep_step_bytes).is_none()
            && self.start_docker.is_none()
            && self.python.is_none()
            && self.command_chars.is_none()
            && self.python_chars.is_none();
        let (deny, time) = (self.deny()?, self.time(face.rules.time)?);
        let has_no_rules = asker.is_none() && self.allow.is_empty() && !self.auto_confirm && keeps_usual;
        let has_no_rules = has_no_rules && deny.is_empty() && time == face.rules.time;
        if has_no_rules && face.shared.are_hubs_rules && face.rules.caller.is_own() {
            return Ok(open);
        }
        let mut rules = (*face.rules).clone();
        rules.policy.allow.extend(self.allow.iter().cloned());
        rules.policy.deny.extend(deny);
        rules.policy.auto_confirm |= self.auto_confirm;
        rules.policy.max_chars = self.command_chars.unwrap_or(MAX_COMMAND_CHARS).min(MAX_COMMAND_CHARS);
        rules.time = time;
        rules.start_docker = self.start_docker.as_deref().map(Arc::from).or(rules.start_docker);
        rules.python.place = self.python.or(rules.python.place);
        rules.python.code_chars = self.python_chars.unwrap_or(rules.python.code_chars);
        // The server's own rules bound the wishes of a request.
        let most = |usual: u64| if face.shared.are_hubs_rules { usual } else { KEPT_MAX };
        let kept = |wanted: Option<u64>, usual| wanted.map_or(usual, |wanted| wanted.min(most(usual)));
        rules.budget.file_bytes = kept(self.keep_file_bytes, rules.budget.file_bytes);
        rules.budget.step_bytes = kept(self.keep_step_bytes, rules.budget.step_bytes);
        rules.asker = asker.or(rules.asker);
        Ok(open.with_shell_rules(rules)?)
    }
}
