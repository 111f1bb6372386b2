//! Acts for the debugger, which only reads.

use std::sync::atomic::{AtomicBool, Ordering};

use foldspace::event::Isolation;
use foldspace::hub::operations;
use foldspace::tools::{AllowedRoots, Forker};
use foldspace::{ForkOptions, Seq, Sessions};

use crate::cli::{Exit, Failure, Globals, external_command, open};
use crate::tui::DebuggerHost;

pub(super) struct PagerProgram<'a> {
    pub(super) globals: &'a Globals,
    pub(super) sessions: &'a Sessions,
    pub(super) away: &'a AtomicBool,
}

impl PagerProgram<'_> {
    fn prompt(&self, session: &str, at: Seq) -> Result<String, Failure> {
        let session = self.sessions.session(self.sessions.find(session)?.id)?;
        // A thread that is in no runtime yet: the prompt has its own.
        let ended =
            std::thread::scope(|scope| scope.spawn(|| external_command::shell_at(self.globals, &session, at)).join());
        let words = match ended {
            Ok(Ok(Exit::Interrupted)) => "the prompt was interrupted".to_owned(),
            Ok(Ok(exit)) => format!("the prompt ended with {}", exit.code()),
            Ok(Err(failure)) => return Err(failure),
            Err(_) => return Err(Failure::failed("the prompt ended by a fault of the program")),
        };
        Ok(format!("{words}; the copy is gone"))
    }
}

impl DebuggerHost for PagerProgram<'_> {
    fn fork_here(&mut self, session: &str, at: Seq, name: Option<&str>) -> Result<String, Failure> {
        let opened = open::changing(self.globals)?;
        let parent = opened.find(session)?.session;
        // A fork has no mounts copied.
        let roots = AllowedRoots::default();
        let forker = Forker { sessions: opened.sessions.clone(), home: open::directory(self.globals)?, roots };
        let child = forker.begin(&parent, ForkOptions { name: name.map(str::to_owned), ..ForkOptions::fork_at(at) })?;
        let child = operations::child(&parent, &child, Isolation::Fork, Some(at));
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
