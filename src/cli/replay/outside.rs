//! What the debugger can't do by itself, done by the program.

use std::process::Command;

use foldspace::{Seq, Sessions, materialise};

use crate::cli::{Globals, text};
use crate::tui::Outside;

/// Acts for the debugger, which only looks.
pub(super) struct Program<'a> {
    pub(super) globals: &'a Globals,
    pub(super) sessions: &'a Sessions,
}

impl Outside for Program<'_> {
    fn fork_here(&mut self, session: &str, at: Seq, _name: Option<&str>) -> Result<String, String> {
        let program = crate::cli::open::same_program(self.globals);
        Err(format!("this program can't fork yet; {program} export, at {at} of {session}, makes a copy"))
    }

    #[expect(clippy::disallowed_methods, reason = "a face starts the person's own shell")]
    fn shell_here(&mut self, session: &str, at: Seq) -> Result<String, String> {
        let words = |error: &dyn std::fmt::Display| error.to_string();
        let entry = self.sessions.find(session).map_err(|error| words(&error))?;
        let session = self.sessions.session(entry.id).map_err(|error| words(&error))?;
        let state = session.state_at(at).map_err(|error| words(&error))?;
        let place = tempfile::Builder::new().prefix("foldspace-look-").tempdir().map_err(|error| words(&error))?;
        let files = place.path().join("workspace");
        let written = materialise(&session, &state, &files).map_err(|error| words(&error))?;
        let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty()).unwrap_or_else(|| "/bin/sh".into());
        let entries = text::count(written.entries, "entry");
        crate::cli::output::note(&format!(
            "{entries} as of position {at}, in a copy that is thrown away; NOT in a sandbox; `exit` leads back"
        ));
        let position = format!("{}@{at}", session.name());
        let ended = Command::new(&shell).current_dir(&files).env("FOLDSPACE_POSITION", position).status();
        match ended {
            Ok(status) => Ok(format!("the shell ended with {}; the copy is gone", status.code().unwrap_or(-1))),
            Err(error) => Err(format!("can't start {}: {error}", text::one_line(&shell.to_string_lossy(), 200))),
        }
    }
}
