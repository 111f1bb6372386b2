//! Chat histories of Aider: Markdown, with a run per start of the program.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::edits::{search_replace, stated_files};
use super::step::{EndedCall, StatedChange, StatedFile, StepReceiver, text, time_of};
use super::{SourceRun, Transcript};

/// The maximum number of bytes of an answer; a longer one is split.
const ANSWER_MAX: usize = 1 << 20;
/// The limit for files waiting to be created.
const CREATED_MAX: usize = 1000;
const START: &str = "# aider chat started at ";

/// Returns the run that begins with a line.
pub(super) fn run_of(line: &str) -> Option<SourceRun> {
    let began = line.strip_prefix(START)?.trim_end();
    let at = time_of(&began.into())?;
    let id = began.replace(['-', ':'], "").replace(' ', "T");
    Some(SourceRun { agent: "aider".to_owned(), id, parent: None, began: Some(at), directory: None })
}

#[derive(Default)]
pub(super) struct Aider {
    /// The author of the lines in `text`.
    by: &'static str,
    text: String,
    /// The SEARCH/REPLACE blocks that are not applied yet, with their files.
    edits: Vec<(String, Value)>,
    created: BTreeSet<String>,
    last_told: String,
    begun: u64,
}

impl Transcript for Aider {
    fn line(&mut self, line: Value, steps: &mut StepReceiver<'_>) {
        let line = line.as_str().unwrap_or_default();
        let (by, said) = match (line.strip_prefix("#### "), line.strip_prefix("> ")) {
            (Some(said), _) => ("user", said),
            (_, Some(said)) => ("aider", said),
            _ => ("assistant", line),
        };
        // Each line from the program is a step.
        if by != self.by || by == "aider" || line.starts_with(START) || self.text.len() > ANSWER_MAX {
            self.flush(steps);
        }
        if !line.starts_with(START) {
            self.by = by;
            let is_code = by == "assistant";
            self.text.push_str(if is_code { said } else { said.trim_end() });
            self.text.push_str(if is_code { "" } else { "\n" });
        }
    }

    fn end(&mut self, steps: &mut StepReceiver<'_>) {
        // The last answer may still grow.
        if self.by != "assistant" {
            self.flush(steps);
        }
    }
}

impl Aider {
    fn flush(&mut self, steps: &mut StepReceiver<'_>) {
        let said = std::mem::take(&mut self.text);
        if self.by == "assistant" && !said.trim().is_empty() {
            // Earlier edits were applied, or failed.
            self.edits = edits_in(&said);
        }
        let said = said.trim_matches('\n').to_owned();
        if !said.is_empty() {
            steps.record(None, json!({ "role": self.by, "content": said }));
        }
        if self.by == "aider" {
            self.told(said, steps);
        }
    }

    fn told(&mut self, said: String, steps: &mut StepReceiver<'_>) {
        if let Some(model) = said.strip_prefix("Model: ").or_else(|| said.strip_prefix("Main model: ")) {
            steps.facts(None, [("model", &model.split(' ').next().into())]);
        } else if said.starts_with("Create new file?") {
            if self.created.len() == CREATED_MAX {
                self.created.clear();
            }
            self.created.insert(std::mem::take(&mut self.last_told));
        } else if let Some(path) = said.strip_prefix("Applied edit to ") {
            let edits: Vec<Value> = self.edits.extract_if(.., |(of, _)| of == path).map(|(_, edit)| edit).collect();
            let is_new = self.created.remove(path) && edits.len() == 1 && text(&edits[0], "old_string").is_empty();
            let contents = edits.first().map(|edit| text(edit, "new_string").to_owned()).unwrap_or_default();
            let params = json!({ "path": path, "edits": edits });
            let files = match is_new {
                true => vec![StatedFile { path: path.to_owned(), change: StatedChange::Whole(contents) }],
                false => stated_files("edit", &params),
            };
            self.call("edit", params, files, steps);
        } else if let Some(command) = said.strip_prefix("Running ") {
            self.call("shell", json!({ "command": command }), Vec::new(), steps);
        }
        self.last_told = said;
    }

    /// Emits a whole call. The history has neither the output of a command nor its exit code.
    fn call(&mut self, tool: &str, params: Value, files: Vec<StatedFile>, steps: &mut StepReceiver<'_>) {
        self.begun += 1;
        let id = format!("call-{}", self.begun);
        steps.begin(None, (&*id, tool), params);
        steps.end(None, EndedCall { files, ..EndedCall::ok(id, Value::Null) });
    }
}

/// Returns the edits in an answer, each with the file named above its fence.
fn edits_in(said: &str) -> Vec<(String, Value)> {
    let (lines, mut path) = (said.lines().collect::<Vec<_>>(), String::new());
    let with_file = |(at, edit): (usize, Value)| {
        // A second block in a fence belongs to the same file.
        if let [.., name, fence] = &lines[..at]
            && fence.starts_with("```")
        {
            path = name.trim().trim_matches(['`', '*', '#', ':']).trim().to_owned();
        }
        (path.clone(), edit)
    };
    search_replace(said).into_iter().map(with_file).collect()
}
