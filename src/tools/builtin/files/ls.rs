//! `ls`: the entries of a directory.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{RESULTS_MAX, counted, root, shown};
use crate::engine::clock::Timestamp;
use crate::engine::event::Node;
use crate::engine::path::EntryPath;
use crate::reducers::Entry;
use crate::tools::call::context::ToolContext;
use crate::tools::call::error::ToolError;
use crate::tools::call::tool::{Effect, Tool};

/// Lists a directory.
#[derive(Debug, Clone, Copy, Default)]
pub struct ListTool;

/// Parameters of `ls`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListParams {
    /// The directory, from the workspace root; `/` is the root.
    #[serde(default = "root")]
    path: String,
}

/// A directory's entries.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ListResult {
    /// The directory.
    path: String,
    /// Its entries, sorted by name.
    entries: Vec<ListedEntry>,
}

/// Kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum EntryKind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A pipe, a socket or a device.
    Special,
}

/// One entry of a directory.
#[derive(Debug, Serialize, JsonSchema)]
struct ListedEntry {
    /// Its name.
    name: String,
    /// Its path from the root.
    path: String,
    /// Kind of the entry.
    kind: EntryKind,
    /// Bytes of a file; 0 for anything else.
    size: u64,
    /// Its version: 1 at first, one more with every write.
    version: u64,
    /// Time of its creation, in UTC.
    #[schemars(with = "String")]
    created_at: Timestamp,
    /// Time of its last write, in UTC.
    #[schemars(with = "String")]
    updated_at: Timestamp,
    /// True for an executable file.
    executable: bool,
    /// Permission bits as octal digits. Absent for a link.
    #[serde(skip_serializing_if = "Option::is_none")]
    permissions: Option<String>,
    /// Target of a link.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

impl ListedEntry {
    fn of(path: &EntryPath, entry: &Entry) -> Self {
        let (kind, executable, target) = match &entry.node {
            Node::File { mode, .. } => (EntryKind::File, mode.is_executable(), None),
            Node::Directory { .. } => (EntryKind::Directory, false, None),
            Node::Special { .. } => (EntryKind::Special, false, None),
            Node::Symlink { target } => (EntryKind::Symlink, false, Some(shown(target))),
        };
        Self {
            name: shown(path.name()),
            path: path.rooted(),
            kind,
            size: entry.size(),
            version: entry.version,
            created_at: entry.created_at,
            updated_at: entry.updated_at,
            executable,
            permissions: entry.node.mode().map(|mode| mode.to_string()),
            target,
        }
    }

    fn kind_text(&self) -> &'static str {
        match self.kind {
            EntryKind::File if self.executable => "program",
            EntryKind::File => "file",
            EntryKind::Directory => "dir",
            EntryKind::Symlink => "link",
            EntryKind::Special => "special",
        }
    }

    fn name_text(&self) -> String {
        match (&self.target, self.kind) {
            (Some(target), _) => format!("{} -> {target}", self.name),
            (None, EntryKind::Directory) => format!("{}/", self.name),
            (None, _) => self.name.clone(),
        }
    }
}

impl Tool for ListTool {
    const NAME: &'static str = "ls";
    const DESCRIPTION: &'static str = "Lists the direct entries of a directory, sorted by name: files with size, \
        version and times, directories, links. For deeper entries use glob. A missing directory is an error, and so is \
        the path of a file.";
    const EFFECT: Effect = Effect::ReadOnly;
    type Params = ListParams;
    type Output = ListResult;

    async fn call(&self, context: &mut ToolContext, params: ListParams) -> Result<ListResult, ToolError> {
        let asked = context.path(&params.path)?;
        let files = context.filesystem();
        let path = files.resolve(&asked)?;
        match files.tree().get(&path) {
            Some(entry) if entry.is_directory() => {}
            None if path.is_root() => {}
            Some(_) => {
                let asked = asked.rooted();
                return Err(ToolError::new(format!("{asked} is a file, not a directory; read it with read_file")));
            }
            None => return Err(ToolError::Missing(format!("{} does not exist", asked.rooted()))),
        }
        let entries = files.tree().children(&path).map(|(path, entry)| ListedEntry::of(path, entry)).collect();
        Ok(ListResult { path: path.rooted(), entries })
    }

