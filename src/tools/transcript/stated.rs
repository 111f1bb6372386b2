//! The whole contents of files that a transcript of Claude Code, Codex or Gemini CLI states.

use std::path::Path;

use bytes::Bytes;
use serde_json::Value;

use super::documents::Documents;
use super::error::TranscriptError;
use super::files::{KnownChange, StatedFiles};
use super::source::FoundRuns;
use super::step::{StatedChange, StatedFile, StepKind, TranscriptStep, text, time_of};
use crate::engine::clock::Timestamp;
use crate::engine::path::EntryPath;
use crate::tools::rerun::foreign::path_below;

/// Codex shortens longer outputs in the middle.
const CODEX_OUTPUT_MAX: usize = 65_536;

/// A statement about a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::tools) struct StatedContents {
    pub(in crate::tools) path: EntryPath,
    pub(in crate::tools) at: Option<Timestamp>,
    /// The whole text; `None` if the transcript only names the file.
    pub(in crate::tools) contents: Option<Bytes>,
    pub(in crate::tools) how: StatedBy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::tools) enum StatedBy {
    /// The file had these contents before an edit.
    BeforeEdit,
    /// The agent wrote them.
    Write,
    /// The agent read them.
    Read,
}

/// Passes on the contents of files below a directory, which has these names, in the order of the transcript. Runs in
/// other directories are left out. Returns the number of lines that are not JSON.
///
/// # Errors
/// [`TranscriptError`]: the transcript can't be read, or no format fits. Earlier contents were passed on.
pub(in crate::tools) fn stated_contents(
    transcript: &Path,
    names: &[String],
    take: &mut dyn FnMut(StatedContents),
) -> Result<u64, TranscriptError> {
    let (mut found, mut documents, mut unreadable) = (FoundRuns::default(), Documents::default(), 0);
    found.add_all(transcript)?;
    let is_related = |directory: &String| {
        let directory = Path::new(directory);
        names.iter().any(|name| directory.starts_with(name) || Path::new(name).starts_with(directory))
    };
    for source in found.0.into_iter().filter(|source| source.run.directory.as_ref().is_none_or(is_related)) {
        let files = std::cell::RefCell::new(StatedReader {
            names,
            directory: source.run.directory.clone().unwrap_or_default(),
            files: StatedFiles::below(names.first().cloned()),
            at: None,
            take: &mut *take,
        });
        unreadable += source.read_lines(&mut documents, &mut |line| files.borrow_mut().see(line), &mut |step| {
            files.borrow_mut().step(step);
            Ok(())
        })?;
    }
    Ok(unreadable)
}

struct StatedReader<'t> {
    names: &'t [String],
    /// The directory of the run.
    directory: String,
    files: StatedFiles,
    at: Option<Timestamp>,
    take: &'t mut dyn FnMut(StatedContents),
}

