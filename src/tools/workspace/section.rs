//! Prompt section about a workspace.

use std::sync::Arc;

use crate::backends::Shell;
use crate::engine::session::error::SessionError;
use crate::reducers::VirtualFileSystem;
use crate::tools::builtin::evaluate_python::PythonTool;
use crate::tools::call::filesystem::Filesystem;
use crate::tools::call::tool::{Tool, ToolDescription};
use crate::tools::call::tool_runner::ToolRunner;
use crate::tools::mounts::previews;
use crate::tools::policy::python::PythonPlace;

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
    /// Returns the prompt section for the session's workspace, as of now.
    pub fn section(&self) -> Result<WorkspaceSection, SessionError> {
        let state = self.session().state()?;
        let tree = VirtualFileSystem::of(&state);
        let shell = self.workspace().unrecorded_shell();
        let tools = self.tools().describe_for(Some(self.session().id()));
        let mut text = introduction(self, shell.as_deref(), &tools);
        let shell = self.shell();
        text.push_str(&previews(&state));
        Ok(WorkspaceSection {
            text,
            tools,
            filesystem: Filesystem::new(self.session().clone(), tree, self.workspace().umask()),
            shell,
        })
    }
}

fn introduction(tool_runner: &ToolRunner, shell: Option<&dyn Shell>, tools: &[ToolDescription]) -> String {
    let workspace = tool_runner.workspace();
    let names: Vec<_> = tools.iter().map(|tool| &*tool.name).collect();
    let root = workspace.root().unwrap_or_else(|| "/".to_owned());
    let mut text =
        format!("# Workspace\n\nTools: {}. They all work on the same files, below {root}.\n", names.join(", "));
    let has_python = names.contains(&<PythonTool as Tool>::NAME);
    let usual = shell.map(|shell| shell.properties().sandboxed);
    let rules = tool_runner.machine().rules.python;
    let python = if has_python { python(rules.place_beside(usual)) } else { "" };
    let Some(shell) = shell.map(Shell::properties) else {
        text.push_str(&format!("Commands can't be run here; only files are available. {python}\n"));
        return text;
    };
    let options = workspace.command_options().advice(&root);
    text.push_str(&format!("{}{options}\n", workspace.description()));
    text.push_str([&tool_runner.machine().rules.time.advice(), python].join(" ").trim_end());
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
