//! The entries of a workspace.

use schemars::JsonSchema;
use serde::Serialize;

use crate::engine::id::Seq;
use crate::engine::path::EntryPath;
use crate::reducers::Entry;

/// An entry with its path.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "EntryAtPath")]
pub struct EntryDocument {
    /// Its path from the workspace root, without a leading slash.
    #[schemars(with = "String")]
    pub path: EntryPath,
    /// The entry.
    #[serde(flatten)]
    #[schemars(with = "EntryShape")]
    pub entry: Entry,
    /// For an entry that was read from the disk: the last recorded position at that time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_at: Option<Seq>,
}

/// The JSON form of an entry. Its fields depend on its kind: a file has a content, a link a target.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "Entry")]
pub struct EntryShape {
    /// `file`, `symlink`, `directory` or `special`.
    pub node: String,
    /// The digest of a file's contents: 64 hexadecimal digits of BLAKE3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// A file's size in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// True if a file is executable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executable: Option<bool>,
    /// The permission bits of a file or directory: four octal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permissions: Option<String>,
    /// True if a file is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<bool>,
    /// True if a file's contents were not stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<bool>,
    /// The target of a symbolic link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// `fifo`, `socket` or `device`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub special: Option<String>,
    /// The number of times that it was written.
    pub version: u64,
    /// Its creation time, in UTC.
    pub created_at: String,
    /// The time of its last write, in UTC.
    pub updated_at: String,
}

/// Returns an entry as a document.
pub fn entry(path: &EntryPath, entry: &Entry) -> EntryDocument {
    EntryDocument { path: path.clone(), entry: entry.clone(), live_at: None }
}
