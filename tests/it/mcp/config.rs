//! What clients have to be told.

use std::process::Stdio;

use serde_json::Value;

use crate::rig::Program;

fn printed(program: &Program, client: &str, arguments: &[&str]) -> String {
    let all = [&["mcp", "--print-config", client], arguments].concat();
    let output = program.command(&all).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn print_config_starts_the_server() {
    let program = Program::with_files();
    let arguments = ["--backend", "host", "--dir", "files", "--session", "from-config"];
    let document: Value = serde_json::from_str(&printed(&program, "claude", &arguments)).unwrap();
    let server = &document["mcpServers"]["foldspace"];
    assert_eq!(server["command"], env!("CARGO_BIN_EXE_foldspace"));
    assert_eq!(server["env"]["CONTAINER_HOST"], "unix:///nowhere");
    let args: Vec<&str> = server["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()).collect();
    let here = program.path("").canonicalize().unwrap();
    let (files, data) = (here.join("files"), program.data());
    let wanted = ["mcp", "--backend", "host", "--dir", files.to_str().unwrap(), "--session", "from-config"];
    assert_eq!(args[..7], wanted);
    assert_eq!(args[7..], ["--data", data.to_str().unwrap()]);
    assert!(!program.data().exists(), "nothing is begun for that");
    let mut client = program.client(&args[1..]);
    client.done("ls", serde_json::json!({}));
    client.leave();
    assert_eq!(program.sessions(), ["from-config"]);
    let vscode: Value = serde_json::from_str(&printed(&program, "vscode", &[])).unwrap();
    assert_eq!(vscode["servers"]["foldspace"]["type"], "stdio");
    let codex = printed(&program, "codex", &["--yes"]);
    assert!(codex.starts_with("[mcp_servers.foldspace]\ncommand = \"/"), "{codex}");
    assert!(codex.contains("args = [\"mcp\", \"--yes\", \"--data\", \"/"), "{codex}");
}

#[test]
fn print_config_refuses_wrong_options() {
    let program = Program::with_files();
    for wrong in [&["--session", "from config"][..], &["--mount", "x:../y"], &["--session", ""]] {
        let output = program.output(&[&["mcp", "--print-config", "claude"], wrong].concat());
        assert!(!output.status.success() && output.stdout.is_empty(), "{wrong:?}: {output:?}");
        assert!(!output.stderr.is_empty());
    }
}

#[test]
fn print_config_passes_engine_address() {
    let program = Program::with_files();
    let mut command = program.command(&["mcp", "--print-config", "claude"]);
    let output = command.env("XDG_RUNTIME_DIR", "/run/user/7").stdin(Stdio::null()).output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["mcpServers"]["foldspace"]["env"]["XDG_RUNTIME_DIR"], "/run/user/7");
}
