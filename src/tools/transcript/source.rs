//! Finding the runs in files and reading them step by step. One document or line is in memory at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use super::document_file::{document, limit, open, reading, unknown};
use super::documents::{DocumentPlace, Documents, id_in, id_in_path, runs_in, state_directory};
use super::error::TranscriptError;
use super::json_piece::{PieceError, TEXT_MAX, parsed};
#[cfg(not(feature = "inspect"))]
use super::sample_archive::NoSampleArchive as SampleArchive;
#[cfg(feature = "inspect")]
use super::sample_archive::SampleArchive;
use super::step::{KeptByCall, StepReceiver, TranscriptStep};
use super::{KNOWN, SourceRun, TranscriptFormat, aider, claude, codex, copilot, gemini, messages, openhands};

/// The number of lines at the beginning that are searched for the format.
const HEAD_LINES: usize = 256;
/// The limits for runs in an import and for the bytes of a fact, which stay in memory until the import ends.
const RUNS_MAX: usize = 50_000;
const FACT_MAX: usize = 4096;
/// The number of bytes read from the start of a file to detect its format.
const SNIFFED: u64 = 4096;
/// The maximum nesting depth of sorted subagents.
const DEPTH_MAX: usize = 64;

/// A run and where its steps are.
#[derive(Debug)]
pub(super) struct RunSource {
    pub(super) format: TranscriptFormat,
    pub(super) run: SourceRun,
    /// The call of the parent that began the run, if the transcript or a file next to it names the call.
    pub(super) link: Option<String>,
    body: SourceBody,
}

#[derive(Debug)]
enum SourceBody {
    /// JSON lines.
    Lines(Arc<Path>),
    /// The run with this number in a document.
    Document(DocumentPlace, usize),
    /// Lines of text between two offsets.
    Text(Arc<Path>, u64, u64),
    /// One document per step.
    Files(Vec<PathBuf>),
}

/// The runs of an import.
#[derive(Default)]
pub(super) struct FoundRuns(pub(super) Vec<RunSource>);

impl FoundRuns {
    /// Adds the runs in a file or a directory.
    pub(super) fn add_all(&mut self, path: &Path) -> Result<(), TranscriptError> {
        let before = self.0.len();
        self.add_at(path)?;
        match self.0.len() == before {
            true => Err(unknown(path, &format!("unknown format; supported formats are {KNOWN}"))),
            false => Ok(()),
        }
    }

    fn push(&mut self, path: &Path, source: RunSource) -> Result<(), TranscriptError> {
        let SourceRun { agent, id, parent, directory, .. } = &source.run;
        let facts = [Some(agent), Some(id), parent.as_ref(), directory.as_ref(), source.link.as_ref()];
        if facts.into_iter().flatten().any(|fact| fact.len() > FACT_MAX) {
            let reason = format!("a name, an id or a directory of a run has more than {FACT_MAX} bytes; shorten it");
            return Err(limit(path, reason));
        }
        if self.0.len() == RUNS_MAX {
            return Err(limit(path, format!("more than {RUNS_MAX} runs; import fewer at once")));
        }
        self.0.push(source);
        Ok(())
    }

