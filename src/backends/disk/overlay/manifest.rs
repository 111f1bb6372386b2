//! Which layers make up an overlay's files, as its list says it.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, OFlags};
use rustix::io::Errno;

use super::refs::{LayerUser, failed};
use crate::backends::DirtyPath;
use crate::backends::disk::beneath::{context, open_in};
use crate::engine::path::EntryPath;

/// Says which layers make up the files, and since which start of the machine they are whole, as [`List`] has it. What
/// else lies beside them is nobody's, but for what others use.
pub(super) const LIST: &str = "list";
/// The list that is to replace it, or that it has replaced.
pub(super) const NEXT_LIST: &str = "list.next";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Places named in a list; where they are more, all counts as touched.
const TOUCHED_MAX: usize = 4096;

/// A layer, by whose it is and its number there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LayerName {
    /// The overlay that has made it; none for the one that the name is in.
    pub(super) owner: Option<String>,
    pub(super) number: u32,
}

/// What a list says: the start of the machine since which the layers are whole, then their names, the lowest first, a
/// line each. What another overlay has shared is followed by a zero byte and by what may be otherwise than the history
/// says, each with a zero byte behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct List {
    pub(super) layers: Vec<LayerName>,
    /// What may be otherwise than the history says; none where nobody knows.
    pub(super) touched: Option<Vec<DirtyPath>>,
}

impl LayerName {
    pub(super) fn own(number: u32) -> Self {
        Self { owner: None, number }
    }

    /// How another overlay names it, when this one has the name `own`.
    pub(super) fn seen_from_outside(&self, own: &str) -> Self {
        Self { owner: Some(self.owner.clone().unwrap_or_else(|| own.to_owned())), number: self.number }
    }

    fn parse(line: &str) -> Option<Self> {
        let (owner, number) = match line.rsplit_once('/') {
            Some((owner, number)) => (Some(owner), number),
            None => (None, line),
        };
        if owner.is_some_and(|owner| !is_name(owner)) {
            return None;
        }
        Some(Self { owner: owner.map(str::to_owned), number: number.parse().ok()? })
    }
}

impl std::fmt::Display for LayerName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.owner {
            Some(owner) => write!(f, "{owner}/{}", self.number),
            None => write!(f, "{}", self.number),
        }
    }
}

/// Whether a text can be the name of a directory that holds an overlay, and leads nowhere else.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.starts_with('.') && !text.contains(['/', '\0', '\n'])
}

impl List {
    pub(super) fn encode(&self, boot: &[u8]) -> Vec<u8> {
        let mut text = boot.to_vec();
        for layer in &self.layers {
            text.extend_from_slice(format!("{layer}\n").as_bytes());
        }
        let Some(touched) = &self.touched else { return text };
        text.push(0);
        let all = [DirtyPath::Subtree(EntryPath::root())];
        let touched = if touched.len() > TOUCHED_MAX { &all[..] } else { touched };
        for place in touched {
            let (kind, path) = match place {
                DirtyPath::Entry(path) => (b'e', path),
                DirtyPath::Subtree(path) => (b's', path),
            };
            text.push(kind);
            text.extend_from_slice(path.as_bytes());
            text.push(0);
        }
        text
    }

    /// The list in the directory of an overlay; none where there is none that counts.
    pub(super) fn in_directory(top: &OwnedFd, root: &Path) -> io::Result<Option<Self>> {
        let mut list = Vec::new();
        match open_in(top, LIST, OFlags::RDONLY) {
            Err(Errno::NOENT) => return Ok(None),
            other => File::from(other.map_err(failed("open", &root.join(LIST)))?).read_to_end(&mut list)?,
        };
        Ok(Self::decode(&list, &boot_id()?))
    }

    /// The list of an overlay that another one has shared its files with, while it has nothing else; none where the
    /// layers are not all there, too.
    pub(super) fn shared_with(kin: &LayerUser) -> io::Result<Option<Self>> {
        let root = kin.root();
        let top = match open_in(CWD, root.as_path(), OFlags::RDONLY | OFlags::DIRECTORY) {
            Err(Errno::NOENT) => return Ok(None),
            other => other.map_err(failed("open", &root))?,
        };
        let list = Self::in_directory(&top, &root)?.filter(|list| list.touched.is_some());
        let is_there = |layer: &LayerName| kin.place_of(layer).exists();
        Ok(list.filter(|list| list.layers.iter().all(is_there)))
    }

    /// None for a list that was not written since the machine was started, or by no foldspace.
    pub(super) fn decode(bytes: &[u8], boot: &[u8]) -> Option<Self> {
        Self::read(bytes.strip_prefix(boot)?)
    }

    /// The names in a list, whenever it was written.
    pub(super) fn names(bytes: &[u8]) -> Vec<LayerName> {
        let after = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |end| end + 1);
        Self::read(&bytes[after..]).map(|list| list.layers).unwrap_or_default()
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut pieces = bytes.split(|byte| *byte == 0);
        let lines = std::str::from_utf8(pieces.next()?).ok()?;
        let layers = lines.lines().map(LayerName::parse).collect::<Option<Vec<_>>>()?;
        let mut touched = None;
        for piece in pieces {
            let touched = touched.get_or_insert_with(Vec::new);
            let Some((kind, path)) = piece.split_first() else { continue };
            let path = EntryPath::from_bytes(path).ok()?;
            touched.push(if *kind == b's' { DirtyPath::Subtree(path) } else { DirtyPath::Entry(path) });
        }
        Some(Self { layers, touched })
    }
}

/// Which start of the machine this is, a line.
pub(super) fn boot_id() -> io::Result<Vec<u8>> {
    let mut id = Vec::new();
    let file = open_in(CWD, BOOT_ID, OFlags::RDONLY).map_err(context("open", BOOT_ID))?;
    File::from(file).read_to_end(&mut id)?;
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> EntryPath {
        EntryPath::lookup(text).unwrap()
    }

    #[test]
    fn manifest_round_trips() {
        let boot = b"this start\n";
        let layers = vec![LayerName { owner: Some("abc".to_owned()), number: 4 }, LayerName::own(12)];
        let odd = EntryPath::from_bytes(b"new\nline/\xff").unwrap();
        let all = [
            None,
            Some(Vec::new()),
            Some(vec![DirtyPath::Entry(odd), DirtyPath::Subtree(path("a/b")), DirtyPath::Subtree(EntryPath::root())]),
        ];
        for touched in all {
            let list = List { layers: layers.clone(), touched };
            let bytes = list.encode(boot);
            assert_eq!(List::decode(&bytes, boot), Some(list));
            assert_eq!(List::names(&bytes), layers);
            assert_eq!(List::decode(&bytes, b"another start\n"), None);
        }
    }

    #[test]
    fn manifest_malformed_is_none() {
        for text in ["x", "1\n2 3", "../1", "/1", "a/", "a/b/1", "-1", "1\0e../x\0"] {
            assert_eq!(List::decode(text.as_bytes(), b""), None, "{text:?}");
            assert_eq!(List::names(format!("start\n{text}").as_bytes()), Vec::new(), "{text:?}");
        }
        assert_eq!(List::names(b""), Vec::new());
    }

    #[test]
    fn manifest_with_many_paths_touches_all() {
        let many = (0..=TOUCHED_MAX).map(|number| DirtyPath::Entry(path(&number.to_string()))).collect();
        let list = List { layers: Vec::new(), touched: Some(many) };
        let decoded = List::decode(&list.encode(b""), b"").unwrap();
        assert_eq!(decoded.touched, Some(vec![DirtyPath::Subtree(EntryPath::root())]));
    }
}
