//! Merging texts line by line.

use std::ops::Range;

use similar::{MergeRegion, MergeResolution, TextMerge};

use crate::engine::event::MergeSide;

/// Maximum bytes of a text that is merged line by line; a larger text that both sides changed is a conflict.
pub(crate) const MERGED_BYTES_MAX: u64 = 8 << 20;
/// Maximum lines of such a text, as a merge may take quadratic time.
pub(crate) const MERGED_LINES_MAX: usize = 50_000;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum MergedLines {
    Merged(Vec<u8>),
    /// The same lines, or adjacent lines, differ, in this many hunks. With a side chosen for each hunk, the value is
    /// the result.
    Conflict(usize, Option<Vec<u8>>),
    TooMany,
    NoText,
}

/// Merges the changes of `ours` and `theirs` to `base`, as lines of bytes. Line ends are part of the lines, so they are
/// preserved. `chosen` returns the side of a hunk in conflict, by its number from 1.
pub(super) fn merge(
    base: &[u8],
    ours: &[u8],
    theirs: &[u8],
    chosen: &dyn Fn(usize) -> Option<MergeSide>,
) -> MergedLines {
    let all = [base, ours, theirs];
    if all.into_iter().any(|bytes| bytes.contains(&0)) {
        return MergedLines::NoText;
    }
    let lines = |bytes: &[u8]| bytes.iter().filter(|byte| matches!(byte, b'\n' | b'\r')).count();
    if all.into_iter().any(|bytes| lines(bytes) > MERGED_LINES_MAX) {
        return MergedLines::TooMany;
    }
    let merge = TextMerge::from_lines(base, ours, theirs);
    let hunks = merge.conflicts().count();
    let sides: Option<Vec<MergeSide>> = (1..=hunks).map(chosen).collect();
    match hunks {
        0 => MergedLines::Merged(decided(&merge, Vec::new())),
        _ => MergedLines::Conflict(hunks, sides.map(|sides| decided(&merge, sides))),
    }
}

/// Lines of one side of a conflict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConflictSide {
    /// Number of the first line, from 1. If there are no lines, they would begin there.
    pub first: usize,
    /// The lines, with their ends.
    pub text: Vec<u8>,
}

/// Lines that both sides of a merge changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConflictHunk {
    /// The lines before both changes.
    pub base: ConflictSide,
    /// The parent's lines.
    pub ours: ConflictSide,
    /// The child's lines.
    pub theirs: ConflictSide,
}

/// Returns the lines in conflict when the changes of `ours` and `theirs` to `base` are merged; empty for contents that
/// are not merged line by line.
pub fn conflict_hunks(base: &[u8], ours: &[u8], theirs: &[u8]) -> Vec<ConflictHunk> {
    if !matches!(merge(base, ours, theirs, &|_| None), MergedLines::Conflict(..)) {
        return Vec::new();
    }
    let merge = TextMerge::from_lines(base, ours, theirs);
    let hunk = |region: &MergeRegion| {
        let side = |lines: Range<usize>, line: &dyn Fn(usize) -> Option<Vec<u8>>| ConflictSide {
            first: lines.start + 1,
            text: lines.filter_map(line).flatten().collect(),
        };
        ConflictHunk {
            base: side(region.base_range(), &|line| merge.base_line(line).map(<[u8]>::to_vec)),
            ours: side(region.ours_range(), &|line| merge.ours_line(line).map(<[u8]>::to_vec)),
            theirs: side(region.theirs_range(), &|line| merge.theirs_line(line).map(<[u8]>::to_vec)),
        }
    };
    merge.conflicts().map(hunk).collect()
}

