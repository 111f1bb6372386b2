//! Finding the runs in files, and reading them step by step.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use regex::{Captures, Regex};
use serde_json::Value;

use super::error::TranscriptError;
use super::step::{StepReceiver, TranscriptStep};
use super::{
    KNOWN, SourceRun, TranscriptFormat, aider, atif, claude, codex, copilot, gemini, inspect, messages, mini, opencode,
    openhands, swe_agent,
};

/// Lines at the beginning that are searched for the format.
const HEAD_LINES: usize = 256;
/// Bytes of a document that is read as a whole, and of a line.
const DOCUMENT_MAX: u64 = 1 << 30;
/// Bytes read from the start of a file to detect its format.
const SNIFFED: u64 = 4096;
/// Subagents of subagents that are put in order.
const DEPTH_MAX: usize = 64;

/// A run and where its steps are.
#[derive(Debug)]
pub(super) struct RunSource {
    pub(super) format: TranscriptFormat,
    pub(super) run: SourceRun,
    /// The call of the parent that began it, if a file beside it names it.
    pub(super) link: Option<String>,
    body: SourceBody,
}

#[derive(Debug)]
enum SourceBody {
    /// JSON lines.
    Lines(PathBuf),
    Document(Value),
    /// Lines of text.
    Text(String),
    /// One document for each step.
    Files(Vec<PathBuf>),
}

impl RunSource {
    /// Finds the runs in a file or a directory, parents first.
    pub(super) fn all_at(path: &Path) -> Result<Vec<Self>, TranscriptError> {
        if path.is_dir() {
            return Ok(vec![Self::of_directory(path)?]);
        }
        let mut start = Vec::new();
        open(path)?.take(SNIFFED).read_to_end(&mut start).map_err(reading(path))?;
        if start.starts_with(b"PK\x03\x04") {
            return archive(path);
        }
        if start.starts_with(b"SQLite format 3\0") {
            let reason =
                "it is a database; export its sessions as JSON, by `opencode export` or `goose session export`";
            return Err(unknown(path, reason));
        }
        if start.trim_ascii_start().starts_with(b"# aider chat ") {
            return chats(path);
        }
        if let Some((format, run)) = of_lines(path)? {
            let children = match format {
                TranscriptFormat::ClaudeCode => subagents(path, &run)?,
                TranscriptFormat::CopilotCli => own_subagents(path, &run)?,
                _ => Vec::new(),
            };
            let source = Self { format, run, link: None, body: SourceBody::Lines(path.to_owned()) };
            return Ok(std::iter::once(source).chain(children).collect());
        }
        let found = match document(path) {
            Ok(mut whole) => {
                state_directory(path, &mut whole)?;
                of_document(whole, place(path).as_deref())
            }
            Err(TranscriptError::Unknown { .. }) if JsonLines::open(path)?.next()?.flatten().is_some() => Vec::new(),
            Err(error) => return Err(error),
        };
        match found.is_empty() {
            true => Err(unknown(path, &format!("its format is unknown; known are {KNOWN}"))),
            false => Ok(found),
        }
    }

    fn of_directory(path: &Path) -> Result<Self, TranscriptError> {
        let events = path.join("events");
        let directory = if events.is_dir() { events } else { path.to_owned() };
        let is_event = |name: &str| name.starts_with("event-") && name.ends_with(".json");
        let files = entries(&directory, is_event)?;
        let Some(first) = files.first() else {
            return Err(unknown(path, "the directory has no events of OpenHands; give a file"));
        };
        let id = path.file_name().map(|name| name.to_string_lossy().into_owned());
        match openhands::run_of(&document(first)?, id.as_deref()) {
            Some(run) => {
                Ok(Self { format: TranscriptFormat::OpenHands, run, link: None, body: SourceBody::Files(files) })
            }
            None => Err(unknown(first, "it is no event of OpenHands")),
        }
    }

