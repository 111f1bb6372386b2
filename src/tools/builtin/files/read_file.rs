//! `read_file`: lines of a text file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{counted, text_file, utf8};
use crate::tools::call::context::ToolContext;
use crate::tools::call::error::ToolError;
use crate::tools::call::tool::{Effect, Tool};

const LINES_MAX: u64 = 2_000;
/// Maximum number of bytes that one call returns, since lines may have any length.
const BYTES_MAX: usize = 1 << 20;

/// Reads lines of a text file.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReadTool;

/// Parameters of `read_file`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadParams {
    /// The file, from the workspace root.
    file_path: String,
    /// Number of lines to skip.
    #[serde(default)]
    offset: u64,
    /// Number of lines to return.
    #[serde(default = "lines_max")]
    #[schemars(range(min = 1, max = LINES_MAX))]
    limit: u64,
}

fn lines_max() -> u64 {
    LINES_MAX
}

/// Lines of a file.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ReadLines {
    /// The file, after following links.
    file_path: String,
    /// The lines exactly as they are in the file.
    content: String,
    /// Number of lines skipped.
    offset: u64,
    /// Number of lines returned.
    lines: u64,
    /// Number of lines in the file.
    total_lines: u64,
    /// True if more lines follow.
    truncated: bool,
}

impl Tool for ReadTool {
    const NAME: &'static str = "read_file";
    const DESCRIPTION: &'static str = "Reads a UTF-8 text file. Each line is shown after its number, from 1, and a \
        tab, which are not part of the file. Returns at most 2000 lines and 1 MiB; for the rest call again with an \
        offset, the number of lines to skip. Refuses binary files.";
    const EFFECT: Effect = Effect::ReadOnly;
    type Params = ReadParams;
    type Output = ReadLines;

    async fn call(&self, context: &mut ToolContext, params: ReadParams) -> Result<ReadLines, ToolError> {
        let ReadParams { file_path, offset, limit } = params;
        if !(1..=LINES_MAX).contains(&limit) {
            return Err(ToolError::new(format!("limit is {limit}; it must be from 1 to {LINES_MAX} lines")));
        }
        let asked = context.path(&file_path)?;
        let (path, bytes) = text_file(context.filesystem(), &asked)?;
        let text = utf8(&asked, &bytes)?;
        let total_lines = text.lines().count() as u64;
        if offset > 0 && offset >= total_lines {
            let total = counted(total_lines, "line");
            return Err(ToolError::new(format!("offset {offset} is past the end: {} has {total}", asked.rooted())));
        }
        let (content, lines) = choose(text, offset, limit);
        if lines == 0 && total_lines > 0 {
            return Err(ToolError::new(format!(
                "line {} of {} alone is longer than {BYTES_MAX} bytes, the limit of one call; \
                 search it with grep",
                offset + 1,
                asked.rooted()
            )));
        }
        let truncated = offset + lines < total_lines;
        let content = content.to_owned();
        Ok(ReadLines { file_path: path.rooted(), content, offset, lines, total_lines, truncated })
    }

    fn render(&self, output: &ReadLines) -> String {
        if output.total_lines == 0 {
            return format!("[{} is empty]", output.file_path);
        }
        let mut text = String::with_capacity(output.content.len() + output.content.len() / 4);
        let mut returns = false;
        for (number, line) in (output.offset + 1..).zip(output.content.split_inclusive('\n')) {
            let line = line.strip_suffix('\n').unwrap_or(line);
            returns |= line.ends_with('\r');
            let line = line.strip_suffix('\r').unwrap_or(line);
            text.push_str(&format!("{number:>6}\t{line}\n"));
        }
        if returns {
            text.push_str("[lines end in \\r\\n]\n");
        }
        if output.truncated {
            let (first, last) = (output.offset + 1, output.offset + output.lines);
            let total = counted(output.total_lines, "line");
            text.push_str(&format!("[lines {first} to {last} of {total}; continue with offset {last}]\n"));
        }
        text
    }
}

