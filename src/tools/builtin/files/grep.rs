//! `grep`: lines by a regular expression.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{RESULTS_MAX, TEXT_MAX, check_chars, counted, missing, path_glob, root};
use crate::engine::event::Node;
use crate::engine::path::EntryPath;
use crate::engine::path_glob::PathGlob;
use crate::reducers::Entry;
use crate::tools::builtin::line_search::LineSearch;
use crate::tools::call::context::ToolContext;
use crate::tools::call::error::ToolError;
use crate::tools::call::tool::{Effect, Tool};

const LINE_MAX: usize = 2_000;
/// Bytes searched between two checks of the time limit.
const PIECE: usize = 256 << 10;
/// Entries between two yields to other tasks.
const PAUSE: usize = 64;

/// Searches the lines of text files.
#[derive(Debug, Clone, Copy, Default)]
pub struct GrepTool;

/// Parameters of `grep`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GrepParams {
    /// The regular expression, in Rust's syntax; `(?i)` at its beginning ignores case.
    #[schemars(length(max = TEXT_MAX))]
    pattern: String,
    /// The directory or the file to search, from the workspace root; `/` is the root.
    #[serde(default = "root")]
    path: String,
    /// Glob for the files to search, relative to `path`; without a slash it matches names. Blank for all files.
    #[serde(default)]
    glob: Option<String>,
}

/// Found lines.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct GrepMatches {
    /// The lines, sorted by path and number.
    matches: Vec<GrepMatch>,
    /// True if there are more.
    truncated: bool,
    /// Number of files searched.
    searched: usize,
    /// Number of binary files skipped.
    skipped_binary: usize,
    /// Number of files that the session's policy does not allow reading; omitted if 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    skipped_by_policy: usize,
}

/// A found line.
#[derive(Debug, Serialize, JsonSchema)]
struct GrepMatch {
    /// The file, from the workspace root.
    path: String,
    /// The line's number, from 1.
    line_number: u64,
    /// The line.
    line: String,
}

impl Tool for GrepTool {
    const NAME: &'static str = "grep";
    const DESCRIPTION: &'static str = "Finds the lines of text files that match a regular expression, in a file or at \
        any depth below a directory. It works line by line, so a match can't span lines. Skips binary files; does not \
        follow links. Sorted by path and line number; at most 2000 lines, and `truncated` is true if there are more. \
        Lines are cut after 2000 characters.";
    const EFFECT: Effect = Effect::ReadOnly;
    type Params = GrepParams;
    type Output = GrepMatches;

    async fn call(&self, context: &mut ToolContext, params: GrepParams) -> Result<GrepMatches, ToolError> {
        let mut search = GrepSearch::new(&params)?;
        let asked = context.path(&params.path)?;
        let start = context.filesystem().resolve(&asked)?;
        let tree = context.filesystem().tree().clone();
        if let Some(entry) = tree.get(&start).filter(|entry| !entry.is_directory()) {
            context.filesystem().check_read(&start)?;
            search.look_at(context, &start, start.name(), entry)?;
            return Ok(search.found);
        }
        if !tree.is_directory(&start) {
            return Err(missing(&asked, &start));
        }
        for (at, (path, entry)) in tree.below(&start).enumerate() {
            if at % PAUSE == 0 {
                tokio::task::yield_now().await;
            }
            let relative = path.relative_to(&start).unwrap_or_default();
            search.look_at(context, path, relative, entry)?;
            if search.found.truncated {
                break;
            }
        }
        Ok(search.found)
    }

