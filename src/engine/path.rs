//! Paths of workspace entries.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Segments that a path which an agent creates may have.
pub const MAX_SEGMENTS: usize = 16;
/// Characters that one segment of such a path may have.
pub const MAX_SEGMENT_CHARS: usize = 80;

/// A normalised path relative to the root of a workspace.
///
/// Invariant: segments are joined by single slashes, none is empty, `.` or `..`, and none holds a
/// NUL. The root is the empty path. The bytes need not be UTF-8: a command may leave any name.
///
/// As text a byte that is not UTF-8, or is a control character, is written `\xNN` and a backslash
/// `\\`, so that two paths never look alike and the text can be given back.
///
/// ```
/// use foldspace::EntryPath;
/// let path = EntryPath::for_creation("/src//lib.rs")?;
/// assert_eq!(path.to_string(), "src/lib.rs");
/// assert!(EntryPath::for_creation("../etc/passwd").is_err());
/// # Ok::<(), foldspace::PathError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryPath(Arc<[u8]>);

/// Why a text is no path of a workspace entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// The path has a `.` or `..` segment.
    #[error("path {path:?}: `.` and `..` are not allowed; give the path from the workspace root")]
    Dots {
        /// The path as given.
        path: String,
    },
    /// The path holds a NUL byte.
    #[error("path {path:?} holds a NUL byte")]
    Nul {
        /// The path as given.
        path: String,
    },
    /// A path to create holds a character outside printable ASCII.
    #[error("path {path:?} holds {character:?}: a new path must be printable ASCII")]
    NotAscii {
        /// The path as given.
        path: String,
        /// The first character that is not allowed.
        character: char,
    },
    /// A path to create has too many segments.
    #[error("path {path:?} has {segments} segments; at most {MAX_SEGMENTS} are allowed")]
    TooDeep {
        /// The path as given.
        path: String,
        /// How many it has.
        segments: usize,
    },
    /// A segment of a path to create is too long.
    #[error("path segment {segment:?} has {chars} characters; at most {MAX_SEGMENT_CHARS} are allowed")]
    SegmentTooLong {
        /// The segment.
        segment: String,
        /// Its length.
        chars: usize,
    },
    /// An entry was needed and the root was given.
    #[error("the path names the workspace root; name an entry below it")]
    Root,
}

impl EntryPath {
    /// The root of the workspace.
    pub fn root() -> Self {
        Self(Arc::from(&b""[..]))
    }

    /// Parses a path that an agent may create, with every limit that binds agents.
    ///
    /// # Errors
    /// [`PathError`] when the path leaves the workspace, is the root, or is over a limit.
    pub fn for_creation(text: &str) -> Result<Self, PathError> {
        let path = Self::lookup(text)?;
        let given = || shorten(text);
        if path.is_root() {
            return Err(PathError::Root);
        }
        if let Some(character) = text.chars().find(|c| !(' '..='~').contains(c)) {
            return Err(PathError::NotAscii { path: given(), character });
        }
        if let Some(byte) = path.0.iter().find(|b| !(b' '..=b'~').contains(*b)) {
            return Err(PathError::NotAscii { path: given(), character: char::from(*byte) });
        }
        let segments = path.segments().count();
        if segments > MAX_SEGMENTS {
            return Err(PathError::TooDeep { path: given(), segments });
        }
        if let Some(segment) = path.segments().find(|s| s.len() > MAX_SEGMENT_CHARS) {
            return Err(PathError::SegmentTooLong {
                segment: shorten(&String::from_utf8_lossy(segment)),
                chars: segment.len(),
            });
        }
        Ok(path)
    }

    /// Parses a path that is only looked up: any name that a command could have left is accepted. A leading `./`, or
    /// `.` alone, stands for the root, as a leading slash does.
    ///
    /// # Errors
    /// [`PathError::Dots`] and [`PathError::Nul`].
    pub fn lookup(text: &str) -> Result<Self, PathError> {
        Self::from_bytes(&unescape(from_root(text))).map_err(|error| match error {
            PathError::Dots { .. } => PathError::Dots { path: shorten(text) },
            PathError::Nul { .. } => PathError::Nul { path: shorten(text) },
            other => other,
        })
    }

