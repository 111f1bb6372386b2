//! JSON documents with one or more runs, and archives of such documents.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use super::error::TranscriptError;
use super::json_piece::{PieceError, TEXT_MAX, parsed};
use super::{SourceRun, TranscriptFormat, atif, gemini, inspect, messages, mini, opencode, swe_agent};

/// The limit for the samples of an archive, in bytes: a multiple of the archive's size plus a constant.
const PER_BYTE: u64 = 100;
const SAMPLES_SPARE: u64 = 1 << 30;

/// A file, and the number of an entry if the file is an archive.
pub(super) type DocumentPlace = (Arc<Path>, Option<usize>);

/// A run in a document.
pub(super) struct DocumentRun {
    pub(super) format: TranscriptFormat,
    pub(super) run: SourceRun,
    document: Value,
}

/// A cache of the last document and archive, since the runs of a document are read one after the other.
#[derive(Default)]
pub(super) struct Documents {
    pub(super) archive: Option<(Arc<Path>, SampleArchive)>,
    pub(super) runs: Option<(DocumentPlace, Vec<Value>)>,
}

impl Documents {
    /// Takes the document of a run, by its number.
    pub(super) fn run(&mut self, place: &DocumentPlace, number: usize) -> Result<Value, TranscriptError> {
        let changed = || unknown(&place.0, "the file changed during the import; import it again");
        if let Some((_, runs)) = self.runs.as_mut().filter(|(read, _)| read == place) {
            return runs.get_mut(number).map(Value::take).ok_or_else(changed);
        }
        self.runs = None;
        let whole = match place {
            (path, None) => {
                let mut whole = document(path)?;
                state_directory(path, &mut whole)?;
                whole
            }
            (path, Some(entry)) => {
                let archive = match self.archive.take().filter(|(read, _)| read == path) {
                    Some((_, archive)) => archive,
                    None => SampleArchive::open(path)?,
                };
                let (_, archive) = self.archive.insert((Arc::clone(path), archive));
                archive.sample(*entry)?.ok_or_else(changed)?
            }
        };
        let mut runs: Vec<Value> =
            runs_in(whole, id_in(place).as_deref()).into_iter().map(|found| found.document).collect();
        let run = runs.get_mut(number).map(Value::take).ok_or_else(changed);
        self.runs = Some((place.clone(), runs));
        run
    }
}

