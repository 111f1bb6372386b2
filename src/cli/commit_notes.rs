use foldspace::view::git_ai_note;
use serde_json::json;

use super::{Failure, Globals, Out, blame, open};

/// The name of git-ai's notes: `refs/notes/ai`.
const REFERENCE: &str = "ai";

/// Writes a git note with the lines of a commit that agents wrote, in the format of git-ai
///
/// It is the only command that writes to git: it replaces the note of this commit in `refs/notes/ai`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foldspace commit-notes                 the note of HEAD
  foldspace commit-notes --rev main~2 --dry-run
  git notes --ref=ai show                prints the note")]
pub(super) struct CommitNotes {
    /// The session, by name or by the beginning of its id
    session: String,
    /// The commit
    #[arg(long, value_name = "REV", default_value = "HEAD")]
    rev: String,
    /// Prints the note without writing it
    #[arg(long)]
    dry_run: bool,
}

impl CommitNotes {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        let found = open::session(globals, &self.session)?;
        let authorship = blame::authorship(&found.session, &self.rev)?;
        let note = git_ai_note(&authorship);
        if !self.dry_run {
            authorship.write_note(REFERENCE, &note).map_err(|error| Failure::io("write", "the note", &error))?;
        }
        let (commit, files) = (&authorship.commit, authorship.files.len());
        let document = json!({ "commit": commit, "files": files, "note": note, "written": !self.dry_run });
        out.show(&document, |out| match self.dry_run {
            true => out.line(note.trim_end()),
            false => out.line(format!("wrote the note of {commit}: the lines of {files} files that agents wrote")),
        })
    }
}