    /// Reads the steps, and returns the number of lines that are not JSON.
    pub(super) fn read(
        self,
        take: &mut dyn FnMut(TranscriptStep) -> Result<(), TranscriptError>,
    ) -> Result<u64, TranscriptError> {
        let (mut reader, mut failed, mut unreadable) = (self.format.reader(&self.run), Ok(()), 0);
        let mut line = |value: Option<Value>| {
            let mut give = |step| {
                if failed.is_ok() {
                    failed = take(step);
                }
            };
            match value {
                Some(value) => reader.line(value, &mut StepReceiver(&mut give)),
                None => reader.end(&mut StepReceiver(&mut give)),
            }
            std::mem::replace(&mut failed, Ok(()))
        };
        match self.body {
            SourceBody::Document(document) => line(Some(document))?,
            SourceBody::Files(files) => files.iter().try_for_each(|file| line(Some(document(file)?)))?,
            SourceBody::Lines(path) => {
                let mut lines = JsonLines::open(&path)?;
                while let Some(next) = lines.next()? {
                    match next {
                        Some(value) => line(Some(value))?,
                        None => unreadable += 1,
                    }
                }
            }
            SourceBody::Text(text) => {
                text.split_inclusive('\n').try_for_each(|text| line(Some(text.into())))?;
            }
        }
        line(None)?;
        Ok(unreadable)
    }
}

/// Sorts runs so that subagents follow their parents.
pub(super) fn parents_first(sources: &mut Vec<RunSource>) {
    let mut known = BTreeSet::new();
    // The same file given twice.
    sources.retain(|source| known.insert((source.run.agent.clone(), source.run.id.clone())));
    let parents: BTreeMap<_, _> =
        sources.iter().map(|source| (source.run.id.clone(), source.run.parent.clone())).collect();
    let depth = |source: &RunSource| {
        let mut parent = &source.run.parent;
        let mut depth = 0_usize;
        while let Some(above) = parent.as_ref().and_then(|parent| parents.get(parent)).filter(|_| depth < DEPTH_MAX) {
            (parent, depth) = (above, depth + 1);
        }
        depth
    };
    sources.sort_by_cached_key(depth);
}

/// Finds the format and the run of JSON lines. A later line may state the directory.
fn of_lines(path: &Path) -> Result<Option<(TranscriptFormat, SourceRun)>, TranscriptError> {
    let mut lines = JsonLines::open(path)?;
    let mut known: Option<(TranscriptFormat, SourceRun)> = None;
    let (place, mut is_claude) = (place(path), false);
    for number in 0..HEAD_LINES {
        let line = match lines.next()? {
            Some(Some(line)) => line,
            Some(None) if number > 0 => continue,
            _ => break,
        };
        is_claude |= claude::is_message(&line);
        let found = [
            (TranscriptFormat::ClaudeCode, claude::run_of(&line)),
            (TranscriptFormat::CopilotCli, copilot::run_of(&line)),
            (TranscriptFormat::Codex, codex::run_of(&line)),
            (TranscriptFormat::GeminiCli, gemini::run_of(&line)),
            (TranscriptFormat::OpenHands, openhands::run_of(&line, None)),
        ];
        let found = found.into_iter().find_map(|(format, run)| Some((format, run?)));
        match (&mut known, found.or_else(|| messages::run_of_line(&line, place.as_deref()))) {
            (Some((known, run)), Some((format, other))) if *known == format => run.directory = other.directory,
            (None, Some(found)) => known = Some(found),
            _ => {}
        }
        let is_sure = |(format, run): &(_, SourceRun)| {
            run.directory.is_some() && (is_claude || *format != TranscriptFormat::ClaudeCode)
        };
        if known.as_ref().is_some_and(is_sure) {
            break;
        }
    }
    Ok(known.filter(|(format, _)| is_claude || *format != TranscriptFormat::ClaudeCode))
}

/// Finds the runs in a document, in whatever format it is.
fn of_document(mut document: Value, place: Option<&str>) -> Vec<RunSource> {
    let one = |format, run, body| RunSource { format, run, link: None, body: SourceBody::Document(body) };
    if let Some(run) = atif::run_of(&document) {
        let children = atif::children_of(&mut document);
        let agent = run.agent.clone();
        let parent = run.id.clone();
        let mut found = vec![one(TranscriptFormat::Atif, run, document)];
        for mut child in children.into_iter().flat_map(|child| of_document(child, None)) {
            // Agents of one trajectory have one name space, whatever each is called.
            child.run.agent.clone_from(&agent);
            child.run.parent.get_or_insert_with(|| parent.clone());
            found.push(child);
        }
        return found;
    }
    if let Some(samples) = inspect::samples_of(&mut document) {
        return samples.into_iter().flat_map(|sample| of_document(sample, None)).collect();
    }
    let found = [
        (TranscriptFormat::Inspect, inspect::run_of(&document)),
        (TranscriptFormat::GeminiCli, gemini::run_of(&document)),
        (TranscriptFormat::SweAgent, swe_agent::run_of(&document)),
        (TranscriptFormat::MiniSweAgent, mini::run_of(&document)),
        (TranscriptFormat::OpenCode, opencode::run_of(&document)),
    ];
    let found = found.into_iter().find_map(|(format, run)| Some((format, run?)));
    match found.or_else(|| messages::run_of(&document, place)) {
        Some((format, run)) => vec![one(format, run, document)],
        None => Vec::new(),
    }
}

