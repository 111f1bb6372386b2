//! The options of a client that connects through a proxy process.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{McpOptions, McpServer, ToolGroup};
use crate::backends::{HostCaller, HostPath, WorkspaceSpec};
use crate::engine::event::Isolation;
use crate::hub::Hub;
use crate::hub::operations::{NewMount, OperationError, check_sandbox, policy_of_new};
use crate::reducers::ToolPolicy;
use crate::tools::{
    AllowedRoots, CommandPolicy, CommandTime, DenyRule, MAX_COMMAND_CHARS, MountSpec, PythonPlace, PythonRules,
    ShellRules,
};

/// The [`McpOptions`] of such a client, and the directories that its mounts may come from.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[doc(hidden)]
pub struct AttachRequest {
    pub session: Option<String>,
    pub isolation: Option<Isolation>,
    pub agent: Option<String>,
    pub usual_name: Option<String>,
    /// A backend and its options.
    pub workspace: Option<(String, Value)>,
    pub mounts: Vec<NewMount>,
    pub policy: Option<ToolPolicy>,
    pub allow_roots: Vec<HostPath>,
    pub groups: Vec<String>,
    pub allow: Vec<String>,
    pub deny: Vec<String>,
    pub auto_confirm: bool,
    pub max_timeout_seconds: f64,
    pub start_docker: Option<String>,
    pub python: Option<PythonPlace>,
    pub command_chars: usize,
    pub python_chars: usize,
    pub text_chars: Option<usize>,
    pub keep_file_bytes: u64,
    pub keep_step_bytes: u64,
}

impl AttachRequest {
    /// Serializes options, except for the asker.
    pub fn of(options: &McpOptions, allow_roots: &AllowedRoots) -> Self {
        let ShellRules { policy, budget, time, start_docker, python, text_chars, .. } = &options.rules;
        Self {
            session: options.session.clone(),
            isolation: options.isolation,
            agent: options.agent.clone(),
            usual_name: options.usual_name.clone(),
            workspace: options
                .workspace
                .as_ref()
                .map(|spec| (spec.backend_name().to_owned(), spec.options_with_values())),
            mounts: options.mounts.iter().map(NewMount::from).collect(),
            policy: options.policy.clone(),
            allow_roots: allow_roots.paths().iter().cloned().map(HostPath).collect(),
            groups: options.groups.iter().map(|group| group.name().to_owned()).collect(),
            allow: policy.allow.clone(),
            deny: policy.denied_words(),
            auto_confirm: policy.auto_confirm,
            max_timeout_seconds: time.most().as_secs_f64(),
            start_docker: start_docker.as_deref().map(str::to_owned),
            python: python.place,
            command_chars: policy.max_chars,
            python_chars: python.code_chars,
            text_chars: *text_chars,
            keep_file_bytes: budget.file_bytes,
            keep_step_bytes: budget.step_bytes,
        }
    }

    fn options(self, caller: HostCaller) -> Result<McpOptions, OperationError> {
        let workspace =
            self.workspace.map(|(backend, options)| WorkspaceSpec::parse(&backend, &options)).transpose()?;
        let mounts = self.mounts.into_iter().map(NewMount::spec).collect::<Result<Vec<MountSpec>, _>>()?;
        let groups = self.groups.iter().map(|group| group.parse::<ToolGroup>()).collect::<Result<_, _>>()?;
        let mut commands = CommandPolicy {
            max_chars: self.command_chars.min(MAX_COMMAND_CHARS),
            allow: self.allow,
            auto_confirm: self.auto_confirm,
            ..CommandPolicy::default()
        };
        for words in &self.deny {
            commands.deny.push(DenyRule::words(words)?);
        }
        let time = CommandTime::up_to(self.max_timeout_seconds)?;
        let python = PythonRules { place: self.python, code_chars: self.python_chars };
        let start_docker = self.start_docker.map(Into::into);
        let text_chars = self.text_chars;
        let mut rules =
            ShellRules { policy: commands, caller, time, start_docker, python, text_chars, ..ShellRules::default() };
        (rules.budget.file_bytes, rules.budget.step_bytes) = (self.keep_file_bytes, self.keep_step_bytes);
        let Self { session, isolation, agent, usual_name, policy, .. } = self;
        Ok(McpOptions { session, isolation, agent, usual_name, workspace, mounts, policy, groups, rules })
    }
}

impl McpServer {
    /// Creates the server for a client in another process, from its [`AttachRequest`]. Only clients in this process's
    /// sandbox may name directories.
    #[doc(hidden)]
    pub fn for_process(hub: &Hub, caller: HostCaller, asked: Value) -> Result<Self, OperationError> {
        let asked: AttachRequest = serde_json::from_value(asked).map_err(OperationError::Parameters)?;
        let roots = AllowedRoots::new(asked.allow_roots.iter().map(|root| &root.0))?;
        let names_one = !asked.allow_roots.is_empty() || !asked.mounts.is_empty();
        let options = asked.options(caller)?;
        policy_of_new(hub, options.policy.as_ref())?;
        let works_in_one = options.workspace.as_ref().is_some_and(|spec| spec.named_directory().is_some());
        if names_one || works_in_one {
            check_sandbox(&options.rules.caller)?;
        }
        Ok(Self::new(if roots.paths().is_empty() { hub.clone() } else { hub.with_roots(roots) }, options))
    }
}
