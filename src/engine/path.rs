use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::engine::error::ValueError;

/// Maximum segments of a path that an agent creates.
pub(crate) const MAX_SEGMENTS: usize = 16;
/// Maximum characters of a segment of such a path.
pub(crate) const MAX_SEGMENT_CHARS: usize = 80;

/// Maximum bytes of a segment of such a path, the limit of file systems.
pub const MAX_SEGMENT_BYTES: usize = 255;

/// Returns true if a character can mislead a reader: it controls a terminal, changes the text direction or is
/// invisible.
pub fn misleads(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// Normalised path relative to the root of a workspace.
///
/// Invariant: segments are joined by single slashes, none is empty, `.` or `..`, and none has a NUL. The root is the
/// empty path. The bytes need not be UTF-8: a command may leave any name.
///
/// The text form writes bytes that are not UTF-8, and control characters, as `\xNN`, and a backslash as `\\`. So two
/// paths never look alike, and the text can be parsed back.
///
/// ```
/// # use foldspace_engine as foldspace;
/// use foldspace::EntryPath;
/// let path = EntryPath::for_creation("/src//lib.rs")?;
/// assert_eq!(path.to_string(), "src/lib.rs");
/// assert!(EntryPath::for_creation("../etc/passwd").is_err());
/// # Ok::<(), foldspace::event::ValueError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryPath(Arc<[u8]>);

fn wrong(path: &str, what: &str) -> ValueError {
    ValueError::new(format!("path {:?}{what}", shorten(path)))
}

#[doc(hidden)]
pub fn root_named() -> ValueError {
    ValueError::new("the path names the workspace root; name an entry below it")
}

impl EntryPath {
    /// Returns the root of the workspace.
    pub fn root() -> Self {
        Self(Arc::from(&b""[..]))
    }

    /// Parses a path that an agent may create, with every limit for agents. Fails with [`ValueError`].
    pub fn for_creation(text: &str) -> Result<Self, ValueError> {
        let path = Self::lookup(text)?;
        if path.is_root() {
            return Err(root_named());
        }
        let Ok(name) = std::str::from_utf8(&path.0) else {
            return Err(wrong(text, " is not UTF-8, which a new path must be"));
        };
        if let Some(character) = name.chars().find(|c| misleads(*c)) {
            return Err(wrong(text, &format!(" holds {character:?}, which can't be seen: not allowed in a new path")));
        }
        let segments = path.segments().count();
        if segments > MAX_SEGMENTS {
            return Err(wrong(text, &format!(" has {segments} segments; at most {MAX_SEGMENTS} are allowed")));
        }
        for segment in name.split('/') {
            let (chars, bytes) = (segment.chars().count(), segment.len());
            if chars > MAX_SEGMENT_CHARS || bytes > MAX_SEGMENT_BYTES {
                let what = format!(
                    "path segment {:?} has {chars} characters and {bytes} bytes; at most {MAX_SEGMENT_CHARS} and \
                     {MAX_SEGMENT_BYTES} are allowed",
                    shorten(segment)
                );
                return Err(ValueError::new(what));
            }
        }
        Ok(path)
    }

    /// Parses a path for a lookup: accepts any name that a command could have created. A leading slash or `./`, or `.`
    /// alone, means the root. Fails with [`ValueError`] on a `.` or `..` segment, or a NUL byte.
    pub fn lookup(text: &str) -> Result<Self, ValueError> {
        Self::normalised(&unescape(from_root(text)), || Cow::Borrowed(text))
    }

    /// Normalises raw bytes, from a directory walk or an archive. Fails with [`ValueError`] on a `.` or `..` segment,
    /// or a NUL byte.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ValueError> {
        Self::normalised(bytes, || String::from_utf8_lossy(bytes))
    }

    fn normalised<'a>(bytes: &[u8], given: impl Fn() -> Cow<'a, str>) -> Result<Self, ValueError> {
        if Self::is_normal(bytes) {
            return Ok(Self(Arc::from(bytes)));
        }
        if bytes.contains(&0) {
            return Err(wrong(&given(), " holds a NUL byte"));
        }
        let mut normal = Vec::with_capacity(bytes.len());
        for segment in bytes.split(|b| *b == b'/').filter(|s| !s.is_empty()) {
            if segment == b"." || segment == b".." {
                let what = ": `.` and `..` are not allowed; give the path from the workspace root";
                return Err(wrong(&given(), what));
            }
            if !normal.is_empty() {
                normal.push(b'/');
            }
            normal.extend_from_slice(segment);
        }
        Ok(Self(Arc::from(normal)))
    }

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

    /// Returns the path's bytes, without a leading slash.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns true for the root.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over the segments from the root down.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.0.split(|b| *b == b'/').filter(|s| !s.is_empty())
    }

    /// Returns the last segment; empty for the root.
    pub fn name(&self) -> &[u8] {
        self.0.rsplit(|b| *b == b'/').next().unwrap_or_default()
    }

    /// Returns the directory that holds the entry; `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        parent_bytes(&self.0).map(|bytes| Self(Arc::from(bytes)))
    }

    /// Returns the path of `name` in this directory.
    pub fn join(&self, name: &[u8]) -> Result<Self, ValueError> {
        Self::from_bytes(&[&self.0[..], name].join(&b'/'))
    }

    /// Returns true if the entry is below `directory`, at any depth.
    pub fn is_below(&self, directory: &Self) -> bool {
        directory.is_root() && !self.is_root()
            || self.0.len() > directory.0.len() && self.0[directory.0.len()] == b'/' && self.0.starts_with(&directory.0)
    }

    /// Returns the part of the path below `directory`; `None` if it is not below it.
    pub fn relative_to(&self, directory: &Self) -> Option<&[u8]> {
        let skip = if directory.is_root() { 0 } else { directory.0.len() + 1 };
        self.is_below(directory).then(|| &self.0[skip..])
    }

    /// Returns the text form of the path with a leading slash, so that the root is visible.
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