    fn render(&self, output: &GrepMatches) -> String {
        let skipped = [(output.skipped_binary, "binary file"), (output.skipped_by_policy, "unreadable file")];
        let skipped = skipped.into_iter().filter(|(files, _)| *files > 0);
        let skipped: String = skipped.map(|(files, what)| format!(", {} skipped", counted(files, what))).collect();
        if output.matches.is_empty() {
            return format!("no line matches ({} searched{skipped})", counted(output.searched, "file"));
        }
        let line = |found: &GrepMatch| format!("{}:{}: {}", found.path, found.line_number, found.line);
        let mut text = output.matches.iter().map(line).collect::<Vec<_>>().join("\n");
        if output.truncated {
            let shown = counted(output.matches.len(), "line");
            text.push_str(&format!("\n[cut after {shown}; narrow the pattern, the path or the glob]"));
        }
        text
    }
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

struct GrepSearch {
    lines: LineSearch,
    glob: Option<PathGlob>,
    found: GrepMatches,
}

impl GrepSearch {
    fn new(params: &GrepParams) -> Result<Self, ToolError> {
        check_chars("pattern", &params.pattern)?;
        let wrong = |why| ToolError::new(format!("the pattern is not a regular expression for lines: {why}"));
        let lines = LineSearch::new(&params.pattern).map_err(wrong)?;
        let glob = params.glob.as_deref().filter(|glob| !glob.trim().is_empty());
        let glob = glob.map(|glob| path_glob(glob, false)).transpose()?;
        Ok(Self { lines, glob, found: GrepMatches::default() })
    }

