//! What the debugger can't do by itself, done by the program.

use std::io;
use std::process::Command;

use foldspace::{NewChild, Seq, Session, Sessions, WorkspaceSpec, materialise};

use crate::cli::exit::Failure;
use crate::cli::{Globals, open, text};
use crate::tui::Outside;

const PODMAN: &str = "podman";

/// Acts for the debugger, which only looks.
pub(super) struct Program<'a> {
    pub(super) globals: &'a Globals,
    pub(super) sessions: &'a Sessions,
}

impl Outside for Program<'_> {
    fn fork_here(&mut self, session: &str, at: Seq, name: Option<&str>) -> Result<String, String> {
        let told = |failure: Failure| match failure {
            Failure::Told { message, .. } => message,
            Failure::Closed => "nobody reads any more".to_owned(),
        };
        let opened = open::changing(self.globals).map_err(told)?;
        let parent = opened.find(session).map_err(told)?.session;
        // A directory that was given belongs to the parent alone.
        let spec = parent.started().map(|started| WorkspaceSpec::of_session(started).map(|spec| spec.forked()));
        let spec = spec.transpose().map_err(|error| error.to_string())?;
        let workspace = spec.map(|spec| (spec.backend_name().to_owned(), spec.options()));
        let new = NewChild { name: name.map(str::to_owned), workspace, ..NewChild::fork_at(at) };
        let child = opened.sessions.child_of(&parent, new).map_err(|error| error.to_string())?;
        Ok(format!("{} is a fork of {} at {at}", child.name(), parent.name()))
    }

    #[expect(clippy::disallowed_methods, reason = "a face starts the person's own shell")]
    fn shell_here(&mut self, session: &str, at: Seq) -> Result<String, String> {
        let words = |error: &dyn std::fmt::Display| error.to_string();
        let entry = self.sessions.find(session).map_err(|error| words(&error))?;
        let session = self.sessions.session(entry.id).map_err(|error| words(&error))?;
        if session.started().is_some_and(|started| started.backend == PODMAN) {
            return self.shell_in_container(&session, at).map_err(|error| format!("can't open the shell: {error}"));
        }
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

impl Program<'_> {
    /// What an agent made in a container is not to be run outside of one.
    #[expect(clippy::disallowed_methods, reason = "a prompt of this program, in a process of its own")]
    fn shell_in_container(&self, session: &Session, at: Seq) -> io::Result<String> {
        let mut prompt = Command::new(std::env::current_exe()?);
        if let Some(data) = &self.globals.data {
            prompt.arg("--data").arg(data);
        }
        let ended = prompt.args(["shell", &session.id().to_string(), "--at", &at.to_string()]).status()?;
        Ok(format!("the shell ended with {}; the copy is gone", ended.code().unwrap_or(-1)))
    }
}
