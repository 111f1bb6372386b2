//! `foldspace remove`: a session that is to go.

use serde_json::json;

use super::Globals;
use super::exit::{Exit, Failure};
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
        let (id, name, head) = {
            let opened = open::reading(globals)?;
            let found = opened.find(&self.session)?;
            (found.entry.id, found.name, found.entry.head)
        };
        let events = text::count(head, "event");
        let shown = text::one_line(&name, 80);
        let question = format!("remove session {shown} ({}) with its {events} for good?", id.short());
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
