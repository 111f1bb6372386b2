//! The request for a tool call.

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::HttpFace;
use super::problem::{HttpProblem, ProblemKind};
use crate::engine::error::ValueError;
use crate::hub::OpenSession;
use crate::hub::operations::{check_agent, request_id};
use crate::tools::{Asker, CommandTime, DenyRule, MAX_COMMAND_CHARS, OnFailure, PythonPlace, ToolCall};

/// Bounds of a call's timeout in seconds.
pub(super) const SECONDS: std::ops::RangeInclusive<f64> = 0.1..=86_400.0;

/// The most bytes that a call may ask to keep: they are in memory together.
pub(super) const KEPT_MAX: u64 = 4 << 30;

/// The most characters that `text_chars` may allow.
const TEXT_CHARS_MAX: usize = 32 << 20;

/// Makes a tool call and waits for its outcome. With `Accept: text/event-stream` it comes as server-sent events:
/// `progress` `{text}` while its workspace is prepared, `begun` `{call}`, `output` `{stream, text | base64}`, `missed`
/// `{bytes}` (with `all_output` only for a cancelled call), `question` `{call, command, programs, ...}` (answer it with
/// `POST .../calls/{call}/answer`), at last `outcome`, or `problem`. A client that disconnects cancels its call.
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
    /// The time limit of the whole call in seconds, from 0.1 to 86,400. Default: 180 s plus the command's own timeout;
    /// 120 s for tools that run no command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<f64>,
    /// Programs, or programs with their first arguments, that this call's command may run without a question.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// Programs, or programs with their first arguments, that this call's command may not run, whatever allows them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
    /// The largest `timeout_seconds` that its command may request, from 1 to 86,400; by default the server's
    /// `--max-timeout`, which is 600 unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1.0, max = 86_400.0))]
    pub max_timeout_seconds: Option<f64>,
    /// Runs its command without a time limit unless it requests one, as for a command that a person typed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_time_limit: bool,
    /// Approves every question about a command.
    #[serde(default)]
    pub auto_confirm: bool,
    /// Text for the host's shell that starts the Docker daemon when the call's command runs `docker` on the host and no
    /// daemon answers; the server's `--start-docker` by default. It does not run what the policy denies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_docker: Option<String>,
    /// The place where `evaluate_python` runs code: `in-process` or `container`. Default: the server's choice; without
    /// one, the session's container if it has one, else in process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python: Option<PythonPlace>,
    /// The most characters of code that runs in process, at most 48,000; 2,000 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 48_000))]
    pub python_chars: Option<usize>,
    /// The most characters of a text that `write_file` or `edit_file` takes; 48,000 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = TEXT_CHARS_MAX))]
    pub text_chars: Option<usize>,
    /// The most characters of its command, all arguments together; 1,048,576 by default. Linux accepts 131,071 bytes in
    /// one argument or script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = MAX_COMMAND_CHARS))]
    pub command_chars: Option<usize>,
    /// The most bytes to keep of each file that its command wrote, at most 4 GiB. A server keeps no more than its own
    /// default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 4_294_967_296_u64))]
    pub keep_file_bytes: Option<u64>,
    /// The most bytes to keep of all files that its command wrote, at most 4 GiB. A server keeps no more than its own
    /// default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 4_294_967_296_u64))]
    pub keep_step_bytes: Option<u64>,
    /// Treatment of the changes of a call that fails, or whose command exits non-zero: `keep`, the default, or `undo`.
    #[serde(default, skip_serializing_if = "OnFailure::is_keep")]
    pub on_failure: OnFailure,
    /// An id for retries, 1 to 200 bytes. A second request with the same id waits for the first call and returns its
    /// outcome with `repeated`. The session recognises the ids of its last 1,024 requests with an id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// Streaming only: block the command rather than drop output for a slow client. A client that reads nothing for 30
    /// s is disconnected.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all_output: bool,
    /// Streaming only: send no command output before the outcome.
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
        if let Some(chars) = self.text_chars.filter(|chars| *chars > TEXT_CHARS_MAX) {
            return unusable(format!("text_chars is {chars}; at most {TEXT_CHARS_MAX} are allowed"));
        }
        self.deny()?;
        self.time(CommandTime::default())?;
        let mut call = ToolCall::new(std::mem::take(&mut self.tool), Value::Object(std::mem::take(&mut self.params)));
        call.limit = seconds.map(Duration::from_secs_f64);
        call.on_failure = self.on_failure;
        call.id = request_id(self.call_id.as_deref())?;
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
            && self.text_chars.is_none()
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
        rules.text_chars = self.text_chars.or(rules.text_chars);
        rules.time = time;
        rules.start_docker = self.start_docker.as_deref().map(Arc::from).or(rules.start_docker);
        rules.python.place = self.python.or(rules.python.place);
        rules.python.code_chars = self.python_chars.unwrap_or(rules.python.code_chars);
        // The server's own rules are upper bounds.
        let most = |usual: u64| if face.shared.are_hubs_rules { usual } else { KEPT_MAX };
        let kept = |wanted: Option<u64>, usual| wanted.map_or(usual, |wanted| wanted.min(most(usual)));
        rules.budget.file_bytes = kept(self.keep_file_bytes, rules.budget.file_bytes);
        rules.budget.step_bytes = kept(self.keep_step_bytes, rules.budget.step_bytes);
        rules.asker = asker.or(rules.asker);
        Ok(open.with_shell_rules(rules))
    }
}
