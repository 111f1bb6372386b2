use std::path::PathBuf;

use foldspace::backends::{Leftovers, remove_leftovers, sweep_sandboxes, sweep_throwaways};
use foldspace::{LocalStore, SessionId, WorkspaceSpec};
use serde_json::{Value, json};

use super::stop::make_way;
use super::{Exit, Failure, Globals, Out, open, output, text};

/// Frees unused space, and removes containers of ended processes
///
/// Removes deleted sessions, unreferenced contents, and old indexes.
#[derive(Debug, clap::Args)]
pub(super) struct Gc {
    /// Shows the plan without changing anything
    #[arg(long)]
    dry_run: bool,
    /// Also frees the damaged bytes that repairs cut off the journal, which may be the last trace of lost events
    #[arg(long)]
    torn: bool,
    /// The address of the engine to check for containers [default: the engines that `run` would use]
    #[arg(long, value_name = "URL")]
    engine: Option<String>,
}

impl Gc {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        let directory = open::existing(globals)?;
        super::block_on(make_way(&directory))??;
        let report = LocalStore::collect(&directory, self.dry_run)?;
        let torn = LocalStore::discard_torn(&directory, self.dry_run || !self.torn)?;
        let known = sessions(globals)?;
        let abandoned = WorkspaceSpec::abandoned(&directory, |id| known.contains(&id))?;
        if !self.dry_run {
            WorkspaceSpec::sweep_mounts(&directory)?;
        }
        let containers = remove_leftovers(self.engine.as_deref(), self.dry_run)?;
        // After the containers, which use them.
        let probes = sweep_throwaways(&directory, self.dry_run)?;
        let sandboxes = sweep_sandboxes(&directory, self.dry_run, || sessions(globals))?;
        if out.is_json() {
            let mut value = json!(report);
            value["torn"] = json!(torn);
            value["containers"] = json!(containers.removed);
            value["containers_elsewhere"] = json!(containers.elsewhere);
            value["containers_failed"] = json!(containers.failed);
            value["engine_unasked"] = json!(containers.unasked);
            value["abandoned"] = paths(&abandoned);
            value["probes"] = paths(&probes);
            value["sandboxes"] = paths(&sandboxes);
            out.document(&value)?;
            return Ok(exit(&containers));
        }
        let found = [
            text::count(report.commits, "commit"),
            text::count(report.contents, "content"),
            text::count(report.snapshot_blocks, "snapshot block"),
            text::count(report.leftovers, "leftover"),
        ];
        let verb = if self.dry_run { "would free" } else { "freed" };
        out.line(format!("{verb} {} of the journal: {}", text::size(report.bytes), found.join(", ")))?;
        let verb = if self.dry_run { "would remove" } else { "removed" };
        if torn > 0 {
            let files = text::count(torn, "file");
            out.line(match self.torn {
                true => format!("{verb} {files} with damaged bytes of the journal"),
                false => format!("kept {files} with damaged bytes of the journal; `gc --torn` removes them"),
            })?;
        }
        for container in &containers.removed {
            let state = if container.running { "running" } else { "stopped" };
            let name = text::one_line(&container.name, 200);
            out.line(format!("{verb} container {name} ({state}), whose process has ended"))?;
        }
        if !probes.is_empty() {
            let probes = text::count(probes.len() as u64, "throw-away workspace");
            out.line(format!("{verb} {probes}, whose process has ended"))?;
        }
        if !sandboxes.is_empty() {
            let sandboxes = text::count(sandboxes.len() as u64, "sandbox");
            out.line(format!("{verb} the files of {sandboxes}, whose session is gone"))?;
        }
        tell(&containers, &abandoned);
        Ok(exit(&containers))
    }
}

fn sessions(globals: &Globals) -> Result<Vec<SessionId>, Failure> {
    let opened = open::reading(globals)?;
    Ok(opened.sessions.list()?.iter().map(|entry| entry.id).collect())
}

fn paths(paths: &[PathBuf]) -> Value {
    paths.iter().map(|path| path.to_string_lossy().into_owned()).collect()
}

fn tell(containers: &Leftovers, abandoned: &[PathBuf]) {
    for container in &containers.elsewhere {
        output::note(&format!(
            "container {name} was made by a process that is not visible here and may be alive; if it has ended, run \
             `podman rm -f {name}` or `docker rm -f {name}`",
            name = container.name
        ));
    }
    for directory in abandoned {
        let shown = directory.to_string_lossy();
        output::note(&format!(
            "{shown} has files of a removed session; if they are not needed, run `rm -r {}`",
            text::shell_word(&shown)
        ));
    }
    if let Some(why) = &containers.unasked {
        output::note(&format!("containers were not checked: {why}"));
    }
    for failed in &containers.failed {
        output::note(&format!("can't remove {failed}"));
    }
}

fn exit(containers: &Leftovers) -> Exit {
    if containers.failed.is_empty() { Exit::Ok } else { Exit::Io }
}
