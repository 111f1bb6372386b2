//! Prompt section about a workspace.

use std::sync::Arc;

use crate::backends::Shell;
use crate::engine::session::error::SessionError;
use crate::reducers::{ToolRules, VirtualFileSystem, filled_section};
use crate::tools::builtin::evaluate_python::PythonTool;
use crate::tools::builtin::execute_script::ScriptTool;
use crate::tools::builtin::podman_shell::PodmanShellTool;
use crate::tools::builtin::processes::ProcessStartTool;
use crate::tools::builtin::shell_execute::ShellTool;
use crate::tools::call::filesystem::Filesystem;
use crate::tools::call::tool::{Tool, ToolDescription};
use crate::tools::call::tool_runner::ToolRunner;
use crate::tools::mounts::previews;
use crate::tools::policy::python::PythonPlace;

/// Tools that run commands.
const COMMANDS: [&str; 3] = [<ShellTool as Tool>::NAME, <ScriptTool as Tool>::NAME, <PodmanShellTool as Tool>::NAME];

/// Advice for a model that may start processes.
#[doc(hidden)]
pub const BACKGROUND: &str = "Start those with process_start, in the background.";

/// Prompt section about a session's workspace, with the tools and access that belong to it.
///
/// ```
/// # use foldspace_tools as foldspace;
/// use foldspace::{ToolRunner, MemoryWorkspace, NewSession, Registry, Sessions, Tools};
/// # let directory = tempfile::tempdir()?;
/// let sessions = Sessions::open(directory.path(), Registry::standard())?;
/// let session = sessions.create(NewSession::default())?;
/// let tools = ToolRunner::new(session, Tools::standard(), std::sync::Arc::new(MemoryWorkspace))?;
/// let section = tools.section()?;
/// assert!(section.text.contains("read_file"));
/// assert!(section.shell.is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct WorkspaceSection {
    /// Text for the model: the workspace, its tools, its limits, its mounts.
    pub text: String,
    /// Tools to offer to the model.
    pub tools: Vec<ToolDescription>,
    /// Files at this moment. Changes staged here are never recorded.
    pub filesystem: Filesystem,
    /// Shell for commands; `None` if the workspace runs none. Each is a separate call, decided on and recorded.
    pub shell: Option<Arc<dyn Shell>>,
}

impl ToolRunner {
    /// Returns the prompt section for the session's workspace, as of now, with the tools that work there.
    pub fn section(&self) -> Result<WorkspaceSection, SessionError> {
        self.section_with(|_| true)
    }

    /// Returns the prompt section for a client that is offered only some of the tools.
    #[doc(hidden)]
    pub fn section_with(&self, is_offered: impl Fn(&str) -> bool) -> Result<WorkspaceSection, SessionError> {
        let state = self.session().state()?;
        let tree = VirtualFileSystem::of(&state);
        let shell = self.workspace().unrecorded_shell();
        let mut tools = self.tools().describe_in(self.workspace().as_ref(), self.session().id());
        let rules = ToolRules::of(&state);
        let allowed = rules.tools();
        let may_use = |tool: &str| allowed.as_ref().is_none_or(|names| names.contains(tool));
        tools.retain(|tool| is_offered(&tool.name) && may_use(&tool.name));
        let (root, names) = (self.workspace().root().unwrap_or_else(|| "/".to_owned()), names(&tools).join(", "));
        let (commands, mounts) = (commands(self, shell.as_deref(), &tools), previews(&state));
        let usual = || format!("{}{commands}{mounts}", heading(&tools, &root));
        let part = |name: &str| match name {
            "section" => Some(usual()),
            "tools" => Some(names.clone()),
            "root" => Some(root.clone()),
            "commands" => Some(commands.trim_end().to_owned()),
            "mounts" => Some(mounts.trim_end().to_owned()),
            _ => None,
        };
        let text = rules.section_text().map_or_else(usual, |text| filled_section(text, part));
        let shell = self.shell();
        Ok(WorkspaceSection {
            text,
            tools,
            filesystem: Filesystem::new(self.session().clone(), tree, self.workspace().umask()),
            shell,
        })
    }
}

fn names(tools: &[ToolDescription]) -> Vec<&str> {
    tools.iter().map(|tool| &*tool.name).collect()
}

fn heading(tools: &[ToolDescription], root: &str) -> String {
    let names = names(tools);
    match names[..] {
        [] => format!("# Workspace\n\nIts files are below {root}.\n"),
        [name] => format!("# Workspace\n\nTools: {name}. It works on the files below {root}.\n"),
        _ => format!("# Workspace\n\nTools: {}. They all work on the same files, below {root}.\n", names.join(", ")),
    }
}

/// Describes how commands run.
fn commands(tool_runner: &ToolRunner, shell: Option<&dyn Shell>, tools: &[ToolDescription]) -> String {
    let (workspace, names, mut text) = (tool_runner.workspace(), names(tools), String::new());
    let root = workspace.root().unwrap_or_else(|| "/".to_owned());
    let has_python = names.contains(&<PythonTool as Tool>::NAME);
    let usual = shell.map(|shell| shell.properties().sandboxed);
    let rules = tool_runner.machine().rules.python;
    let python = if has_python { python(rules.place_beside(usual)) } else { "" };
    let runs_commands = COMMANDS.iter().any(|tool| names.contains(tool));
    let Some(shell) = shell.map(Shell::properties).filter(|_| runs_commands || has_python) else {
        text.push_str(format!("Commands can't be run here; only files are available. {python}").trim_end());
        text.push('\n');
        return text;
    };
    let options = workspace.command_options().advice(&root);
    text.push_str(&format!("{}{options}\n", workspace.description()));
    let time = if runs_commands { tool_runner.machine().rules.time.advice() } else { String::new() };
    let processes = if names.contains(&ProcessStartTool::NAME) { BACKGROUND } else { "" };
    let advice: Vec<&str> = [&time, processes, python].into_iter().filter(|part| !part.is_empty()).collect();
    text.push_str(&advice.join(" "));
    text.push('\n');
    if shell.sandboxed {
        text.push_str(&format!("Do not rely on anything outside of {root}: it may be gone with the next command.\n"));
    }
    text
}

fn python(place: PythonPlace) -> &'static str {
    match place {
        PythonPlace::InProcess => {
            "Python code is evaluated in process, for at most 5 seconds: without commands, network and most of the library."
        }
        PythonPlace::Container => "Python code is run by python3, for at most 5 seconds.",
    }
}
