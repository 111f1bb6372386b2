//! Comparison of two texts: the lines that they share.

use std::collections::BTreeMap;

use similar::{Algorithm, DiffOp, capture_diff_slices};

/// Maximum lines of both texts to compare one by one, as the work may be quadratic.
const COMPARED_MAX: usize = 30_000;

/// Returns for each line of `new` its index in `old`, if it has one. The result depends on the texts alone, not on the
/// speed of the machine. If too much differs, some old lines count as new, and the second value is true.
pub fn kept<'a>(old: &[&'a [u8]], new: &[&'a [u8]]) -> (Vec<Option<usize>>, bool) {
    let mut from = vec![None; new.len()];
    let start = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let rest = old.len().min(new.len()) - start;
    let end = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    let (old_end, new_end) = (old.len() - end, new.len() - end);
    for (at, from) in from.iter_mut().enumerate() {
        if at < start {
            *from = Some(at);
        } else if at >= new_end {
            *from = Some(at - new_end + old_end);
        }
    }
    // Lines on one side only match nothing; without them little is left to compare.
    let mut sides: BTreeMap<&[u8], (bool, bool)> = BTreeMap::new();
    old[start..old_end].iter().for_each(|line| sides.entry(line).or_default().0 = true);
    new[start..new_end].iter().for_each(|line| sides.entry(line).or_default().1 = true);
    let common = |line: &&[u8]| sides.get(line) == Some(&(true, true));
    let old_at: Vec<usize> = (start..old_end).filter(|at| common(&old[*at])).collect();
    let new_at: Vec<usize> = (start..new_end).filter(|at| common(&new[*at])).collect();
    if old_at.len() + new_at.len() > COMPARED_MAX {
        return (from, true);
    }
    let old_lines: Vec<&[u8]> = old_at.iter().map(|at| old[*at]).collect();
    let new_lines: Vec<&[u8]> = new_at.iter().map(|at| new[*at]).collect();
    for op in capture_diff_slices(Algorithm::Patience, &old_lines, &new_lines) {
        if let DiffOp::Equal { old_index, new_index, len } = op {
            for at in 0..len {
                from[new_at[new_index + at]] = Some(old_at[old_index + at]);
            }
        }
    }
    (from, false)
}

pub(super) fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<Option<usize>> {
        let bytes = |lines: &[&'a str]| lines.iter().map(|line| line.as_bytes()).collect::<Vec<_>>();
        kept(&bytes(old), &bytes(new)).0
    }

    #[test]
    fn lines_are_matched_after_edit() {
        assert_eq!(of(&["a", "b", "c"], &["a", "x", "c"]), [Some(0), None, Some(2)]);
        assert_eq!(of(&["a", "b"], &["z", "a", "b", "y"]), [None, Some(0), Some(1), None]);
        assert_eq!(of(&["a", "b", "c", "d"], &["a", "d"]), [Some(0), Some(3)]);
        assert_eq!(of(&[], &["a"]), [None]);
        assert_eq!(of(&["a", "a"], &["a", "a", "a"]).iter().flatten().count(), 2);
        assert_eq!(lines(b"a\r\n\nb"), [&b"a\r\n"[..], b"\n", b"b"]);
    }

    #[test]
    fn lines_over_limit_are_reported() {
        let texts: Vec<String> = (0..COMPARED_MAX).map(|at| format!("{at}\n")).collect();
        let forward: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
        let backward: Vec<&[u8]> = forward.iter().rev().copied().collect();
        let (from, is_coarse) = kept(&forward, &backward);
        assert!(is_coarse && from.iter().all(Option::is_none));
        assert!(!kept(&forward, &forward).1);
    }

    proptest! {
        #[test]
        fn lines_kept_are_a_common_subsequence(
            old in proptest::collection::vec(0_u8..5, 0..30),
            new in proptest::collection::vec(0_u8..5, 0..30),
        ) {
            let old: Vec<&[u8]> = old.iter().map(std::slice::from_ref).collect();
            let new: Vec<&[u8]> = new.iter().map(std::slice::from_ref).collect();
            let (from, _) = kept(&old, &new);
            let pairs: Vec<(usize, usize)> = from.iter().enumerate().filter_map(|(n, o)| o.map(|o| (o, n))).collect();
            prop_assert!(pairs.iter().all(|(o, n)| old[*o] == new[*n]));
            prop_assert!(pairs.windows(2).all(|pair| pair[0].0 < pair[1].0));
        }
    }
}
