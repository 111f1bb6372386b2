//! Events of the files of a workspace.

use rkyv::{Archive, Serialize as Archivable};
use serde::{Deserialize, Serialize};

use super::codec::{archive, validated};
use super::{CodecError, Event};
use crate::engine::{Digest, EntryPath};

/// Event of an entry that was created or given new contents, attributes or kind. It creates missing parent
/// directories. It replaces the entry at the path, even a directory with everything below it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteFile {
    /// Path of the entry.
    pub path: EntryPath,
    /// Mode of the write.
    pub mode: WriteMode,
    /// Entry after the write.
    #[serde(flatten)]
    pub node: Node,
}

/// Mode of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WriteMode {
    /// Nothing was at the path before.
    Create = 0,
    /// The entry at the path was replaced.
    Overwrite = 1,
    /// The contents were extended; the digest is that of the whole.
    Append = 2,
}

/// Modes by their code in a journal.
const MODES: [WriteMode; 3] = [WriteMode::Create, WriteMode::Overwrite, WriteMode::Append];

/// Entry at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "node", rename_all = "lowercase")]
pub enum Node {
    /// Regular file.
    File {
        /// Digest under which the store keeps the contents.
        content: Digest,
        /// Size in bytes.
        size: u64,
        /// True if its owner may execute it.
        executable: bool,
        /// True if the contents are UTF-8 without NUL.
        text: bool,
        /// True if the contents were over a budget and not kept: only digest and size are known. The digest is zero if
        /// they could not be read at all.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        incomplete: bool,
    },
    /// Symbolic link.
    Symlink {
        /// Target as stored in the link; displayed lossily when it is not UTF-8.
        #[serde(with = "target_text")]
        target: Vec<u8>,
    },
    /// Directory; recorded when no other event shows it.
    Directory,
    /// Special file that a command left. It is recorded without contents and never opened.
    Special {
        /// Kind of the special file.
        special: Special,
    },
}

/// Kinds of special files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Special {
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
    /// Device.
    Device,
}

impl Node {
    /// Returns the digest of a file's contents; none for what is no file.
    pub(crate) fn content(&self) -> Option<&Digest> {
        match self {
            Self::File { content, .. } => Some(content),
            Self::Symlink { .. } | Self::Directory | Self::Special { .. } => None,
        }
    }

    /// Creates a regular file of these bytes.
    pub fn file(bytes: &[u8], executable: bool) -> Self {
        let (content, size) = (Digest::of(bytes), bytes.len() as u64);
        Self::File { content, size, executable, text: is_text(bytes), incomplete: false }
    }

    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::File { executable: false, incomplete: false, .. } => node_code::FILE,
            Self::File { executable: true, incomplete: false, .. } => node_code::EXECUTABLE,
            Self::File { executable: false, incomplete: true, .. } => node_code::INCOMPLETE,
            Self::File { executable: true, incomplete: true, .. } => node_code::INCOMPLETE_EXECUTABLE,
            Self::Symlink { .. } => node_code::SYMLINK,
            Self::Directory => node_code::DIRECTORY,
            Self::Special { special: Special::Fifo } => node_code::FIFO,
            Self::Special { special: Special::Socket } => node_code::SOCKET,
            Self::Special { special: Special::Device } => node_code::DEVICE,
        }
    }

    /// Creates a file of a code that [`is_file`](node_code::is_file).
    pub(crate) fn file_of_code(code: u8, content: Digest, size: u64, text: bool) -> Self {
        let executable = matches!(code, node_code::EXECUTABLE | node_code::INCOMPLETE_EXECUTABLE);
        let incomplete = matches!(code, node_code::INCOMPLETE | node_code::INCOMPLETE_EXECUTABLE);
        Self::File { content, size, executable, text, incomplete }
    }

    /// Creates an entry that has nothing but its kind; none for other or unknown codes.
    pub(crate) fn bare_of_code(code: u8) -> Option<Self> {
        Some(match code {
            node_code::DIRECTORY => Self::Directory,
            node_code::FIFO => Self::Special { special: Special::Fifo },
            node_code::SOCKET => Self::Special { special: Special::Socket },
            node_code::DEVICE => Self::Special { special: Special::Device },
            _ => return None,
        })
    }
}

impl Special {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Socket => "socket",
            Self::Device => "device",
        }
    }
}

fn is_text(bytes: &[u8]) -> bool {
    !bytes.contains(&0) && std::str::from_utf8(bytes).is_ok()
}

/// Text form of a link's target in JSON: the notation of paths, so that any bytes come back.
pub(super) mod target_text {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(target: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&escaped(target))
    }

    pub(in crate::engine::event) fn escaped(bytes: &[u8]) -> String {
        let mut text = String::new();
        for chunk in bytes.utf8_chunks() {
            text.push_str(&chunk.valid().replace('\\', "\\\\"));
            chunk.invalid().iter().for_each(|b| text.push_str(&format!("\\x{b:02x}")));
        }
        text
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        String::deserialize(deserializer).map(|text| crate::engine::path::unescape(&text))
    }
}

