//! Instructions that a client gets before anything is begun.

use super::ToolGroup;
use super::client::McpClient;
use crate::backends::WorkspaceSpec;
use crate::tools::CommandTime;

/// Describes the workspace. It is not open yet: the prompt has the rest.
pub(super) fn of(client: &McpClient) -> String {
    let mut text =
        "The tools work on the files of one workspace; paths are relative to its root. Calls that are sent together run \
         in order; only reads run side by side. Every call is recorded, with what it changed."
            .to_owned();
    if client.has_group(ToolGroup::Shell) || client.has_group(ToolGroup::Python) {
        text.push(' ');
        text.push_str(&commands(&client.workspace(), client.options().rules.time));
    }
    if client.reaches_all() {
        text.push_str(
            " The tools whose names begin with session_ look at sessions at any position of their history, fork them, \
             merge forks back, take them back, and find the change that broke something.",
        );
    }
    text.push_str(" The prompt `workspace` describes it, with what was copied into it.");
    text
}

fn commands(spec: &WorkspaceSpec, time: CommandTime) -> String {
    match spec {
        WorkspaceSpec::Memory => "Commands can't be run here; there are files only.".to_owned(),
        WorkspaceSpec::Mock(_) => "Commands are answered from a list; nothing is run.".to_owned(),
        WorkspaceSpec::Host(options) if options.files_only => {
            "Commands can't be run here: the files are a directory of the host.".to_owned()
        }
        WorkspaceSpec::Host(_) => {
            let place = "Commands run on this machine, in the workspace's directory, and are not sandboxed.";
            format!("{place} {}", time.advice())
        }
        WorkspaceSpec::Podman(options) => {
            let network = if options.network { "with" } else { "without" };
            format!("Commands run in an isolated Linux container {network} network. {}", time.advice())
        }
    }
}
