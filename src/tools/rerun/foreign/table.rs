//! The tools of other agents, by what they do.

/// A tool of another agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ForeignTool {
    /// Changes nothing, whatever it is given.
    Reads,
    /// Runs a command.
    Shell,
    /// Runs Python code.
    Python,
    /// Writes a whole file.
    Writes,
    /// Replaces texts in a file; some do other things, too.
    Edits,
    /// Applies a patch in the format of Codex.
    Patches,
    /// Deletes a file.
    Deletes,
}

const TOOLS: [(&str, ForeignTool); 81] = [
    ("Read", ForeignTool::Reads),
    ("Glob", ForeignTool::Reads),
    ("Grep", ForeignTool::Reads),
    ("LS", ForeignTool::Reads),
    ("WebFetch", ForeignTool::Reads),
    ("WebSearch", ForeignTool::Reads),
    ("TodoWrite", ForeignTool::Reads),
    ("TodoRead", ForeignTool::Reads),
    ("ToolSearch", ForeignTool::Reads),
    ("Skill", ForeignTool::Reads),
    ("AskUserQuestion", ForeignTool::Reads),
    ("ExitPlanMode", ForeignTool::Reads),
    ("BashOutput", ForeignTool::Reads),
    ("TaskOutput", ForeignTool::Reads),
    ("NotebookRead", ForeignTool::Reads),
    ("read_file", ForeignTool::Reads),
    ("read_many_files", ForeignTool::Reads),
    ("list_directory", ForeignTool::Reads),
    ("glob", ForeignTool::Reads),
    ("grep", ForeignTool::Reads),
    ("search_file_content", ForeignTool::Reads),
    ("grep_search", ForeignTool::Reads),
    ("google_web_search", ForeignTool::Reads),
    ("web_fetch", ForeignTool::Reads),
    ("web_search", ForeignTool::Reads),
    ("write_todos", ForeignTool::Reads),
    ("update_plan", ForeignTool::Reads),
    ("view_image", ForeignTool::Reads),
    ("think", ForeignTool::Reads),
    ("finish", ForeignTool::Reads),
    ("read", ForeignTool::Reads),
    ("view", ForeignTool::Reads),
    ("list", ForeignTool::Reads),
    ("webfetch", ForeignTool::Reads),
    ("todowrite", ForeignTool::Reads),
    ("todoread", ForeignTool::Reads),
    ("report_intent", ForeignTool::Reads),
    ("read_files", ForeignTool::Reads),
    ("list_files", ForeignTool::Reads),
    ("search_files", ForeignTool::Reads),
    ("search_codebase", ForeignTool::Reads),
    ("list_code_definition_names", ForeignTool::Reads),
    ("fetch_web_content", ForeignTool::Reads),
    ("ask_question", ForeignTool::Reads),
    ("ask_followup_question", ForeignTool::Reads),
    ("Bash", ForeignTool::Shell),
    ("bash", ForeignTool::Shell),
    ("bash_command", ForeignTool::Shell),
    ("run_shell_command", ForeignTool::Shell),
    ("exec_command", ForeignTool::Shell),
    ("shell", ForeignTool::Shell),
    ("shell_command", ForeignTool::Shell),
    ("local_shell", ForeignTool::Shell),
    ("execute_bash", ForeignTool::Shell),
    ("terminal", ForeignTool::Shell),
    ("Shell", ForeignTool::Shell),
    ("execute_command", ForeignTool::Shell),
    ("run_commands", ForeignTool::Shell),
    ("python", ForeignTool::Python),
    ("Write", ForeignTool::Writes),
    ("write_file", ForeignTool::Writes),
    ("create_file", ForeignTool::Writes),
    ("write", ForeignTool::Writes),
    ("create", ForeignTool::Writes),
    ("write_to_file", ForeignTool::Writes),
    ("Edit", ForeignTool::Edits),
    ("MultiEdit", ForeignTool::Edits),
    ("NotebookEdit", ForeignTool::Edits),
    ("replace", ForeignTool::Edits),
    ("file_editor", ForeignTool::Edits),
    ("str_replace_editor", ForeignTool::Edits),
    ("str_replace_based_edit_tool", ForeignTool::Edits),
    ("StrReplace", ForeignTool::Edits),
    ("edit", ForeignTool::Edits),
    ("editor", ForeignTool::Edits),
    ("text_editor", ForeignTool::Edits),
    ("replace_in_file", ForeignTool::Edits),
    ("apply_patch", ForeignTool::Patches),
    ("ApplyPatch", ForeignTool::Patches),
    ("delete_file", ForeignTool::Deletes),
    ("Delete", ForeignTool::Deletes),
];

impl ForeignTool {
    /// Returns the tool of that name; none for one that is not known.
    pub(crate) fn named(name: &str) -> Option<Self> {
        // Goose names the extension that a tool is of.
        let name = name.strip_prefix("developer__").unwrap_or(name);
        TOOLS.iter().find(|(known, _)| *known == name).map(|(_, tool)| *tool)
    }

    /// Tells if a call may have changed files though it failed.
    pub(crate) fn changes_when_failing(self) -> bool {
        matches!(self, Self::Shell | Self::Python)
    }
}
