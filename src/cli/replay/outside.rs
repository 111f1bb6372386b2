//! Acts for the debugger, which only reads.

use std::sync::atomic::{AtomicBool, Ordering};

use foldspace::event::Isolation;
use foldspace::{Seq, Sessions};
use serde_json::json;

use crate::cli::owner::OwnerClient;
use crate::cli::{Exit, Failure, Globals, block_on, external_command};
use crate::tui::DebuggerHost;

pub(super) struct PagerProgram<'a> {
    pub(super) globals: &'a Globals,
    pub(super) sessions: &'a Sessions,
    pub(super) away: &'a AtomicBool,
}

/// Runs work on a thread that is in no runtime yet: it has its own.
fn away_from_runtime<T: Send>(work: impl FnOnce() -> Result<T, Failure> + Send) -> Result<T, Failure> {
    let ended = std::thread::scope(|scope| scope.spawn(work).join());
    ended.unwrap_or_else(|_| Err(Failure::failed("it ended by a fault of the program")))
}

impl PagerProgram<'_> {
    fn prompt(&self, session: &str, at: Seq) -> Result<String, Failure> {
        let session = self.sessions.session(self.sessions.find(session)?.id)?;
        let words = match away_from_runtime(|| external_command::shell_at(self.globals, &session, at))? {
            Exit::Interrupted => "the prompt was interrupted".to_owned(),
            exit => format!("the prompt ended with {}", exit.code()),
        };
        Ok(format!("{words}; the copy is gone"))
    }
}

impl DebuggerHost for PagerProgram<'_> {
    fn fork_here(&mut self, session: &str, at: Seq, name: Option<&str>) -> Result<String, Failure> {
        let parent = self.sessions.find(session)?.id;
        let asked = json!({ "isolation": Isolation::Fork, "at": at, "name": name });
        let child = away_from_runtime(|| {
            block_on(async {
                let owner = OwnerClient::of_existing(self.globals).await?;
                let child = owner.begin_child(parent, &asked).await;
                owner.end().await;
                child
            })?
        })?;
        let moved = child.moved().map(|moved| format!("; {moved}")).unwrap_or_default();
        Ok(format!("{} is a fork of {} at {}{moved}", child.name, child.parent_name, child.at.unwrap_or(at)))
    }

    fn shell_here(&mut self, session: &str, at: Seq) -> Result<String, Failure> {
        self.away.store(true, Ordering::Relaxed);
        let ended = self.prompt(session, at);
        self.away.store(false, Ordering::Relaxed);
        ended
    }
}