    fn add_at(&mut self, path: &Path) -> Result<(), TranscriptError> {
        if path.is_dir() {
            return self.push(path, RunSource::of_directory(path)?);
        }
        let mut start = Vec::new();
        open(path)?.take(SNIFFED).read_to_end(&mut start).map_err(reading(path))?;
        if start.starts_with(b"PK\x03\x04") {
            return self.add_archive(path);
        }
        if start.starts_with(b"SQLite format 3\0") {
            let reason =
                "the file is a database; export its sessions as JSON with `opencode export` or `goose session export`";
            return Err(unknown(path, reason));
        }
        if start.trim_ascii_start().starts_with(b"# aider chat ") {
            return self.add_chats(path);
        }
        if let Some((format, run)) = of_lines(path)? {
            let body = SourceBody::Lines(path.into());
            self.push(path, RunSource { format, run: run.clone(), link: None, body })?;
            return match format {
                TranscriptFormat::ClaudeCode => self.add_subagents(path, &run),
                TranscriptFormat::CopilotCli => self.add_own_subagents(path, &run),
                _ => Ok(()),
            };
        }
        match document(path) {
            Ok(mut whole) => {
                state_directory(path, &mut whole)?;
                self.add_document(&(path.into(), None), whole)
            }
            Err(TranscriptError::Unknown { .. }) if JsonLines::open(path)?.next()?.flatten().is_some() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Adds the runs in a document of any format.
    fn add_document(&mut self, place: &DocumentPlace, document: Value) -> Result<(), TranscriptError> {
        for (number, found) in runs_in(document, id_in(place).as_deref()).into_iter().enumerate() {
            let body = SourceBody::Document(place.clone(), number);
            self.push(&place.0, RunSource { format: found.format, run: found.run, link: None, body })?;
        }
        Ok(())
    }

    /// Adds the samples of an archived Inspect log.
    fn add_archive(&mut self, path: &Path) -> Result<(), TranscriptError> {
        let (mut archive, path, before) = (SampleArchive::open(path)?, Arc::from(path), self.0.len());
        for number in 0..archive.len() {
            if let Some(sample) = archive.sample(number)? {
                self.add_document(&(Arc::clone(&path), Some(number)), sample)?;
            }
        }
        if self.0.len() == before { Err(unknown(&path, "the archive has no Inspect samples")) } else { Ok(()) }
    }

    /// Adds the chats in an Aider history.
    fn add_chats(&mut self, path: &Path) -> Result<(), TranscriptError> {
        let (path, mut lines, mut at) = (Arc::from(path), BufReader::new(open(path)?), 0);
        let (mut line, mut begun, mut seen) = (Vec::new(), None, BTreeMap::new());
        loop {
            line.clear();
            let read = (&mut lines).take(TEXT_MAX).read_until(b'\n', &mut line).map_err(reading(&path))?;
            at += read as u64;
            let next = line.ends_with(b"\n").then(|| aider::run_of(&String::from_utf8_lossy(&line))).flatten();
            if next.is_some() || read == 0 {
                // A chat ends at the next one or at the end of the file.
                if let Some((run, from)) = begun.take() {
                    let body = SourceBody::Text(Arc::clone(&path), from, at);
                    self.push(&path, RunSource { format: TranscriptFormat::Aider, run, link: None, body })?;
                }
            }
            if let Some(mut run) = next {
                let count = seen.entry(run.id.clone()).and_modify(|count| *count += 1).or_insert(1);
                if *count > 1 {
                    run.id = format!("{}-{count}", run.id);
                }
                begun = Some((run, at));
            }
            if read == 0 {
                return Ok(());
            }
        }
    }

    /// Adds the subagents that have their events in the file of their session.
    fn add_own_subagents(&mut self, path: &Path, session: &SourceRun) -> Result<(), TranscriptError> {
        let (mut lines, mut callers, shared) = (JsonLines::open(path)?, KeptByCall::default(), Arc::from(path));
        while let Some(line) = lines.next()? {
            if let Some((run, call)) = line.and_then(|line| copilot::subagent_of(&line, session, &mut callers)) {
                let body = SourceBody::Lines(Arc::clone(&shared));
                let format = TranscriptFormat::CopilotCli;
                self.push(path, RunSource { format, run, link: Some(call), body })?;
            }
        }
        Ok(())
    }

    /// Adds the transcripts of subagents, from the directory next to the parent's transcript.
    fn add_subagents(&mut self, path: &Path, parent: &SourceRun) -> Result<(), TranscriptError> {
        let directory = path.with_extension("").join("subagents");
        if parent.parent.is_some() || !directory.is_dir() {
            return Ok(());
        }
        for file in entries(&directory, |name| name.ends_with(".jsonl"))? {
            let Some((format, run)) = of_lines(&file)? else { continue };
            let meta = file.with_extension("meta.json");
            let link = if meta.is_file() { document(&meta)?["toolUseId"].as_str().map(str::to_owned) } else { None };
            self.push(&file, RunSource { format, run, link, body: SourceBody::Lines(file.as_path().into()) })?;
        }
        Ok(())
    }
}

impl RunSource {
    fn of_directory(path: &Path) -> Result<Self, TranscriptError> {
        let events = path.join("events");
        let directory = if events.is_dir() { events } else { path.to_owned() };
        let is_event = |name: &str| name.starts_with("event-") && name.ends_with(".json");
        let files = entries(&directory, is_event)?;
        let Some(first) = files.first() else {
            return Err(unknown(path, "the directory has no OpenHands events; pass a file"));
        };
        let id = path.file_name().map(|name| name.to_string_lossy().into_owned());
        match openhands::run_of(&document(first)?, id.as_deref()) {
            Some(run) => {
                Ok(Self { format: TranscriptFormat::OpenHands, run, link: None, body: SourceBody::Files(files) })
            }
            None => Err(unknown(first, "the file is not an OpenHands event")),
        }
    }

    /// Reads the steps, and returns the number of lines that are not JSON.
    pub(super) fn read(
        self,
        documents: &mut Documents,
        take: &mut dyn FnMut(TranscriptStep) -> Result<(), TranscriptError>,
    ) -> Result<u64, TranscriptError> {
        self.read_lines(documents, &mut |_| {}, take)
    }

    /// Reads the steps, and passes each line or document on before its steps.
    pub(super) fn read_lines(
        self,
        documents: &mut Documents,
        see: &mut dyn FnMut(&Value),
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
                Some(value) => {
                    see(&value);
                    reader.line(value, &mut StepReceiver(&mut give));
                }
                None => reader.end(&mut StepReceiver(&mut give)),
            }
            std::mem::replace(&mut failed, Ok(()))
        };
        match self.body {
            SourceBody::Document(place, number) => line(Some(documents.run(&place, number)?))?,
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
            SourceBody::Text(path, from, to) => {
                let mut file = open(&path)?;
                file.seek(SeekFrom::Start(from)).map_err(reading(&path))?;
                let (mut lines, mut text) = (BufReader::new(file.take(to - from)), Vec::new());
                while (&mut lines).take(TEXT_MAX).read_until(b'\n', &mut text).map_err(reading(&path))? > 0 {
                    // The next import reads a partial last line.
                    if text.ends_with(b"\n") {
                        line(Some(String::from_utf8_lossy(&text).into()))?;
                    }
                    text.clear();
                }
            }
        }
        line(None)?;
        Ok(unreadable)
    }
}