/// Event of an entry that was removed, with everything below it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteEntry {
    /// Path of the entry.
    pub path: EntryPath,
}

/// Frozen: stored in journals.
#[derive(Archive, Archivable)]
#[rkyv(derive(Debug))]
pub(crate) struct WriteFileV1 {
    path: Vec<u8>,
    mode: u8,
    node: u8,
    text: bool,
    content: [u8; 32],
    size: u64,
    target: Vec<u8>,
}

/// Frozen: stored in journals.
#[derive(Archive, Archivable)]
struct DeleteEntryV1 {
    path: Vec<u8>,
}

/// Codes of [`Node`] in journals and snapshots.
pub(crate) mod node_code {
    pub(crate) const FILE: u8 = 0;
    pub(crate) const EXECUTABLE: u8 = 1;
    pub(crate) const SYMLINK: u8 = 2;
    pub(crate) const DIRECTORY: u8 = 3;
    pub(crate) const INCOMPLETE: u8 = 4;
    pub(crate) const INCOMPLETE_EXECUTABLE: u8 = 5;
    pub(crate) const FIFO: u8 = 6;
    pub(crate) const SOCKET: u8 = 7;
    pub(crate) const DEVICE: u8 = 8;

    pub(crate) fn is_file(code: u8) -> bool {
        matches!(code, FILE | EXECUTABLE | INCOMPLETE | INCOMPLETE_EXECUTABLE)
    }
}

impl Event for WriteFile {
    const KIND: &'static str = "WriteFile";

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), CodecError> {
        let (text, content, size, target) = match &self.node {
            Node::File { content, size, text, .. } => (*text, *content.as_bytes(), *size, Vec::new()),
            Node::Symlink { target } => (false, [0; 32], 0, target.clone()),
            Node::Directory | Node::Special { .. } => (false, [0; 32], 0, Vec::new()),
        };
        let (path, mode, node) = (self.path.as_bytes().to_vec(), self.mode as u8, self.node.code());
        let frozen = WriteFileV1 { path, mode, node, text, content, size, target };
        archive(Self::KIND, Self::VERSION, &frozen, out)
    }

    fn decode(version: u16, bytes: &[u8]) -> Result<Self, CodecError> {
        let frozen = write_view(version, bytes)?;
        let wrong = |what: &str| CodecError::new(Self::KIND, version, what);
        Ok(Self {
            path: path_of(Self::KIND, version, &frozen.path)?,
            mode: *MODES.get(usize::from(frozen.mode)).ok_or_else(|| wrong("unknown write mode"))?,
            node: frozen.node().ok_or_else(|| wrong("unknown kind of entry"))?,
        })
    }
}

impl ArchivedWriteFileV1 {
    /// Returns the path's bytes, not yet checked to be normal.
    pub(crate) fn path(&self) -> &[u8] {
        &self.path
    }

    pub(crate) fn size(&self) -> u64 {
        self.size.to_native()
    }

    pub(crate) fn node(&self) -> Option<Node> {
        Some(match self.node {
            code if node_code::is_file(code) => {
                Node::file_of_code(code, Digest::from_bytes(self.content), self.size.to_native(), self.text)
            }
            node_code::SYMLINK => Node::Symlink { target: self.target.to_vec() },
            code => return Node::bare_of_code(code),
        })
    }
}

/// Reads a [`WriteFile`] in place, for folds over millions of events.
pub(crate) fn write_view(version: u16, bytes: &[u8]) -> Result<&ArchivedWriteFileV1, CodecError> {
    validated::<WriteFileV1>(WriteFile::KIND, version, bytes)
}

/// Returns the path of a [`DeleteEntry`], in place and not yet checked to be normal. Fails with [`CodecError`].
pub(crate) fn delete_path(version: u16, bytes: &[u8]) -> Result<&[u8], CodecError> {
    Ok(&validated::<DeleteEntryV1>(DeleteEntry::KIND, version, bytes)?.path)
}

fn path_of(kind: &str, version: u16, bytes: &[u8]) -> Result<EntryPath, CodecError> {
    EntryPath::from_bytes(bytes).map_err(|e| CodecError::new(kind, version, e))
}

impl Event for DeleteEntry {
    const KIND: &'static str = "DeleteEntry";

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), CodecError> {
        let frozen = DeleteEntryV1 { path: self.path.as_bytes().to_vec() };
        archive(Self::KIND, Self::VERSION, &frozen, out)
    }

    fn decode(version: u16, bytes: &[u8]) -> Result<Self, CodecError> {
        Ok(Self { path: path_of(Self::KIND, version, delete_path(version, bytes)?)? })
    }
}
