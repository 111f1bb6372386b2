//! Instructions for a client before its session exists.

use super::ToolGroup;
use super::client::McpClient;
use crate::backends::WorkspaceSpec;
use crate::tools::{BACKGROUND, CommandTime};

/// Describes the workspace before it is open. The prompt has the details.
pub(super) fn of(client: &McpClient) -> String {
    let mut text =
        "The tools work on the files of one workspace; paths are relative to its root. Calls sent together run in \
         order; only reads run concurrently. Every call and its changes are recorded."
            .to_owned();
    if client.has_group(ToolGroup::Shell) || client.has_group(ToolGroup::Python) {
        text.push(' ');
        let workspace = client.workspace();
        text.push_str(&commands(&workspace, client.options().rules.time));
        if client.has_group(ToolGroup::Shell) && workspace.runs_commands() {
            text.push_str(&format!(" {BACKGROUND}"));
        }
    }
    if client.reaches_all() {
        text.push_str(
            " The tools named session_* inspect sessions at any position of their history, fork them, merge forks \
             back, rewind them, and find the change that broke something.",
        );
    }
    text.push_str(" The prompt `workspace` describes the workspace and its mounts.");
    text
}

fn commands(spec: &WorkspaceSpec, time: CommandTime) -> String {
    match spec {
        WorkspaceSpec::Memory => "Commands can't run here; there are only files.".to_owned(),
        WorkspaceSpec::Mock(_) => "Commands are answered from a list; nothing is run.".to_owned(),
        WorkspaceSpec::Host(options) if options.files_only => {
            "Commands can't run here: the files are a directory of the host.".to_owned()
        }
        WorkspaceSpec::Host(_) => {
            let place = "Commands run on this machine, in the workspace's directory, and are not sandboxed.";
            format!("{place} {}", time.advice())
        }
        WorkspaceSpec::Podman(options) => {
            let network = &options.network;
            format!("Commands run in an isolated Linux container. They {network}. {}", time.advice())
        }
    }
}
