//! `edit_file`: replaces a text in a file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{FILE_TEXT_MAX, check_text, counted, text_file, utf8};
use crate::engine::path::EntryPath;
use crate::tools::call::context::ToolContext;
use crate::tools::call::error::ToolError;
use crate::tools::call::tool::{Effect, Tool};

/// Maximum size in bytes that a file may grow to; a larger file may not grow.
const FILE_MAX: usize = 16 << 20;

/// Replaces a text in a file.
#[derive(Debug, Clone, Copy, Default)]
pub struct EditTool;

/// Parameters of `edit_file`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EditParams {
    /// The file, from the workspace root.
    file_path: String,
    /// The text to replace, exactly as it is in the file, without line numbers: at most 48,000 characters,
    /// unless the limit is raised.
    #[schemars(length(min = 1, max = FILE_TEXT_MAX))]
    old_string: String,
    /// The replacement.
    #[schemars(length(max = FILE_TEXT_MAX))]
    new_string: String,
    /// True to replace every occurrence; false to require exactly one.
    #[serde(default)]
    replace_all: bool,
}

/// A changed file.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Edited {
    /// The file, after following links.
    file_path: String,
    /// Number of replaced occurrences.
    replacements: usize,
    /// Its new version.
    version: u64,
    /// Its new size in bytes.
    size: u64,
}

impl Tool for EditTool {
    const NAME: &'static str = "edit_file";
    const DESCRIPTION: &'static str = "Replaces a literal text in an existing UTF-8 text file. old_string must occur \
        exactly once, including spaces and line ends; include more context if it occurs several times, or set \
        replace_all to replace every occurrence. old_string and new_string have at most 48000 characters each, unless the limit is raised. Create \
        files with write_file.";
    const EFFECT: Effect = Effect::Destructive;
    type Params = EditParams;
    type Output = Edited;

    async fn call(&self, context: &mut ToolContext, params: EditParams) -> Result<Edited, ToolError> {
        let EditParams { file_path, old_string: old, new_string: new, replace_all } = params;
        let asked = context.path(&file_path)?;
        if old.is_empty() {
            return Err(ToolError::new("old_string is empty; give the text to replace"));
        }
        if old == new {
            return Err(ToolError::new("new_string is the same as old_string, so nothing would change"));
        }
        check_text(context, "old_string", &old)?;
        check_text(context, "new_string", &new)?;
        let files = context.filesystem();
        let (path, bytes) = text_file(files, &asked)?;
        let text = utf8(&asked, &bytes)?;
        let replacements = text.matches(&old).count();
        match replacements {
            0 => return Err(no_match(&asked, text, &old)),
            1 => {}
            _ if replace_all => {}
            several => return Err(several_matches(&asked, several)),
        }
        let size = size_after(&asked, text.len(), (old.len(), new.len()), replacements)?;
        files.write(&path, text.replace(&old, &new))?;
        let version = files.tree().get(&path).map_or(1, |entry| entry.version);
        Ok(Edited { file_path: path.rooted(), replacements, version, size: size as u64 })
    }

    fn render(&self, output: &Edited) -> String {
        let Edited { file_path, replacements, version, size } = output;
        let replaced = counted(*replacements, "replacement");
        format!("edited {file_path}: {replaced} ({}, version {version})", counted(*size, "byte"))
    }
}

fn no_match(path: &EntryPath, text: &str, old: &str) -> ToolError {
    let path = path.rooted();
    let why = if text.contains("\r\n") && text.replace("\r\n", "\n").contains(old) {
        "the file's lines end in \\r\\n, those of old_string in \\n"
    } else {
        "read the file and copy the text exactly, without line numbers"
    };
    ToolError::new(format!("old_string does not occur in {path} (0 matches); {why}"))
}

fn several_matches(path: &EntryPath, count: usize) -> ToolError {
    ToolError::new(format!(
        "old_string occurs {count} times in {}; it must occur exactly once: include more context, or set replace_all",
        path.rooted()
    ))
}

fn size_after(path: &EntryPath, size: usize, (old, new): (usize, usize), count: usize) -> Result<usize, ToolError> {
    let kept = size - old * count;
    let after = new.checked_mul(count).and_then(|added| added.checked_add(kept)).unwrap_or(usize::MAX);
    if after > FILE_MAX && after > size {
        let path = path.rooted();
        return Err(ToolError::new(format!("{path} would have {after} bytes; an edit makes at most {FILE_MAX}")));
    }
    Ok(after)
}

#[cfg(test)]
mod tests {
    use crate::tools::builtin::files::TEXT_MAX;
    use serde_json::{Value, json};

    use super::*;
    use crate::engine::event::Node;
    use crate::tools::builtin::files::testing::ToolWorld;

    fn edit(path: &str, old: &str, new: &str) -> Value {
        json!({ "file_path": path, "old_string": old, "new_string": new })
    }

    fn edit_all(path: &str, old: &str, new: &str) -> Value {
        json!({ "file_path": path, "old_string": old, "new_string": new, "replace_all": true })
    }

