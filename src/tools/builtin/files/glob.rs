//! `glob`: files by name.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{GLOB_MAX, RESULTS_MAX, STRIDE, counted, missing, path_glob, root};
use crate::tools::call::context::ToolContext;
use crate::tools::call::error::ToolError;
use crate::tools::call::tool::{Effect, Tool};

/// Finds files by name.
#[derive(Debug, Clone, Copy, Default)]
pub struct GlobTool;

/// Parameters of `glob`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GlobParams {
    /// The pattern, relative to `path`: `*` and `?` stay in a segment, `**` crosses directories, `[a-z]` and `{a,b}`
    /// match alternatives.
    #[schemars(length(max = GLOB_MAX))]
    pattern: String,
    /// The directory to look in, from the workspace root; `/` is the root.
    #[serde(default = "root")]
    path: String,
}

/// Found files.
#[derive(Debug, Serialize, JsonSchema)]
pub struct GlobMatches {
    /// The directory, after following links.
    path: String,
    /// Files and links, from the workspace root, sorted.
    matches: Vec<String>,
    /// True if there are more.
    truncated: bool,
}

impl Tool for GlobTool {
    const NAME: &'static str = "glob";
    const DESCRIPTION: &'static str = "Finds files and links below a directory by a pattern for the relative path: \
        `*.rs` finds files directly in it, `**/*.rs` files at any depth. Includes names that begin with a dot; does \
        not follow links. Sorted; at most 2000 results, and `truncated` is true if there are more.";
    const EFFECT: Effect = Effect::ReadOnly;
    type Params = GlobParams;
    type Output = GlobMatches;

    async fn call(&self, context: &mut ToolContext, params: GlobParams) -> Result<GlobMatches, ToolError> {
        let glob = path_glob(&params.pattern, true)?;
        let asked = context.path(&params.path)?;
        let directory = context.filesystem().resolve(&asked)?;
        let tree = context.filesystem().tree().clone();
        if !tree.is_directory(&directory) {
            let is_file = tree.get(&directory).is_some();
            let file = || ToolError::new(format!("{} is a file, not a directory", asked.rooted()));
            return Err(if is_file { file() } else { missing(&asked, &directory) });
        }
        let mut found = GlobMatches { path: directory.rooted(), matches: Vec::new(), truncated: false };
        for (at, (path, entry)) in tree.below(&directory).enumerate() {
            if at % STRIDE == 0 {
                context.check()?;
                tokio::task::yield_now().await;
            }
            let relative = path.relative_to(&directory).unwrap_or_default();
            if entry.is_directory() || !glob.fits_bytes(relative) {
                continue;
            }
            if found.matches.len() == RESULTS_MAX {
                found.truncated = true;
                break;
            }
            found.matches.push(path.rooted());
        }
        Ok(found)
    }