    fn render(&self, output: &ListResult) -> String {
        let count = output.entries.len();
        let mut text = match count {
            0 => format!("{} is empty", output.path),
            _ => format!("{}: {}", output.path, counted(count, "entry")),
        };
        let shown = &output.entries[..count.min(RESULTS_MAX)];
        let sizes = shown.iter().map(|entry| entry.size.to_string().len()).max().unwrap_or(0);
        for entry in shown {
            let (kind, name, size, version) = (entry.kind_text(), entry.name_text(), entry.size, entry.version);
            let line = format!("\n{kind:<7}  {size:>sizes$}  v{version:<3} {}  {name}", entry.updated_at);
            text.push_str(&line);
        }
        if count > shown.len() {
            text.push_str(&format!("\n[{} more; narrow it down with glob]", counted(count - shown.len(), "line")));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::tools::builtin::files::testing::ToolWorld;

    #[test]
    fn ls_entries_are_sorted_and_complete() {
        let world = ToolWorld::with(&[("b.txt", "hello"), ("a/deep/x", "1"), ("a.txt", "")]);
        world.executable("run", "#!");
        world.link("link", "a/deep");
        let listing = world.ok("ls", json!({}));
        let names: Vec<_> = listing["entries"].as_array().unwrap().iter().map(|e| &e["name"]).collect();
        assert_eq!(names, ["a", "a.txt", "b.txt", "link", "run"]);
        let time = "2023-11-14T22:13:20.000Z";
        assert_eq!(
            listing["entries"][2],
            json!({ "name": "b.txt", "path": "/b.txt", "kind": "file", "size": 5, "version": 1,
                    "created_at": time, "updated_at": time, "executable": false, "permissions": "0644" })
        );
        assert_eq!(listing["entries"][0]["kind"], "directory");
        assert_eq!(listing["entries"][3]["target"], "a/deep");
        assert_eq!(listing["entries"][4]["executable"], true);
    }

    #[test]
    fn ls_text_is_aligned() {
        let world = ToolWorld::with(&[("dir/x", "1"), ("notes.md", "hello world")]);
        world.link("to", "dir");
        insta::assert_snapshot!(world.text("ls", json!({ "path": "/" })), @r"
        /: 3 entries
        dir       0  v1   2023-11-14T22:13:20.000Z  dir/
        file     11  v1   2023-11-14T22:13:20.000Z  notes.md
        link      0  v1   2023-11-14T22:13:20.000Z  to -> dir
        ");
    }

    #[test]
    fn ls_of_missing_and_of_file_is_an_error() {
        assert_eq!(ToolWorld::new().text("ls", json!({})), "/ is empty");
        let world = ToolWorld::with(&[("a.txt", "x")]);
        world.link("dangling", "nowhere");
        for path in ["/none", "/dangling", "/a.txt/below"] {
            assert_eq!(world.error("ls", json!({ "path": path })), format!("{path} does not exist"));
        }
        assert_eq!(
            world.error("ls", json!({ "path": "/a.txt" })),
            "/a.txt is a file, not a directory; read it with read_file"
        );
    }

    #[test]
    fn ls_follows_link_to_directory() {
        let world = ToolWorld::with(&[("dir/x", "1")]);
        world.link("to", "./dir/");
        let listing = world.ok("ls", json!({ "path": "to" }));
        assert_eq!(listing["path"], "/dir");
        assert_eq!(listing["entries"][0]["path"], "/dir/x");
    }

    #[test]
    fn ls_odd_names_are_accepted_back() {
        let world = ToolWorld::new();
        world.file(b"odd\xff\n/in", "1");
        let listing = world.ok("ls", json!({}));
        let path = listing["entries"][0]["path"].as_str().unwrap();
        assert_eq!(path, "/odd\\xff\\x0a");
        assert_eq!(world.ok("ls", json!({ "path": path }))["entries"][0]["name"], "in");
    }

    #[test]
    fn ls_long_list_is_complete_and_text_cut() {
        let world = ToolWorld::new();
        world.many((0..2001).map(|n| format!("f{n:04}")), "x");
        assert_eq!(world.ok("ls", json!({}))["entries"].as_array().unwrap().len(), 2001);
        let text = world.text("ls", json!({}));
        assert_eq!(text.lines().count(), 2002);
        assert!(text.ends_with("[1 line more; narrow it down with glob]"), "{text}");
    }
}
