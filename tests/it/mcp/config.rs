//! What clients have to be told.

use std::process::Stdio;

use serde_json::Value;

use super::World;

fn printed(world: &World, client: &str, arguments: &[&str]) -> String {
    let all = [&["mcp", "--print-config", client], arguments].concat();
    let output = world.command(&all).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn what_is_printed_starts_the_server() {
    let world = World::new();
    let arguments = ["--backend", "host", "--dir", "files", "--session", "from-config"];
    let document: Value = serde_json::from_str(&printed(&world, "claude", &arguments)).unwrap();
    let server = &document["mcpServers"]["foldspace"];
    assert_eq!(server["command"], env!("CARGO_BIN_EXE_foldspace"));
    assert_eq!(server["env"]["CONTAINER_HOST"], "unix:///nowhere");
    let args: Vec<&str> = server["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()).collect();
    let here = world.0.path().canonicalize().unwrap();
    let (files, data) = (here.join("files"), world.0.path().join("data"));
    let wanted = ["mcp", "--backend", "host", "--dir", files.to_str().unwrap(), "--session", "from-config"];
    assert_eq!(args[..7], wanted);
    assert_eq!(args[7..], ["--data", data.to_str().unwrap()]);
    assert!(!world.0.path().join("data").exists(), "nothing is begun for that");
    let mut client = world.client(&args[1..]);
    client.done("ls", serde_json::json!({}));
    client.leave();
    assert_eq!(world.sessions(), ["from-config"]);
    let vscode: Value = serde_json::from_str(&printed(&world, "vscode", &[])).unwrap();
    assert_eq!(vscode["servers"]["foldspace"]["type"], "stdio");
    let codex = printed(&world, "codex", &["--yes"]);
    assert!(codex.starts_with("[mcp_servers.foldspace]\ncommand = \"/"), "{codex}");
    assert!(codex.contains("args = [\"mcp\", \"--yes\", \"--data\", \"/"), "{codex}");
}

#[test]
fn what_would_not_start_is_not_printed() {
    let world = World::new();
    for wrong in [&["--session", "from config"][..], &["--mount", "x:../y"], &["--session", ""]] {
        let output = world.run(&[&["mcp", "--print-config", "claude"], wrong].concat());
        assert!(!output.status.success() && output.stdout.is_empty(), "{wrong:?}: {output:?}");
        assert!(!output.stderr.is_empty());
    }
}

#[test]
fn where_the_users_engine_is_is_passed_on() {
    let world = World::new();
    let mut command = world.command(&["mcp", "--print-config", "claude"]);
    let output = command.env("XDG_RUNTIME_DIR", "/run/user/7").stdin(Stdio::null()).output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["mcpServers"]["foldspace"]["env"]["XDG_RUNTIME_DIR"], "/run/user/7");
}
