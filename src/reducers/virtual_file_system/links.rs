//! Hard links: the names of each file that has several.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::{Buf, Bytes};

use super::blocks::WRONG;
use crate::engine::EntryPath;
use crate::engine::collections::OrdMap;
use crate::engine::path::directories_above;

/// Prefix of a block of names in a snapshot. No block of entries starts with it: no path is that long.
const MARK: [u8; 4] = [0xff; 4];
/// Names in a block.
const BLOCK: usize = 64;

/// Names of files that have several.
///
/// Invariant: every number has two names or more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct HardLinks {
    /// Number of the file, by name.
    of: OrdMap<EntryPath, u64>,
    /// Names by number.
    names: OrdMap<(u64, EntryPath), ()>,
}

impl HardLinks {
    /// Makes `path` another name of the file at `to`.
    pub(super) fn join(&mut self, path: &EntryPath, to: &EntryPath) {
        let known = self.of.get(to).copied();
        if path == to || known.is_some() && self.of.get(path).copied() == known {
            return;
        }
        self.leave(path);
        // The path may have been the second name of that file.
        let number = self.of.get(to).copied().unwrap_or_else(|| {
            let number = self.names.get_max().map_or(1, |((last, _), ())| last.saturating_add(1));
            self.add(number, to.clone());
            number
        });
        self.add(number, path.clone());
    }

    /// Updates the names after a write: the path is a separate file or a directory now, and no file is above it.
    pub(super) fn written(&mut self, path: &[u8], is_directory: bool) {
        let path = if is_directory { self.normal(path) } else { self.removed(path) };
        if let Some(path) = path {
            std::iter::once(path.clone()).chain(directories_above(&path)).for_each(|path| self.leave(&path));
        }
    }

    /// Returns a path in its normal form, if there are names.
    fn normal(&self, path: &[u8]) -> Option<EntryPath> {
        if self.is_empty() { None } else { EntryPath::from_bytes(path).ok().filter(|path| !path.is_root()) }
    }

    /// Updates the names after the removal of a path and all below it. Returns its normal form, if there are names.
    pub(super) fn removed(&mut self, path: &[u8]) -> Option<EntryPath> {
        let path = self.normal(path)?;
        let from = self.of.range::<_, EntryPath>((Bound::Excluded(&path), Bound::Unbounded)).map(|(name, _)| name);
        let below = from.take_while(|name| name.as_bytes().starts_with(path.as_bytes()));
        let below: Vec<EntryPath> = below.filter(|name| name.is_below(&path)).cloned().collect();
        below.iter().chain([&path]).for_each(|path| self.leave(path));
        Some(path)
    }

    /// Returns the names of the file at a path, in order. Empty for a file with one name.
    pub(super) fn names(&self, path: &EntryPath) -> Vec<EntryPath> {
        self.of.get(path).map_or_else(Vec::new, |number| self.numbered(*number).cloned().collect())
    }

    /// Returns the first name of the file at a path, if it has several.
    pub(super) fn first(&self, path: &EntryPath) -> Option<&EntryPath> {
        self.numbered(*self.of.get(path)?).next()
    }

    /// Returns the names of each file, in the order of the first ones.
    pub(super) fn all(&self) -> Vec<Vec<EntryPath>> {
        let mut all = BTreeMap::<u64, Vec<EntryPath>>::new();
        self.names.keys().for_each(|(number, path)| all.entry(*number).or_default().push(path.clone()));
        let mut all: Vec<_> = all.into_values().collect();
        all.sort_unstable();
        all
    }

    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    fn numbered(&self, number: u64) -> impl Iterator<Item = &EntryPath> {
        let names = self.names.range((number, EntryPath::root())..).map(|(name, ())| name);
        names.take_while(move |(of, _)| *of == number).map(|(_, path)| path)
    }

    fn add(&mut self, number: u64, path: EntryPath) {
        self.of.insert(path.clone(), number);
        self.names.insert((number, path), ());
    }

    fn leave(&mut self, path: &EntryPath) {
        let Some(number) = self.of.remove(path) else { return };
        self.names.remove(&(number, path.clone()));
        let left: Vec<EntryPath> = self.numbered(number).take(2).cloned().collect();
        if let [last] = &left[..] {
            self.of.remove(last);
            self.names.remove(&(number, last.clone()));
        }
    }

