//! `rm`: an entry and everything below it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::missing;
use crate::tools::call::context::ToolContext;
use crate::tools::call::error::ToolError;
use crate::tools::call::tool::{Effect, Tool};

/// Removes an entry and everything below it.
#[derive(Debug, Clone, Copy, Default)]
pub struct RemoveTool;

/// Parameters of `rm`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveParams {
    /// The file, directory or link, from the workspace root.
    path: String,
}

/// Removed entry.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Removed {
    /// The entry.
    path: String,
    /// Number of removed entries, including entries below it.
    removed: usize,
}

impl Tool for RemoveTool {
    const NAME: &'static str = "rm";
    const DESCRIPTION: &'static str = "Removes a file, a link (not its target), or a directory with everything below \
        it. The workspace root can't be removed, and a path that does not exist is an error.";
    const EFFECT: Effect = Effect::Destructive;
    type Params = RemoveParams;
    type Output = Removed;

    async fn call(&self, context: &mut ToolContext, params: RemoveParams) -> Result<Removed, ToolError> {
        let asked = context.path(&params.path)?;
        let files = context.filesystem();
        let path = if asked.is_root() { asked.clone() } else { files.beside_links(&asked)? };
        if !path.is_root() && files.tree().get(&path).is_none() {
            return Err(missing(&asked, &path));
        }
        let removed = 1 + files.tree().below(&path).count();
        files.remove(&path)?;
        Ok(Removed { path: path.rooted(), removed })
    }

    fn render(&self, output: &Removed) -> String {
        match output.removed {
            1 => format!("removed {}", output.path),
            more => format!("removed {} ({more} entries)", output.path),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::tools::builtin::files::testing::ToolWorld;

    #[test]
    fn rm_removes_directory_with_contents() {
        let world = ToolWorld::with(&[("a/b/c", "1"), ("a/d", "2"), ("ab", "3")]);
        let result = world.ok("rm", json!({ "path": "/a/" }));
        assert_eq!(result, json!({ "path": "/a", "removed": 4 }));
        assert_eq!(world.paths(), ["/ab"]);
        assert_eq!(world.text("rm", json!({ "path": "ab" })), "removed /ab");
        assert!(world.paths().is_empty());
    }

    #[test]
    fn rm_text_counts_entries() {
        let world = ToolWorld::with(&[("a/b", "1")]);
        assert_eq!(world.text("rm", json!({ "path": "a" })), "removed /a (2 entries)");
    }

    #[test]
    fn rm_of_root_or_missing_is_an_error() {
        let world = ToolWorld::with(&[("a/b", "1")]);
        for root in ["/", "", "//"] {
            let error = world.error("rm", json!({ "path": root }));
            assert_eq!(error, "the workspace root can't be removed; name entries below it");
        }
        assert_eq!(world.error("rm", json!({ "path": "a/c" })), "/a/c does not exist");
        assert_eq!(world.error("rm", json!({ "path": "a/b/c" })), "/a/b/c does not exist");
    }

    #[test]
    fn rm_removes_link_not_target() {
        let world = ToolWorld::with(&[("dir/x", "1"), ("dir/y", "2")]);
        world.link("to", "dir");
        world.link("out", "/etc");
        world.link("dangling", "nowhere");
        for path in ["out", "dangling", "to/y", "to"] {
            assert_eq!(world.ok("rm", json!({ "path": path }))["removed"], 1);
        }
        assert_eq!(world.paths(), ["/dir", "/dir/x"]);
    }

    #[test]
    fn rm_accepts_odd_names() {
        let world = ToolWorld::new();
        world.file(b"\xff/x", "1");
        assert_eq!(world.ok("rm", json!({ "path": "\\xff" }))["removed"], 2);
    }
}