    #[test]
    fn edit_file_replaces_one_occurrence_literally() {
        let world = ToolWorld::with(&[("a.txt", "a.c $1 abc")]);
        let result = world.ok("edit_file", edit("a.txt", "a.c", "\\0$1"));
        assert_eq!(result, json!({ "file_path": "/a.txt", "replacements": 1, "version": 2, "size": 11 }));
        assert_eq!(world.read("a.txt"), b"\\0$1 $1 abc");
        let text = world.text("edit_file", edit("a.txt", "abc", ""));
        assert_eq!(text, "edited /a.txt: 1 replacement (8 bytes, version 3)");
    }

    #[test]
    fn edit_file_tells_none_from_several() {
        let world = ToolWorld::with(&[("a.txt", "x y x y x")]);
        let none = world.error("edit_file", edit("a.txt", "z", "1"));
        assert!(none.starts_with("old_string does not occur in /a.txt (0 matches)"), "{none}");
        assert_eq!(none, world.error("edit_file", edit_all("a.txt", "z", "1")));
        let several = world.error("edit_file", edit("a.txt", "x", "1"));
        assert!(several.starts_with("old_string occurs 3 times in /a.txt; it must occur exactly once"), "{several}");
        assert_eq!(world.ok("edit_file", edit_all("a.txt", "x", "1"))["replacements"], 3);
        assert_eq!(world.read("a.txt"), b"1 y 1 y 1");
    }

    #[test]
    fn edit_file_with_the_same_text_is_refused() {
        let world = ToolWorld::with(&[("a.txt", "same same")]);
        for params in [edit("a.txt", "same", "same"), edit_all("a.txt", "same", "same")] {
            assert!(world.error("edit_file", params).starts_with("new_string is the same as old_string"));
        }
    }

    #[test]
    fn edit_file_limits_its_texts() {
        let at = "\u{e9}".repeat(TEXT_MAX);
        let over = "\u{e9}".repeat(TEXT_MAX + 1);
        let world = ToolWorld::with(&[("a.txt", &over), ("b.txt", "x")]);
        let limit = |what: &str| format!("{what} has 48001 characters; at most 48000 are allowed");
        assert_eq!(world.error("edit_file", edit("a.txt", "", "x")), "old_string is empty; give the text to replace");
        assert_eq!(world.error("edit_file", edit("a.txt", &over, "x")), limit("old_string"));
        assert_eq!(world.error("edit_file", edit("b.txt", "x", &over)), limit("new_string"));
        assert_eq!(world.ok("edit_file", edit("a.txt", &at, ""))["size"], 2);
        assert_eq!(world.ok("edit_file", edit("b.txt", "x", &at))["size"], 96_000);
    }

    #[test]
    fn edit_file_grows_file_up_to_limit() {
        let world = ToolWorld::with(&[("a.txt", &"x".repeat(1024))]);
        let new = "y".repeat(FILE_MAX / 1024);
        let error = world.error("edit_file", edit_all("a.txt", "x", &format!("{new}y")));
        assert_eq!(error, "/a.txt would have 16778240 bytes; an edit makes at most 16777216");
        assert_eq!(world.ok("edit_file", edit_all("a.txt", "x", &new))["size"], FILE_MAX);
    }

    #[test]
    fn edit_file_may_shrink_file_over_limit() {
        let path = EntryPath::lookup("a").unwrap();
        assert_eq!(size_after(&path, FILE_MAX + 9, (1, 1), 3).unwrap(), FILE_MAX + 9);
        assert!(size_after(&path, FILE_MAX + 9, (1, 2), 3).is_err());
    }

    #[test]
    fn edit_file_of_non_text_is_an_error() {
        let world = ToolWorld::with(&[("dir/x", "1")]);
        world.file("binary", b"x\0");
        world.link("dangling", "nowhere");
        let error = |path: &str| world.error("edit_file", edit(path, "x", "y"));
        assert_eq!(error("binary"), "/binary is a binary file (2 bytes), not UTF-8 text");
        assert_eq!(error("dir"), "/dir is a directory; list it with ls");
        assert_eq!(error("none"), "/none does not exist");
        assert_eq!(error("dangling"), "/dangling leads to /nowhere, which does not exist");
    }

    #[test]
    fn edit_file_keeps_mode_and_follows_links() {
        let world = ToolWorld::new();
        world.executable("bin/run", "echo a");
        world.link("run", "bin/run");
        assert_eq!(world.ok("edit_file", edit("run", "a", "b"))["file_path"], "/bin/run");
        let tree = world.tree();
        let node = |path: &str| tree.get(&EntryPath::lookup(path).unwrap()).unwrap().node.clone();
        assert_eq!(node("bin/run"), Node::file(b"echo b", true));
        assert!(matches!(node("run"), Node::Symlink { .. }));
    }

    #[test]
    fn edit_file_points_out_line_ends() {
        let world = ToolWorld::with(&[("dos", "a\r\nb\r\n")]);
        let error = world.error("edit_file", edit("dos", "a\nb", "c"));
        assert!(error.ends_with("the file's lines end in \\r\\n, those of old_string in \\n"), "{error}");
        assert_eq!(world.ok("edit_file", edit("dos", "a\r\nb", "c"))["size"], 3);
    }

    #[test]
    fn edit_file_accepts_odd_names() {
        let world = ToolWorld::new();
        world.file(b"caf\xc3\xa9\xff", "x");
        assert_eq!(world.ok("edit_file", edit("caf\u{e9}\\xff", "x", "y"))["version"], 2);
    }
}
