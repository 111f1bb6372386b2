//! The initial files for the rerun of another program's run.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use foldspace::backends::{PodmanOptions, commit_in, write_commit};
use foldspace::tools::{AllowedRoots, CommandPolicy, ForeignRun, MountSpec, Scratch, ShellRules, hydrate};
use foldspace::{ToolCall, ToolRunner, Tools, WorkspaceSpec};
use tempfile::TempDir;

use crate::cli::{Exit, Failure, block_on, registry, text};

/// The number of bytes of each output stream in results, large enough to compare whole outputs.
const OUTPUT_BYTES: usize = 1 << 20;
const COPY_SECONDS: u32 = 600;

/// The options for another program's run.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Run of another program")]
pub(in crate::cli) struct BaseArgs {
    /// Starts with a copy of DIR, with a COMMIT of the git repository here, or with the run's directory in an IMAGE;
    /// ./DIR, commit:COMMIT and image:IMAGE disambiguate
    #[arg(long, value_name = "DIR|COMMIT|IMAGE", value_hint = clap::ValueHint::DirPath)]
    base: Option<String>,
    /// The working directory of the run, if its transcript does not state it
    #[arg(long, value_name = "DIR")]
    was_in: Option<String>,
}

/// The base of a run: the source of its files.
enum RunBase {
    Directory(PathBuf),
    Commit(String),
    Image(String),
}

/// The workspace of a rerun, and a session with its initial files.
pub(super) struct BasedRun {
    pub(super) spec: WorkspaceSpec,
    pub(super) directory: Option<String>,
    pub(super) base: Option<Scratch>,
}

impl BaseArgs {
    /// Refuses these options for a session of foldspace.
    pub(super) fn refused(&self) -> Result<(), Failure> {
        match (&self.base, &self.was_in) {
            (None, None) => Ok(()),
            _ => Err(Failure::usage("--base and --was-in are for sessions imported from transcripts")
                .with_hint("leave them out: a session of foldspace has its own files")),
        }
    }

    pub(super) fn open(&self, run: &ForeignRun, asked: Option<WorkspaceSpec>) -> Result<BasedRun, Failure> {
        let directory = run.directory.clone().or_else(|| self.was_in.clone());
        let is_container = matches!(asked, Some(WorkspaceSpec::Podman(_)));
        let base = self.base.as_deref().map(|base| RunBase::named(base, is_container)).transpose()?;
        let mut spec = asked.ok_or_else(|| {
            Failure::usage("no backend given for the transcript's commands")
                .with_hint("add --backend container, or --backend host, which does not sandbox commands")
        })?;
        if let (WorkspaceSpec::Podman(options), Some(RunBase::Image(image))) = (&mut spec, &base) {
            options.image.clone_from(image);
        }
        let base = base.map(|base| base.open(&spec, directory.as_deref())).transpose()?;
        Ok(BasedRun { spec: like(spec, directory.as_deref()), directory, base })
    }
}

/// Returns the workspace with the settings of the run: merged output, and in a container the same directory.
fn like(mut spec: WorkspaceSpec, directory: Option<&str>) -> WorkspaceSpec {
    let commands = match &mut spec {
        WorkspaceSpec::Host(options) => &mut options.commands,
        WorkspaceSpec::Podman(options) => &mut options.commands,
        WorkspaceSpec::Mock(options) => &mut options.commands,
        WorkspaceSpec::Memory => return spec,
    };
    (commands.merge_output, commands.output_bytes) = (true, OUTPUT_BYTES);
    if let (WorkspaceSpec::Podman(options), Some(directory)) = (&spec, directory)
        && options.also_at.is_none()
    {
        let there = PodmanOptions { also_at: Some(directory.to_owned()), ..options.clone() };
        let there = WorkspaceSpec::Podman(there);
        // Some paths are reserved by the container.
        if WorkspaceSpec::parse(there.backend_name(), &there.options()).is_ok() {
            return there;
        }
    }
    spec
}

