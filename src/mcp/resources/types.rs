//! Media types by file name.

use crate::engine::event::Node;
use crate::engine::path::EntryPath;

pub(super) fn of(path: &EntryPath, node: &Node) -> &'static str {
    match node {
        Node::Directory { .. } => "inode/directory",
        Node::Symlink { .. } => "inode/symlink",
        Node::Special { .. } => "inode/special",
        Node::File { text, .. } => {
            let name = path.to_string().to_ascii_lowercase();
            let ending = name.rsplit('/').next().and_then(|name| name.rsplit_once('.')).map(|(_, ending)| ending);
            known(ending.unwrap_or_default(), if *text { "text/plain" } else { "application/octet-stream" })
        }
    }
}

/// Returns the media type of a file name extension, or `otherwise` if the extension is unknown.
fn known(ending: &str, otherwise: &'static str) -> &'static str {
    match ending {
        "css" => "text/css",
        "csv" => "text/csv",
        "gif" => "image/gif",
        "go" => "text/x-go",
        "gz" => "application/gzip",
        "htm" | "html" => "text/html",
        "jpeg" | "jpg" => "image/jpeg",
        "js" | "mjs" => "text/javascript",
        "json" => "application/json",
        "jsonl" => "application/x-ndjson",
        "md" => "text/markdown",
        "pdf" => "application/pdf",
        "png" => "image/png",
        "py" => "text/x-python",
        "rs" => "text/x-rust",
        "sh" => "application/x-sh",
        "svg" => "image/svg+xml",
        "tar" => "application/x-tar",
        "toml" => "application/toml",
        "ts" => "text/x-typescript",
        "txt" => "text/plain",
        "wasm" => "application/wasm",
        "webp" => "image/webp",
        "xml" => "application/xml",
        "yaml" | "yml" => "application/yaml",
        "zip" => "application/zip",
        _ => otherwise,
    }
}