fn choose(text: &str, offset: u64, limit: u64) -> (&str, u64) {
    let skipped = usize::try_from(offset).unwrap_or(usize::MAX);
    let start = text.split_inclusive('\n').take(skipped).map(str::len).sum::<usize>();
    let (mut end, mut lines) = (start, 0);
    for line in text[start..].split_inclusive('\n') {
        if lines == limit || end - start + line.len() > BYTES_MAX {
            break;
        }
        end += line.len();
        lines += 1;
    }
    (&text[start..end], lines)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tools::builtin::files::testing::ToolWorld;

    fn numbered(count: usize) -> String {
        (1..=count).map(|n| format!("line {n}\n")).collect()
    }

    #[test]
    fn read_file_numbers_lines_and_keeps_content() {
        let world = ToolWorld::with(&[("a.txt", "one\ntwo\n\nlast")]);
        let result = world.ok("read_file", json!({ "file_path": "a.txt" }));
        let expected = json!({ "file_path": "/a.txt", "content": "one\ntwo\n\nlast", "offset": 0, "lines": 4,
                               "total_lines": 4, "truncated": false });
        assert_eq!(result, expected);
        let text = world.text("read_file", json!({ "file_path": "/a.txt" }));
        assert_eq!(text, "     1\tone\n     2\ttwo\n     3\t\n     4\tlast\n");
    }

    #[test]
    fn read_file_offset_and_limit_select() {
        let world = ToolWorld::with(&[("a.txt", "one\ntwo\nthree\n")]);
        let result = world.ok("read_file", json!({ "file_path": "a.txt", "offset": 1, "limit": 1 }));
        assert_eq!((&result["content"], &result["lines"]), (&json!("two\n"), &json!(1)));
        assert_eq!((&result["total_lines"], &result["truncated"]), (&json!(3), &json!(true)));
        let text = world.text("read_file", json!({ "file_path": "a.txt", "offset": 1, "limit": 1 }));
        assert_eq!(text, "     2\ttwo\n[lines 2 to 2 of 3 lines; continue with offset 2]\n");
        let last = world.ok("read_file", json!({ "file_path": "a.txt", "offset": 2 }));
        assert_eq!((&last["content"], &last["truncated"]), (&json!("three\n"), &json!(false)));
    }

    #[test]
    fn read_file_returns_at_most_2000_lines() {
        let world = ToolWorld::with(&[("at", &numbered(2000)), ("over", &numbered(2001))]);
        let at = world.ok("read_file", json!({ "file_path": "at" }));
        assert_eq!((&at["lines"], &at["truncated"]), (&json!(2000), &json!(false)));
        let over = world.ok("read_file", json!({ "file_path": "over" }));
        assert_eq!((&over["lines"], &over["truncated"]), (&json!(2000), &json!(true)));
        assert!(world.call_limit(2000).is_ok());
        for limit in [0, 2001] {
            let error = world.call_limit(limit).unwrap_err();
            assert_eq!(error, format!("limit is {limit}; it must be from 1 to 2000 lines"));
        }
    }

    impl ToolWorld {
        fn call_limit(&self, limit: u64) -> Result<(), String> {
            let params = json!({ "file_path": "at", "limit": limit });
            let outcome = self.call(crate::tools::ToolCall::new("read_file", params));
            if outcome.is_ok() { Ok(()) } else { Err(outcome.text) }
        }
    }

    #[test]
    fn read_file_offset_past_end_is_an_error() {
        let world = ToolWorld::with(&[("three", "1\n2\n3"), ("empty", "")]);
        for offset in [3, 4, u64::MAX] {
            let error = world.error("read_file", json!({ "file_path": "three", "offset": offset }));
            assert_eq!(error, format!("offset {offset} is past the end: /three has 3 lines"));
        }
        assert!(world.error("read_file", json!({ "file_path": "empty", "offset": 1 })).contains("has 0 lines"));
        let empty = world.ok("read_file", json!({ "file_path": "empty" }));
        assert_eq!((&empty["lines"], &empty["total_lines"]), (&json!(0), &json!(0)));
        assert_eq!(world.text("read_file", json!({ "file_path": "empty" })), "[/empty is empty]");
    }

    #[test]
    fn read_file_keeps_carriage_returns_in_content_only() {
        let world = ToolWorld::with(&[("dos", "a\r\nb\r\n")]);
        assert_eq!(world.ok("read_file", json!({ "file_path": "dos" }))["content"], "a\r\nb\r\n");
        let text = world.text("read_file", json!({ "file_path": "dos" }));
        assert_eq!(text, "     1\ta\n     2\tb\n[lines end in \\r\\n]\n");
    }

    #[test]
    fn read_file_of_non_text_is_an_error() {
        let world = ToolWorld::with(&[("dir/x", "1")]);
        world.file("nul", b"a\0b");
        world.file("latin", b"caf\xe9");
        world.link("dangling", "nowhere/x");
        let error = |path: &str| world.error("read_file", json!({ "file_path": path }));
        assert_eq!(error("nul"), "/nul is a binary file (3 bytes), not UTF-8 text");
        assert_eq!(error("latin"), "/latin is a binary file (4 bytes), not UTF-8 text");
        assert_eq!(error("dir"), "/dir is a directory; list it with ls");
        assert_eq!(error("/"), "/ is a directory; list it with ls");
        assert_eq!(error("none"), "/none does not exist");
        assert_eq!(error("dir/x/y"), "/dir/x/y does not exist");
        assert_eq!(error("dangling"), "/dangling leads to /nowhere/x, which does not exist");
    }

    #[test]
    fn read_file_follows_links_and_odd_names() {
        let world = ToolWorld::with(&[("dir/x", "1")]);
        world.link("dir/up", "../dir/x");
        world.file(b"\xfe", "odd");
        assert_eq!(world.ok("read_file", json!({ "file_path": "dir/up" }))["file_path"], "/dir/x");
        assert_eq!(world.ok("read_file", json!({ "file_path": "\\xfe" }))["content"], "odd");
    }

    #[test]
    fn read_file_stops_at_long_lines() {
        let half = format!("{}\n", "x".repeat(BYTES_MAX / 2 - 1));
        let world = ToolWorld::with(&[("long", &half.repeat(3)), ("longer", &"x".repeat(BYTES_MAX + 1))]);
        let result = world.ok("read_file", json!({ "file_path": "long" }));
        assert_eq!((&result["lines"], &result["truncated"]), (&json!(2), &json!(true)));
        let error = world.error("read_file", json!({ "file_path": "longer" }));
        assert!(error.starts_with("line 1 of /longer alone is longer than 1048576 bytes"), "{error}");
    }
}
