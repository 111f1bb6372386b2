//! Generated files of a merge.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use bytes::Bytes;
use ignore::Match;
use ignore::gitignore::Gitignore;

use super::choices::MergeChoices;
use super::sides::Sides;
use crate::engine::event::Node;
use crate::engine::path_glob::parse_ignore_rules;
use crate::engine::{Digest, EntryPath};
use crate::reducers::VirtualFileSystem;

/// Files of ignore rules in a directory, in order of precedence.
const RULES: [&[u8]; 2] = [b".gitignore", b".git/info/exclude"];
const RULES_MAX: u64 = 1 << 20;

/// Decides which paths are generated files without a chosen side.
pub(super) struct Generated<'a> {
    choices: &'a MergeChoices,
    /// Ignore rules of the parent, by their directory.
    rules: BTreeMap<EntryPath, Vec<Gitignore>>,
}

impl<'a> Generated<'a> {
    /// Reads the ignore rules that apply to the changed paths.
    pub(super) fn read<E>(
        sides: &Sides<'_>,
        choices: &'a MergeChoices,
        read: &mut impl FnMut(&Digest) -> Result<Bytes, E>,
    ) -> Result<Self, E> {
        let changed = sides.of_theirs.iter().filter(|_| choices.generated.is_some());
        let directories: BTreeSet<EntryPath> = changed.flat_map(places_above).collect();
        let mut rules = BTreeMap::new();
        for directory in directories {
            let found = RULES.iter().filter_map(|name| rules_in(sides.ours, &directory, name));
            let texts = found.map(|digest| read(&digest)).collect::<Result<Vec<_>, E>>()?;
            if !texts.is_empty() {
                rules.insert(directory, texts.iter().map(|text| parse_ignore_rules(text)).collect());
            }
        }
        Ok(Self { choices, rules })
    }

    pub(super) fn includes(&self, path: &EntryPath) -> bool {
        let Some(globs) = self.choices.generated.as_ref().filter(|_| !self.choices.has_choice(path)) else {
            return false;
        };
        let mut places = std::iter::once(path.clone()).chain(places_above(path)).filter(|place| !place.is_root());
        places.any(|place| globs.iter().any(|glob| glob.fits(&place)) || self.is_ignored(&place, place != *path))
    }

    /// Returns true if the nearest rules that match an entry ignore it.
    fn is_ignored(&self, path: &EntryPath, is_directory: bool) -> bool {
        let decided = places_above(path).find_map(|directory| {
            let relative = OsStr::from_bytes(path.relative_to(&directory)?);
            self.rules.get(&directory)?.iter().find_map(|rules| match rules.matched(relative, is_directory) {
                Match::None => None,
                decided => Some(decided.is_ignore()),
            })
        });
        decided.unwrap_or(false)
    }
}

/// Iterates over the directories above an entry, the nearest first, including the root.
fn places_above(path: &EntryPath) -> impl Iterator<Item = EntryPath> + use<> {
    std::iter::successors(path.parent(), EntryPath::parent)
}

fn rules_in(files: &VirtualFileSystem, directory: &EntryPath, name: &[u8]) -> Option<Digest> {
    match files.node(&directory.join(name).ok()?)? {
        Node::File { content, size, incomplete: false, .. } if *size <= RULES_MAX => Some(*content),
        _ => None,
    }
}
