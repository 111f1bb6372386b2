//! Rules of a merge: sides chosen for conflicts, and globs of generated files.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::engine::event::{MergeConflict, MergeSide};
use crate::engine::path_glob::PathGlob;
use crate::engine::{EntryPath, ValueError};
use crate::reducers::VirtualFileSystem;

/// Files that tools regenerate, whether or not git ignores them.
const GENERATED: &str = "{__pycache__,*.pyc,*.pyo,.coverage,.mypy_cache,.pytest_cache,.ruff_cache,.tox}";
/// Valid, as tests check.
static GENERATED_GLOB: LazyLock<Option<PathGlob>> = LazyLock::new(|| PathGlob::new(GENERATED).ok());

/// Rules of a merge.
///
/// A rule chooses a side for a path and everything below it. A text with `*`, `?`, `[` or `{` is also a [`PathGlob`],
/// and chooses for each match. The deepest place with a rule decides; there a path wins over a glob, and the longest
/// glob over others. `PATH:2` chooses for the second hunk of a text file alone, and takes precedence; a path with such an
/// end is written `PATH[:]2`.
///
/// Generated files don't conflict: if both sides changed one, the parent's stays. A rule for such a file takes
/// precedence. Generated files are `__pycache__`, `*.pyc` and other tool caches, files that the parent's `.gitignore`
/// and `.git/info/exclude` ignore, and files added by [`with_generated`](MergeChoices::with_generated).
///
/// ```
/// # use foldspace_engine as foldspace;
/// use foldspace::{EntryPath, event::MergeSide, reducers::MergeChoices};
/// let choices = MergeChoices::of_texts(&["*.lock"], &["src"])?;
/// let side = |path: &str| Ok::<_, Box<dyn std::error::Error>>(choices.side(&EntryPath::lookup(path)?));
/// assert_eq!(side("src/main.rs")?, Some(MergeSide::Theirs));
/// assert_eq!(side("src/a.lock")?, Some(MergeSide::Ours));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeChoices {
    rules: BTreeMap<EntryPath, MergeRule>,
    /// Sides of single hunks, by path and number.
    hunks: BTreeMap<(EntryPath, usize), MergeSide>,
    /// Globs of generated files; `None` if no file counts as one.
    pub(super) generated: Option<Vec<PathGlob>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct MergeRule {
    side: MergeSide,
    glob: Option<PathGlob>,
}

impl Default for MergeChoices {
    fn default() -> Self {
        Self {
            rules: BTreeMap::new(),
            hunks: BTreeMap::new(),
            generated: Some(GENERATED_GLOB.iter().cloned().collect()),
        }
    }
}

impl MergeChoices {
    /// Returns rules that choose nothing, and count no file as generated.
    #[doc(hidden)]
    pub fn without_generated() -> Self {
        Self { generated: None, ..Self::default() }
    }

    /// Parses the paths, globs and hunks of both sides; `/` chooses for all.
    pub fn of_texts<T: AsRef<str>>(ours: &[T], theirs: &[T]) -> Result<Self, ValueError> {
        let mut choices = Self::default();
        for (texts, side) in [(ours, MergeSide::Ours), (theirs, MergeSide::Theirs)] {
            for text in texts.iter().map(AsRef::as_ref) {
                if let Some((path, hunk)) = hunk_of(text) {
                    choices.choose_hunk(EntryPath::lookup(path)?, hunk, side)?;
                    continue;
                }
                let glob = text.contains(['*', '?', '[', '{']).then(|| compiled(text)).transpose()?;
                choices.insert(EntryPath::lookup(text)?, MergeRule { side, glob })?;
            }
        }
        Ok(choices)
    }

    /// Adds globs of generated files.
    pub fn with_generated<T: AsRef<str>>(mut self, globs: &[T]) -> Result<Self, ValueError> {
        for text in globs {
            self.generated.get_or_insert_default().push(compiled(text.as_ref())?);
        }
        Ok(self)
    }

