use std::collections::BTreeSet;
use std::path::PathBuf;

use foldspace::backends::HostPath;
use foldspace::event::{ChildLimits, Isolation};
use foldspace::hub::operations::ChildDocument;
use foldspace::tools::{MountSpec, mounts_of};
use foldspace::view::Position;
use serde_json::json;

use super::not_back::{tell_effects, tell_not_back};
use super::run::mounts::allowed_roots;
use super::{AtArg, BOLD, Failure, Globals, Out, OwnerClient, did_you_mean, emit, output, position, text, workspace};

/// Makes a child of a session: a fork, a fresh one, or a shared one
///
/// A fork has the session's events and files up to the position, and retains them when the session is removed. It
/// is cheap at any size. Neither sees the other's later changes; `merge` applies a fork's changes to the session.
#[derive(Debug, clap::Args)]
#[command(
    alias = "clone",
    mut_args(position::meaning("Forks the session as it was at", "Forks the session as it was before"))
)]
#[command(after_help = "\
Examples:
  foldspace fork NAME                        a fork of the session as it is now
  foldspace fork NAME --at 42 --name retry   a fork as it was after call 42
  foldspace fork NAME --before 42            a fork as it was before call 42
  foldspace fork NAME --fork-by mount        shares files with other such forks
  foldspace fork NAME --isolation full       a fresh session, same mounts
  foldspace fork NAME --max-calls 50 --tool read_file --tool grep")]
