//! Messages between foldspace and its evaluator: JSON after its length.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The maximum length of a message, in bytes.
const FRAME_MAX: usize = 32 << 20;

/// The first message of an evaluator: its release, which must be the parent's.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvaluatorHello {
    /// The release.
    pub evaluator: String,
}

impl EvaluatorHello {
    /// Returns the message of this release.
    pub fn own() -> Self {
        Self { evaluator: env!("CARGO_PKG_VERSION").to_owned() }
    }
}

/// Code to be evaluated.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct EvalRequest {
    /// The code, in Python.
    pub code: String,
    /// Values of global variables, by name.
    pub globals: Map<String, Value>,
    /// Texts of the files that the code may read, by their paths from the root without a leading slash.
    pub files: BTreeMap<String, String>,
    /// Milliseconds that the evaluation may take.
    pub limit_millis: u64,
}

impl EvalRequest {
    /// Returns the time that the evaluation may take.
    pub fn limit(&self) -> Duration {
        Duration::from_millis(self.limit_millis)
    }
}

/// The outcome of an evaluation.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct EvalAnswer {
    /// The `repr` of the last expression, unless that is `None`.
    pub value_repr: Option<String>,
    /// Global variables afterwards.
    pub globals: Map<String, Value>,
    /// Globals that are left out, with the reasons: no JSON form, or too large together.
    pub omitted: BTreeMap<String, String>,
    /// Files that the code wrote.
    pub files: Vec<LeftFile>,
    /// The beginning of what the code printed.
    pub stdout: String,
    /// Bytes that the code printed.
    pub printed: u64,
    /// The traceback of code that failed.
    pub failure: Option<String>,
    /// True if the code took too long.
    pub timed_out: bool,
}

/// A file that the code wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftFile {
    /// Path from the root, without a leading slash.
    pub path: String,
    /// The text.
    pub text: String,
    /// True if the text is appended to the file.
    pub is_appended: bool,
    /// True if no file may exist at the path.
    pub is_new: bool,
}

/// Writes a message.
///
/// # Errors
/// Errors of the writer, and a message of over 32 MiB.
pub fn write_frame(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut frame = vec![0; 4];
    serde_json::to_writer(&mut frame, message)?;
    let length = within(frame.len() - 4)?;
    frame[..4].copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    to.write_all(&frame)
}

/// Reads a message.
///
/// # Errors
/// Errors of the reader, a message of over 32 MiB, and invalid JSON.
pub fn read_frame<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<T> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let mut frame = vec![0; within(u32::from_be_bytes(length) as usize)?];
    from.read_exact(&mut frame)?;
    Ok(serde_json::from_slice(&frame)?)
}

fn within(length: usize) -> io::Result<usize> {
    match length > FRAME_MAX {
        true => Err(io::Error::other(format!("a message of {length} bytes; at most {FRAME_MAX} are allowed"))),
        false => Ok(length),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_is_read_as_written() {
        let mut bytes = Vec::new();
        write_frame(&mut bytes, &EvaluatorHello::own()).unwrap();
        assert_eq!(read_frame::<EvaluatorHello>(&mut bytes.as_slice()).unwrap(), EvaluatorHello::own());
        assert!(read_frame::<EvaluatorHello>(&mut &bytes[..bytes.len() - 1]).is_err());
        assert!(read_frame::<EvaluatorHello>(&mut &[0xff; 8][..]).is_err(), "a length over the limit");
    }
}
