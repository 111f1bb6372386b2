//! Lists the files of the web page, which the library embeds.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for line in list_page().err().iter().flat_map(|error| error.lines()) {
        println!("cargo::error={line}");
    }
}

/// Extensions of the page's files.
const OF_PAGE: [&str; 5] = ["html", "js", "css", "svg", "png"];

/// Writes a table of the files below `web` with their contents.
#[expect(clippy::disallowed_methods, reason = "the table is a file")]
fn list_page() -> Result<(), String> {
    println!("cargo::rerun-if-changed=../../web");
    let variable = |name: &str| env::var(name).map_err(|error| format!("cargo did not set {name}: {error}"));
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR")?).join("../../web");
    let mut files = Vec::new();
    find(&root, &mut files)?;
    files.sort();
    let rows: Vec<_> = files.iter().filter_map(|file| Some((file.strip_prefix(&root).ok()?.to_str()?, file))).collect();
    let rows: String = rows.iter().map(|(name, file)| format!("    ({name:?}, include_bytes!({file:?})),\n")).collect();
    let out = PathBuf::from(variable("OUT_DIR")?).join("page.rs");
    fs::write(out, format!("&[\n{rows}]\n")).map_err(|error| format!("the page's files can't be listed: {error}"))
}

#[expect(clippy::disallowed_methods, reason = "the page is in files")]
fn find(directory: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{} can't be read: {error}", directory.display());
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let is_of_page = path.extension().and_then(|name| name.to_str()).is_some_and(|name| OF_PAGE.contains(&name));
        if path.is_dir() && !path.ends_with("scripts") {
            find(&path, files)?;
        } else if is_of_page {
            files.push(path);
        }
    }
    Ok(())
}
