mod config;

use std::collections::BTreeSet;
use std::time::Duration;

use foldspace::event::Isolation;
use foldspace::hub::HubOptions;
use foldspace::mcp::{McpOptions, McpServer, ToolGroup};
use foldspace::store::Durability;
use foldspace::tools::{MountSpec, PodmanShellTool};
use foldspace::{NewSession, Tools};
use tokio_util::sync::CancellationToken;

use super::run::mounts::MountArgs;
use super::{
    Exit, Failure, Globals, LocalServer, Out, RuleArgs, Signals, WorkspaceArgs, open, output, text, workspace,
};
use config::McpClientKind;

/// Serves a workspace's tools to an MCP client, on standard input and output
///
/// A client's session begins at its first call that needs one, and is named after the client; --session names one
/// to continue or to begin. A container stops when the client leaves; the files stay. Begin with --backend host or
/// podman: in memory, the default, no command can run.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foldspace mcp --print-config claude --backend podman
  foldspace mcp --backend podman --mount ./project
  foldspace mcp --backend host --dir ./project
  foldspace mcp --session nightly --isolation fork --tools files,shell,sessions")]
pub(super) struct Mcp {
    #[command(flatten)]
    offer: OfferArgs,
    /// Prints the configuration for that client, with the other options as given
    #[arg(long, value_name = "CLIENT")]
    print_config: Option<McpClientKind>,
    #[command(flatten)]
    mounts: MountArgs,
}

const CLOSING: Duration = Duration::from_secs(3);

#[derive(Debug, clap::Args)]
pub(super) struct OfferArgs {
    /// MCP: continues the session of that name, or begins it; else each client has a new one
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// MCP: the part of that session that the client has: itself, or a child [default: shared]
    #[arg(long, value_name = "HOW", requires = "session", value_parser = workspace::isolation())]
    isolation: Option<Isolation>,
    /// MCP: the name under which the client works [default: its own]
    #[arg(long, value_name = "NAME", value_parser = workspace::agent_name)]
    agent: Option<String>,
    /// MCP: the tools offered: files, shell, python, podman_shell, sessions, or all
    #[arg(long, value_name = "GROUP", value_delimiter = ',', default_value = "files,shell,python", value_parser = group)]
    tools: Vec<Vec<ToolGroup>>,
    #[command(flatten)]
    workspace: WorkspaceArgs,
    #[command(flatten)]
    rules: RuleArgs,
}

fn group(text: &str) -> Result<Vec<ToolGroup>, foldspace::event::ValueError> {
    if text == "all" { Ok(ToolGroup::ALL.to_vec()) } else { Ok(vec![text.parse()?]) }
}

impl Mcp {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        let mounts = self.mounts.chosen()?;
        let options = self.offer.options(mounts.specs)?;
        let tools = offered(&options.groups)?;
        // What would not start is not printed either.
        if let Some(client) = self.print_config {
            return config::print(client, globals, out);
        }
        let opened = open::writing(globals, Durability::default())?;
        let hub_options = HubOptions {
            tools: tools.into(),
            rules: options.rules.clone(),
            roots: mounts.roots,
            progress: Some(std::sync::Arc::new(output::progress)),
            ..HubOptions::new(open::directory(globals)?)
        };
        let served = super::block_on(async {
            let desk = LocalServer::open(&opened.sessions, hub_options);
            serve(&McpServer::new(desk.hub().clone(), options), &desk).await
        })?;
        served.map_err(|error| Failure::failed(text::one_line(&error.to_string(), 1000)))
    }
}

impl OfferArgs {
    pub(super) fn options(&self, mounts: Vec<MountSpec>) -> Result<McpOptions, Failure> {
        if let Some(name) = &self.session {
            NewSession::named(name).check()?;
        }
        Ok(McpOptions {
            session: self.session.clone(),
            isolation: self.isolation,
            agent: self.agent.clone(),
            workspace: self.workspace.spec()?,
            mounts,
            groups: self.tools.iter().flatten().copied().collect(),
            rules: self.rules.unasked(),
        })
    }
}

/// Returns the offered tools of the workspace.
pub(super) fn offered(groups: &BTreeSet<ToolGroup>) -> Result<Tools, Failure> {
    let all = Tools::standard().with(PodmanShellTool);
    let all = all.map_err(|error| Failure::failed(error.to_string()))?;
    let wanted = |name: &&str| ToolGroup::of(name).is_none_or(|group| groups.contains(&group));
    Ok(all.only(&all.names().filter(wanted).map(str::to_owned).collect()))
}

/// Serves until the input ends or a signal comes. A second signal ends the program at once.
async fn serve(server: &McpServer, desk: &LocalServer) -> Result<(), foldspace::mcp::McpError> {
    let mut signals = Signals::listen();
    let end = CancellationToken::new();
    let mut serving = std::pin::pin!(async {
        let served = server.serve_standard_streams(end.clone()).await;
        if end.is_cancelled() {
            desk.take_back().await;
        }
        desk.close().await;
        served
    });
    let told_twice = async {
        signals.next().await;
        end.cancel();
        signals.next().await;
    };
    tokio::select! {
        served = &mut serving => served,
        () = told_twice => {
            let closing = async {
                desk.hub().close().await;
                serving.await
            };
            drop(tokio::time::timeout(CLOSING, closing).await);
            std::process::exit(i32::from(Exit::Interrupted.code()))
        }
    }
}
