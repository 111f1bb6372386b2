//! Events of the files of a workspace.

use rkyv::{Archive, Serialize as Archivable};
use serde::{Deserialize, Serialize};

use super::codec::{archive, validated};
use super::file_mode::octal;
use super::{CodecError, Event, FileMode};
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
        /// Digest of the stored contents.
        content: Digest,
        /// Size in bytes.
        size: u64,
        /// Permission bits.
        #[serde(flatten)]
        mode: FileMode,
        /// True if the contents are UTF-8 without NUL.
        text: bool,
        /// True if the contents were over a budget and not stored: only digest and size are known. The digest is zero
        /// if they could not be read at all.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        incomplete: bool,
    },
    /// Symbolic link.
    Symlink {
        /// Target as stored in the link; displayed lossily when it is not UTF-8.
        #[serde(with = "target_text")]
        target: Vec<u8>,
    },
    /// Directory; recorded when no other event implies it.
    Directory {
        /// Permission bits.
        #[serde(rename = "permissions", with = "octal")]
        mode: FileMode,
    },
    /// Special file that a command created. It is recorded without contents and never opened.
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
    /// Returns the digest of a file's contents; `None` for other entries.
    #[doc(hidden)]
    pub fn content(&self) -> Option<&Digest> {
        match self {
            Self::File { content, .. } => Some(content),
            Self::Symlink { .. } | Self::Directory { .. } | Self::Special { .. } => None,
        }
    }

    /// Returns the digest of a file's contents, unless they could not be read.
    #[doc(hidden)]
    pub fn known_content(&self) -> Option<Digest> {
        self.content().copied().filter(|digest| *digest != Digest::from_bytes([0; 32]))
    }

    /// Directory with the usual mode.
    pub const DIRECTORY: Self = Self::Directory { mode: FileMode::DIRECTORY };

    /// Creates a regular file of these bytes, with the usual mode.
    pub fn file(bytes: &[u8], executable: bool) -> Self {
        Self::file_with(bytes, FileMode::usual(executable))
    }

    /// Creates a regular file of these bytes.
    pub fn file_with(bytes: &[u8], mode: FileMode) -> Self {
        let (content, size) = (Digest::of(bytes), bytes.len() as u64);
        Self::File { content, size, mode, text: is_text(bytes), incomplete: false }
    }

    /// Returns true for a directory.
    pub const fn is_directory(&self) -> bool {
        matches!(self, Self::Directory { .. })
    }

    /// Returns the permission bits of a file or a directory.
    pub const fn mode(&self) -> Option<FileMode> {
        match self {
            Self::File { mode, .. } | Self::Directory { mode } => Some(*mode),
            Self::Symlink { .. } | Self::Special { .. } => None,
        }
    }

    /// Returns true for a directory that needs no event if there is an entry below it.
    pub fn is_implied(&self) -> bool {
        *self == Self::DIRECTORY
    }

    /// Returns the entry with another mode. Links and special files are unchanged.
    #[doc(hidden)]
    pub fn with_mode(&self, wanted: FileMode) -> Self {
        let mut node = self.clone();
        if let Self::File { mode, .. } | Self::Directory { mode } = &mut node {
            *mode = wanted;
        }
        node
    }

    pub(crate) fn code(&self) -> u8 {
        let kind = match self {
            Self::File { mode, incomplete: false, .. } if !mode.is_executable() => node_code::FILE,
            Self::File { incomplete: false, .. } => node_code::EXECUTABLE,
            Self::File { mode, incomplete: true, .. } if !mode.is_executable() => node_code::INCOMPLETE,
            Self::File { incomplete: true, .. } => node_code::INCOMPLETE_EXECUTABLE,
            Self::Symlink { .. } => node_code::SYMLINK,
            Self::Directory { .. } => node_code::DIRECTORY,
            Self::Special { special: Special::Fifo } => node_code::FIFO,
            Self::Special { special: Special::Socket } => node_code::SOCKET,
            Self::Special { special: Special::Device } => node_code::DEVICE,
        };
        match self.mode() {
            Some(mode) if mode != node_code::usual_mode(kind) => kind | node_code::BITS,
            _ => kind,
        }
    }

    /// Creates a file from a code that [`is_file`](node_code::is_file) accepts; `bits` matter if the code has
    /// [`BITS`](node_code::BITS).
    pub(crate) fn file_of_code(code: u8, content: Digest, size: u64, text: bool, bits: u16) -> Self {
        let incomplete = matches!(node_code::kind(code), node_code::INCOMPLETE | node_code::INCOMPLETE_EXECUTABLE);
        Self::File { content, size, mode: node_code::mode(code, bits), text, incomplete }
    }

    /// Creates an entry that consists of its kind and mode. `None` for other codes.
    pub(crate) fn bare_of_code(code: u8, bits: u16) -> Option<Self> {
        if node_code::kind(code) == node_code::DIRECTORY {
            return Some(Self::Directory { mode: node_code::mode(code, bits) });
        }
        Some(match code {
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

/// Text form of a link's target in JSON: path notation, so that any bytes round-trip.
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

/// Event of a hard link: from now on a path is another name of the file at `to`. The link holds until either is
/// written or removed. A command's write to such a file is recorded for each of its names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkFile {
    /// Path of the name.
    pub path: EntryPath,
    /// Path of the file, which has the same contents and mode.
    pub to: EntryPath,
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

/// Codes of [`Node`] in journals and snapshots: a kind and, for files and directories, a flag for an unusual mode.
pub(crate) mod node_code {
    use super::FileMode;

    /// Another mode than the kind's usual one; its bits follow.
    pub(crate) const BITS: u8 = 0x10;

    pub(crate) const FILE: u8 = 0;
    pub(crate) const EXECUTABLE: u8 = 1;
    pub(crate) const SYMLINK: u8 = 2;
    pub(crate) const DIRECTORY: u8 = 3;
    pub(crate) const INCOMPLETE: u8 = 4;
    pub(crate) const INCOMPLETE_EXECUTABLE: u8 = 5;
    pub(crate) const FIFO: u8 = 6;
    pub(crate) const SOCKET: u8 = 7;
    pub(crate) const DEVICE: u8 = 8;

    pub(crate) fn kind(code: u8) -> u8 {
        code & !BITS
    }

    pub(crate) fn has_bits(code: u8) -> bool {
        code & BITS != 0
    }

    pub(crate) fn is_file(code: u8) -> bool {
        matches!(kind(code), FILE | EXECUTABLE | INCOMPLETE | INCOMPLETE_EXECUTABLE)
    }

    pub(super) fn usual_mode(kind: u8) -> FileMode {
        FileMode::usual(matches!(kind, EXECUTABLE | INCOMPLETE_EXECUTABLE | DIRECTORY))
    }

    pub(super) fn mode(code: u8, bits: u16) -> FileMode {
        if has_bits(code) { FileMode::of(bits.into()) } else { usual_mode(kind(code)) }
    }
}

impl Event for WriteFile {
    const KIND: &'static str = "WriteFile";

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), CodecError> {
        let (text, content, size, target) = match &self.node {
            Node::File { content, size, text, .. } => (*text, *content.as_bytes(), *size, Vec::new()),
            Node::Symlink { target } => (false, [0; 32], 0, target.clone()),
            Node::Directory { .. } | Node::Special { .. } => (false, [0; 32], 0, Vec::new()),
        };
        let (code, mut target) = (self.node.code(), target);
        if let Some(mode) = self.node.mode().filter(|_| node_code::has_bits(code)) {
            target.extend_from_slice(&mode.to_le_bytes());
        }
        let (path, mode, node) = (self.path.as_bytes().to_vec(), self.mode as u8, code);
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
        let bits = match node_code::has_bits(self.node) {
            true => u16::from_le_bytes(*self.target.first_chunk()?),
            false => 0,
        };
        Some(match self.node {
            code if node_code::is_file(code) => {
                Node::file_of_code(code, Digest::from_bytes(self.content), self.size.to_native(), self.text, bits)
            }
            node_code::SYMLINK => Node::Symlink { target: self.target.to_vec() },
            code => return Node::bare_of_code(code, bits),
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
