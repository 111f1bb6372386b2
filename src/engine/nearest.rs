//! Suggestions for mistyped names.

/// Maximum number of names to compare, as the result is only a hint.
const KNOWN_MAX: usize = 10_000;
/// Maximum characters of a compared name.
const CHARS_MAX: usize = 100;
/// Minimum characters of a beginning that stands for its only completion.
const BEGINNING: usize = 3;

/// Returns the known name that `wanted` most likely means: it differs by few typos for its length, or `wanted` is its
/// beginning. Case is ignored.
pub fn nearest<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted: Vec<char> = wanted.to_lowercase().chars().take(CHARS_MAX).collect();
    let cost = |name: &&'a str| {
        let name: Vec<char> = name.to_lowercase().chars().take(CHARS_MAX).collect();
        let is_beginning = wanted.len() >= BEGINNING && name.starts_with(&wanted);
        let typos = if is_beginning { 1 } else { distance(&wanted, &name) };
        (typos <= typos_allowed(wanted.len())).then_some(typos)
    };
    let near = known.into_iter().take(KNOWN_MAX).filter_map(|name| Some((cost(&name)?, name)));
    near.min_by_key(|(cost, _)| *cost).map(|(_, name)| name)
}

fn typos_allowed(chars: usize) -> usize {
    match chars {
        0 | 1 => 0,
        2..=4 => 1,
        5..=8 => 2,
        _ => 3,
    }
}

/// Counts insertions, deletions, replacements and swaps of neighbours (optimal string alignment).
fn distance(one: &[char], other: &[char]) -> usize {
    let mut rows: Vec<Vec<usize>> = vec![(0..=other.len()).collect()];
    for (at, character) in one.iter().enumerate() {
        let mut row = vec![at + 1];
        for (to, other_character) in other.iter().enumerate() {
            let replaced = rows[at][to] + usize::from(character != other_character);
            let mut least = replaced.min(rows[at][to + 1] + 1).min(row[to] + 1);
            if at > 0 && to > 0 && *character == other[to - 1] && one[at - 1] == *other_character {
                least = least.min(rows[at - 1][to - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_name_is_alike() {
        let known = ["first-run", "second-run", "story"];
        assert_eq!(nearest("frist-run", known), Some("first-run"));
        assert_eq!(nearest("stroy", known), Some("story"));
        assert_eq!(nearest("sec", known), Some("second-run"));
        assert_eq!(nearest("STORY", known), Some("story"));
        assert_eq!(nearest("something", known), None);
        assert_eq!(nearest("docker", ["mock", "podman"]), None);
        assert_eq!(nearest("", known), None);
        // Short words are not alike because they share letters.
        for (wanted, known) in
            [("call", "allow"), ("at", "data"), ("all", "call-text"), ("port", "export"), ("stat", "at")]
        {
            assert_eq!(nearest(wanted, [known]), None, "{wanted}");
        }
    }
}
