//! The layers that make up an overlay's files.

use std::fs::File;
use std::io::{self, Read};

use rustix::fs::{CWD, OFlags};

use crate::backends::DirtyPath;
use crate::backends::disk::beneath::{context, open_in};
use crate::engine::path::EntryPath;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// The maximum number of paths in a manifest; with more of them everything counts as dirty.
const DIRTY_MAX: usize = 4096;

/// The name of a layer in the pool: the overlay that created it, a dot and a number.
pub(super) type LayerId = String;

/// The layers of an overlay, and the known state of its files.
///
/// Encoded, it is the boot id, since layers may be incomplete after a reboot, then their names, the lowest first, one
/// per line. A fork's manifest continues with a zero byte and the dirty paths, each followed by a zero byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Manifest {
    pub(super) layers: Vec<LayerId>,
    /// The paths that may differ from the history; `None` if unknown.
    pub(super) dirty: Option<Vec<DirtyPath>>,
}

pub(super) fn layer_id(overlay: &str, number: u32) -> LayerId {
    format!("{overlay}.{number}")
}

pub(super) fn own_number(id: &LayerId, overlay: &str) -> Option<u32> {
    id.strip_prefix(overlay)?.strip_prefix('.')?.parse().ok()
}

/// Returns true if a text is a valid layer name, which leads nowhere else.
pub(super) fn is_layer_id(text: &str) -> bool {
    let is_name = |text: &str| !text.is_empty() && !text.starts_with('.') && !text.contains(['/', '\0', '\n']);
    text.rsplit_once('.').is_some_and(|(overlay, number)| is_name(overlay) && number.parse::<u32>().is_ok())
}

impl Manifest {
    pub(super) fn encode(&self, boot: &[u8]) -> Vec<u8> {
        let mut text = boot.to_vec();
        for layer in &self.layers {
            text.extend_from_slice(format!("{layer}\n").as_bytes());
        }
        let Some(dirty) = &self.dirty else { return text };
        text.push(0);
        let all = [DirtyPath::Subtree(EntryPath::root())];
        let dirty = if dirty.len() > DIRTY_MAX { &all[..] } else { dirty };
        for place in dirty {
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

    /// Decodes a manifest; `None` for another boot than `boot`, or another program's manifest.
    pub(super) fn decode(bytes: &[u8], boot: &[u8]) -> Option<Self> {
        Self::read(bytes.strip_prefix(boot)?)
    }

    /// Returns the layers in a manifest of any boot; `None` if it can't be read.
    pub(super) fn layers_in(bytes: &[u8]) -> Option<Vec<LayerId>> {
        let after = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |end| end + 1);
        Some(Self::read(&bytes[after..])?.layers)
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut pieces = bytes.split(|byte| *byte == 0);
        let lines = std::str::from_utf8(pieces.next()?).ok()?;
        let layers =
            lines.lines().map(|line| is_layer_id(line).then(|| line.to_owned())).collect::<Option<Vec<_>>>()?;
        let mut dirty = None;
        for piece in pieces {
            let dirty = dirty.get_or_insert_with(Vec::new);
            let Some((kind, path)) = piece.split_first() else { continue };
            let path = EntryPath::from_bytes(path).ok()?;
            dirty.push(if *kind == b's' { DirtyPath::Subtree(path) } else { DirtyPath::Entry(path) });
        }
        Some(Self { layers, dirty })
    }
}

/// Returns an identifier of this boot of the machine.
pub(in crate::backends::disk) fn boot_id() -> io::Result<Vec<u8>> {
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
    fn manifest_encoded_decodes_to_the_same() {
        let boot = b"this start\n";
        let layers = vec!["abc.4".to_owned(), "own.12".to_owned()];
        let odd = EntryPath::from_bytes(b"new\nline/\xff").unwrap();
        let all = [
            None,
            Some(Vec::new()),
            Some(vec![DirtyPath::Entry(odd), DirtyPath::Subtree(path("a/b")), DirtyPath::Subtree(EntryPath::root())]),
        ];
        for dirty in all {
            let manifest = Manifest { layers: layers.clone(), dirty };
            let bytes = manifest.encode(boot);
            assert_eq!(Manifest::decode(&bytes, boot), Some(manifest));
            assert_eq!(Manifest::layers_in(&bytes), Some(layers.clone()));
            assert_eq!(Manifest::decode(&bytes, b"another start\n"), None);
        }
    }

    #[test]
    fn manifest_damaged_is_none() {
        for text in ["x", "1", "a.1\n2 3", "../1", "a/1", "a/", "a.-1", "a.1\0e../x\0", ".1", "..1", "a/b.1", "a.b"] {
            assert_eq!(Manifest::decode(text.as_bytes(), b""), None, "{text:?}");
            assert_eq!(Manifest::layers_in(format!("start\n{text}").as_bytes()), None, "{text:?}");
        }
        assert_eq!(Manifest::layers_in(b""), Some(Vec::new()));
    }

    #[test]
    fn manifest_with_many_dirty_paths_names_all() {
        let many = (0..=DIRTY_MAX).map(|number| DirtyPath::Entry(path(&number.to_string()))).collect();
        let manifest = Manifest { layers: Vec::new(), dirty: Some(many) };
        let decoded = Manifest::decode(&manifest.encode(b""), b"").unwrap();
        assert_eq!(decoded.dirty, Some(vec![DirtyPath::Subtree(EntryPath::root())]));
    }
}
