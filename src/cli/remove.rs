//! `foldspace remove`: a session that is to go.

use foldspace::{MergeChoices, MergeOutcome, Session, preview_merge};
use serde_json::json;

use super::Globals;
use super::exit::{Exit, Failure};
use super::open::Opened;
use super::output::{self, Out};
use super::{open, text, workspace};

/// Removes a session with its whole history; `gc` frees its space
#[derive(Debug, clap::Args)]
pub(super) struct Remove {
    /// The session, by name or by the beginning of its id
    session: String,
    /// Removes it without asking
    #[arg(short, long)]
    yes: bool,
}

impl Remove {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        // Not held while the person thinks.
        let (id, name, head, unmerged) = {
            let opened = open::reading(globals)?;
            let found = opened.find(&self.session)?;
            let unmerged = if self.yes { None } else { unmerged(&opened, &found.session) };
            (found.entry.id, found.name, found.entry.head, unmerged)
        };
        let events = text::count(head, "event");
        let shown = text::one_line(&name, 80);
        let but = unmerged.unwrap_or_default();
        let question = format!("remove session {shown} ({}) with its {events} for good?{but}", id.short());
        if !self.yes {
            match output::confirmed(&question) {
                Some(true) => {}
                Some(false) => return Err(Failure::new(Exit::Usage, "nothing was removed")),
                None => {
                    let failure = Failure::new(Exit::Usage, format!("there is no terminal to ask on: {question}"));
                    return Err(failure.with_hint("--yes removes it without asking"));
                }
            }
        }
        let opened = open::changing(globals)?;
        // The files first: without the session nobody could name them any more.
        match workspace::spec_of(&opened.sessions.session(id)?) {
            Ok(spec) => spec.remove(id, &open::directory(globals)?)?,
            Err(Failure::Told { message, .. }) => output::note(&format!("{message}; its files are left")),
            Err(Failure::Closed) => {}
        }
        opened.sessions.remove(id)?;
        match out.is_json() {
            true => out.document(&json!({ "removed": id, "name": name, "events": head }))?,
            false => out.line(format!("removed {shown} ({}), {events}; `gc` frees its space", id.short()))?,
        }
        Ok(Exit::Ok)
    }
}

/// What of a clone's work its parent does not have, for the question; none when it has all.
fn unmerged(opened: &Opened, session: &Session) -> Option<String> {
    let parent = opened.sessions.session(session.origin()?.parent).ok()?;
    let report = preview_merge(&parent, session, &MergeChoices::default()).ok()?;
    let count = match report.outcome {
        MergeOutcome::Nothing => return None,
        MergeOutcome::Merged => report.merged.len(),
        MergeOutcome::Conflicted => report.merged.len() + report.conflicts.len(),
    };
    let what = text::count(count as u64, "entry");
    (count > 0).then(|| format!(" (its changes of {what} are not merged into {})", text::one_line(parent.name(), 80)))
}
