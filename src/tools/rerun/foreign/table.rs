//! The tools of other agents, by effect.

/// A tool of another agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ForeignTool {
    /// Changes nothing.
    Reads,
    /// Runs a command.
    Shell,
    /// Runs Python code.
    Python,
    /// Writes a whole file.
    Writes,
    /// Replaces texts in a file; some tools have other edits, too.
    Edits,
    /// Applies a patch in the format of Codex.
    Patches,
    /// Deletes a file.
    Deletes,
}

/// Names of the tools of each kind.
const NAMES: [(ForeignTool, &str); 7] = [
    (
        ForeignTool::Reads,
        "Read Glob Grep LS WebFetch WebSearch TodoWrite TodoRead ToolSearch Skill AskUserQuestion \
         ExitPlanMode BashOutput TaskOutput NotebookRead read_file read_many_files list_directory glob grep \
         search_file_content grep_search google_web_search web_fetch web_search write_todos update_plan \
         view_image think finish read view list webfetch todowrite todoread report_intent read_files \
         list_files search_files search_codebase list_code_definition_names fetch_web_content ask_question \
         ask_followup_question",
    ),
    (
        ForeignTool::Shell,
        "Bash bash bash_command run_shell_command exec_command shell shell_command local_shell execute_bash \
         terminal Shell execute_command run_commands",
    ),
    (ForeignTool::Python, "python"),
    (ForeignTool::Writes, "Write write_file create_file write create write_to_file"),
    (
        ForeignTool::Edits,
        "Edit MultiEdit NotebookEdit replace file_editor str_replace_editor str_replace_based_edit_tool \
         StrReplace edit editor text_editor replace_in_file",
    ),
    (ForeignTool::Patches, "apply_patch ApplyPatch"),
    (ForeignTool::Deletes, "delete_file Delete"),
];

impl ForeignTool {
    /// Returns the tool of that name, if it is known.
    pub(crate) fn named(name: &str) -> Option<Self> {
        // Goose puts the name of its extension first.
        let name = name.strip_prefix("developer__").unwrap_or(name);
        NAMES.iter().find(|(_, known)| known.split(' ').any(|known| known == name)).map(|(tool, _)| *tool)
    }

    /// Returns true if a failed call may have changed files.
    pub(crate) fn changes_when_failing(self) -> bool {
        matches!(self, Self::Shell | Self::Python)
    }
}

/// Returns true for a tool that runs commands, of foldspace or of a known agent.
pub fn runs_commands(tool: &str) -> bool {
    tool == "shell_execute" || matches!(ForeignTool::named(tool), Some(ForeignTool::Shell | ForeignTool::Python))
}
