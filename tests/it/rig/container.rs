//! Containers as the engine knows them, without the library.

use std::path::{Path, PathBuf};
use std::process::Command;

use foldspace::backends::EngineKind;

use crate::engine;

/// Runs the program of the engine with these arguments, and gives what it printed.
pub(crate) fn engine_cli(arguments: &[&str]) -> Result<String, String> {
    cli_at(engine::kind(), &engine::url().unwrap(), arguments)
}

fn cli_at(kind: EngineKind, url: &str, arguments: &[&str]) -> Result<String, String> {
    let mut command = match kind {
        EngineKind::Podman => Command::new("podman"),
        // The distribution's, whatever comes before it.
        EngineKind::Docker if Path::new("/usr/bin/docker").exists() => Command::new("/usr/bin/docker"),
        EngineKind::Docker => Command::new("docker"),
    };
    let at = if kind == EngineKind::Docker { "--host" } else { "--url" };
    let output = command.args([at, url]).args(arguments).output().unwrap();
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// Where the things of containers are.
pub(crate) fn cache() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("FOLDSPACE_CACHE").or_else(|| set("HOME").map(|home| home.join(".cache/foldspace/podman"))).unwrap()
}

/// The ids of the containers of that name, running or not.
pub(crate) fn named(name: &str) -> Vec<String> {
    named_at(engine::kind(), &engine::url().unwrap(), name)
}

/// The same of the engine at a place.
pub(crate) fn named_at(kind: EngineKind, url: &str, name: &str) -> Vec<String> {
    let filter = format!("name=^{name}$");
    let listed = cli_at(kind, url, &["ps", "--all", "--no-trunc", "--filter", &filter, "--format", "{{.ID}}"]);
    listed.unwrap().lines().map(str::to_owned).collect()
}

/// The first process of a container that runs, as this machine numbers it.
pub(crate) fn process_of(name: &str) -> Option<i64> {
    let process = field(name, "{{.State.Pid}}")?.parse().unwrap();
    Some(process).filter(|process| *process > 0)
}

/// Returns the engine's words on a container; none when it has none of that name.
pub(crate) fn field(container: &str, template: &str) -> Option<String> {
    let told = engine_cli(&["container", "inspect", "--format", template, container]).ok()?;
    Some(told.trim_end().to_owned())
}
