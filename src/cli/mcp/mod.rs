mod attach_route;
mod config;
mod sticky;

use std::io;
use std::time::Duration;

use foldspace::NewSession;
use foldspace::event::Isolation;
use foldspace::mcp::{AttachRequest, McpOptions, ToolGroup};
use foldspace::store::Durability;
use foldspace::tools::MountSpec;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use super::policy::NewPolicy;
use super::run::mounts::MountArgs;
use super::{Exit, Failure, Globals, Out, OwnerClient, RuleArgs, Signals, WorkspaceArgs, workspace};
pub(super) use attach_route::attach_route;
use attach_route::{ATTACH_PATH, ATTACH_PROTOCOL};
use config::McpClientKind;
use sticky::StickyArgs;

/// Serves a workspace's tools to an MCP client, on standard input and output
///
/// A client's session starts at its first call that needs one, and is named after the client; --session names a session
/// to continue or start. A container stops when the client disconnects; the files stay. Use --backend host or
/// container: the default, memory, can't run commands. Clients pass on few variables: set CONTAINER_HOST,
/// FOLDSPACE_IMAGE and others as their `env`, as --print-config does.
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
    /// Prints the configuration for this client, with the other options as given
    #[arg(long, value_name = "CLIENT")]
    print_config: Option<McpClientKind>,
    #[command(flatten)]
    mounts: MountArgs,
    #[command(flatten)]
    sticky: StickyArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct OfferArgs {
    /// MCP: continues or starts the session with this name [default: a new session for each client]
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// MCP: the client's relation to that session: the session itself or a child [default: shared]
    #[arg(long, value_name = "HOW", requires = "session", value_parser = workspace::isolation())]
    isolation: Option<Isolation>,
    /// MCP: the agent name of the client [default: its own name]
    #[arg(long, value_name = "NAME", value_parser = workspace::agent_name)]
    agent: Option<String>,
    /// MCP: the tools offered: files, shell, python, podman_shell, sessions, or all
    #[arg(long, value_name = "GROUP", value_delimiter = ',', default_value = "files,shell,python", value_parser = group)]
    tools: Vec<Vec<ToolGroup>>,
    #[command(flatten)]
    workspace: WorkspaceArgs,
    #[command(flatten)]
    policy: NewPolicy,
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
        // After the checks above, so that only a configuration that works is printed.
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
    pub(super) fn names_image(&self) -> bool {
        self.workspace.names_image()
    }

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
            policy: self.policy.chosen()?,
            groups: self.tools.iter().flatten().copied().collect(),
            rules: self.rules.unasked()?,
        })
    }
}

/// The time limit for a client to read its last answers, after it has closed its input.
const CLOSING: Duration = Duration::from_secs(3);
/// The number of bytes forwarded at once.
const PIECE: usize = 64 << 10;

/// Forwards messages until the input ends or a signal arrives, and then the answers to the calls in flight.
async fn serve(owner: &OwnerClient, asked: &AttachRequest, signals: &mut Signals) -> Result<(), Failure> {
    let stream = owner.client.upgrade(ATTACH_PATH, ATTACH_PROTOCOL, asked).await?;
    let (from_owner, mut to_owner) = tokio::io::split(stream);
    // Polls the pipes without threads, which saves two thread switches for each message.
    let (mut input, output) = rmcp::transport::io::stdio_pipes();
    let ended = CancellationToken::new();
    let taking = async {
        tokio::select! {
            taken = tokio::io::copy(&mut input, &mut to_owner) => drop(taken?),
            _ = signals.next() => {}
        }
        ended.cancel();
        // The owner ends the client's calls after a grace period.
        to_owner.shutdown().await?;
        std::future::pending::<io::Result<()>>().await
    };
    let passed = tokio::select! {
        ended = taking => ended,
        ended = pass_on(from_owner, output, &ended) => ended,
    };
    passed.map_err(|error| Failure::io("forward", "messages", &error))
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
