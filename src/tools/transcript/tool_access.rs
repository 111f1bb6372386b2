//! Tools of agents, by what they may change.

/// The changes that a tool may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ToolAccess {
    /// Nothing, whatever it is given.
    Reads,
    /// The files that its parameters name, and only if it succeeds.
    Edits,
    /// Anything.
    Writes,
}

const READERS: [&str; 37] = [
    "Read",
    "Glob",
    "Grep",
    "LS",
    "WebFetch",
    "WebSearch",
    "TodoWrite",
    "TodoRead",
    "ToolSearch",
    "Skill",
    "AskUserQuestion",
    "ExitPlanMode",
    "BashOutput",
    "TaskOutput",
    "NotebookRead",
    "read",
    "read_file",
    "read_many_files",
    "view",
    "list",
    "list_directory",
    "glob",
    "grep",
    "search_file_content",
    "grep_search",
    "google_web_search",
    "web_fetch",
    "web_search",
    "webfetch",
    "write_todos",
    "todowrite",
    "todoread",
    "update_plan",
    "report_intent",
    "view_image",
    "think",
    "finish",
];
const EDITORS: [&str; 16] = [
    "Write",
    "Edit",
    "MultiEdit",
    "NotebookEdit",
    "StrReplace",
    "Delete",
    "ApplyPatch",
    "apply_patch",
    "write_file",
    "write",
    "create",
    "edit",
    "replace",
    "file_editor",
    "str_replace_editor",
    "str_replace_based_edit_tool",
];

impl ToolAccess {
    /// Returns the access of a tool, by its name. A tool that is not known may change anything.
    pub(crate) fn of(tool: &str) -> Self {
        match tool {
            _ if READERS.contains(&tool) => Self::Reads,
            _ if EDITORS.contains(&tool) => Self::Edits,
            _ => Self::Writes,
        }
    }
}