    /// Chooses a side for a path; the root chooses for all. Fails with [`ValueError`] if it has the other side.
    pub fn choose(&mut self, path: EntryPath, side: MergeSide) -> Result<(), ValueError> {
        self.insert(path, MergeRule { side, glob: None })
    }

    fn choose_hunk(&mut self, path: EntryPath, hunk: usize, side: MergeSide) -> Result<(), ValueError> {
        match self.hunks.insert((path.clone(), hunk), side) {
            Some(before) if before != side => {
                Err(ValueError::new(format!("both sides are chosen for {}:{hunk}; choose one", path.rooted())))
            }
            _ => Ok(()),
        }
    }

    fn insert(&mut self, path: EntryPath, rule: MergeRule) -> Result<(), ValueError> {
        let side = rule.side;
        match self.rules.insert(path.clone(), rule) {
            Some(before) if before.side != side => {
                Err(ValueError::new(format!("both sides are chosen for {}; choose one", path.rooted())))
            }
            _ => Ok(()),
        }
    }

    /// Returns the side chosen for a path, if any.
    pub fn side(&self, path: &EntryPath) -> Option<MergeSide> {
        let globs =
            || self.rules.iter().filter_map(|(text, rule)| Some((text.as_bytes().len(), rule.glob.as_ref()?, rule)));
        let by_glob = |place: &EntryPath| globs().filter(|(_, glob, _)| glob.fits(place)).max_by_key(|(len, ..)| *len);
        let mut places = std::iter::successors(Some(path.clone()), EntryPath::parent);
        places.find_map(|place| {
            let rule = self.rules.get(&place).or_else(|| by_glob(&place).map(|(.., rule)| rule));
            rule.map(|rule| rule.side)
        })
    }

    /// Returns the side chosen for a hunk of a text file, if any. Hunks count from 1.
    pub fn side_of_hunk(&self, path: &EntryPath, hunk: usize) -> Option<MergeSide> {
        self.hunks.get(&(path.clone(), hunk)).copied().or_else(|| self.side(path))
    }

    pub(super) fn has_choice(&self, path: &EntryPath) -> bool {
        self.side(path).is_some() || self.hunks.keys().any(|(chosen, _)| chosen == path)
    }

    /// Returns the rules that match none of these conflicts, which have these numbers of hunks.
    #[doc(hidden)]
    pub fn unused(&self, conflicts: &[MergeConflict], hunks: &BTreeMap<EntryPath, usize>) -> Vec<EntryPath> {
        let fits = |text: &EntryPath, rule: &MergeRule| conflicts.iter().any(|one| rule.fits(text, &one.path));
        let unused = self.rules.iter().filter(|(text, rule)| !fits(text, rule)).map(|(text, _)| text.clone());
        let missing = self.hunks.keys().filter(|(path, hunk)| hunks.get(path).is_none_or(|count| hunk > count));
        unused.chain(missing.filter_map(|(path, hunk)| EntryPath::lookup(&format!("{path}:{hunk}")).ok())).collect()
    }

    /// Returns the first rule that matches no entry of these trees.
    #[doc(hidden)]
    pub fn unfit(&self, trees: [&VirtualFileSystem; 3]) -> Option<&EntryPath> {
        let is_in = |text: &EntryPath, rule: &MergeRule, tree: &VirtualFileSystem| match &rule.glob {
            _ if text.is_root() || tree.get(text).is_some() => true,
            None => false,
            Some(glob) => tree.iter().any(|(path, _)| glob.fits(path)),
        };
        let fits = |text: &EntryPath, rule: &MergeRule| trees.iter().any(|tree| is_in(text, rule, tree));
        let unfit = self.rules.iter().find(|(text, rule)| !fits(text, rule)).map(|(text, _)| text);
        let missing = |path: &&EntryPath| trees.iter().all(|tree| tree.get(path).is_none());
        unfit.or_else(|| self.hunks.keys().map(|(path, _)| path).find(missing))
    }
}

