//! Line search of the tool `grep` and of the command line.

use std::io;
use std::ops::Range;

use grep_matcher::{LineTerminator, Matcher};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{Searcher, SearcherBuilder, sinks};

/// Maximum size of a compiled expression in bytes, which bounds the work per searched byte.
const REGEX_MAX: usize = 2 << 20;
const CACHE_MAX: usize = 16 << 20;

/// Finds lines that match a regular expression. A line excludes its ending, `\n` or `\r\n`.
///
/// ```
/// use foldspace::{tools::LineSearch};
/// let mut found = Vec::new();
/// LineSearch::new("x$")?.each(b"x\r\ny\r\n", &mut |number, line| {
///     found.push((number, line.to_owned()));
///     true
/// })?;
/// assert_eq!(found, [(1, "x".to_owned())]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct LineSearch {
    matcher: RegexMatcher,
    searcher: Searcher,
}

impl LineSearch {
    /// Compiles an expression in the syntax of the `regex` crate.
    pub fn new(pattern: &str) -> Result<Self, grep_regex::Error> {
        let mut builder = RegexMatcherBuilder::new();
        builder.multi_line(true).crlf(true).size_limit(REGEX_MAX).dfa_size_limit(CACHE_MAX);
        let searcher = SearcherBuilder::new().line_terminator(LineTerminator::crlf()).line_number(true).build();
        Ok(Self { matcher: builder.build(pattern)?, searcher })
    }

    /// Passes each matching line, with its number from 1, to `found` until that returns false.
    pub fn each(&mut self, bytes: &[u8], found: &mut dyn FnMut(u64, &str) -> bool) -> io::Result<()> {
        let sink = sinks::Lossy(|number, line| {
            let line = line.strip_suffix('\n').unwrap_or(line);
            Ok(found(number, line.strip_suffix('\r').unwrap_or(line)))
        });
        self.searcher.search_slice(&self.matcher, bytes, sink)
    }

    /// Returns the ranges of all matches in a line.
    pub fn spots(&self, line: &str) -> Vec<Range<usize>> {
        let mut spots = Vec::new();
        let found = self.matcher.find_iter(line.as_bytes(), |spot| {
            spots.push(spot.start()..spot.end());
            true
        });
        if found.is_ok() { spots } else { Vec::new() }
    }
}
