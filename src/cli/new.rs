//! New sessions without a script.

use std::path::{Path, PathBuf};

use foldspace::backends::{HostOptions, HostPath};
use foldspace::hub::operations::{CreateSession, NewMount, SessionDocument};
use foldspace::reducers::ToolPolicy;
use foldspace::store::Durability;
use foldspace::{Session, VirtualFileSystem, WorkspaceSpec};

use super::policy::NewPolicy;
use super::run::mounts::{Chosen, MountArgs};
use super::run::naming;
use super::{BOLD, Exit, Failure, Globals, Out, OwnerClient, WorkspaceArgs, open, output, text, workspace};

/// Creates a session
///
/// Without --backend, commands run on this machine, as you and without a sandbox: in DIR, or in a new directory.
#[derive(Debug, clap::Args)]
#[command(aliases = ["create", "start", "init"])]
#[command(after_help = "\
Examples:
  foldspace new demo --dir .     in this directory itself
  foldspace new demo --mount .   in a copy of it
  foldspace new demo --backend container --dir . --copy-on-write
  foldspace new demo --backend container --image python:3.13 --network")]
#[command(mut_args(workspace::on_host))]
pub(super) struct NewArgs {
    /// Its name [default: the name of DIR, else of the current directory]
    name: Option<String>,
    #[command(flatten)]
    mounts: MountArgs,
    #[command(flatten)]
    workspace: WorkspaceArgs,
    #[command(flatten)]
    policy: NewPolicy,
}

/// Creates a missing session, on this machine
#[derive(Debug, clap::Args)]
pub(super) struct IfMissing {
    /// Creates the session if it is missing, as `foldspace new` does
    #[arg(long = "new")]
    wanted: bool,
    /// The directory for --new [default: a new directory]
    #[arg(long, value_name = "DIR", requires = "wanted", value_hint = clap::ValueHint::DirPath)]
    dir: Option<PathBuf>,
}

impl NewArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        let (spec, mounts, policy) = (self.workspace.spec_or_host()?, self.mounts.chosen()?, self.policy.chosen()?);
        super::block_on(async {
            let owner = OwnerClient::of(globals, Durability::default()).await?;
            let made = self.make(&owner, &spec, &mounts, policy).await;
            let shown = match made {
                Ok(made) => show(&owner, &made, &spec, globals, out),
                Err(failure) => Err(failure),
            };
            owner.end().await;
            shown
        })?
    }

    async fn make(
        &self,
        owner: &OwnerClient,
        spec: &WorkspaceSpec,
        mounts: &Chosen,
        policy: Option<ToolPolicy>,
    ) -> Result<SessionDocument, Failure> {
        let name = match &self.name {
            Some(name) => name.clone(),
            None => {
                let taken: Vec<String> = owner.sessions()?.sessions.list()?.iter().map(|entry| entry.name()).collect();
                naming::free_name(&usual_name(spec), &taken)
            }
        };
        create(owner, name, spec, mounts, policy).await
    }
}

impl IfMissing {
    /// Connects to the owner, and creates the session if it is missing and wanted.
    pub(super) async fn owner(&self, globals: &Globals, session: &str) -> Result<OwnerClient, Failure> {
        if !self.wanted {
            let how = format!("`foldspace new {}` or --new creates it", text::shell_word(session));
            open::existing(globals).map_err(|failure| failure.with_hint(how.clone()))?;
            let owner = OwnerClient::of_existing(globals).await?;
            owner.client.session(session).await.map_err(|error| offering(error.into(), &how))?;
            return Ok(owner);
        }
        let owner = OwnerClient::of(globals, Durability::default()).await?;
        match owner.client.session(session).await.map_err(Failure::from) {
            Ok(_) if self.dir.is_some() => {
                let what = format!("session {} exists already", text::one_line(session, 80));
                Err(Failure::usage(what).with_hint("leave out --dir, which is for a new session"))
            }
            Ok(_) => Ok(owner),
            Err(Failure::Told { exit: Exit::NotFound, .. }) => {
                let directory =
                    self.dir.as_deref().map(|dir| workspace::existing_directory("--dir", dir)).transpose()?;
                let spec = WorkspaceSpec::Host(HostOptions { directory, ..HostOptions::default() });
                let made = create(&owner, session.to_owned(), &spec, &Chosen::default(), None).await?;
                output::note(&format!("session {} is new: {}", made.name, place(&spec)));
                Ok(owner)
            }
            Err(failure) => Err(failure),
        }
    }
}