/// Returns the id in the name of a file or of its directory: hexadecimal digits and hyphens, eight decimal digits at least.
fn place(path: &Path) -> Option<String> {
    let names = [path.file_stem(), path.parent().and_then(Path::file_name)];
    let is_id = |name: &&str| {
        name.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
            && name.chars().filter(char::is_ascii_digit).count() >= 8
    };
    names.into_iter().flatten().filter_map(|name| name.to_str()).find(is_id).map(str::to_owned)
}

/// Copies the directory of a Cline session into its messages, from the file beside them.
fn state_directory(path: &Path, messages: &mut Value) -> Result<(), TranscriptError> {
    let beside = path.to_str().and_then(|path| path.strip_suffix(".messages.json")).map(|stem| format!("{stem}.json"));
    let beside = beside.map(PathBuf::from).filter(|beside| beside.is_file());
    if let (Some(beside), Some(session)) = (beside, messages.as_object_mut()) {
        session.insert("cwd".to_owned(), document(&beside)?["cwd"].clone());
    }
    Ok(())
}

/// Finds the chats in a history of Aider.
fn chats(path: &Path) -> Result<Vec<RunSource>, TranscriptError> {
    let mut bytes = Vec::new();
    open(path)?.take(DOCUMENT_MAX).read_to_end(&mut bytes).map_err(reading(path))?;
    let (mut found, mut seen): (Vec<RunSource>, _) = (Vec::new(), BTreeMap::new());
    for line in String::from_utf8_lossy(&bytes).split_inclusive('\n').filter(|line| line.ends_with('\n')) {
        // The next beginning ends a chat, too.
        if let Some(RunSource { body: SourceBody::Text(text), .. }) = found.last_mut() {
            text.push_str(line);
        }
        if let Some(mut run) = aider::run_of(line) {
            let count = seen.entry(run.id.clone()).and_modify(|count| *count += 1).or_insert(1);
            if *count > 1 {
                run.id = format!("{}-{count}", run.id);
            }
            let body = SourceBody::Text(String::new());
            found.push(RunSource { format: TranscriptFormat::Aider, run, link: None, body });
        }
    }
    if found.is_empty() { Err(unknown(path, "it has no chat of Aider")) } else { Ok(found) }
}

/// Finds the subagents whose events are in the file of their session.
fn own_subagents(path: &Path, session: &SourceRun) -> Result<Vec<RunSource>, TranscriptError> {
    let (mut lines, mut callers, mut found) = (JsonLines::open(path)?, BTreeMap::new(), Vec::new());
    while let Some(line) = lines.next()? {
        if let Some((run, call)) = line.and_then(|line| copilot::subagent_of(&line, session, &mut callers)) {
            let body = SourceBody::Lines(path.to_owned());
            found.push(RunSource { format: TranscriptFormat::CopilotCli, run, link: Some(call), body });
        }
    }
    Ok(found)
}

/// Reads the samples of an Inspect log that is an archive.
fn archive(path: &Path) -> Result<Vec<RunSource>, TranscriptError> {
    let damaged = |error: zip::result::ZipError| unknown(path, &format!("the archive can't be read: {error}"));
    let mut archive = zip::ZipArchive::new(open(path)?).map_err(damaged)?;
    let mut header = Value::Null;
    let mut found = Vec::new();
    for number in 0..archive.len() {
        let file = archive.by_index(number).map_err(damaged)?;
        let name = file.name().map_err(damaged)?.into_owned();
        let is_sample = name.starts_with("samples/") && name.ends_with(".json");
        if !is_sample && name != "header.json" {
            continue;
        }
        let mut text = String::new();
        file.take(DOCUMENT_MAX).read_to_string(&mut text).map_err(reading(path))?;
        let value = parsed(&text).map_err(|error| unknown(path, &format!("{name} is no JSON: {error}")))?;
        if is_sample { found.push(value) } else { header = value }
    }
    inspect::state_model(&mut found, &header["eval"]["model"]);
    let found: Vec<RunSource> = found.into_iter().flat_map(|sample| of_document(sample, None)).collect();
    if found.is_empty() { Err(unknown(path, "it has no samples of Inspect")) } else { Ok(found) }
}