    fn render(&self, output: &GlobMatches) -> String {
        if output.matches.is_empty() {
            return format!("no file below {} matches", output.path);
        }
        let mut text = output.matches.join("\n");
        if output.truncated {
            let shown = counted(output.matches.len(), "result");
            text.push_str(&format!("\n[cut after {shown}; narrow the pattern or the path]"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::tools::ToolCall;
    use crate::tools::builtin::files::testing::ToolWorld;

    fn sources() -> ToolWorld {
        ToolWorld::with(&[
            ("a.rs", ""),
            ("src/b.rs", ""),
            ("src/b.txt", ""),
            ("src/deep/c.rs", ""),
            ("src/.hidden", ""),
            ("src-old/d.rs", ""),
        ])
    }

    fn found(world: &ToolWorld, pattern: &str, path: &str) -> Vec<String> {
        let result = world.ok("glob", json!({ "pattern": pattern, "path": path }));
        serde_json::from_value(result["matches"].clone()).unwrap()
    }

    #[test]
    fn glob_star_stays_in_segment() {
        let world = sources();
        assert_eq!(found(&world, "*.rs", "/"), ["/a.rs"]);
        assert_eq!(found(&world, "*/*.rs", "/"), ["/src-old/d.rs", "/src/b.rs"]);
        assert_eq!(found(&world, "**/*.rs", "/"), ["/a.rs", "/src-old/d.rs", "/src/b.rs", "/src/deep/c.rs"]);
        assert_eq!(found(&world, "/src/**", "/"), ["/src/.hidden", "/src/b.rs", "/src/b.txt", "/src/deep/c.rs"]);
        assert_eq!(found(&world, "src/?.{rs,txt}", "/"), ["/src/b.rs", "/src/b.txt"]);
        assert_eq!(found(&world, "**/[!ab].rs", "/"), ["/src-old/d.rs", "/src/deep/c.rs"]);
        assert!(found(&world, "*.go", "/").is_empty());
    }

    #[test]
    fn glob_pattern_is_relative_to_path() {
        let world = sources();
        assert_eq!(found(&world, "*.rs", "src"), ["/src/b.rs"]);
        assert_eq!(found(&world, "**", "src/deep"), ["/src/deep/c.rs"]);
        world.link("to", "src");
        assert_eq!(found(&world, "deep/*", "to"), ["/src/deep/c.rs"]);
    }

    #[test]
    fn glob_finds_links_without_following() {
        let world = sources();
        world.link("to", "src");
        world.link("dangling.rs", "nowhere");
        assert_eq!(found(&world, "*", "/"), ["/a.rs", "/dangling.rs", "/to"]);
        assert!(found(&world, "to/*", "/").is_empty());
    }

    #[test]
    fn glob_finds_odd_names() {
        let world = ToolWorld::new();
        world.file(b"odd\xff\n.rs", "");
        assert_eq!(found(&world, "odd*.rs", "/"), ["/odd\\xff\\x0a.rs"]);
    }

    #[test]
    fn glob_errors_are_readable() {
        let world = sources();
        let error = |params: Value| world.error("glob", params);
        assert!(error(json!({ "pattern": "a[" })).starts_with("glob \"a[\" can't be used: "));
        assert!(error(json!({ "pattern": "{a" })).starts_with("glob \"{a\" can't be used: "));
        assert!(error(json!({ "pattern": "" })).contains("it is empty"));
        assert!(error(json!({ "pattern": "/" })).contains("it is empty"));
        assert!(error(json!({ "pattern": "../*" })).contains("`.` and `..` are not allowed"));
        assert_eq!(error(json!({ "pattern": "*", "path": "none" })), "/none does not exist");
        assert_eq!(error(json!({ "pattern": "*", "path": "a.rs" })), "/a.rs is a file, not a directory");
        let over = error(json!({ "pattern": "x".repeat(4097) }));
        assert_eq!(over, "the glob has 4097 characters; at most 4096 are allowed");
        assert_eq!(found(&world, &"?*".repeat(2048), "/"), Vec::<String>::new());
    }

    #[test]
    fn glob_limits_results() {
        let world = ToolWorld::new();
        world.many((0..2000).map(|n| format!("at/f{n:04}")), "");
        world.many((0..2001).map(|n| format!("over/f{n:04}")), "");
        let at = world.ok("glob", json!({ "pattern": "at/*" }));
        assert_eq!((at["matches"].as_array().unwrap().len(), &at["truncated"]), (2000, &json!(false)));
        let over = world.ok("glob", json!({ "pattern": "over/*" }));
        assert_eq!((over["matches"].as_array().unwrap().len(), &over["truncated"]), (2000, &json!(true)));
        let text = world.text("glob", json!({ "pattern": "over/*" }));
        assert!(text.ends_with("/over/f1999\n[cut after 2000 results; narrow the pattern or the path]"));
    }

    #[test]
    fn glob_without_match_says_so() {
        assert_eq!(sources().text("glob", json!({ "pattern": "*", "path": "/src/deep/" })), "/src/deep/c.rs");
        assert_eq!(sources().text("glob", json!({ "pattern": "x", "path": "src" })), "no file below /src matches");
    }

    #[test]
    fn glob_out_of_time_stops() {
        let world = sources();
        let mut call = ToolCall::new("glob", json!({ "pattern": "**" }));
        call.limit = Some(std::time::Duration::ZERO);
        assert!(world.call(call).text.contains("time limit"));
    }
}
