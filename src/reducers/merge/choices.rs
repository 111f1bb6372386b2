//! Sides chosen for conflicts.

use std::collections::BTreeMap;

use crate::engine::event::{MergeConflict, MergeSide};
use crate::engine::{EntryPath, ValueError};

/// Sides chosen for paths. A path chooses for everything below it where no deeper one does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MergeChoices(BTreeMap<EntryPath, MergeSide>);

impl MergeChoices {
    /// Parses the paths of both sides; `/` chooses for all.
    pub fn of_texts<T: AsRef<str>>(ours: &[T], theirs: &[T]) -> Result<Self, ValueError> {
        let mut choices = Self::default();
        for (paths, side) in [(ours, MergeSide::Ours), (theirs, MergeSide::Theirs)] {
            for path in paths {
                choices.choose(EntryPath::lookup(path.as_ref())?, side)?;
            }
        }
        Ok(choices)
    }

    /// Chooses a side for a path; the root chooses for all. Fails with [`ValueError`]: the other side is chosen for it.
    pub fn choose(&mut self, path: EntryPath, side: MergeSide) -> Result<(), ValueError> {
        match self.0.insert(path.clone(), side) {
            Some(before) if before != side => {
                Err(ValueError::new(format!("both sides are chosen for {}; choose one", path.rooted())))
            }
            _ => Ok(()),
        }
    }

    /// Returns the side chosen for a path, if there is one.
    pub fn side(&self, path: &EntryPath) -> Option<MergeSide> {
        let mut places = std::iter::successors(Some(path.clone()), EntryPath::parent);
        places.find_map(|place| self.0.get(&place).copied())
    }

    /// Iterates over the paths for which that side was chosen.
    pub fn of(&self, side: MergeSide) -> impl Iterator<Item = &EntryPath> {
        self.0.iter().filter(move |(_, chosen)| **chosen == side).map(|(path, _)| path)
    }

    /// Iterates over the paths whose choice decides none of these conflicts.
    pub fn unused<'a>(&'a self, conflicts: &'a [MergeConflict]) -> impl Iterator<Item = &'a EntryPath> {
        let decides = |path: &EntryPath| {
            let is_meant = |conflict: &MergeConflict| conflict.path == *path || conflict.path.is_below(path);
            conflicts.iter().any(is_meant)
        };
        self.0.keys().filter(move |path| !decides(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merge_choice_deepest_path_wins() {
        let path = |text: &str| EntryPath::lookup(text).unwrap();
        let mut choices = MergeChoices::default();
        assert_eq!(choices.side(&path("a")), None);
        choices.choose(path("a"), MergeSide::Ours).unwrap();
        choices.choose(path("a/b"), MergeSide::Theirs).unwrap();
        let side = |text: &str| choices.side(&path(text));
        assert_eq!(
            [side("a"), side("a/x"), side("a/b/c"), side("ab")],
            [Some(MergeSide::Ours), Some(MergeSide::Ours), Some(MergeSide::Theirs), None]
        );
        assert!(choices.clone().choose(path("a"), MergeSide::Theirs).is_err());
        choices.choose(EntryPath::root(), MergeSide::Theirs).unwrap();
        assert_eq!(choices.side(&path("zz")), Some(MergeSide::Theirs));
    }
}