impl RunBase {
    /// Finds the base that `given` names: an image, a commit or a directory.
    fn named(given: &str, is_container: bool) -> Result<Self, Failure> {
        let shown = text::one_line(given, 300);
        let missing = |what: &str| Failure::missing(format!("--base: {what} {shown}"));
        if let Some(image) = given.strip_prefix("image:") {
            return match is_container {
                true => Ok(Self::Image(image.to_owned())),
                false => Err(Failure::usage(format!("--base {shown} requires --backend container"))),
            };
        }
        if let Some(commit) = given.strip_prefix("commit:") {
            let found = commit_of(commit).ok_or_else(|| missing("no such commit in the git repository here:"));
            return found.map(Self::Commit);
        }
        let (path, is_path) = (Path::new(given), given.starts_with(['.', '/']));
        match (path.is_dir(), commit_of(given).filter(|_| !is_path)) {
            (true, Some(_)) => Err(Failure::usage(format!("--base: {shown} is both a directory and a commit"))
                .with_hint(format!("use --base ./{shown} or --base commit:{shown}"))),
            (true, None) => Ok(Self::Directory(path.to_owned())),
            (false, Some(commit)) => Ok(Self::Commit(commit)),
            (false, None) if is_container && !is_path => Ok(Self::Image(given.to_owned())),
            (false, None) => Err(missing("no such directory, and no such commit here:")
                .with_hint("with --backend container, image:NAME names an image")),
        }
    }

    fn open(&self, spec: &WorkspaceSpec, directory: Option<&str>) -> Result<Scratch, Failure> {
        match (self, spec) {
            (Self::Image(_), WorkspaceSpec::Podman(options)) => of_image(options.clone(), directory),
            (Self::Directory(directory), _) => copy_of(directory),
            (Self::Commit(commit), _) => copy_of(checked_out(commit)?.path()),
            (Self::Image(_), _) => Err(Failure::usage("an image as --base requires --backend container")),
        }
    }
}

fn copy_of(directory: &Path) -> Result<Scratch, Failure> {
    let host_path = directory.canonicalize().map_err(|error| Failure::io("open", directory.display(), &error))?;
    let scratch = Scratch::begin(registry(), &WorkspaceSpec::Memory, "base")?;
    let roots = AllowedRoots::new([&host_path])?;
    let mounts = [MountSpec { host_path, ..MountSpec::default() }];
    block_on(hydrate(scratch.session(), scratch.workspace().as_ref(), &mounts, &roots))??;
    Ok(scratch)
}

/// Copies the run's directory out of an image, with a separate container: in the run's own, the workspace hides it.
fn of_image(options: PodmanOptions, directory: Option<&str>) -> Result<Scratch, Failure> {
    let directory = directory.ok_or_else(|| {
        Failure::usage("the transcript does not state the run's working directory in the image")
            .with_hint("add --was-in DIR, such as --was-in /testbed")
    })?;
    let spec = WorkspaceSpec::Podman(PodmanOptions { also_at: None, ..options });
    let scratch = Scratch::begin(registry(), &spec, "base")?;
    let policy = CommandPolicy::typed();
    let rules = ShellRules { policy, ..ShellRules::default() };
    let (session, workspace) = (scratch.session().clone(), std::sync::Arc::clone(scratch.workspace()));
    let tools = ToolRunner::with_rules(session, Tools::standard(), workspace, rules)?;
    let command = ["cp", "-a", &format!("{}/.", directory.trim_end_matches('/')), "."];
    let params = serde_json::json!({ "command": command, "timeout_seconds": COPY_SECONDS });
    let outcome = block_on(tools.call(ToolCall::new("shell_execute", params)))??;
    if outcome.is_ok() && outcome.result["exit_code"] == 0 {
        return Ok(scratch);
    }
    let why = text::one_line(&outcome.text, 300);
    Err(Failure::new(Exit::Failed, format!("failed to copy {directory} out of the image: {why}")))
}

/// Returns the named commit in the repository of the current directory.
fn commit_of(name: &str) -> Option<String> {
    commit_in(Path::new("."), name).ok()
}

fn checked_out(commit: &str) -> Result<TempDir, Failure> {
    let made = tempfile::Builder::new().permissions(Permissions::from_mode(0o700)).tempdir();
    let files = made.map_err(|error| Failure::io("make", "a temporary directory", &error))?;
    write_commit(Path::new("."), commit, files.path()).map_err(|error| Failure::io("check out", commit, &error))?;
    Ok(files)
}