fn from_root(text: &str) -> &str {
    if text == "." { "" } else { text.strip_prefix("./").unwrap_or(text) }
}

#[doc(hidden)]
pub fn parent_bytes(bytes: &[u8]) -> Option<&[u8]> {
    if bytes.is_empty() {
        return None;
    }
    Some(bytes.iter().rposition(|b| *b == b'/').map_or(&[][..], |cut| &bytes[..cut]))
}

/// Iterates over the directories above an entry, the nearest first, without the root.
pub fn directories_above(path: &EntryPath) -> impl Iterator<Item = EntryPath> + use<> {
    std::iter::successors(path.parent(), EntryPath::parent).take_while(|above| !above.is_root())
}

/// Keeps an error short if the path is a megabyte long.
fn shorten(text: &str) -> String {
    const SHOWN: usize = 200;
    match text.char_indices().nth(SHOWN) {
        Some((cut, _)) => format!("{}...", &text[..cut]),
        None => text.to_owned(),
    }
}

/// Decodes `\\` and `\xNN`; any other backslash is itself.
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

    fn is(made: Result<String, ValueError>, what: &str) {
        assert!(made.as_ref().is_err_and(|error| error.to_string().contains(what)), "{made:?}, not {what}");
    }

    fn creation(text: &str) -> Result<String, ValueError> {
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
        is(creation(&deep(17)), "has 17 segments; at most 16");
        assert!(creation(&"x".repeat(80)).is_ok());
        is(creation(&"x".repeat(81)), "has 81 characters and 81 bytes; at most 80");
        assert!(creation(&"\u{7530}".repeat(80)).is_ok());
        is(creation(&"\u{1f600}".repeat(64)), "has 64 characters and 256 bytes; at most 80 and 255");
    }

    #[test]
    fn path_hostile_is_refused() {
        for text in ["..", "a/../b", "a/./b", "a/.", "/../etc"] {
            is(creation(text), "are not allowed");
        }
        is(creation("a\0b"), "holds a NUL byte");
        is(creation("a\nb"), "can't be seen");
        is(creation("a\\x0ab"), "can't be seen");
        is(creation("a\u{202e}b"), "can't be seen");
        is(creation("\\xffb"), "is not UTF-8");
        assert_eq!(creation("caf\u{e9}"), Ok("caf\u{e9}".to_owned()));
        is(creation("\\x2e\\x2e/a"), "are not allowed");
        is(creation("//"), "names the workspace root");
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