/// Returns the merged text, with these sides of the hunks in conflict.
fn decided(merge: &TextMerge<'_, '_, '_, [u8]>, sides: Vec<MergeSide>) -> Vec<u8> {
    let (mut text, mut sides) = (Vec::new(), sides.into_iter());
    for region in merge.regions() {
        let is_theirs = match region.resolution() {
            MergeResolution::Theirs => true,
            MergeResolution::Conflict => sides.next() == Some(MergeSide::Theirs),
            _ => false,
        };
        match is_theirs {
            true => region.theirs_range().filter_map(|line| merge.theirs_line(line)).for_each(|line| text.extend(line)),
            false => region.ours_range().filter_map(|line| merge.ours_line(line)).for_each(|line| text.extend(line)),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn merged(base: &str, ours: &str, theirs: &str) -> Result<String, MergedLines> {
        match merge(base.as_bytes(), ours.as_bytes(), theirs.as_bytes(), &|_| None) {
            MergedLines::Merged(bytes) => Ok(String::from_utf8(bytes).unwrap()),
            other => Err(other),
        }
    }

    #[test]
    fn text_merge_takes_lines_of_one_side() {
        assert_eq!(merged("1\n2\n3\n4\n5\n", "1\ntwo\n3\n4\n5\n", "1\n2\n3\n4\n").unwrap(), "1\ntwo\n3\n4\n");
        assert_eq!(merged("1\n2\n3\n", "0\n1\n2\n3\n", "1\n2\n3\n4\n").unwrap(), "0\n1\n2\n3\n4\n");
        assert_eq!(merged("1\n2\n3\n", "1\nx\n3\n", "1\nx\n3\n").unwrap(), "1\nx\n3\n");
    }

    #[test]
    fn text_merge_adjacent_lines_conflict() {
        assert_eq!(merged("1\n2\n3\n", "1\na\n3\n", "1\nb\n3\n"), Err(MergedLines::Conflict(1, None)));
        assert_eq!(merged("1\n2\n3\n", "1\n3\n", "1\nb\n3\n"), Err(MergedLines::Conflict(1, None)));
        assert_eq!(merged("1\n2\n3\n4\n", "1\na\n3\n4\n", "1\n2\nb\n4\n"), Err(MergedLines::Conflict(1, None)));
        assert_eq!(merged("", "a\n", "b\n"), Err(MergedLines::Conflict(1, None)));
    }

    #[test]
    fn text_merge_takes_lines_that_are_no_utf8() {
        let (base, ours, theirs) = (b"caf\xe9\n2\n3\n", b"caf\xe9\n2\nthree\n", b"th\xe9\n2\n3\n");
        assert_eq!(merge(base, ours, theirs, &|_| None), MergedLines::Merged(b"th\xe9\n2\nthree\n".to_vec()));
    }

    #[test]
    fn text_merge_keeps_line_ends() {
        assert_eq!(merged("1\r\n2\r\n3\r\n", "a\r\n2\r\n3\r\n", "1\r\n2\r\nc\r\n").unwrap(), "a\r\n2\r\nc\r\n");
        assert_eq!(merged("1\n2\n3", "a\n2\n3", "1\n2\nc").unwrap(), "a\n2\nc");
        assert_eq!(merged("1\n2\n3\n", "a\n2\n3\n", "1\n2\n3").unwrap(), "a\n2\n3");
        assert_eq!(merged("1\n2\n3", "1\n2\n3\n", "1\n2\n3\n4"), Err(MergedLines::Conflict(1, None)));
    }

    #[test]
    fn text_merge_over_limit_is_not_begun() {
        let many = "x\n".repeat(MERGED_LINES_MAX + 1);
        assert_eq!(merged(&many, &format!("a\n{many}"), &format!("{many}b\n")), Err(MergedLines::TooMany));
        assert_eq!(merge(b"\0", b"a", b"b", &|_| None), MergedLines::NoText);
    }

    #[test]
    fn text_merge_choice_covers_conflicts_only() {
        let (base, ours, theirs) = ("1\n2\n3\n4\n5\n", "one\n2\nours\n4\n5\n", "1\n2\ntheirs\n4\nfive\n");
        let decided = |side| merge(base.as_bytes(), ours.as_bytes(), theirs.as_bytes(), &|_| Some(side));
        let conflict = |text: &str| MergedLines::Conflict(1, Some(text.as_bytes().to_vec()));
        assert_eq!(decided(MergeSide::Ours), conflict("one\n2\nours\n4\nfive\n"));
        assert_eq!(decided(MergeSide::Theirs), conflict("one\n2\ntheirs\n4\nfive\n"));
        // Line ends come from the chosen side.
        let ends = |side| merge(b"1\r\n2", b"1\r\n2\n", b"1\n2\r\n", &|_| Some(side));
        assert_eq!(ends(MergeSide::Ours), conflict("1\r\n2\n"));
        assert_eq!(ends(MergeSide::Theirs), conflict("1\n2\r\n"));
    }

    #[test]
    fn text_merge_takes_a_side_for_each_hunk() {
        let (base, ours, theirs) = (b"1\n2\n3\n4\n5\n", b"a\n2\nx\n4\n5\n", b"b\n2\ny\n4\nfive\n");
        let chosen = |sides: [Option<MergeSide>; 2]| merge(base, ours, theirs, &|hunk| sides[hunk - 1]);
        let (mine, other) = (Some(MergeSide::Ours), Some(MergeSide::Theirs));
        assert_eq!(chosen([mine, other]), MergedLines::Conflict(2, Some(b"a\n2\ny\n4\nfive\n".to_vec())));
        assert_eq!(chosen([other, mine]), MergedLines::Conflict(2, Some(b"b\n2\nx\n4\nfive\n".to_vec())));
        assert_eq!(chosen([other, None]), MergedLines::Conflict(2, None));
    }

    #[test]
    fn conflict_hunks_have_the_lines_of_three_sides() {
        let (base, ours, theirs) = ("1\n2\n3\n4\n5\n", "0\n1\n2\nours\n4\n5\n", "1\n2\ntheirs\nmore\n4\n5\n");
        let side = |first, text: &str| ConflictSide { first, text: text.as_bytes().to_vec() };
        let hunk = ConflictHunk { base: side(3, "3\n"), ours: side(4, "ours\n"), theirs: side(3, "theirs\nmore\n") };
        assert_eq!(conflict_hunks(base.as_bytes(), ours.as_bytes(), theirs.as_bytes()), [hunk]);
        assert!(conflict_hunks(base.as_bytes(), base.as_bytes(), theirs.as_bytes()).is_empty());
        assert!(conflict_hunks(b"\0", b"a", b"b").is_empty());
    }

    /// Generates texts of few different lines, with all kinds of ends.
    fn text() -> impl Strategy<Value = Vec<u8>> {
        const PIECES: [&[u8]; 10] =
            [b"a\n", b"b\n", b"c\n", b"\n", b"a\r\n", b"\r", b"c", b"\xc3\xa9\n", b"\xe2\x80\xa8\n", b"\xff\n"];
        let text = proptest::collection::vec(proptest::sample::select(&PIECES[..]), 0..12);
        text.prop_map(|pieces| pieces.concat())
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![text(), proptest::collection::vec(any::<u8>(), 0..40)]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

        #[test]
        fn text_merge_with_one_side_unchanged_gives_the_other(base in text(), changed in text()) {
            let all = MergedLines::Merged(changed.clone());
            prop_assert_eq!(merge(&base, &base, &changed, &|_| None), MergedLines::Merged(changed.clone()));
            prop_assert_eq!(merge(&base, &changed, &base, &|_| None), MergedLines::Merged(changed.clone()));
            prop_assert_eq!(merge(&base, &changed, &changed, &|_| None), all);
        }

        #[test]
        fn text_merge_of_swapped_sides_is_the_same(base in bytes(), ours in bytes(), theirs in bytes()) {
            prop_assert_eq!(merge(&base, &ours, &theirs, &|_| None), merge(&base, &theirs, &ours, &|_| None));
            let chosen = merge(&base, &ours, &theirs, &|_| Some(MergeSide::Ours));
            prop_assert_eq!(chosen, merge(&base, &theirs, &ours, &|_| Some(MergeSide::Theirs)));
        }
    }
}
