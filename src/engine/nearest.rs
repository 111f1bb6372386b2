//! Suggestions for mistyped names.

/// Maximum number of names to compare, as the result is only a hint.
const KNOWN_MAX: usize = 10_000;
/// Minimum similarity of a suggestion, between 0 and 1.
const ALIKE: f32 = 0.65;

/// Returns the known name most similar to `wanted`, if any is similar enough.
pub fn nearest<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let known: Vec<&str> = known.into_iter().take(KNOWN_MAX).collect();
    similar::get_close_matches(wanted, &known, 1, ALIKE).first().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_name_is_alike() {
        let known = ["first-run", "second-run", "story"];
        assert_eq!(nearest("frist-run", known), Some("first-run"));
        assert_eq!(nearest("stroy", known), Some("story"));
        assert_eq!(nearest("something", known), None);
        assert_eq!(nearest("docker", ["mock", "podman"]), None);
        assert_eq!(nearest("", known), None);
    }
}
