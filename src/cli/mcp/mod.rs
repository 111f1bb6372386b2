mod config;
mod sticky;

use std::io;
use std::time::Duration;

use axum::Router;
use foldspace::NewSession;
use foldspace::event::Isolation;
use foldspace::http::{HttpFace, UpgradeRequest, upgrade_route};
use foldspace::mcp::{AttachRequest, McpOptions, McpServer, ToolGroup};
use foldspace::store::Durability;
use foldspace::tools::MountSpec;
use futures_util::FutureExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use super::run::mounts::MountArgs;
use super::{Exit, Failure, Globals, Out, OwnerClient, RuleArgs, Signals, WorkspaceArgs, workspace};
use config::McpClientKind;
use sticky::StickyArgs;

/// Serves a workspace's tools to an MCP client, on standard input and output
///
/// A client's session begins at its first call that needs one, and is named after the client; --session names one
/// to continue or to begin. A container stops when the client leaves; the files stay. Begin with --backend host or
/// container: in memory, the default, no command can run. Kits pass on few variables: give CONTAINER_HOST, FOLDSPACE_IMAGE
/// and others as their `env`, which --print-config writes.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foldspace mcp --print-config claude --backend container
  foldspace mcp --backend container --mount ./project
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
    #[command(flatten)]
    sticky: StickyArgs,
}

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
        let here = std::env::current_dir().ok();
        let usual_name = here.and_then(|here| Some(here.file_name()?.to_string_lossy().into_owned()));
        let mut options = McpOptions { usual_name, ..self.offer.options(mounts.specs)? };
        // What would not start is not printed either.
        if let Some(client) = self.print_config {
            return config::print(client, globals, out);
        }
        let parent = sticky::Parent::of_this(self.sticky.sticky_key.as_deref());
        if self.sticky.sticky {
            options.session = Some(parent?.session());
        } else if options.session.is_none()
            && let Ok(parent) = parent
        {
            parent.tell_of_another(globals);
        }
        let asked = AttachRequest::of(&options, &mounts.roots);
        super::block_on(async {
            let owner = OwnerClient::of(globals, Durability::default()).await?;
            let mut signals = Signals::listen();
            let served = serve(&owner, &asked, &mut signals).await;
            tokio::select! {
                () = owner.end() => served,
                _ = signals.next() => std::process::exit(i32::from(Exit::Interrupted.code())),
            }
        })?
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
            usual_name: None,
            workspace: self.workspace.spec()?,
            mounts,
            groups: self.tools.iter().flatten().copied().collect(),
            rules: self.rules.unasked()?,
        })
    }
}

const ATTACH_PATH: &str = "/v1/mcp";
const ATTACH_PROTOCOL: &str = "foldspace-mcp";

/// Returns the route at which the command `mcp` of other processes attaches.
pub(super) fn attach_route(face: &HttpFace) -> Router {
    upgrade_route(face, ATTACH_PATH, ATTACH_PROTOCOL, |request| {
        let UpgradeRequest { hub, caller, params, end } = request;
        let server = McpServer::for_process(&hub, caller, params)?;
        Ok(Box::new(move |stream| {
            async move {
                let (input, output) = tokio::io::split(stream);
                if let Err(error) = server.serve(input, output, end).await {
                    tracing::debug!(%error, "an MCP client left in an odd way");
                }
            }
            .boxed()
        }))
    })
}

/// Time for a client to read what is left for it, once it says no more.
const CLOSING: Duration = Duration::from_secs(3);
/// Bytes that are passed on at once.
const PIECE: usize = 64 << 10;

/// Passes on messages until the input ends or a signal comes, and then the answers to the calls in flight.
async fn serve(owner: &OwnerClient, asked: &AttachRequest, signals: &mut Signals) -> Result<(), Failure> {
    let stream = owner.client.upgrade(ATTACH_PATH, ATTACH_PROTOCOL, asked).await?;
    let (from_owner, mut to_owner) = tokio::io::split(stream);
    // Pipes are waited for without a thread each, which saves two changes of threads for every message.
    let (mut input, output) = rmcp::transport::io::stdio_pipes();
    let ended = CancellationToken::new();
    let taking = async {
        tokio::select! {
            taken = tokio::io::copy(&mut input, &mut to_owner) => drop(taken?),
            _ = signals.next() => {}
        }
        ended.cancel();
        // The owner ends the client's calls after a moment, in which they may be answered.
        to_owner.shutdown().await?;
        std::future::pending::<io::Result<()>>().await
    };
    let passed = tokio::select! {
        ended = taking => ended,
        ended = pass_on(from_owner, output, &ended) => ended,
    };
    passed.map_err(|error| Failure::io("pass on", "messages", &error))
}

async fn pass_on(
    mut from_owner: impl AsyncRead + Unpin,
    mut output: impl AsyncWrite + Unpin,
    ended: &CancellationToken,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        let length = from_owner.read(&mut piece).await?;
        let unread = async {
            ended.cancelled().await;
            tokio::time::sleep(CLOSING).await;
        };
        let write = async {
            output.write_all(&piece[..length]).await?;
            output.flush().await
        };
        tokio::select! {
            written = write => written?,
            () = unread => return Ok(()),
        }
        if length == 0 {
            return Ok(());
        }
    }
}