pub(super) struct ForkArgs {
    /// The session, by name or by the beginning of its id
    session: String,
    /// The child's relation to the session
    #[arg(long, value_name = "HOW", default_value = "fork", value_parser = workspace::isolation())]
    isolation: Isolation,
    #[command(flatten)]
    at: AtArg,
    /// full: allows mounts below DIR to be copied again; may be given several times
    #[arg(long = "allow-root", value_name = "DIR")]
    roots: Vec<PathBuf>,
    /// full: copies the mounts without asking
    #[arg(short, long)]
    yes: bool,
    /// The child's name [default: NAME-1, NAME-2, ...]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The agent of the child; a shared child needs one
    #[arg(long, value_name = "NAME", value_parser = workspace::agent_name)]
    agent: Option<String>,
    /// A policy for tools that binds the child, in addition to the session's: a JSON file, or `-`
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    policy: Option<PathBuf>,
    /// fork: puts its files in a mount, which such forks share instead of copying them; for sessions on the host, as root
    #[arg(long, value_name = "HOW")]
    fork_by: Option<ForkBy>,
    #[command(flatten)]
    limits: LimitArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ForkBy {
    /// A mount over shared files
    Mount,
}

#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Limits of the child, on top of the session's own limits")]
struct LimitArgs {
    /// Limits the number of its calls
    #[arg(long, value_name = "N")]
    max_calls: Option<u64>,
    /// Limits the total time of its calls
    #[arg(long, value_name = "SECS")]
    max_seconds: Option<u64>,
    /// Limits the bytes that it writes to files
    #[arg(long, value_name = "N")]
    max_bytes: Option<u64>,
    /// Limits the depth of children of the child
    #[arg(long, value_name = "N")]
    depth: Option<u32>,
    /// Allows only this tool; may be given several times
    #[arg(long = "tool", value_name = "TOOL")]
    tools: Vec<String>,
    /// Denies its commands a program, or a program with its first arguments; may be given several times
    #[arg(long, value_name = "PROGRAM")]
    deny: Vec<String>,
}

impl LimitArgs {
    fn limits(&self) -> Result<ChildLimits, Failure> {
        let known = foldspace::Tools::standard();
        if let Some(unknown) = self.tools.iter().find(|tool| !known.names().any(|name| name == tool.as_str())) {
            let shown = text::one_line(unknown, 80);
            let meant = did_you_mean(unknown, known.names());
            return Err(Failure::usage(format!("--tool: unknown tool {shown}"))
                .with_hint(format!("{meant}`foldspace tools` lists them")));
        }
        let tools: BTreeSet<String> = self.tools.iter().cloned().collect();
        Ok(ChildLimits {
            calls: self.max_calls,
            wall_millis: self.max_seconds.map(|seconds| seconds.saturating_mul(1000)),
            bytes_written: self.max_bytes,
            depth: self.depth,
            tools: (!tools.is_empty()).then_some(tools),
            deny: self.deny.iter().cloned().collect(),
        })
    }
}

impl ForkArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        let limits = self.limits.limits()?;
        let usage = |what| Failure::usage(what);
        if self.isolation == Isolation::Shared && self.agent.is_none() {
            return Err(usage("a shared child is the same session: name its agent with --agent"));
        }
        if self.isolation != Isolation::Fork && self.at.is_given() {
            return Err(usage("only a fork can start in the past: --at and --before require --isolation fork"));
        }
        if self.isolation != Isolation::Fork && self.fork_by.is_some() {
            return Err(usage("only a fork can be in a mount: --fork-by requires --isolation fork"));
        }
        if self.isolation == Isolation::Shared && self.name.is_some() {
            return Err(usage("a shared child has the session's name: leave out --name"));
        }
        let document = super::block_on(self.begin(globals, limits, out))??;
        out.show(&document, |out| show(&document, out))
    }

    async fn begin(&self, globals: &Globals, limits: ChildLimits, out: &mut Out) -> Result<ChildDocument, Failure> {
        let owner = OwnerClient::of_existing(globals).await?;
        let parent = owner.sessions()?.find(&self.session)?.session;
        if self.at.resolve(&parent)? == 0 {
            return Err(Failure::missing("a fork has at least the first event of its session")
                .with_hint("the earliest position is --at 1"));
        }
        let mounts = if self.isolation == Isolation::Full { mounts_of(&parent)? } else { Vec::new() };
        let asked = json!({
            "isolation": self.isolation,
            "at": self.at.position().map(Position::to_string),
            "mount": self.fork_by == Some(ForkBy::Mount),
            "name": self.name,
            "agent": self.agent,
            "limits": limits,
            "policy": self.policy.as_deref().map(emit::json_file).transpose()?,
            "allow_roots": self.roots_for(&mounts, out)?.into_iter().map(HostPath).collect::<Vec<_>>(),
        });
        let child = owner.begin_child(parent.id(), &asked).await;
        owner.end().await;
        child
    }

    /// Returns the directories that may be copied again. Asks the person first, since an untrusted history may
    /// name them.
    fn roots_for(&self, mounts: &[MountSpec], out: &mut Out) -> Result<Vec<PathBuf>, Failure> {
        let directories: Vec<PathBuf> = mounts.iter().map(|mount| mount.host_path.clone()).collect();
        if let Some(roots) = allowed_roots(&self.roots)? {
            return Ok(roots);
        }
        if directories.is_empty() || self.yes {
            return Ok(directories);
        }
        let named: Vec<String> = directories.iter().map(|path| path.display().to_string()).collect();
        let named = text::one_line(&named.join(", "), 1000);
        let unasked = Failure::usage(format!("the child would get a copy of {named}"))
            .with_hint("--yes copies it; --allow-root DIR allows directories below DIR");
        output::confirm(out, &format!("copy {named} into the child?"), "no child was made", unasked)?;
        Ok(directories)
    }
}

fn show(child: &ChildDocument, out: &mut Out) -> Result<(), Failure> {
    let (name, id) = (out.paint(BOLD, text::one_line(&child.name, 80)), child.session.short());
    let parent = text::one_line(&child.parent_name, 80);
    match child.isolation {
        Isolation::Shared => {
            let agent = text::one_line(&child.agent, 80);
            out.line(format!("agent {agent} shares session {name}: `foldspace exec {name} --agent {agent} -- CMD`"))
        }
        Isolation::Fork => {
            out.line(format!("session {name} ({id}) is {parent} as of event {}", child.at.unwrap_or_default()))?;
            child.moved().iter().for_each(|moved| output::note(moved));
            tell_not_back(&child.left, &[], out)?;
            tell_effects(&child.effects, out)
        }
        Isolation::Full => out.line(format!("session {name} ({id}) starts fresh with the mounts of {parent}")),
    }
}
