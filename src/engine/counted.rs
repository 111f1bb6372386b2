//! Counts in messages.

/// Returns a count with its noun, in the plural except for 1: `1 byte`, `2 bytes`, `0 entries`.
pub fn counted(count: impl TryInto<u64>, what: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    match (count, what.strip_suffix('y').filter(|stem| !stem.ends_with('e'))) {
        (1, _) => format!("1 {what}"),
        (_, Some(stem)) => format!("{count} {stem}ies"),
        (_, None) => format!("{count} {what}s"),
    }
}