    fn look_at(
        &mut self,
        context: &mut ToolContext,
        path: &EntryPath,
        relative: &[u8],
        entry: &Entry,
    ) -> Result<(), ToolError> {
        let selected = self.glob.as_ref().is_none_or(|glob| glob.fits_bytes(relative));
        match &entry.node {
            Node::File { .. } if selected && context.filesystem().check_read(path).is_err() => {
                self.found.skipped_by_policy += 1;
                Ok(())
            }
            Node::File { content, text: true, incomplete: false, .. } if selected => {
                let bytes = context.filesystem().content(content)?;
                self.found.searched += 1;
                self.file(context, path, &bytes)
            }
            Node::File { .. } if selected => {
                self.found.skipped_binary += 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn file(&mut self, context: &ToolContext, path: &EntryPath, bytes: &[u8]) -> Result<(), ToolError> {
        let (mut rest, mut before) = (bytes, 0);
        loop {
            context.check()?;
            let piece;
            (piece, rest) = split_after_line(rest, PIECE);
            self.lines(path, piece, before);
            if rest.is_empty() || self.found.truncated {
                return Ok(());
            }
            before += piece.iter().filter(|byte| **byte == b'\n').count() as u64;
        }
    }

    /// Searches whole lines, behind that many of the same file.
    fn lines(&mut self, path: &EntryPath, bytes: &[u8], before: u64) {
        let Self { lines, found, .. } = self;
        lines.each(bytes, &mut |number, line| {
            if found.matches.len() == RESULTS_MAX {
                found.truncated = true;
                return false;
            }
            found.matches.push(GrepMatch { path: path.rooted(), line_number: before + number, line: cut(line) });
            true
        });
    }
}

/// Splits after the first line end behind `least` bytes.
fn split_after_line(bytes: &[u8], least: usize) -> (&[u8], &[u8]) {
    let behind = bytes.get(least..).unwrap_or_default();
    match behind.iter().position(|byte| *byte == b'\n') {
        Some(end) => bytes.split_at(least + end + 1),
        None => (bytes, &[]),
    }
}

fn cut(line: &str) -> String {
    match line.char_indices().nth(LINE_MAX) {
        None => line.to_owned(),
        Some((end, _)) => {
            let more = counted(line[end..].chars().count(), "character");
            format!("{} [cut here: {more} more]", &line[..end])
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::tools::ToolCall;
    use crate::tools::builtin::files::testing::ToolWorld;

    fn sources() -> ToolWorld {
        ToolWorld::with(&[
            ("a.rs", "fn one() {}\nlet x;\nfn two() {}"),
            ("src/b.rs", "fn three() {}\n"),
            ("src/c.py", "def one():\n"),
            ("src-old/b.rs", "fn old() {}\r\n"),
        ])
    }

    fn found(world: &ToolWorld, params: Value) -> Vec<String> {
        let result = world.ok("grep", params);
        let line = |m: &Value| format!("{}:{}:{}", m["path"].as_str().unwrap(), m["line_number"], m["line"]);
        result["matches"].as_array().unwrap().iter().map(line).collect()
    }

    #[test]
    fn grep_finds_lines_in_order() {
        let world = sources();
        assert_eq!(
            found(&world, json!({ "pattern": r"^fn \w+\(\) \{\}$" })),
            [
                "/a.rs:1:\"fn one() {}\"",
                "/a.rs:3:\"fn two() {}\"",
                "/src-old/b.rs:1:\"fn old() {}\"",
                "/src/b.rs:1:\"fn three() {}\""
            ]
        );
        assert_eq!(found(&world, json!({ "pattern": "(?i)DEF" })), ["/src/c.py:1:\"def one():\""]);
        assert_eq!(world.text("grep", json!({ "pattern": "def" })), "/src/c.py:1: def one():");
    }

    #[test]
    fn grep_path_and_glob_select() {
        let world = sources();
        assert_eq!(found(&world, json!({ "pattern": "one", "path": "a.rs" })).len(), 1);
        assert_eq!(found(&world, json!({ "pattern": "one|three", "path": "src" })).len(), 2);
        assert_eq!(found(&world, json!({ "pattern": "fn", "glob": "*.rs" })).len(), 4);
        assert_eq!(found(&world, json!({ "pattern": "fn", "glob": "src/*.rs" })).len(), 1);
        assert_eq!(found(&world, json!({ "pattern": "fn", "path": "src", "glob": "/b.rs" })).len(), 1);
        assert_eq!(found(&world, json!({ "pattern": "fn", "glob": "**/b.rs" })).len(), 2);
        assert_eq!(found(&world, json!({ "pattern": "one", "path": "a.rs", "glob": "*.py" })).len(), 0);
        for none in [json!(null), json!(""), json!("  ")] {
            assert_eq!(found(&world, json!({ "pattern": "one", "glob": none })).len(), 2, "{none}");
        }
    }

    #[test]
    fn grep_counts_binary_files_and_skips_links() {
        let world = ToolWorld::with(&[("text", "needle")]);
        world.file("binary", b"needle\0");
        world.file("latin", b"needle \xe9");
        world.link("to", "text");
        let result = world.ok("grep", json!({ "pattern": "needle" }));
        assert_eq!(result["matches"].as_array().unwrap().len(), 1);
        assert_eq!((&result["searched"], &result["skipped_binary"]), (&json!(1), &json!(2)));
        let through = found(&world, json!({ "pattern": "needle", "path": "to" }));
        assert_eq!(through, ["/text:1:\"needle\""]);
        let text = world.text("grep", json!({ "pattern": "hay" }));
        assert_eq!(text, "no line matches (1 file searched, 2 binary files skipped)");
        assert_eq!(world.ok("grep", json!({ "pattern": "x", "path": "binary" }))["skipped_binary"], 1);
    }

    #[test]
    fn grep_errors_are_readable() {
        let world = sources();
        let error = |params: Value| world.error("grep", params);
        let long = "x".repeat(TEXT_MAX + 1);
        assert!(error(json!({ "pattern": long })).starts_with("pattern has 48001 characters"));
        let begin = "the pattern is not a regular expression for lines: ";
        for pattern in ["a(", "*", "[", "a\nb", &"(a{1000}){1000}".repeat(9)] {
            let error = error(json!({ "pattern": pattern }));
            assert!(error.starts_with(begin) && error.len() > begin.len() + 10, "{error}");
        }
        assert!(error(json!({ "pattern": "a", "glob": "[" })).starts_with("glob \"[\" can't be used: "));
        assert_eq!(error(json!({ "pattern": "a", "path": "none" })), "/none does not exist");
    }

    #[test]
    fn grep_cuts_long_lines() {
        let at = "x".repeat(LINE_MAX);
        let world =
            ToolWorld::with(&[("at", &at), ("over", &"\u{e9}".repeat(LINE_MAX + 1)), ("long", &"y".repeat(9000))]);
        let line = |path: &str| world.ok("grep", json!({ "pattern": ".", "path": path }))["matches"][0]["line"].clone();
        assert_eq!(line("at"), at);
        assert_eq!(line("over"), format!("{} [cut here: 1 character more]", "\u{e9}".repeat(LINE_MAX)));
        assert_eq!(line("long"), format!("{} [cut here: 7000 characters more]", "y".repeat(LINE_MAX)));
    }

    #[test]
    fn grep_limits_results() {
        let world = ToolWorld::with(&[("at", &"x\n".repeat(2000)), ("over/a", &"x\n".repeat(1500))]);
        world.file("over/b", "x\n".repeat(501));
        let at = world.ok("grep", json!({ "pattern": "x", "path": "at" }));
        assert_eq!((at["matches"].as_array().unwrap().len(), &at["truncated"]), (2000, &json!(false)));
        let over = world.ok("grep", json!({ "pattern": "x", "path": "over" }));
        assert_eq!((over["matches"].as_array().unwrap().len(), &over["truncated"]), (2000, &json!(true)));
        let text = world.text("grep", json!({ "pattern": "x", "path": "over" }));
        assert!(text.ends_with("/over/b:500: x\n[cut after 2000 lines; narrow the pattern, the path or the glob]"));
    }

    #[test]
    fn grep_searches_large_files_in_pieces() {
        let lines = |count: usize| "x\r\n".repeat(count);
        let text = format!("{}needle\n{}needle", lines(PIECE / 3), lines(PIECE));
        let world = ToolWorld::with(&[("large", &text)]);
        let (first, second) = (PIECE / 3 + 1, PIECE / 3 + PIECE + 2);
        let expected = [format!("/large:{first}:\"needle\""), format!("/large:{second}:\"needle\"")];
        assert_eq!(found(&world, json!({ "pattern": "^needle$" })), expected);
    }

    #[test]
    fn grep_pieces_end_with_a_line() {
        assert_eq!(split_after_line(b"ab\ncd\ne", 1), (&b"ab\n"[..], &b"cd\ne"[..]));
        assert_eq!(split_after_line(b"ab\ncd\ne", 3), (&b"ab\ncd\n"[..], &b"e"[..]));
        assert_eq!(split_after_line(b"ab\ncd\ne", 6), (&b"ab\ncd\ne"[..], &b""[..]));
        assert_eq!(split_after_line(b"", 6), (&b""[..], &b""[..]));
    }

    #[test]
    fn grep_empty_pattern_matches_every_line() {
        let world = ToolWorld::with(&[("a", "1\n\n3"), ("empty", "")]);
        assert_eq!(found(&world, json!({ "pattern": "" })).len(), 3);
        assert_eq!(found(&world, json!({ "pattern": "^$" })), ["/a:2:\"\""]);
    }

    #[test]
    fn grep_searches_odd_names() {
        let world = ToolWorld::new();
        world.file(b"\xff/x.rs", "needle");
        assert_eq!(found(&world, json!({ "pattern": "needle", "glob": "*.rs" })), ["/\\xff/x.rs:1:\"needle\""]);
        assert_eq!(found(&world, json!({ "pattern": "needle", "path": "\\xff" })).len(), 1);
    }

    #[test]
    fn grep_out_of_time_stops() {
        let mut call = ToolCall::new("grep", json!({ "pattern": "x" }));
        call.limit = Some(std::time::Duration::ZERO);
        assert!(sources().call(call).text.contains("time limit"));
    }
}
