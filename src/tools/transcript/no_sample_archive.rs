//! Archived logs of Inspect, in a build that can't read them.

use std::path::Path;

use serde_json::Value;

use super::document_file::unknown;
use super::error::TranscriptError;

/// A type without values, since [`open`](Self::open) always fails.
pub(super) enum NoSampleArchive {}

impl NoSampleArchive {
    pub(super) fn open(path: &Path) -> Result<Self, TranscriptError> {
        Err(unknown(path, "it is an archive, and this program is built without the feature `inspect`"))
    }

    pub(super) fn len(&self) -> usize {
        match *self {}
    }

    pub(super) fn sample(&mut self, _: usize) -> Result<Option<Value>, TranscriptError> {
        match *self {}
    }
}
