//! JSON documents with one or more runs, and archives of such documents.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use super::document_file::{document, unknown};
use super::error::TranscriptError;
#[cfg(not(feature = "inspect"))]
use super::sample_archive::NoSampleArchive as SampleArchive;
#[cfg(feature = "inspect")]
use super::sample_archive::SampleArchive;
use super::{SourceRun, TranscriptFormat, atif, gemini, inspect, messages, mini, opencode, swe_agent};

/// A file, and the number of the entry in it if it is an archive.
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
