//! Merging texts line by line.

use similar::TextMerge;

/// Bytes of a text that is merged line by line; a larger one that both sides changed is a conflict.
pub const MERGED_BYTES_MAX: u64 = 8 << 20;
/// Lines of such a text. The time that a merge takes can grow with the square of them.
pub const MERGED_LINES_MAX: usize = 50_000;

/// What came of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lines {
    Merged(Vec<u8>),
    /// The same lines, or lines next to each other, differ.
    Conflict,
    TooMany,
    NoText,
}

/// Merges what `ours` and `theirs` changed of `base`. Line ends are part of the lines, so they stay as they were.
pub(super) fn merge(base: &[u8], ours: &[u8], theirs: &[u8]) -> Lines {
    let texts = [base, ours, theirs].map(|bytes| std::str::from_utf8(bytes).ok());
    let [Some(base), Some(ours), Some(theirs)] = texts else { return Lines::NoText };
    let lines = |text: &str| text.bytes().filter(|byte| matches!(byte, b'\n' | b'\r')).count();
    if [base, ours, theirs].into_iter().any(|text| lines(text) > MERGED_LINES_MAX) {
        return Lines::TooMany;
    }
    let merge = TextMerge::from_lines(base, ours, theirs);
    if merge.is_conflicted() { Lines::Conflict } else { Lines::Merged(merge.to_string().into_bytes()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(base: &str, ours: &str, theirs: &str) -> Result<String, Lines> {
        match merge(base.as_bytes(), ours.as_bytes(), theirs.as_bytes()) {
            Lines::Merged(bytes) => Ok(String::from_utf8(bytes).unwrap()),
            other => Err(other),
        }
    }

    #[test]
    fn lines_that_only_one_side_changed_are_taken() {
        assert_eq!(merged("1\n2\n3\n4\n5\n", "1\ntwo\n3\n4\n5\n", "1\n2\n3\n4\n").unwrap(), "1\ntwo\n3\n4\n");
        assert_eq!(merged("1\n2\n3\n", "0\n1\n2\n3\n", "1\n2\n3\n4\n").unwrap(), "0\n1\n2\n3\n4\n");
        assert_eq!(merged("1\n2\n3\n", "1\nx\n3\n", "1\nx\n3\n").unwrap(), "1\nx\n3\n");
    }

    #[test]
    fn the_same_lines_and_those_beside_them_conflict() {
        assert_eq!(merged("1\n2\n3\n", "1\na\n3\n", "1\nb\n3\n"), Err(Lines::Conflict));
        assert_eq!(merged("1\n2\n3\n", "1\n3\n", "1\nb\n3\n"), Err(Lines::Conflict));
        assert_eq!(merged("1\n2\n3\n4\n", "1\na\n3\n4\n", "1\n2\nb\n4\n"), Err(Lines::Conflict));
        assert_eq!(merged("", "a\n", "b\n"), Err(Lines::Conflict));
    }

    #[test]
    fn line_ends_stay_as_they_were() {
        assert_eq!(merged("1\r\n2\r\n3\r\n", "a\r\n2\r\n3\r\n", "1\r\n2\r\nc\r\n").unwrap(), "a\r\n2\r\nc\r\n");
        assert_eq!(merged("1\n2\n3", "a\n2\n3", "1\n2\nc").unwrap(), "a\n2\nc");
        assert_eq!(merged("1\n2\n3\n", "a\n2\n3\n", "1\n2\n3").unwrap(), "a\n2\n3");
        assert_eq!(merged("1\n2\n3", "1\n2\n3\n", "1\n2\n3\n4"), Err(Lines::Conflict));
    }

    #[test]
    fn what_would_take_too_long_is_not_begun() {
        let many = "x\n".repeat(MERGED_LINES_MAX + 1);
        assert_eq!(merged(&many, &format!("a\n{many}"), &format!("{many}b\n")), Err(Lines::TooMany));
        assert_eq!(merge(b"\xff", b"a", b"b"), Lines::NoText);
    }
}