    /// Normalises raw bytes, as a directory walk or an archive gives them.
    ///
    /// # Errors
    /// [`PathError::Dots`] and [`PathError::Nul`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, PathError> {
        if Self::is_normal(bytes) {
            return Ok(Self(Arc::from(bytes)));
        }
        let given = || shorten(&String::from_utf8_lossy(bytes));
        if bytes.contains(&0) {
            return Err(PathError::Nul { path: given() });
        }
        let mut normal = Vec::with_capacity(bytes.len());
        for segment in bytes.split(|b| *b == b'/').filter(|s| !s.is_empty()) {
            if segment == b"." || segment == b".." {
                return Err(PathError::Dots { path: given() });
            }
            if !normal.is_empty() {
                normal.push(b'/');
            }
            normal.extend_from_slice(segment);
        }
        Ok(Self(Arc::from(normal)))
    }

    /// Whether these are the bytes of a path as it is kept.
    pub(crate) fn is_normal(bytes: &[u8]) -> bool {
        let mut segment = 0;
        for (at, byte) in bytes.iter().enumerate() {
            match byte {
                0 => return false,
                b'/' if matches!(&bytes[segment..at], b"" | b"." | b"..") => return false,
                b'/' => segment = at + 1,
                _ => {}
            }
        }
        bytes.is_empty() || !matches!(&bytes[segment..], b"" | b"." | b"..")
    }

    /// The path's bytes, without a leading slash.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether this is the root.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The segments from the root down.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.0.split(|b| *b == b'/').filter(|s| !s.is_empty())
    }

    /// The last segment; empty for the root.
    pub fn name(&self) -> &[u8] {
        self.0.rsplit(|b| *b == b'/').next().unwrap_or_default()
    }

    /// The directory that holds the entry; none for the root.
    pub fn parent(&self) -> Option<Self> {
        parent_bytes(&self.0).map(|bytes| Self(Arc::from(bytes)))
    }

    /// The path of `name` in this directory.
    ///
    /// # Errors
    /// As [`EntryPath::from_bytes`].
    pub fn join(&self, name: &[u8]) -> Result<Self, PathError> {
        Self::from_bytes(&[&self.0[..], name].join(&b'/'))
    }

    /// Whether the entry is below `directory`, at any depth.
    pub fn is_below(&self, directory: &Self) -> bool {
        directory.is_root() && !self.is_root()
            || self.0.len() > directory.0.len() && self.0[directory.0.len()] == b'/' && self.0.starts_with(&directory.0)
    }

    /// The part of the path below `directory`; none when it is not below it.
    pub fn relative_to(&self, directory: &Self) -> Option<&[u8]> {
        let skip = if directory.is_root() { 0 } else { directory.0.len() + 1 };
        self.is_below(directory).then(|| &self.0[skip..])
    }

    /// The path for people: as [`Display`](fmt::Display), with a leading slash, so that the root shows.
    pub fn rooted(&self) -> String {
        format!("/{self}")
    }
}

/// Hashes, compares and orders like its bytes.
impl std::borrow::Borrow<[u8]> for EntryPath {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

/// The text without a `./` that stands for the root.
fn from_root(text: &str) -> &str {
    if text == "." { "" } else { text.strip_prefix("./").unwrap_or(text) }
}

/// The directory part of normalised path bytes; none for the root.
pub(crate) fn parent_bytes(bytes: &[u8]) -> Option<&[u8]> {
    if bytes.is_empty() {
        return None;
    }
    Some(bytes.iter().rposition(|b| *b == b'/').map_or(&[][..], |cut| &bytes[..cut]))
}

/// Keeps an error short when the path is a megabyte long.
fn shorten(text: &str) -> String {
    const SHOWN: usize = 200;
    match text.char_indices().nth(SHOWN) {
        Some((cut, _)) => format!("{}...", &text[..cut]),
        None => text.to_owned(),
    }
}

/// Reads `\\` and `\xNN` back; any other backslash stands for itself.
pub(crate) fn unescape(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let (byte, used) = match rest {
            [b'\\', b'\\', ..] => (b'\\', 2),
            [b'\\', b'x', high, low, ..] => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, 4),
                _ => (b'\\', 1),
            },
            _ => (rest[0], 1),
        };
        plain.push(byte);
        at += used;
    }
    plain
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|d| u8::try_from(d).ok())
}

