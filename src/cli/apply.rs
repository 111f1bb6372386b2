use std::path::PathBuf;

use foldspace::backends::HostPath;
use foldspace::hub::operations::{Apply, ApplyDocument};
use foldspace::reducers::MergeChoices;
use foldspace::tools::MergeOutcome;

use super::merge::{note_passed_over, show_conflicts, show_merged};
use super::{Exit, Failure, Globals, Out, OwnerClient, output, text, workspace};

/// Merges a session's changes back into the directory that it started from
///
/// Takes files that only one side changed, and merges text files line by line. It is all or nothing: if both sides
/// changed the same lines, or one side removed a file that the other changed, nothing is applied; --take and --keep
/// resolve such conflicts. The session stays as it is, and a later apply brings its later changes.
///
/// The directory is the one given to --dir --copy-on-write, or the directory of the cloned session.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foldspace apply fix --dry-run               what would change
  foldspace apply fix
  foldspace apply fix --take src --keep src/config.toml
  foldspace apply fix --to ../other-checkout")]
pub(super) struct ApplyArgs {
    /// The session, by name or by the beginning of its id
    session: String,
    /// Another existing directory that is not empty; `foldspace materialise` writes to a new one
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    to: Option<PathBuf>,
    /// Shows the changes without making them
    #[arg(long)]
    dry_run: bool,
    /// Takes the session's side of conflicts at PATH (a path or a glob) or below it, in text files only for the lines
    /// in conflict; may be given several times
    #[arg(long, value_name = "PATH")]
    take: Vec<String>,
    /// Keeps the directory's side of conflicts at PATH (a path or a glob) or below it, in text files only for the lines
    /// in conflict; may be given several times
    #[arg(long, value_name = "PATH")]
    keep: Vec<String>,
    /// Treats files that match GLOB as generated: if both sides changed one, the directory's version stays; may be
    /// given several times
    #[arg(long, value_name = "GLOB")]
    generated: Vec<String>,
    /// The agent that applies the changes
    #[arg(long, value_name = "NAME", value_parser = workspace::agent_name)]
    agent: Option<String>,
}

impl ApplyArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        let choices = MergeChoices::of_texts(&self.keep, &self.take);
        choices
            .and_then(|choices| choices.with_generated(&self.generated))
            .map_err(|error| Failure::usage(error.to_string()))?;
        let to = self.to.as_deref().map(|to| workspace::existing_directory("--to", to)).transpose()?;
        let asked = Apply {
            allow_roots: to.iter().cloned().map(HostPath).collect(),
            to: to.map(HostPath),
            take: self.take.clone(),
            keep: self.keep.clone(),
            generated: self.generated.clone(),
            dry_run: self.dry_run,
            agent: self.agent.clone(),
        };
        let applied = super::block_on(self.apply(globals, &asked))??;
        let report = &applied.merge.report;
        note_passed_over(report);
        let failed = report.outcome == MergeOutcome::Conflicted;
        if out.is_json() {
            out.document(&applied)?;
            return Ok(if failed { Exit::Failed } else { Exit::Ok });
        }
        show(&applied, out)
    }

    async fn apply(&self, globals: &Globals, asked: &Apply) -> Result<ApplyDocument, Failure> {
        let owner = OwnerClient::of_existing(globals).await?;
        let session = owner.sessions()?.find(&self.session)?.session;
        let path = format!("/v1/sessions/{}/apply", session.id());
        let applied = owner.client.work(&path, asked, output::progress).await;
        owner.end().await;
        Ok(applied?)
    }
}

fn show(applied: &ApplyDocument, out: &mut Out) -> Result<Exit, Failure> {
    let (report, directory) = (&applied.merge.report, text::one_line(&applied.directory, 300));
    let session = text::one_line(&report.child_name, 80);
    let entries = text::count(report.merged.len() as u64, "entry");
    match report.outcome {
        MergeOutcome::Nothing => out.line(format!("nothing to apply: {directory} has all changes of {session}"))?,
        MergeOutcome::Merged => {
            show_merged(report, out)?;
            show_conflicts(&report.conflicts, "dir", "session", out)?;
            let done = if applied.merge.dry_run { "would apply" } else { "applied" };
            out.line(format!("{done} {entries} of {session} to {directory}"))?;
        }
        MergeOutcome::Conflicted => {
            show_conflicts(&report.conflicts, "dir", "session", out)?;
            let open = report.conflicts.iter().filter(|conflict| conflict.resolved.is_none()).count();
            let conflicts = text::count(open as u64, "conflict");
            let hint = "choose the session's side with --take PATH, or the directory's with --keep PATH, for a file or \
                        a directory";
            return Err(
                Failure::failed(format!("{conflicts} to resolve; nothing was changed in {directory}")).with_hint(hint)
            );
        }
    }
    Ok(Exit::Ok)
}
