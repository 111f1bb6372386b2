//! Chooses the session for a script.

use std::path::Path;

use foldspace::session::MAX_NAME_CHARS;
use foldspace::{Session, SessionError, SessionId, Sessions, WorkspaceSpec};

use crate::cli::{Failure, files};

const ROOM: usize = 8;
const ID_DIGITS: usize = 8;

/// The session of a run: an existing session, or the name and the workspace of a new one.
pub(super) enum ChosenSession {
    Known(Session),
    New(String, Box<WorkspaceSpec>),
}

pub(super) fn choose(
    sessions: &Sessions,
    wanted: Option<&str>,
    script: &str,
    spec: Option<WorkspaceSpec>,
    usual: WorkspaceSpec,
) -> Result<ChosenSession, Failure> {
    let Some(wanted) = wanted else {
        let names: Vec<String> = sessions.list()?.iter().map(|entry| entry.name()).collect();
        return Ok(ChosenSession::New(free_name(script, &names), Box::new(spec.unwrap_or(usual))));
    };
    let Some(id) = existing(sessions, wanted)? else {
        return Ok(ChosenSession::New(wanted.to_owned(), Box::new(spec.unwrap_or(usual))));
    };
    let session = sessions.session(id)?;
    check_same(&session, spec.as_ref())?;
    Ok(ChosenSession::Known(session))
}

fn check_same(session: &Session, spec: Option<&WorkspaceSpec>) -> Result<(), Failure> {
    let Some(spec) = spec else { return Ok(()) };
    let same = session
        .started()
        .is_some_and(|started| started.backend == spec.backend_name() && started.options == spec.options());
    if same {
        return Ok(());
    }
    let (name, backend) = (session.name(), session.backend());
    Err(Failure::usage(format!("session {name} began with another workspace, on {backend}"))
        .with_hint("leave out --backend and its options to continue it, or start another session"))
}

/// Finds a session by name or id. A short beginning of an id counts as the name of a new session.
fn existing(sessions: &Sessions, wanted: &str) -> Result<Option<SessionId>, Failure> {
    match sessions.find(wanted) {
        Ok(entry) if entry.name() == wanted || wanted.len() >= ID_DIGITS => Ok(Some(entry.id)),
        Ok(_) | Err(SessionError::NotFound { .. }) => Ok(None),
        Err(SessionError::Ambiguous { .. }) if wanted.len() < ID_DIGITS => Ok(None),
        Err(error) => Err(error.into()),
    }
}

pub(in crate::cli) fn free_name(name: &str, taken: &[String]) -> String {
    let is_free = |name: &String| !taken.contains(name);
    let numbered = (2_u64..).map(|number| format!("{name}-{number}"));
    std::iter::once(name.to_owned()).chain(numbered).find(is_free).unwrap_or_default()
}

/// Names a session after its script: by the file, or by the directory of a file called `script`.
pub(super) fn name_of_script(path: &Path) -> String {
    const SILENT: &str = "script";
    if files::is_standard(path) {
        return "run".to_owned();
    }
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let stem = absolute.file_stem().map(|stem| fitting(&stem.to_string_lossy())).unwrap_or_default();
    let directory = absolute.parent().and_then(Path::file_name).map(|name| fitting(&name.to_string_lossy()));
    match (stem.as_str(), directory) {
        (SILENT | "", Some(directory)) if !directory.is_empty() => directory,
        ("", _) => "run".to_owned(),
        _ => stem,
    }
}

pub(in crate::cli) fn fitting(text: &str) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
    let name: String = text.chars().map(allowed).collect();
    let name = name.trim_start_matches(|c: char| !c.is_ascii_alphanumeric()).trim_end_matches('-');
    name.chars().take(MAX_NAME_CHARS - ROOM).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_name_comes_from_script() {
        let name = |path: &str| name_of_script(Path::new(path));
        assert_eq!(name("/a/fix bug (2).jsonl"), "fix-bug--2");
        assert_eq!(name("/a/first-run/script.jsonl"), "first-run");
        assert_eq!(name("/script.jsonl"), "script");
        assert_eq!(name("-"), "run");
        assert_eq!(name("/x/\u{e9}\u{e9}"), "x");
        assert_eq!(name(&format!("/x/{}", "n".repeat(200))).len(), MAX_NAME_CHARS - ROOM);
    }

    #[test]
    fn session_name_taken_gets_a_number() {
        let taken = ["a", "a-2", "b-2"].map(str::to_owned);
        assert_eq!(["a", "b", "c"].map(|name| free_name(name, &taken)), ["a-3", "b", "c"]);
    }
}