    /// Returns true for a block of names.
    pub(super) fn is_block(block: &[u8]) -> bool {
        block.starts_with(&MARK)
    }

    pub(super) fn to_blocks(&self) -> Vec<Vec<u8>> {
        let names: Vec<_> = self.names.keys().collect();
        let block = |names: &[&(u64, EntryPath)]| {
            let mut block = MARK.to_vec();
            for (number, path) in names {
                block.extend_from_slice(&number.to_le_bytes());
                block.extend_from_slice(&u32::try_from(path.as_bytes().len()).unwrap_or(u32::MAX).to_le_bytes());
                block.extend_from_slice(path.as_bytes());
            }
            block
        };
        names.chunks(BLOCK).map(block).collect()
    }

    pub(super) fn from_blocks(blocks: &[Bytes]) -> Result<Self, &'static str> {
        let mut links = Self::default();
        for block in blocks {
            let mut rest = block.strip_prefix(&MARK).ok_or(WRONG)?;
            while !rest.is_empty() {
                let number = rest.try_get_u64_le().map_err(|_| WRONG)?;
                let length = rest.try_get_u32_le().map_err(|_| WRONG)? as usize;
                let path = rest.split_off(..length).filter(|path| EntryPath::is_normal(path)).ok_or(WRONG)?;
                links.add(number, EntryPath::from_bytes(path).map_err(|_| WRONG)?);
            }
        }
        let is_whole = links.of.len() == links.names.len() && links.all().iter().all(|names| names.len() > 1);
        if is_whole { Ok(links) } else { Err(WRONG) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(text: &str) -> EntryPath {
        EntryPath::lookup(text).unwrap()
    }

    proptest! {
        /// Compares the names with a plain list of sets, through random joins, writes and removals.
        #[test]
        fn links_equal_a_plain_list_of_names(steps in proptest::collection::vec((0_u8..4, "[ab](/[abc]){0,2}", "[ab](/[abc]){0,2}"), 1..80)) {
            let (mut links, mut model) = (HardLinks::default(), Vec::<Vec<EntryPath>>::new());
            for (step, one, other) in steps {
                let (one, other) = (path(&one), path(&other));
                let is_gone = |name: &EntryPath| match step {
                    0 => *name == one || name.is_below(&one),
                    1 => *name == one || name.is_below(&one) || one.is_below(name),
                    _ => *name == one,
                };
                let is_joined = model.iter().any(|names| names.contains(&one) && names.contains(&other));
                if step < 2 || one != other && !is_joined {
                    model.iter_mut().for_each(|names| names.retain(|name| !is_gone(name)));
                    model.retain(|names| names.len() > 1);
                }
                match step {
                    0 => drop(links.removed(one.as_bytes())),
                    1 => links.written(one.as_bytes(), false),
                    _ => {
                        links.join(&one, &other);
                        if one != other && !is_joined {
                            match model.iter_mut().find(|names| names.contains(&other)) {
                                Some(names) => names.push(one),
                                None => model.push(vec![one, other]),
                            }
                        }
                    }
                }
                model.iter_mut().for_each(|names| names.sort_unstable());
                model.sort_unstable();
                prop_assert_eq!(links.all(), model.clone());
                let blocks: Vec<Bytes> = links.to_blocks().into_iter().map(Bytes::from).collect();
                prop_assert_eq!(HardLinks::from_blocks(&blocks), Ok(links.clone()));
            }
        }
    }

    #[test]
    fn links_of_nonsense_are_an_error() {
        let mut links = HardLinks::default();
        links.join(&path("a"), &path("b/c"));
        let [block] = &links.to_blocks()[..] else { panic!("one block") };
        for end in 5..block.len() {
            assert!(HardLinks::from_blocks(&[Bytes::copy_from_slice(&block[..end])]).is_err(), "{end}");
        }
        assert!(HardLinks::from_blocks(&[Bytes::copy_from_slice(block), Bytes::copy_from_slice(block)]).is_ok());
        assert!(HardLinks::from_blocks(&[Bytes::from_static(&MARK)]).is_ok());
    }
}
