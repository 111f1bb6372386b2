//! Archived logs of Inspect.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::document_file::{limit, open, reading, unknown, whole};
use super::error::TranscriptError;
use super::inspect;

/// The limit for the bytes of an archive's samples: a multiple of the archive's size, plus a constant.
const PER_BYTE: u64 = 100;
const SAMPLES_SPARE: u64 = 1 << 30;

/// An Inspect log that is an archive.
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

    /// Returns the sample in an entry, with the model of the whole log.
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
        // Each sample is read twice.
        if *bytes / 2 > *bytes_max {
            let reason =
                format!("its samples are larger than {PER_BYTE} times the archive plus 1 GiB; extract them first");
            return Err(limit(path, reason));
        }
        whole(path, &name, file.take(size)).map(Some)
    }
}

fn damaged(path: &Path, error: &zip::result::ZipError) -> TranscriptError {
    unknown(path, &format!("the archive can't be read: {error}"))
}
