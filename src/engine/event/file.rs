//! What happened to the files of a workspace.

use rkyv::{Archive, Serialize as Archivable};
use serde::{Deserialize, Serialize};

use super::codec::{archive, validated};
use super::{CodecError, Event};
use crate::engine::id::Digest;
use crate::engine::path::EntryPath;

/// An entry was created or given new contents, attributes or kind.
///
/// Missing parent directories come into being with it. Whatever stood at the path before, a whole
/// directory included, is gone after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteFile {
    /// Where.
    pub path: EntryPath,
    /// How the writer went about it.
    pub mode: WriteMode,
    /// What stands there from now on.
    #[serde(flatten)]
    pub node: Node,
}

/// How an entry was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WriteMode {
    /// Nothing stood at the path before.
    Create,
    /// What stood there was replaced.
    Overwrite,
    /// The contents were extended; the digest is that of the whole.
    Append,
}

/// What stands at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "node", rename_all = "lowercase")]
pub enum Node {
    /// A regular file.
    File {
        /// Digest of its contents, under which the store keeps them.
        content: Digest,
        /// Bytes.
        size: u64,
        /// Whether its owner may execute it.
        executable: bool,
        /// Whether the contents are UTF-8 without NUL.
        text: bool,
        /// Whether the contents were over a budget and so not kept: digest and size are then all that
        /// is known of them. The digest is zero where they could not be read at all.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        incomplete: bool,
    },
    /// A symbolic link.
    Symlink {
        /// Where it points, as it is stored in the link; shown lossily when it is not UTF-8.
        #[serde(with = "target_text")]
        target: Vec<u8>,
    },
    /// A directory; recorded when nothing else shows that it is there.
    Directory,
    /// A special file that a command left. It is noted; it has no contents and is never opened.
    Special {
        /// Which kind.
        special: Special,
    },
}

/// The kinds of special files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Special {
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A device.
    Device,
}

impl Node {
    /// A regular file of these bytes.
    pub fn file(bytes: &[u8], executable: bool) -> Self {
        let (content, size) = (Digest::of(bytes), bytes.len() as u64);
        Self::File { content, size, executable, text: is_text(bytes), incomplete: false }
    }
}

/// The codes of nodes, in a journal and in a snapshot.
impl Node {
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

    /// A file of a code that [`is_file`](node_code::is_file).
    pub(crate) fn file_of_code(code: u8, content: Digest, size: u64, text: bool) -> Self {
        let executable = matches!(code, node_code::EXECUTABLE | node_code::INCOMPLETE_EXECUTABLE);
        let incomplete = matches!(code, node_code::INCOMPLETE | node_code::INCOMPLETE_EXECUTABLE);
        Self::File { content, size, executable, text, incomplete }
    }

    /// What has nothing but its kind; none when the code is unknown or tells of more.
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
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Socket => "socket",
            Self::Device => "device",
        }
    }
}

/// Whether bytes count as text: UTF-8 without NUL.
fn is_text(bytes: &[u8]) -> bool {
    !bytes.contains(&0) && std::str::from_utf8(bytes).is_ok()
}

/// A link's target in JSON: the same notation as a path's, so that any bytes come back.
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

/// An entry was removed, and with a directory everything below it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteEntry {
    /// Which.
    pub path: EntryPath,
}

/// `WriteFile`, version 1, as it lies in a journal. Frozen.
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

/// `DeleteEntry`, version 1, as it lies in a journal. Frozen.
#[derive(Archive, Archivable)]
struct DeleteEntryV1 {
    path: Vec<u8>,
}

/// The codes of [`Node`] in a journal.
pub(crate) mod node_code {
    /// A regular file.
    pub(crate) const FILE: u8 = 0;
    /// A regular file that may be executed.
    pub(crate) const EXECUTABLE: u8 = 1;
    /// A symbolic link.
    pub(crate) const SYMLINK: u8 = 2;
    /// A directory.
    pub(crate) const DIRECTORY: u8 = 3;
    /// A regular file whose contents were not kept.
    pub(crate) const INCOMPLETE: u8 = 4;
    /// The same, which may be executed.
    pub(crate) const INCOMPLETE_EXECUTABLE: u8 = 5;
    /// A named pipe.
    pub(crate) const FIFO: u8 = 6;
    /// A socket.
    pub(crate) const SOCKET: u8 = 7;
    /// A device.
    pub(crate) const DEVICE: u8 = 8;

    /// Whether the code is a regular file's.
    pub(crate) fn is_file(code: u8) -> bool {
        matches!(code, FILE | EXECUTABLE | INCOMPLETE | INCOMPLETE_EXECUTABLE)
    }
}

impl Event for WriteFile {
    const KIND: &'static str = "WriteFile";

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), CodecError> {
        let mut frozen = WriteFileV1 {
            path: self.path.as_bytes().to_vec(),
            mode: match self.mode {
                WriteMode::Create => 0,
                WriteMode::Overwrite => 1,
                WriteMode::Append => 2,
            },
            node: self.node.code(),
            text: false,
            content: [0; 32],
            size: 0,
            target: Vec::new(),
        };
        match &self.node {
            Node::File { content, size, text, .. } => {
                frozen.content = *content.as_bytes();
                frozen.size = *size;
                frozen.text = *text;
            }
            Node::Symlink { target } => frozen.target.clone_from(target),
            Node::Directory | Node::Special { .. } => {}
        }
        archive(Self::KIND, Self::VERSION, &frozen, out)
    }

    fn decode(version: u16, bytes: &[u8]) -> Result<Self, CodecError> {
        let frozen = write_view(version, bytes)?;
        let wrong = |what: &str| CodecError::new(Self::KIND, version, what);
        Ok(Self {
            path: path_of(Self::KIND, version, &frozen.path)?,
            mode: match frozen.mode {
                0 => WriteMode::Create,
                1 => WriteMode::Overwrite,
                2 => WriteMode::Append,
                _ => return Err(wrong("unknown write mode")),
            },
            node: frozen.node().ok_or_else(|| wrong("unknown kind of entry"))?,
        })
    }
}

impl ArchivedWriteFileV1 {
    /// The path's bytes, not yet checked to be normal.
    pub(crate) fn path(&self) -> &[u8] {
        &self.path
    }

    /// The code of what stands at the path; see [`node_code`].
    pub(crate) fn code(&self) -> u8 {
        self.node
    }

    /// Bytes of the file's contents; 0 for anything else.
    pub(crate) fn size(&self) -> u64 {
        self.size.to_native()
    }

    /// The entry; none when its code is unknown.
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

/// The archive of a [`WriteFile`], read in place: what a fold of millions of events wants.
///
/// # Errors
/// [`CodecError`] when the bytes are no such event.
pub(crate) fn write_view(version: u16, bytes: &[u8]) -> Result<&ArchivedWriteFileV1, CodecError> {
    match version {
        1 => validated::<WriteFileV1>(WriteFile::KIND, version, bytes),
        _ => Err(CodecError::newer(WriteFile::KIND, version)),
    }
}

/// The path of a [`DeleteEntry`], read in place and not yet checked to be normal.
///
/// # Errors
/// [`CodecError`] when the bytes are no such event.
pub(crate) fn delete_path(version: u16, bytes: &[u8]) -> Result<&[u8], CodecError> {
    match version {
        1 => Ok(&validated::<DeleteEntryV1>(DeleteEntry::KIND, version, bytes)?.path),
        _ => Err(CodecError::newer(DeleteEntry::KIND, version)),
    }
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
