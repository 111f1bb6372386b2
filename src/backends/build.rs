//! Compiles the resident runner, which the library embeds: one static program that runs in any container.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=../../runner");
    println!("cargo::rerun-if-changed=build.rs");
    for line in build().err().iter().flat_map(|error| error.lines()) {
        println!("cargo::error={line}");
    }
}

#[expect(clippy::disallowed_methods, reason = "the runner is built by the compiler that builds the library")]
fn build() -> Result<(), String> {
    let variable = |name: &str| env::var(name).map_err(|error| format!("cargo did not set {name}: {error}"));
    let os = variable("CARGO_CFG_TARGET_OS")?;
    if os != "linux" {
        return Err(format!("foldspace runs on Linux only, not on {os}"));
    }
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR")?).join("../..");
    let out = PathBuf::from(variable("OUT_DIR")?).join("runner");
    let target = variable("TARGET")?;
    let mut compiler = Command::new(variable("RUSTC")?);
    compiler.arg(root.join("runner/main.rs")).arg("-o").arg(&out).args(["--crate-name", "runner"]);
    compiler.args(["--crate-type", "bin", "--edition", "2024", "--target", &target]);
    compiler.args(["-C", "target-feature=+crt-static", "-C", "relocation-model=static"]);
    compiler.args(["-C", "opt-level=2", "-C", "panic=abort", "-C", "strip=symbols"]);
    println!("cargo::rerun-if-env-changed=FOLDSPACE_RUNNER_LINKER");
    // For a target whose linker has no static C library, as zig for glibc.
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
