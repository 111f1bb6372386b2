//! Media types by names.

use crate::engine::event::Node;
use crate::engine::path::EntryPath;

/// Endings that say more than whether a file is text.
const KNOWN: [(&str, &str); 30] = [
    ("css", "text/css"),
    ("csv", "text/csv"),
    ("gif", "image/gif"),
    ("go", "text/x-go"),
    ("gz", "application/gzip"),
    ("htm", "text/html"),
    ("html", "text/html"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript"),
    ("json", "application/json"),
    ("jsonl", "application/x-ndjson"),
    ("md", "text/markdown"),
    ("mjs", "text/javascript"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("py", "text/x-python"),
    ("rs", "text/x-rust"),
    ("sh", "application/x-sh"),
    ("svg", "image/svg+xml"),
    ("tar", "application/x-tar"),
    ("toml", "application/toml"),
    ("ts", "text/x-typescript"),
    ("txt", "text/plain"),
    ("wasm", "application/wasm"),
    ("webp", "image/webp"),
    ("xml", "application/xml"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("zip", "application/zip"),
];

/// The type of an entry.
pub(super) fn of(path: &EntryPath, node: &Node) -> &'static str {
    match node {
        Node::Directory => "inode/directory",
        Node::Symlink { .. } => "inode/symlink",
        Node::Special { .. } => "inode/special",
        Node::File { text, .. } => {
            let name = path.to_string();
            let ending = name.rsplit('/').next().and_then(|name| name.rsplit_once('.')).map(|(_, ending)| ending);
            let known = ending.and_then(|ending| KNOWN.iter().find(|(known, _)| known.eq_ignore_ascii_case(ending)));
            known.map_or(if *text { "text/plain" } else { "application/octet-stream" }, |(_, kind)| kind)
        }
    }
}
