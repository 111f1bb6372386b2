//! Compiles the resident runner, which the library embeds: one static program that runs in any container. Also lists
//! the files of the web page, which the library embeds too.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=runner");
    println!("cargo::rerun-if-changed=build.rs");
    // Only tools need it: the event store builds without a static C library.
    if env::var_os("CARGO_FEATURE_TOOLS").is_none() {
        return;
    }
    let page = if env::var_os("CARGO_FEATURE_HTTP").is_some() { list_page() } else { Ok(()) };
    for error in [build(), page].into_iter().filter_map(Result::err) {
        for line in error.lines() {
            println!("cargo::error={line}");
        }
    }
}

/// Extensions of the page's files.
const OF_PAGE: [&str; 5] = ["html", "js", "css", "svg", "png"];

/// Writes a table of the files below `web` with their contents.
#[expect(clippy::disallowed_methods, reason = "the table is a file")]
fn list_page() -> Result<(), String> {
    println!("cargo::rerun-if-changed=web");
    let variable = |name: &str| env::var(name).map_err(|error| format!("cargo did not set {name}: {error}"));
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR")?).join("web");
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

#[expect(clippy::disallowed_methods, reason = "the runner is built by the compiler that builds the library")]
fn build() -> Result<(), String> {
    let variable = |name: &str| env::var(name).map_err(|error| format!("cargo did not set {name}: {error}"));
    let os = variable("CARGO_CFG_TARGET_OS")?;
    if os != "linux" {
        return Err(format!("foldspace runs on Linux only, not on {os}"));
    }
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(variable("OUT_DIR")?).join("runner");
    let target = variable("TARGET")?;
    let mut compiler = Command::new(variable("RUSTC")?);
    compiler.arg(root.join("runner/main.rs")).arg("-o").arg(&out).args(["--crate-name", "runner"]);
    compiler.args(["--crate-type", "bin", "--edition", "2024", "--target", &target]);
    compiler.args(["-C", "target-feature=+crt-static", "-C", "relocation-model=static"]);
    compiler.args(["-C", "opt-level=2", "-C", "panic=abort", "-C", "strip=symbols"]);
    println!("cargo::rerun-if-env-changed=FOLDSPACE_RUNNER_LINKER");
    // zig, which links a wheel's program against an old glibc, lacks a static one.
    if let Ok(linker) = env::var("FOLDSPACE_RUNNER_LINKER").or_else(|_| env::var("RUSTC_LINKER")) {
        compiler.arg("-C").arg(format!("linker={linker}"));
    }
    let output = compiler.output().map_err(|error| format!("rustc could not be started: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        for line in said.lines() {
            println!("cargo::warning={line}");
        }
        return Ok(());
    }
    Err(format!(
        "the resident runner (runner/main.rs) could not be built as a static program for {target}.\n\
         It needs a linker and a static C library: on Debian, `apt-get install gcc libc6-dev`; on Fedora, \
         `dnf install gcc glibc-static`.\nrustc said:\n{said}"
    ))
}
