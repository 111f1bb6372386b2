//! `write_file`: creates or writes a file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{FILE_TEXT_MAX, check_text, counted};
use crate::engine::event::Node;
use crate::engine::path::EntryPath;
use crate::reducers::Entry;
use crate::tools::call::context::ToolContext;
use crate::tools::call::error::ToolError;
use crate::tools::call::filesystem::Filesystem;
use crate::tools::call::tool::{Effect, Tool};

/// Creates a file.
#[derive(Debug, Clone, Copy, Default)]
pub struct WriteTool;

/// Parameters of `write_file`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteParams {
    /// The file, from the workspace root: at most 16 segments of 80 characters, without control characters.
    file_path: String,
    /// Its whole text.
    #[schemars(length(max = FILE_TEXT_MAX))]
    content: String,
    /// Effect on an existing file.
    #[serde(default)]
    mode: TextMode,
}

/// Treatment of an existing file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::tools::builtin) enum TextMode {
    /// Fails.
    #[default]
    Create,
    /// Replaces its text.
    Overwrite,
    /// Appends to its text.
    Append,
}

/// A written file.
#[derive(Debug, Serialize, JsonSchema)]
pub struct WriteResult {
    /// The file, after following links.
    file_path: String,
    /// Its size in bytes.
    size: u64,
    /// Its version: 1 for a new file.
    version: u64,
}

impl Tool for WriteTool {
    const NAME: &'static str = "write_file";
    const DESCRIPTION: &'static str = "Creates a file with the given text, at most 48000 characters unless the limit is raised, and its missing \
        directories. Fails if the path exists, unless it is a file and the mode is overwrite or append. To change a \
        part of a file use edit_file.";
    const EFFECT: Effect = Effect::Destructive;
    type Params = WriteParams;
    type Output = WriteResult;

    async fn call(&self, context: &mut ToolContext, params: WriteParams) -> Result<WriteResult, ToolError> {
        write_text(context, &params.file_path, params.content, params.mode)
    }

    fn render(&self, output: &WriteResult) -> String {
        let WriteResult { file_path, size, version } = output;
        format!("wrote {file_path} ({}, version {version})", counted(*size, "byte"))
    }
}

/// Writes a text for a tool.
pub(in crate::tools::builtin) fn write_text(
    context: &mut ToolContext,
    file_path: &str,
    content: String,
    mode: TextMode,
) -> Result<WriteResult, ToolError> {
    let asked = EntryPath::for_creation(context.below_root(file_path)?)?;
    check_text(context, "content", &content)?;
    let files = context.filesystem();
    let path = files.beside_links(&asked)?;
    if let Some(entry) = files.tree().get(&path)
        && !(mode != TextMode::Create && matches!(entry.node, Node::File { .. }))
    {
        return Err(taken(&asked, entry));
    }
    match mode {
        TextMode::Create => files.create(&path, content)?,
        TextMode::Overwrite => files.write(&path, content)?,
        TextMode::Append => files.append(&path, content.as_bytes())?,
    }
    Ok(result_of(files, &path))
}

/// Describes a file as it is now.
pub(in crate::tools::builtin) fn result_of(files: &Filesystem, path: &EntryPath) -> WriteResult {
    let (version, size) = match files.tree().get(path) {
        Some(Entry { version, node: Node::File { size, .. }, .. }) => (*version, *size),
        // Not a file, which no caller passes.
        _ => (0, 0),
    };
    WriteResult { file_path: path.rooted(), size, version }
}

fn taken(path: &EntryPath, entry: &Entry) -> ToolError {
    let path = path.rooted();
    ToolError::new(match &entry.node {
        Node::File { .. } => {
            format!("{path} already exists; change it with edit_file, or replace it with mode overwrite")
        }
        Node::Directory { .. } => {
            format!("{path} is a directory; choose another path, or change a file in it with edit_file")
        }
        Node::Special { special } => {
            format!("{path} is a {}; choose another path, or remove it with rm first", special.name())
        }
        Node::Symlink { .. } => {
            format!("{path} is a symbolic link; change what it leads to with edit_file, or remove it with rm first")
        }
    })
}

#[cfg(test)]
mod tests {
    use crate::tools::builtin::files::TEXT_MAX;
    use serde_json::json;

    use super::*;
    use crate::tools::builtin::files::testing::ToolWorld;

