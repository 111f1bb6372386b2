//! Opening transcript files, reading whole documents, and the errors about them.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::Value;

use super::error::TranscriptError;
use super::json_piece::{PieceError, TEXT_MAX, parsed};

pub(super) fn document(path: &Path) -> Result<Value, TranscriptError> {
    whole(path, "the file", open(path)?)
}

pub(super) fn whole(path: &Path, name: &str, input: impl Read) -> Result<Value, TranscriptError> {
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
