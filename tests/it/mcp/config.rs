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

#[test]
fn print_config_of_a_kit_is_a_program() {
    let program = Program::with_files();
    let langgraph = printed(&program, "langgraph", &["--backend", "host"]);
    assert!(langgraph.contains("MultiServerMCPClient") && langgraph.contains("\"--sticky\"]"), "{langgraph}");
    let named = printed(&program, "langgraph", &["--session", "mine"]);
    assert!(!named.contains("\"--sticky\""), "a named session is one already: {named}");
    let agents = printed(&program, "openai-agents", &[]);
    assert!(agents.contains("client_session_timeout_seconds=None") && !agents.contains("--sticky"), "{agents}");
    for kit in ["pydantic-ai", "smolagents", "fastmcp", "vercel"] {
        assert!(printed(&program, kit, &[]).contains(env!("CARGO_BIN_EXE_foldspace")), "{kit}");
    }
}

/// The clients of one test are children of this process, and so of one parent.
#[test]
fn sticky_clients_of_one_parent_share_a_session() {
    let program = Program::with_files();
    for (round, arguments) in
        [&["--sticky"][..], &["--sticky"], &["--sticky", "--sticky-key", "b"]].into_iter().enumerate()
    {
        let mut client = program.client(arguments);
        client.done("write_file", super::write(&format!("{round}.txt"), "x"));
        let listed = client.done("ls", serde_json::json!({}));
        let expected = [1, 2, 1][round];
        assert_eq!(listed["entries"].as_array().unwrap().len(), expected, "{round}: {listed}");
        client.leave();
    }
    assert_eq!(program.sessions().len(), 2);
    let wrong = program.run(&["mcp", "--sticky", "--session", "s"]);
    assert!(wrong.contains("cannot be used with") && wrong.ends_with("[exit 2]"), "{wrong}");
}

#[test]
fn second_client_of_one_parent_is_told_of_sticky() {
    let program = Program::with_files();
    let told = || {
        let output = program.command(&["mcp"]).stdin(Stdio::null()).output().unwrap();
        String::from_utf8_lossy(&output.stderr).contains("--sticky")
    };
    assert_eq!([told(), told()], [false, true]);
    let named = program.command(&["mcp", "--session", "s"]).stdin(Stdio::null()).output().unwrap();
    assert!(!String::from_utf8_lossy(&named.stderr).contains("--sticky"));
}