    #[test]
    fn write_file_creates_file_and_directories() {
        let world = ToolWorld::new();
        let result = world.ok("write_file", json!({ "file_path": "//src//lib.rs", "content": "caf\u{e9}\n" }));
        assert_eq!(result, json!({ "file_path": "/src/lib.rs", "size": 6, "version": 1 }));
        assert_eq!(world.paths(), ["/src", "/src/lib.rs"]);
        assert_eq!(world.read("src/lib.rs"), "caf\u{e9}\n".as_bytes());
        let text = world.text("write_file", json!({ "file_path": "a.txt", "content": "hello" }));
        assert_eq!(text, "wrote /a.txt (5 bytes, version 1)");
        assert!(!world.tree().is_directory(&EntryPath::lookup("a.txt").unwrap()));
    }

    #[test]
    fn write_file_does_not_replace() {
        let world = ToolWorld::with(&[("a.txt", "x"), ("dir/x", "1")]);
        world.link("dangling", "nowhere");
        world.link("to", "dir");
        for path in ["a.txt", "dir", "dangling", "to", "to/x"] {
            let error = world.error("write_file", json!({ "file_path": path, "content": "y" }));
            assert!(error.contains("edit_file"), "{error}");
        }
        assert_eq!(world.read("dir/x"), b"1");
    }

    #[test]
    fn write_file_replaces_or_extends_a_file_only() {
        let world = ToolWorld::with(&[("a.txt", "x"), ("dir/x", "1")]);
        world.executable("run", "#!");
        world.link("to", "a.txt");
        let write = |path: &str| json!({ "file_path": path, "content": "y", "mode": "overwrite" });
        let append = |path: &str| json!({ "file_path": path, "content": "z", "mode": "append" });
        assert_eq!(world.ok("write_file", write("a.txt"))["version"], 2);
        assert_eq!(world.ok("write_file", write("new.txt"))["version"], 1);
        world.ok("write_file", write("run"));
        assert_eq!((world.read("a.txt"), world.read("run")), (b"y".to_vec(), b"y".to_vec()));
        assert_eq!(world.ok("write_file", append("run"))["size"], 2);
        assert_eq!(world.ok("write_file", append("late.txt"))["version"], 1);
        assert_eq!((world.read("run"), world.read("late.txt")), (b"yz".to_vec(), b"z".to_vec()));
        assert_eq!(world.ok("ls", json!({}))["entries"][4]["executable"], true);
        for path in ["dir", "to", "a.txt/b"] {
            world.error("write_file", write(path));
            world.error("write_file", append(path));
        }
    }

    #[test]
    fn write_file_below_a_file_is_an_error() {
        let world = ToolWorld::with(&[("a.txt", "x")]);
        let error = world.error("write_file", json!({ "file_path": "a.txt/b/c", "content": "y" }));
        assert_eq!(error, "/a.txt/b/c can't be written: /a.txt is a file, not a directory");
    }

    #[test]
    fn write_file_writes_through_linked_directory() {
        let world = ToolWorld::with(&[("dir/x", "1")]);
        world.link("to", "dir");
        let result = world.ok("write_file", json!({ "file_path": "to/new", "content": "" }));
        assert_eq!(result["file_path"], "/dir/new");
    }

    #[test]
    fn write_file_limits_characters() {
        let world = ToolWorld::new();
        let text = |chars: usize| json!({ "file_path": "a", "content": "\u{e9}".repeat(chars) });
        let error = world.error("write_file", text(TEXT_MAX + 1));
        assert_eq!(error, "content has 48001 characters; at most 48000 are allowed");
        assert_eq!(world.ok("write_file", text(TEXT_MAX))["size"], 96_000);
    }

    #[test]
    fn write_file_limits_new_paths() {
        let world = ToolWorld::new();
        let write = |path: &str| json!({ "file_path": path, "content": "" });
        let deep = |segments: usize| vec!["d"; segments].join("/");
        world.ok("write_file", write(&deep(16)));
        world.ok("write_file", write(&"x".repeat(80)));
        assert!(world.error("write_file", write(&deep(17))).contains("at most 16"));
        assert!(world.error("write_file", write(&"x".repeat(81))).contains("at most 80"));
        world.ok("write_file", write("caf\u{e9}/\u{7530}.txt"));
        assert!(world.error("write_file", write("a\nb")).contains("can't be seen"));
        assert!(world.error("write_file", write("/")).contains("root"));
    }
}
