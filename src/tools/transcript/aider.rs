//! Chat histories of Aider: Markdown, with a run for each start of the program.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::edits::{search_replace, stated_files};
use super::step::{BegunCall, EndedCall, StatedChange, StatedFile, StepKind, TranscriptStep, text, time_of};
use super::{SourceRun, Transcript};

const START: &str = "# aider chat started at ";

/// Returns the run that begins with a line; none where none does.
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
    /// Blocks of SEARCH and REPLACE that wait for being applied, by their files.
    edits: Vec<(String, Value)>,
    created: BTreeSet<String>,
    last_told: String,
    begun: u64,
}

impl Transcript for Aider {
    /// Takes a line of text.
    fn line(&mut self, line: Value, give: &mut dyn FnMut(TranscriptStep)) {
        let line = line.as_str().unwrap_or_default();
        let (by, said) = match (line.strip_prefix("#### "), line.strip_prefix("> ")) {
            (Some(said), _) => ("user", said),
            (_, Some(said)) => ("aider", said),
            _ => ("assistant", line),
        };
        // Each line of the program is a step.
        if by != self.by || by == "aider" || line.starts_with(START) {
            self.flush(give);
        }
        if !line.starts_with(START) {
            self.by = by;
            let is_code = by == "assistant";
            self.text.push_str(if is_code { said } else { said.trim_end() });
            self.text.push_str(if is_code { "" } else { "\n" });
        }
    }

    fn end(&mut self, give: &mut dyn FnMut(TranscriptStep)) {
        // An answer that nothing stands behind may not be whole yet.
        if self.by != "assistant" {
            self.flush(give);
        }
    }
}

impl Aider {
    fn flush(&mut self, give: &mut dyn FnMut(TranscriptStep)) {
        let said = std::mem::take(&mut self.text);
        if self.by == "assistant" && !said.trim().is_empty() {
            // Those before it have been applied, or they failed.
            self.edits = edits_in(&said);
        }
        let said = said.trim_matches('\n').to_owned();
        if !said.is_empty() {
            give(TranscriptStep::new(None, StepKind::Record(json!({ "role": self.by, "content": said }))));
        }
        if self.by == "aider" {
            self.told(said, give);
        }
    }

    fn told(&mut self, said: String, give: &mut dyn FnMut(TranscriptStep)) {
        if let Some(model) = said.strip_prefix("Model: ").or_else(|| said.strip_prefix("Main model: ")) {
            let model = model.split(' ').next().unwrap_or_default();
            give(TranscriptStep::new(None, StepKind::Facts(Map::from_iter([("model".to_owned(), model.into())]))));
        } else if said.starts_with("Create new file?") {
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
            self.call("edit", params, files, give);
        } else if let Some(command) = said.strip_prefix("Running ") {
            self.call("shell", json!({ "command": command }), Vec::new(), give);
        }
        self.last_told = said;
    }

    /// Gives a call that was made. What a command printed, and its exit code, is not in the history.
    fn call(&mut self, tool: &str, params: Value, files: Vec<StatedFile>, give: &mut dyn FnMut(TranscriptStep)) {
        self.begun += 1;
        let id = format!("call-{}", self.begun);
        let ended = EndedCall { files, ..EndedCall::ok(&*id, Value::Null) };
        give(TranscriptStep::new(None, StepKind::Begun(BegunCall { id, tool: tool.to_owned(), params })));
        give(TranscriptStep::new(None, StepKind::Ended(ended)));
    }
}

/// Returns the edits in an answer, each with the file whose name stands before its fence.
fn edits_in(said: &str) -> Vec<(String, Value)> {
    let (mut found, mut before, mut path) = (Vec::new(), ["", ""], String::new());
    let mut block: Option<String> = None;
    for line in said.split_inclusive('\n') {
        if line.starts_with("<<<<<<< SEARCH") {
            // A second block in a fence is of the same file.
            if before[1].starts_with("```") {
                path = before[0].trim().trim_matches(['`', '*', '#', ':']).trim().to_owned();
            }
            block = Some(String::new());
        }
        if let Some(block) = &mut block {
            block.push_str(line);
        }
        if line.starts_with(">>>>>>> REPLACE") {
            let edit = block.take().and_then(|block| search_replace(&block).pop());
            found.extend(edit.map(|edit| (path.clone(), edit)));
        }
        before = [before[1], line];
    }
    found
}