/// Finds the runs in a document of any format.
pub(super) fn runs_in(mut document: Value, place: Option<&str>) -> Vec<DocumentRun> {
    let one = |format, run, document| DocumentRun { format, run, document };
    if let Some(run) = atif::run_of(&document) {
        let children = atif::children_of(&mut document);
        let agent = run.agent.clone();
        let parent = run.id.clone();
        let mut found = vec![one(TranscriptFormat::Atif, run, document)];
        for mut child in children.into_iter().flat_map(|child| runs_in(child, None)) {
            // The ids of runs are unique within a trajectory, so all runs go under the root's agent.
            child.run.agent.clone_from(&agent);
            child.run.parent.get_or_insert_with(|| parent.clone());
            found.push(child);
        }
        return found;
    }
    if let Some(samples) = inspect::samples_of(&mut document) {
        return samples.into_iter().flat_map(|sample| runs_in(sample, None)).collect();
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

/// Returns the id in the path of a document, for formats without an id.
pub(super) fn id_in((path, entry): &DocumentPlace) -> Option<String> {
    entry.is_none().then(|| id_in_path(path)).flatten()
}

/// Returns the id in the name of a file or its directory: hex digits and hyphens, with at least 8 decimal digits.
pub(super) fn id_in_path(path: &Path) -> Option<String> {
    let names = [path.file_stem(), path.parent().and_then(Path::file_name)];
    let is_id = |name: &&str| {
        name.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
            && name.chars().filter(char::is_ascii_digit).count() >= 8
    };
    names.into_iter().flatten().filter_map(|name| name.to_str()).find(is_id).map(str::to_owned)
}

/// Copies the directory of a Cline session from the session file next to the messages into them.
pub(super) fn state_directory(path: &Path, messages: &mut Value) -> Result<(), TranscriptError> {
    let beside = path.to_str().and_then(|path| path.strip_suffix(".messages.json")).map(|stem| format!("{stem}.json"));
    let beside = beside.map(PathBuf::from).filter(|beside| beside.is_file());
    if let (Some(beside), Some(session)) = (beside, messages.as_object_mut()) {
        session.insert("cwd".to_owned(), document(&beside)?["cwd"].clone());
    }
    Ok(())
}

pub(super) fn document(path: &Path) -> Result<Value, TranscriptError> {
    whole(path, "the file", open(path)?)
}

fn whole(path: &Path, name: &str, input: impl Read) -> Result<Value, TranscriptError> {
    let mut text = Vec::new();
    input.take(TEXT_MAX + 1).read_to_end(&mut text).map_err(reading(path))?;
    parsed("document", &text).map_err(|error| match error {
        PieceError::Damaged(error) => unknown(path, &format!("{name} is not valid JSON: {error}")),
        PieceError::Refused(reason) if name == "the file" => limit(path, reason),
        PieceError::Refused(reason) => limit(path, format!("{name}: {reason}")),
    })
}

#[expect(clippy::disallowed_methods, reason = "an import reads files that a person names")]
pub(super) fn open(path: &Path) -> Result<File, TranscriptError> {
    File::open(path).map_err(reading(path))
}

pub(super) fn reading(path: &Path) -> impl Fn(std::io::Error) -> TranscriptError {
    let path = path.to_owned();
    move |source| TranscriptError::Read { path: path.clone(), source }
}

pub(super) fn unknown(path: &Path, reason: &str) -> TranscriptError {
    TranscriptError::Unknown { path: path.to_owned(), reason: reason.to_owned() }
}

pub(super) fn limit(path: &Path, reason: String) -> TranscriptError {
    TranscriptError::Limit { path: path.to_owned(), reason }
}

/// An archived Inspect log.
pub(super) struct SampleArchive {
    path: PathBuf,
    archive: zip::ZipArchive<BufReader<File>>,
    model: Value,
    /// The limit for the bytes of the samples, and the bytes read so far.
    bytes_max: u64,
    pub(super) bytes: u64,
}

impl SampleArchive {
    pub(super) fn open(path: &Path) -> Result<Self, TranscriptError> {
        let file = open(path)?;
        let bytes_max = file.metadata().map_err(reading(path))?.len().saturating_mul(PER_BYTE) + SAMPLES_SPARE;
        let archive = zip::ZipArchive::new(BufReader::new(file)).map_err(|error| damaged(path, &error))?;
        let mut opened = Self { path: path.to_owned(), archive, model: Value::Null, bytes_max, bytes: 0 };
        if let Some(header) = opened.archive.index_for_name("header.json") {
            opened.model =
                opened.entry(header, |name| name == "header.json")?.unwrap_or_default()["eval"]["model"].take();
        }
        Ok(opened)
    }

    pub(super) fn len(&self) -> usize {
        self.archive.len()
    }

    /// Returns the sample in an entry, with the model from the log's header.
    pub(super) fn sample(&mut self, number: usize) -> Result<Option<Value>, TranscriptError> {
        let sample = self.entry(number, |name| name.starts_with("samples/") && name.ends_with(".json"))?;
        Ok(sample.map(|mut sample| {
            inspect::state_model(std::slice::from_mut(&mut sample), &self.model);
            sample
        }))
    }

    fn entry(&mut self, number: usize, is_wanted: impl Fn(&str) -> bool) -> Result<Option<Value>, TranscriptError> {
        let Self { path, archive, bytes_max, bytes, .. } = self;
        let file = archive.by_index(number).map_err(|error| damaged(path, &error))?;
        let name = file.name().map_err(|error| damaged(path, &error))?.into_owned();
        if !is_wanted(&name) {
            return Ok(None);
        }
        let size = file.size();
        *bytes = bytes.saturating_add(size);
        // An import reads each sample twice.
        if *bytes / 2 > *bytes_max {
            let reason = format!("samples exceed {PER_BYTE} times the archive's size plus 1 GiB; extract them first");
            return Err(limit(path, reason));
        }
        whole(path, &name, file.take(size)).map(Some)
    }
}

fn damaged(path: &Path, error: &zip::result::ZipError) -> TranscriptError {
    unknown(path, &format!("can't read the archive: {error}"))
}