/// Finds the transcripts of subagents beside that of their parent.
fn subagents(path: &Path, parent: &SourceRun) -> Result<Vec<RunSource>, TranscriptError> {
    let directory = path.with_extension("").join("subagents");
    if parent.parent.is_some() || !directory.is_dir() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for file in entries(&directory, |name| name.ends_with(".jsonl"))? {
        let Some((format, run)) = of_lines(&file)? else { continue };
        let meta = file.with_extension("meta.json");
        let link = if meta.is_file() { document(&meta)?["toolUseId"].as_str().map(str::to_owned) } else { None };
        found.push(RunSource { format, run, link, body: SourceBody::Lines(file) });
    }
    Ok(found)
}

#[expect(clippy::disallowed_methods, reason = "an import reads files that a person names")]
fn entries(directory: &Path, is_wanted: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>, TranscriptError> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(reading(directory))? {
        let path = entry.map_err(reading(directory))?.path();
        if path.file_name().and_then(|name| name.to_str()).is_some_and(&is_wanted) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

#[expect(clippy::disallowed_methods, reason = "an import reads files that a person names")]
fn open(path: &Path) -> Result<File, TranscriptError> {
    File::open(path).map_err(reading(path))
}

fn reading(path: &Path) -> impl Fn(std::io::Error) -> TranscriptError {
    let path = path.to_owned();
    move |source| TranscriptError::Read { path: path.clone(), source }
}

fn unknown(path: &Path, reason: &str) -> TranscriptError {
    TranscriptError::Unknown { path: path.to_owned(), reason: reason.to_owned() }
}

fn document(path: &Path) -> Result<Value, TranscriptError> {
    let mut text = String::new();
    open(path)?.take(DOCUMENT_MAX).read_to_string(&mut text).map_err(reading(path))?;
    parsed(&text).map_err(|error| unknown(path, &format!("it is no JSON: {error}")))
}

/// Parses a document. Python writes numbers that JSON does not have; they become null.
fn parsed(text: &str) -> serde_json::Result<Value> {
    serde_json::from_str(text).or_else(|error| {
        // A text matches as a whole, and so nothing in it does.
        let odd = Regex::new(r#"(?s)"(?:[^"\\]|\\.)*"|-?Infinity|NaN"#);
        let Some(odd) = odd.ok().filter(|_| text.contains("NaN") || text.contains("Infinity")) else {
            return Err(error);
        };
        let is_text = |found: &Captures<'_>| found[0].starts_with('"');
        let clean = |found: &Captures<'_>| if is_text(found) { found[0].to_owned() } else { "null".to_owned() };
        serde_json::from_str(&odd.replace_all(text, clean))
    })
}

/// The lines of a file as JSON.
struct JsonLines {
    path: PathBuf,
    file: BufReader<File>,
    line: Vec<u8>,
}

impl JsonLines {
    fn open(path: &Path) -> Result<Self, TranscriptError> {
        Ok(Self { path: path.to_owned(), file: BufReader::with_capacity(1 << 20, open(path)?), line: Vec::new() })
    }

    /// Returns the next line that is not blank; an inner `None` if it is not a JSON object. A partial last line is left
    /// for the next import.
    fn next(&mut self) -> Result<Option<Option<Value>>, TranscriptError> {
        loop {
            self.line.clear();
            let read = (&mut self.file).take(DOCUMENT_MAX).read_until(b'\n', &mut self.line);
            if read.map_err(reading(&self.path))? == 0 {
                return Ok(None);
            }
            if self.line.trim_ascii().is_empty() {
                continue;
            }
            let value = serde_json::from_slice::<Value>(&self.line).ok().filter(Value::is_object);
            let is_cut = value.is_none() && self.line.last() != Some(&b'\n');
            return Ok(if is_cut { None } else { Some(value) });
        }
    }
}