/// Adds how a session is created to the failure to find one.
fn offering(failure: Failure, how: &str) -> Failure {
    match failure {
        Failure::Told { exit: Exit::NotFound, message, hint } => {
            let hint = hint.map_or_else(|| how.to_owned(), |hint| format!("{how}; {hint}"));
            Failure::Told { exit: Exit::NotFound, message, hint: Some(hint) }
        }
        other => other,
    }
}

/// Creates a session through the owner. On failure, nothing remains.
pub(super) async fn create(
    owner: &OwnerClient,
    name: String,
    spec: &WorkspaceSpec,
    mounts: &Chosen,
    policy: Option<ToolPolicy>,
) -> Result<SessionDocument, Failure> {
    let mut allow_roots = mounts.named_roots();
    if let Some(directory) = spec.named_directory() {
        allow_roots.push(HostPath(directory.to_owned()));
    }
    let asked = CreateSession {
        name: Some(name),
        backend: Some(spec.backend_name().to_owned()),
        options: spec.options_with_values().as_object().cloned().unwrap_or_default(),
        mounts: mounts.specs.iter().map(NewMount::from).collect(),
        allow_roots,
        policy,
        create_id: None,
    };
    Ok(owner.client.work("/v1/sessions", &asked, output::progress).await?)
}

fn usual_name(spec: &WorkspaceSpec) -> String {
    let here = std::env::current_dir().ok();
    let directory = spec.named_directory().or(here.as_deref()).and_then(Path::file_name);
    let name = directory.map(|name| naming::fitting(&name.to_string_lossy())).unwrap_or_default();
    if name.is_empty() { "session".to_owned() } else { name }
}

#[expect(clippy::disallowed_methods, reason = "a face reads the current directory")]
fn is_empty_here() -> bool {
    std::fs::read_dir(".").is_ok_and(|mut entries| entries.next().is_none())
}

fn place(spec: &WorkspaceSpec) -> String {
    let directory = spec.named_directory().map(|directory| text::one_line(&directory.display().to_string(), 300));
    match (spec, directory) {
        (WorkspaceSpec::Memory, _) => "in memory, without commands".to_owned(),
        (WorkspaceSpec::Host(_), Some(directory)) => format!("in {directory}; commands run as you, without a sandbox"),
        (WorkspaceSpec::Host(_), None) => "in a new directory; commands run as you, without a sandbox".to_owned(),
        (_, Some(directory)) => format!("in {directory}, on {}", spec.backend_name()),
        (_, None) => format!("in a new directory, on {}", spec.backend_name()),
    }
}

fn show(
    owner: &OwnerClient,
    made: &SessionDocument,
    spec: &WorkspaceSpec,
    globals: &Globals,
    out: &mut Out,
) -> Result<(), Failure> {
    if out.is_json() {
        return out.document(made);
    }
    let session: Session = owner.sessions()?.sessions.session(made.session)?;
    let files = VirtualFileSystem::of(&session.state()?).iter().filter(|(_, entry)| !entry.is_directory()).count();
    let (name, count) = (out.paint(BOLD, text::one_line(&made.name, 80)), text::count(files as u64, "file"));
    out.line(format!("session {name} ({}) {}; {count}", made.session.short(), place(spec)))?;
    if files == 0 && spec.named_directory().is_none() && !is_empty_here() {
        output::note("the workspace is empty: --dir . works in this directory, and --mount . in a copy of it");
    }
    out.line("\nnext:")?;
    let (program, name) = (open::same_program(globals), open::named(&session));
    match spec {
        WorkspaceSpec::Memory => out.line(format!("  {program} run script.jsonl --session {name}"))?,
        _ => out.line(format!("  {program} exec {name} -- ls"))?,
    }
    out.line(format!("  {program} log {name} --calls"))?;
    out.line(format!("  {program} ui {name}"))
}