/// Sorts runs so that subagents follow their parents.
pub(super) fn parents_first(sources: &mut Vec<RunSource>) {
    let mut known = BTreeSet::new();
    // The same file may be passed twice.
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

/// Finds the format and the run of JSON lines. The directory may be in a later line.
fn of_lines(path: &Path) -> Result<Option<(TranscriptFormat, SourceRun)>, TranscriptError> {
    let mut lines = JsonLines::open(path)?;
    let mut known: Option<(TranscriptFormat, SourceRun)> = None;
    let (place, mut is_claude) = (id_in_path(path), false);
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

    /// Returns the next line that is not blank, with an inner `None` if it is not a JSON object. A partial last line is
    /// left to the next import.
    fn next(&mut self) -> Result<Option<Option<Value>>, TranscriptError> {
        loop {
            self.line.clear();
            let read = (&mut self.file).take(TEXT_MAX + 1).read_until(b'\n', &mut self.line);
            if read.map_err(reading(&self.path))? == 0 {
                return Ok(None);
            }
            if self.line.trim_ascii().is_empty() {
                continue;
            }
            let value = match parsed("line", &self.line) {
                Err(PieceError::Refused(reason)) => return Err(limit(&self.path, reason)),
                parsed => parsed.ok().filter(Value::is_object),
            };
            let is_cut = value.is_none() && self.line.last() != Some(&b'\n');
            return Ok(if is_cut { None } else { Some(value) });
        }
    }
}

#[cfg(all(test, feature = "inspect"))]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn archive_of_samples_is_read_twice() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_owned();
        let mut archive = zip::ZipWriter::new(file.as_file_mut());
        let sample = |number: usize| format!(r#"{{"id":{number},"epoch":1,"events":[]}}"#);
        let mut bytes = 0;
        for number in 0..50 {
            archive.start_file(format!("samples/{number}.json"), zip::write::SimpleFileOptions::default()).unwrap();
            archive.write_all(sample(number).as_bytes()).unwrap();
            bytes += sample(number).len() as u64;
        }
        archive.finish().unwrap();
        let (mut found, mut documents) = (FoundRuns::default(), Documents::default());
        found.add_all(&path).unwrap();
        assert_eq!(found.0.len(), 50);
        for source in found.0 {
            assert_eq!(source.read(&mut documents, &mut |_| Ok(())).unwrap(), 0);
        }
        let (_, opened) = documents.archive.unwrap();
        assert_eq!(opened.bytes, bytes, "each is read once more, from one open archive");
        let (_, runs) = documents.runs.unwrap();
        assert_eq!(runs, [Value::Null], "one sample is in memory, and was taken");
    }
}
