//! The files that a call changes according to its parameters, in the spelling of any agent.

use serde_json::{Value, json};

use super::claude::edited;
use super::step::{BegunCall, StatedChange, StatedFile, StepKind, StepReceiver, text};
use crate::engine::clock::Timestamp;
use crate::tools::rerun::foreign::ForeignTool;

/// The limit for the edits of a call.
const EDITS_MAX: usize = 10_000;
/// The spellings of an edit's parameters, common spelling first.
const SPELLINGS: [(&str, &[&str]); 5] = [
    ("file_path", &["file_path", "filePath", "path", "notebook_path", "absolute_path"]),
    ("content", &["content", "contents", "file_text"]),
    ("old_string", &["old_string", "oldString", "old_str", "old_text", "before"]),
    ("new_string", &["new_string", "newString", "new_str", "new_text", "after"]),
    ("replace_all", &["replace_all", "replaceAll"]),
];

/// Returns the parameters of an edit in the common spelling, with SEARCH/REPLACE blocks of a diff as `edits`.
pub(crate) fn spelled(params: &Value) -> Value {
    let diff: Vec<Value> = search_replace(text(params, "diff")).into_iter().map(|(_, edit)| edit).collect();
    let mut common = json!({ "edits": if diff.is_empty() { params["edits"].clone() } else { diff.into() } });
    for (name, spellings) in SPELLINGS {
        if let Some(value) = spellings.iter().map(|spelling| &params[*spelling]).find(|value| !value.is_null()) {
            common[name] = value.clone();
        }
    }
    common
}

impl StepReceiver<'_> {
    /// Emits the beginning of a call, with the files that its parameters state.
    pub(super) fn begin_edit(&mut self, at: Option<Timestamp>, id: String, tool: String, params: Value) {
        let files = stated_files(&tool, &params);
        self.give(at, StepKind::Begun(BegunCall { id, tool, params, files }));
    }
}

/// Returns the files that a successful call changed, if its parameters state them.
pub(crate) fn stated_files(tool: &str, params: &Value) -> Vec<StatedFile> {
    let kind = ForeignTool::named(tool);
    if !matches!(kind, Some(ForeignTool::Writes | ForeignTool::Edits | ForeignTool::Deletes)) {
        return Vec::new();
    }
    let mut common = spelled(params);
    if kind == Some(ForeignTool::Deletes) {
        let path = text(&common, "file_path").to_owned();
        return vec![StatedFile { path, change: StatedChange::Removed }];
    }
    // Cline's editor writes the whole file if there is nothing to replace.
    if tool == "editor" && common["old_string"].is_null() && params["insert_line"].is_null() {
        common["content"] = common["new_string"].clone();
    }
    let stated = edited(&common, &Value::Null);
    let is_stated = |file: &StatedFile| match &file.change {
        // The effect of replacing an empty text depends on the program.
        StatedChange::Replaced { old, .. } => !old.is_empty(),
        _ => true,
    };
    if text(&common, "file_path").is_empty() || !stated.iter().all(is_stated) { Vec::new() } else { stated }
}

/// Returns the edits in SEARCH/REPLACE blocks, each with the number of its first line, from 0. If there are too many,
/// returns none.
pub(super) fn search_replace(diff: &str) -> Vec<(usize, Value)> {
    let is_marker = |line: &str, signs: [char; 2], word: &str| {
        let rest = line.trim_end().strip_suffix(word).map(str::trim_end);
        rest.is_some_and(|rest| rest.len() >= 5 && signs.iter().any(|sign| rest.chars().all(|c| c == *sign)))
    };
    let mut found = Vec::new();
    let mut block: Option<(usize, String, Option<String>)> = None;
    for (number, line) in diff.split_inclusive('\n').enumerate() {
        if is_marker(line, ['<', '-'], "SEARCH") {
            block = Some((number, String::new(), None));
        } else if let Some((at, old, new)) = block.take_if(|_| is_marker(line, ['>', '+'], "REPLACE")) {
            found.push((at, json!({ "old_string": old, "new_string": new.unwrap_or_default() })));
            if found.len() > EDITS_MAX {
                return Vec::new();
            }
        } else if let Some((_, old, new)) = &mut block {
            match new {
                None if line.trim_end() == "=======" => *new = Some(String::new()),
                None => old.push_str(line),
                Some(new) => new.push_str(line),
            }
        }
    }
    found
}