impl MergeRule {
    /// Returns true if the rule matches a path, or a directory above it.
    fn fits(&self, text: &EntryPath, path: &EntryPath) -> bool {
        let mut places = std::iter::successors(Some(path.clone()), EntryPath::parent);
        places.any(|place| place == *text || self.glob.as_ref().is_some_and(|glob| glob.fits(&place)))
    }
}

/// Parses `PATH:NUMBER`.
fn hunk_of(text: &str) -> Option<(&str, usize)> {
    let (path, number) = text.rsplit_once(':')?;
    let hunk = number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse().ok())?;
    hunk.filter(|hunk| *hunk > 0).map(|hunk| (path, hunk))
}

fn compiled(glob: &str) -> Result<PathGlob, ValueError> {
    PathGlob::new(glob).map_err(|error| ValueError::new(format!("the glob {glob:?} is invalid: {}", error.kind())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> EntryPath {
        EntryPath::lookup(text).unwrap()
    }

    #[test]
    fn merge_choice_deepest_path_wins() {
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

    #[test]
    fn merge_choice_takes_paths_and_globs() {
        let pyc = "a/__pycache__/b.pyc";
        for (rule, fitting, other) in [
            ("**/*.pyc", pyc, "a/b.py"),
            ("*.pyc", pyc, "a/b.py"),
            ("a/__pycache__/*.pyc", pyc, "__pycache__/b.pyc"),
            ("**/__pycache__/**", pyc, "a/b.pyc"),
            ("**/__pycache__", pyc, "a/b.pyc"),
            ("/*.py", "b.py", "a/b.py"),
            ("src", "src/deep/x", "a/src"),
            ("{a,b}/x", "b/x/y", "c/x"),
            // A name may look like a glob.
            ("app/[id]/page.tsx", "app/[id]/page.tsx", "app/x/page.tsx"),
        ] {
            for (ours, theirs, side) in [(&[rule][..], &[][..], MergeSide::Ours), (&[], &[rule], MergeSide::Theirs)] {
                let choices = MergeChoices::of_texts(ours, theirs).unwrap();
                assert_eq!((choices.side(&path(fitting)), choices.side(&path(other))), (Some(side), None), "{rule}");
            }
        }
        assert!(MergeChoices::of_texts(&["a{"], &[]).unwrap_err().to_string().contains("\"a{\" is invalid"));
    }

    #[test]
    fn merge_choice_of_a_hunk_wins() {
        let choices = MergeChoices::of_texts(&["a.txt", "b:x", "c[:]2"], &["a.txt:2", "b:3"]).unwrap();
        let side = |text: &str, hunk| choices.side_of_hunk(&path(text), hunk);
        use MergeSide::{Ours, Theirs};
        assert_eq!([side("a.txt", 1), side("a.txt", 2), side("a.txt", 3)], [Some(Ours), Some(Theirs), Some(Ours)]);
        assert_eq!(
            [side("b", 1), side("b", 3), side("b:x", 1), side("c:2", 9)],
            [None, Some(Theirs), Some(Ours), Some(Ours)]
        );
        let both = MergeChoices::of_texts(&["a:1"], &["a:1"]).unwrap_err();
        assert_eq!(both.to_string(), "both sides are chosen for /a:1; choose one");
    }

    #[test]
    fn merge_choice_of_several_globs_is_the_longest_of_the_deepest() {
        let choices = MergeChoices::of_texts(&["*.lock", "a/keep.txt"], &["/", "**/Cargo.lock", "a/*"]).unwrap();
        let sides =
            ["x.lock", "a/x.lock", "b/Cargo.lock", "a/keep.txt", "z"].map(|text| choices.side(&path(text)).unwrap());
        use MergeSide::{Ours, Theirs};
        assert_eq!(sides, [Ours, Ours, Theirs, Ours, Theirs]);
    }
}
