//! Line search of the tool `grep` and of the command line.

use std::ops::Range;

use regex::bytes::{Regex, RegexBuilder};

/// Maximum size of a compiled expression in bytes, which bounds the work per searched byte.
const REGEX_MAX: usize = 2 << 20;
const CACHE_MAX: usize = 16 << 20;

/// Finds lines that match a regular expression. A line excludes its ending, `\n` or `\r\n`.
///
/// ```
/// # use foldspace_tools as foldspace;
/// use foldspace::tools::LineSearch;
/// let mut found = Vec::new();
/// LineSearch::new("x$")?.each(b"x\r\ny\r\n", &mut |number, line| {
///     found.push((number, line.to_owned()));
///     true
/// });
/// assert_eq!(found, [(1, "x".to_owned())]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct LineSearch(Regex);

impl LineSearch {
    /// Compiles an expression, in Rust's syntax.
    pub fn new(pattern: &str) -> Result<Self, regex::Error> {
        if pattern.contains('\n') {
            return Err(regex::Error::Syntax("a line contains no line break".to_owned()));
        }
        let mut builder = RegexBuilder::new(pattern);
        builder.multi_line(true).crlf(true).size_limit(REGEX_MAX).dfa_size_limit(CACHE_MAX).build().map(Self)
    }

    /// Passes each matching line to `found`, with its number from 1 and without its end, until `found` returns false.
    pub fn each(&self, bytes: &[u8], found: &mut dyn FnMut(u64, &str) -> bool) {
        let (mut start, mut number) = (0, 1);
        // A match in the whole text finds a candidate line. It may cross line ends, so the line is matched again.
        while let Some(candidate) = self.0.find_at(bytes, start).map(|found| found.start())
            && start < bytes.len()
        {
            let begin = bytes[..candidate].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            number += newlines(&bytes[start..begin]);
            let end = bytes[begin..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| begin + at);
            let line = bytes[begin..end].strip_suffix(b"\r").unwrap_or(&bytes[begin..end]);
            if begin < bytes.len() && self.0.is_match(line) && !found(number, &String::from_utf8_lossy(line)) {
                return;
            }
            (start, number) = (end + 1, number + 1);
            if start > bytes.len() {
                return;
            }
        }
    }

    /// Returns the first `most` matching lines, with their numbers.
    pub fn matches(&self, bytes: &[u8], most: usize) -> Vec<(u64, String)> {
        let mut found = Vec::new();
        self.each(bytes, &mut |number, line| {
            found.push((number, line.to_owned()));
            found.len() < most
        });
        found
    }

    /// Returns the ranges of all matches in a line that are not empty.
    pub fn spots(&self, line: &str) -> Vec<Range<usize>> {
        self.0.find_iter(line.as_bytes()).map(|spot| spot.range()).filter(|spot| !spot.is_empty()).collect()
    }
}

fn newlines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pattern: &str, text: &str) -> Vec<(u64, String)> {
        let mut lines = Vec::new();
        LineSearch::new(pattern).unwrap().each(text.as_bytes(), &mut |number, line| {
            lines.push((number, line.to_owned()));
            true
        });
        lines
    }

    fn by_line(pattern: &str, text: &str) -> Vec<(u64, String)> {
        let regex = Regex::new(&format!("(?mR){pattern}")).unwrap();
        let lines = text.split_inclusive('\n').map(|line| line.strip_suffix('\n').unwrap_or(line));
        let lines = (1..).zip(lines).map(|(number, line)| (number, line.strip_suffix('\r').unwrap_or(line).to_owned()));
        lines.filter(|(_, line)| regex.is_match(line.as_bytes())).collect()
    }

    #[test]
    fn each_finds_same_lines_as_search_of_each_line() {
        let texts = ["", "\n", "a", "a\n", "\na\n\n", "a\r\nb\r\n", "x\ny\nab\nb", "ab\n\nab", "\r\n\r\nb"];
        let patterns = ["a", "^", "$", "^$", "b$", "a[^b]*b", r"\s+", r"\s*b", "x|y", "(?s).*", r"a\nb", "é|"];
        for (pattern, text) in patterns.iter().flat_map(|pattern| texts.map(|text| (*pattern, text))) {
            assert_eq!(found(pattern, text), by_line(pattern, text), "{pattern:?} in {text:?}");
        }
    }

    #[test]
    fn each_stops_when_told() {
        let mut seen = 0;
        LineSearch::new("a").unwrap().each(b"a\na\na\n", &mut |number, _| {
            seen = number;
            number < 2
        });
        assert_eq!(seen, 2);
    }
}
