//! File tools, one module each. They use only [`Filesystem`], so they behave the same on every backend.

mod edit_file;
mod glob;
mod grep;
mod ls;
mod read_file;
mod rm;
#[cfg(test)]
mod testing;
mod write_file;

use bytes::Bytes;

use crate::engine::event::Node;
use crate::engine::path::EntryPath;
use crate::engine::path_glob::PathGlob;
use crate::tools::call::context::ToolContext;
use crate::tools::call::error::ToolError;
use crate::tools::call::filesystem::Filesystem;
use crate::tools::words::counted;

pub use edit_file::EditTool;
pub use glob::GlobTool;
pub use grep::GrepTool;
pub use ls::ListTool;
pub use read_file::ReadTool;
pub use rm::RemoveTool;
pub use write_file::WriteTool;
pub(super) use write_file::{TextMode, WriteResult, result_of, write_text};

/// Maximum number of characters of a text parameter.
pub(in crate::tools) const TEXT_MAX: usize = 48_000;
/// Maximum for the setting of that limit, for the texts of files.
pub(in crate::tools) const FILE_TEXT_MAX: usize = 32 << 20;
/// Maximum number of characters of a glob.
const GLOB_MAX: usize = 4_096;
const RESULTS_MAX: usize = 2_000;
/// Entries visited between two checks of the time limit.
const STRIDE: usize = 1_024;

fn root() -> String {
    "/".to_owned()
}

/// Returns the bytes of a name or of a link's target in the notation of [`EntryPath`].
pub(crate) fn shown(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let escape = |text: &mut String, bytes: &[u8]| bytes.iter().for_each(|b| text.push_str(&format!("\\x{b:02x}")));
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                c if c.is_control() => escape(&mut text, c.encode_utf8(&mut [0; 4]).as_bytes()),
                c => text.push(c),
            }
        }
        escape(&mut text, chunk.invalid());
    }
    text
}

pub(super) fn check_chars(what: &str, text: &str) -> Result<(), ToolError> {
    check_most(what, text, TEXT_MAX)
}

fn check_most(what: &str, text: &str, most: usize) -> Result<(), ToolError> {
    match text.chars().count() {
        chars if chars > most => {
            Err(ToolError::new(format!("{what} has {chars} characters; at most {most} are allowed")))
        }
        _ => Ok(()),
    }
}

/// Checks the text of a file against the limit in the runner's rules.
fn check_text(context: &ToolContext, what: &str, text: &str) -> Result<(), ToolError> {
    check_most(what, text, context.text_chars().unwrap_or(TEXT_MAX).min(FILE_TEXT_MAX))
}

pub(crate) fn missing(asked: &EntryPath, real: &EntryPath) -> ToolError {
    let asked = asked.rooted();
    match real.rooted() {
        real if real == asked => ToolError::Missing(format!("{asked} does not exist")),
        real => ToolError::Missing(format!("{asked} leads to {real}, which does not exist")),
    }
}

/// Returns the real path and the contents of a text file, following links.
pub(super) fn text_file(files: &Filesystem, asked: &EntryPath) -> Result<(EntryPath, Bytes), ToolError> {
    let real = files.resolve(asked)?;
    let shown = asked.rooted();
    match files.tree().node(&real) {
        // An incomplete file may be text or not; the error of reading it names the reason.
        Some(Node::File { text: false, incomplete: false, size, .. }) => Err(not_text(asked, *size)),
        Some(Node::File { .. }) => files.read(&real).map(|bytes| (real, bytes)),
        Some(Node::Special { special }) => Err(ToolError::new(format!("{shown} is a {}", special.name()))),
        None if !real.is_root() => Err(missing(asked, &real)),
        Some(_) | None => Err(ToolError::new(format!("{shown} is a directory; list it with ls"))),
    }
}

fn not_text(path: &EntryPath, size: u64) -> ToolError {
    let size = counted(size, "byte");
    ToolError::new(format!("{} is a binary file ({size}), not UTF-8 text", path.rooted()))
}

/// Returns bytes as text. Files marked as text are UTF-8, so this fails only for other files.
pub(super) fn utf8<'a>(path: &EntryPath, bytes: &'a [u8]) -> Result<&'a str, ToolError> {
    std::str::from_utf8(bytes).map_err(|_| not_text(path, bytes.len() as u64))
}