impl fmt::Display for EntryPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for character in chunk.valid().chars() {
                match character {
                    '\\' => f.write_str("\\\\")?,
                    c if c.is_control() => {
                        let mut buffer = [0; 4];
                        for byte in c.encode_utf8(&mut buffer).bytes() {
                            write!(f, "\\x{byte:02x}")?;
                        }
                    }
                    c => write!(f, "{c}")?,
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for EntryPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EntryPath({self})")
    }
}

impl Serialize for EntryPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for EntryPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::lookup(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn creation(text: &str) -> Result<String, PathError> {
        EntryPath::for_creation(text).map(|p| p.to_string())
    }

    #[test]
    fn path_slashes_are_normalised() {
        for text in ["a/b", "/a/b", "//a///b//"] {
            assert_eq!(creation(text), Ok("a/b".to_owned()));
        }
    }

    #[test]
    fn path_with_leading_dot_is_the_root() {
        for text in [".", "./", "./a/b", ".//a/b"] {
            let meant = text.trim_start_matches("./").trim_start_matches('.');
            assert_eq!(EntryPath::lookup(text), EntryPath::lookup(meant), "{text}");
        }
        assert_eq!(creation("./a"), Ok("a".to_owned()));
        for text in ["./.", "./../a", "a/.", "/./a", "..", "././a"] {
            assert!(EntryPath::lookup(text).is_err(), "{text}");
        }
    }

    #[test]
    fn path_limits_hold() {
        let deep = |n: usize| vec!["d"; n].join("/");
        assert!(creation(&deep(16)).is_ok());
        assert!(matches!(creation(&deep(17)), Err(PathError::TooDeep { segments: 17, .. })));
        assert!(creation(&"x".repeat(80)).is_ok());
        assert!(matches!(creation(&"x".repeat(81)), Err(PathError::SegmentTooLong { chars: 81, .. })));
    }

    #[test]
    fn path_hostile_is_refused() {
        for text in ["..", "a/../b", "a/./b", "a/.", "/../etc"] {
            assert!(matches!(creation(text), Err(PathError::Dots { .. })), "{text}");
        }
        assert!(matches!(creation("a\0b"), Err(PathError::Nul { .. })));
        assert!(matches!(creation("a\nb"), Err(PathError::NotAscii { character: '\n', .. })));
        assert!(matches!(creation("\\xffb"), Err(PathError::NotAscii { .. })));
        assert!(matches!(creation("caf\u{e9}"), Err(PathError::NotAscii { .. })));
        assert!(matches!(creation("\\x2e\\x2e/a"), Err(PathError::Dots { .. })));
        assert_eq!(creation("//"), Err(PathError::Root));
    }

    #[test]
    fn path_of_any_bytes_round_trips() {
        for bytes in [&b"a\xff/b"[..], b"back\\slash", b"line\nbreak", "gr\u{fc}n".as_bytes(), b"\\x41"] {
            let path = EntryPath::from_bytes(bytes).unwrap();
            assert_eq!(EntryPath::lookup(&path.to_string()).unwrap(), path);
        }
    }

    #[test]
    fn path_is_below_is_strict() {
        let path = |t: &str| EntryPath::lookup(t).unwrap();
        assert!(path("a/b").is_below(&path("a")));
        assert!(!path("ab").is_below(&path("a")));
        assert!(!path("a").is_below(&path("a")));
        assert!(path("a").is_below(&EntryPath::root()));
        assert!(!EntryPath::root().is_below(&EntryPath::root()));
        assert_eq!(path("a/b/c").relative_to(&path("a")), Some(&b"b/c"[..]));
    }
}