impl StatedReader<'_> {
    /// Reads what steps leave out: contents before edits, and contents of files that were read.
    fn see(&mut self, line: &Value) {
        self.at = time_of(&line["timestamp"]).or(self.at);
        let claude = &line["toolUseResult"];
        let shown = line["toolCalls"].as_array().into_iter().flatten().chain(calls_in(line));
        let shown = shown.map(|call| (time_of(&call["timestamp"]).or(self.at), &call["resultDisplay"]));
        let edits: Vec<_> = shown.chain([(self.at, claude)]).collect();
        for (at, edit) in edits {
            let before = edit["originalFile"].as_str().or_else(|| edit["originalContent"].as_str());
            let is_new = edit["isNewFile"] == true;
            if let Some(before) = before.filter(|_| !is_new) {
                self.state(text(edit, "filePath"), at, before, StatedBy::BeforeEdit);
            }
        }
        let read = &claude["file"];
        let is_whole = read["startLine"] == 1 && read["numLines"] == read["totalLines"] && claude["type"] == "text";
        if let Some(contents) = read["content"].as_str().filter(|_| is_whole) {
            self.state(text(read, "filePath"), self.at, contents, StatedBy::Read);
        }
        for named in line["snapshot"]["trackedFileBackups"].as_object().into_iter().flatten().map(|(path, _)| path) {
            self.name(named);
        }
        let command = if line["payload"]["item"].is_object() { &line["payload"]["item"] } else { &line["payload"] };
        if let Some((path, contents)) = printed_file(command) {
            self.state(&path, self.at, contents, StatedBy::Read);
        }
    }

    fn step(&mut self, step: TranscriptStep) {
        let StepKind::Ended(call) = step.kind else { return };
        self.at = step.at.or(self.at);
        let is_unknown = |change: &StatedChange| matches!(change, StatedChange::Replaced { before: None, .. });
        let files = call.files.into_iter().filter_map(|file| {
            let path = self.path(&file.path)?;
            self.name(&file.path);
            // The effect of an edit on unknown contents would be a guess.
            let change = if is_unknown(&file.change) { StatedChange::Removed } else { file.change };
            Some(StatedFile { path: plain(&path), change })
        });
        let files: Vec<_> = files.collect();
        for change in self.files.changes(files) {
            if let KnownChange::Written { path, contents, .. } = change {
                (self.take)(StatedContents { path, at: self.at, contents: Some(contents), how: StatedBy::Write });
            }
        }
    }

    /// Passes on contents that the file had at that time, which later patches apply to.
    fn state(&mut self, shown: &str, at: Option<Timestamp>, contents: &str, how: StatedBy) {
        let Some(path) = self.path(shown) else { return };
        let whole = StatedChange::Whole(contents.to_owned());
        self.files.changes(vec![StatedFile { path: plain(&path), change: whole }]);
        let contents = Some(Bytes::copy_from_slice(contents.as_bytes()));
        (self.take)(StatedContents { path, at, contents, how });
    }

    fn name(&mut self, shown: &str) {
        if let Some(path) = self.path(shown) {
            (self.take)(StatedContents { path, at: None, contents: None, how: StatedBy::Read });
        }
    }

    fn path(&self, shown: &str) -> Option<EntryPath> {
        let whole = if shown.starts_with('/') { shown.to_owned() } else { format!("{}/{shown}", self.directory) };
        let whole = whole.replace("/./", "/");
        let below = self.names.iter().find_map(|name| path_below(Some(name), &whole));
        below.filter(|path| whole.starts_with('/') && !path.is_root())
    }
}

/// Returns a path of a transcript, without escapes.
fn plain(path: &EntryPath) -> String {
    String::from_utf8_lossy(path.as_bytes()).into_owned()
}

/// Returns the calls in a document of an older Gemini CLI.
fn calls_in(line: &Value) -> impl Iterator<Item = &Value> {
    let messages = line["messages"].as_array().into_iter().flatten();
    messages.flat_map(|message| message["toolCalls"].as_array().into_iter().flatten())
}

/// Returns the file whose whole contents a command of Codex printed: that of `cat FILE`.
fn printed_file(command: &Value) -> Option<(String, &str)> {
    let output = command["aggregated_output"].as_str().filter(|_| command["exit_code"] == 0)?;
    let [read] = command["parsed_cmd"].as_array()?.as_slice() else { return None };
    let path = read["path"].as_str().filter(|path| read["cmd"] == format!("cat {path}"))?;
    let is_whole = output.len() < CODEX_OUTPUT_MAX && !output.contains(char::REPLACEMENT_CHARACTER);
    let from = text(command, "cwd");
    let from = from.strip_prefix("file://").map_or_else(|| Some(from.to_owned()), unescaped)?;
    let path = if path.starts_with('/') { path.to_owned() } else { format!("{from}/{path}") };
    (is_whole && from.starts_with('/')).then_some((path, output))
}

/// Decodes the percent signs of a URI's path; `None` if the path is not UTF-8.
pub(in crate::tools) fn unescaped(path: &str) -> Option<String> {
    let mut pieces = path.split('%');
    let mut bytes = pieces.next()?.as_bytes().to_vec();
    for piece in pieces {
        let digits = piece.get(..2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(&piece.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}