/// Compiles a glob. With `is_whole` it matches whole paths even without a slash.
fn path_glob(pattern: &str, is_whole: bool) -> Result<PathGlob, ToolError> {
    let wrong = |why: &dyn std::fmt::Display| ToolError::new(format!("glob {pattern:?} can't be used: {why}"));
    let chars = pattern.chars().count();
    if chars > GLOB_MAX {
        return Err(ToolError::new(format!("the glob has {chars} characters; at most {GLOB_MAX} are allowed")));
    }
    let relative = pattern.strip_prefix("./").unwrap_or(pattern).trim_start_matches('/');
    if relative.trim().is_empty() {
        return Err(wrong(&"it is empty; use `**` for every file"));
    }
    if relative.split('/').any(|segment| matches!(segment, "." | "..")) {
        return Err(wrong(&"`.` and `..` are not allowed; select the directory with `path`"));
    }
    let compiled = if is_whole { PathGlob::new(&format!("/{relative}")) } else { PathGlob::new(pattern) };
    compiled.map_err(|error| wrong(error.kind()))
}

#[cfg(test)]
mod tests {
    use super::testing::ToolWorld;
    use super::*;
    use crate::tools::Tools;

    #[test]
    fn file_tools_refuse_unknown_parameters() {
        let world = ToolWorld::new();
        for tool in Tools::standard().names() {
            let error = world.error(tool, serde_json::json!({ "colour": "red" }));
            assert!(error.starts_with(&format!("invalid parameters for {tool}: ")), "{error}");
        }
    }

    #[test]
    fn file_tools_refuse_hostile_paths() {
        let world = ToolWorld::new();
        for path in ["../etc/passwd", "a/../../b", "a/./b", "./../a", "a\0b", "\\x2e\\x2e/a"] {
            for (tool, params) in ToolWorld::calls_with_path(path) {
                let error = world.error(tool, params);
                assert!(error.contains("not allowed") || error.contains("NUL"), "{tool}: {error}");
            }
        }
    }

    #[test]
    fn file_tools_take_leading_dot_as_root() {
        let world = ToolWorld::with(&[("a.txt", "one\n"), ("d/b.txt", "two\n")]);
        for (tool, params) in ToolWorld::calls_with_path("./a.txt") {
            let error = world.call(crate::tools::ToolCall::new(tool, params)).text;
            assert!(!error.contains("not allowed"), "{tool}: {error}");
        }
        let names =
            |path: &str| world.ok("ls", serde_json::json!({ "path": path }))["entries"].as_array().unwrap().len();
        assert_eq!([names("."), names("./"), names("./d"), names(".//d")], [names("/"), names("/"), 1, 1]);
        world.ok("write_file", serde_json::json!({ "file_path": "./new.txt", "content": "" }));
        assert_eq!(world.ok("glob", serde_json::json!({ "pattern": "./n*", "path": "." }))["matches"][0], "/new.txt");
    }

    #[test]
    fn file_tools_refuse_links_out_and_cycles() {
        let world = ToolWorld::new();
        world.link("out", "../../etc");
        world.link("root", "/etc");
        world.link("a", "b");
        world.link("b", "a");
        for path in ["out/x", "root/x", "a/x"] {
            for (tool, params) in ToolWorld::calls_with_path(path) {
                let error = world.error(tool, params);
                let expected = if path == "a/x" { "too many symbolic links" } else { "leads out of the workspace" };
                assert!(error.contains(expected), "{tool} {path}: {error}");
            }
        }
    }

    #[test]
    fn name_bytes_show_as_in_a_path() {
        let bytes = b"gr\xc3\xbcn \xff\n\\".as_slice();
        assert_eq!(shown(bytes), "gr\u{fc}n \\xff\\x0a\\\\");
        assert_eq!(shown(bytes), EntryPath::from_bytes(bytes).unwrap().to_string());
    }

    #[test]
    fn text_limits_count_characters() {
        assert!(check_chars("it", &"\u{e9}".repeat(TEXT_MAX)).is_ok());
        assert!(check_chars("it", &"\u{e9}".repeat(TEXT_MAX + 1)).is_err());
    }
}
