//! `foldspace mcp`: the server for agents and their orchestrators.

mod config;

use std::collections::BTreeSet;
use std::time::Duration;

use clap::ValueEnum;
use foldspace::event::Isolation;
use foldspace::hub::HubOptions;
use foldspace::mcp::{McpOptions, McpServer, ToolGroup};
use foldspace::store::Durability;
use foldspace::tools::{MountSpec, PodmanShellTool};
use foldspace::{NewSession, Tools};
use tokio_util::sync::CancellationToken;

use super::Globals;
use super::exit::{Exit, Failure};
use super::interrupt::Signals;
use super::local_server::LocalServer;
use super::output::{self, Out};
use super::run::MountArgs;
use super::workspace::{self, RuleArgs, WorkspaceArgs};
use super::{open, text};
use config::McpClientKind;

/// Serves a workspace with its tools to a client of the Model Context Protocol, on standard input and output
///
/// A client's session is begun at its first call that needs one, and called after the client; --session
/// names one that goes on, or begins. When the client goes, so does a container; the files stay.
/// Begin with --backend host or podman: in memory, the default, nothing can run.
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
    /// Prints what to write into the configuration of that client, with the other options as they are given
    #[arg(long, value_name = "CLIENT")]
    print_config: Option<McpClientKind>,
    #[command(flatten)]
    mounts: MountArgs,
}

/// How long workspaces may take to close when the program is to end at once.
const CLOSING: Duration = Duration::from_secs(3);

/// What clients are offered.
#[derive(Debug, clap::Args)]
pub(super) struct OfferArgs {
    /// MCP: goes on with the session of that name, or begins it; else each client has a new one
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// MCP: how much of that session the client has: itself, or a child of its own [default: shared]
    #[arg(long, value_name = "HOW", requires = "session")]
    isolation: Option<ClientIsolation>,
    /// MCP: under which name the client works [default: what it calls itself]
    #[arg(long, value_name = "NAME", value_parser = workspace::agent_name)]
    agent: Option<String>,
    /// MCP: the tools that are offered: files, shell, python, podman_shell, sessions, or all
    #[arg(long, value_name = "GROUP", value_delimiter = ',', default_value = "files,shell,python", value_parser = group)]
    tools: Vec<Groups>,
    #[command(flatten)]
    workspace: WorkspaceArgs,
    #[command(flatten)]
    rules: RuleArgs,
}

/// How much of a session a client has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ClientIsolation {
    /// The session itself
    Shared,
    /// Its past, with the files as they are
    Fork,
    /// Its mounts, copied afresh
    Full,
}

/// A group of tools, or all of them.
#[derive(Debug, Clone, Copy)]
struct Groups(Option<ToolGroup>);

fn group(text: &str) -> Result<Groups, String> {
    match text {
        "all" => Ok(Groups(None)),
        name => name
            .parse()
            .map(|group| Groups(Some(group)))
            .map_err(|error: foldspace::event::ValueError| error.to_string()),
    }
}

impl Mcp {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
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
        served.map_err(|error| Failure::new(Exit::Failed, text::one_line(&error.to_string(), 1000)))?;
        Ok(Exit::Ok)
    }
}

impl OfferArgs {
    /// What a server is told of it.
    pub(super) fn options(&self, mounts: Vec<MountSpec>) -> Result<McpOptions, Failure> {
        if let Some(name) = &self.session {
            NewSession::named(name).check()?;
        }
        Ok(McpOptions {
            session: self.session.clone(),
            isolation: self.isolation.map(|how| match how {
                ClientIsolation::Shared => Isolation::Shared,
                ClientIsolation::Fork => Isolation::Fork,
                ClientIsolation::Full => Isolation::Full,
            }),
            agent: self.agent.clone(),
            workspace: self.workspace.spec()?,
            mounts,
            groups: self.groups(),
            rules: self.rules.unasked(),
        })
    }

    fn groups(&self) -> BTreeSet<ToolGroup> {
        let chosen = self.tools.iter().flat_map(|groups| match groups.0 {
            Some(group) => vec![group],
            None => ToolGroup::ALL.to_vec(),
        });
        chosen.collect()
    }
}

/// The workspace's tools that are offered, so that no others are spoken of.
pub(super) fn offered(groups: &BTreeSet<ToolGroup>) -> Result<Tools, Failure> {
    let all = Tools::standard().with(PodmanShellTool);
    let all = all.map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
    let wanted = |name: &&str| ToolGroup::of(name).is_none_or(|group| groups.contains(&group));
    Ok(all.only(&all.names().filter(wanted).map(str::to_owned).collect()))
}

/// Serves until the client says no more, or the program is told to end. Told once more it ends at once.
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
