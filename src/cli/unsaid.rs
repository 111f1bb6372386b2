//! Command lines that leave something out, or are nearly right.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, FromArgMatches};
use foldspace::WorkspaceSpec;
use foldspace::event::SessionStarted;
use foldspace::session::{name_of, nearest};
use foldspace::store::SessionEntry;

use super::{Cli, Failure, Globals, definition, open, output, text};

/// Commands that want their session by name: what they do can't be taken back.
const NAMED: [&str; 1] = ["remove"];
const SHOWN: usize = 10;

/// Returns the meaning of the command line, or ends the program. Where no session is named it is the only one, or the one
/// that works in this directory.
pub(super) fn matches() -> ArgMatches {
    let words: Vec<OsString> = std::env::args_os().collect();
    let error = match definition().try_get_matches_from(&words) {
        Ok(matches) => return matches,
        Err(error) => error,
    };
    match error.kind() {
        ErrorKind::MissingRequiredArgument => with_session(&words).unwrap_or_else(|| error.exit()),
        ErrorKind::InvalidSubcommand => with_suggestion(error).exit(),
        ErrorKind::InvalidValue => with_value(error).exit(),
        _ => error.exit(),
    }
}

fn with_suggestion(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(wanted)) = error.get(ContextKind::InvalidSubcommand) else { return error };
    let command = definition();
    let meant = nearest(wanted, command.get_subcommands().map(clap::Command::get_name)).map(str::to_owned);
    if let Some(meant) = meant {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![meant]));
    }
    error
}

/// Suggests the value that is most like the one that is given; the parser finds any two words alike.
fn with_value(mut error: clap::Error) -> clap::Error {
    let (Some(ContextValue::String(wanted)), Some(ContextValue::Strings(known))) =
        (error.get(ContextKind::InvalidValue), error.get(ContextKind::ValidValue))
    else {
        return error;
    };
    let meant = nearest(wanted, known.iter().map(String::as_str)).map(str::to_owned);
    error.remove(ContextKind::SuggestedValue);
    if let Some(meant) = meant {
        error.insert(ContextKind::SuggestedValue, ContextValue::String(meant));
    }
    error
}

/// Reads the command line as if a session were named; none if that is not what is missing.
fn with_session(words: &[OsString]) -> Option<ArgMatches> {
    let with = |session: &str, at: usize| {
        let (before, after) = words.split_at(at);
        definition().try_get_matches_from(before.iter().cloned().chain([session.into()]).chain(after.iter().cloned()))
    };
    let takes_session = |name: &str| {
        let command = definition();
        let arguments = command.find_subcommand(name).into_iter().flat_map(clap::Command::get_positionals);
        !NAMED.contains(&name) && arguments.into_iter().any(|argument| argument.get_id() == "session")
    };
    let at = words.iter().position(|word| word.to_str().is_some_and(takes_session))? + 1;
    let globals = Cli::from_arg_matches(&with("session", at).ok()?).ok()?.globals;
    match usual_session(&globals, &words[at - 1], words.get(at)) {
        // The session is there, and something else is missing.
        Ok(None) => None,
        Ok(Some(session)) => {
            output::note(&format!("session {}", text::one_line(&session, 80)));
            with(&session, at).ok()
        }
        Err(failure) => {
            output::tell(&failure);
            let Failure::Told { exit, .. } = failure else { return None };
            std::process::exit(i32::from(exit.code()))
        }
    }
}

/// Finds the session that is meant where none is named; none if the first word behind the command names one.
fn usual_session(globals: &Globals, command: &OsString, first: Option<&OsString>) -> Result<Option<String>, Failure> {
    let opened = open::reading(globals)?;
    let entries = opened.sessions.list()?;
    if first.is_some_and(|first| entries.iter().any(|entry| first.to_str() == Some(&name_of(entry)))) {
        return Ok(None);
    }
    let here = std::env::current_dir().ok();
    let is_here = |entry: &&SessionEntry| here.as_deref().is_some_and(|here| works_in(entry, here));
    let of_directory: Vec<&SessionEntry> = entries.iter().filter(is_here).collect();
    match (&entries[..], &of_directory[..]) {
        ([only], _) => Ok(Some(name_of(only))),
        (_, [only]) => Ok(Some(name_of(only))),
        ([], _) => Err(Failure::missing("there are no sessions").with_hint("`foldspace run` begins one")),
        _ if is_picked(command) => picked(entries).map(Some),
        _ => {
            let names: Vec<String> =
                entries.iter().rev().take(SHOWN).map(|entry| text::one_line(&name_of(entry), 80)).collect();
            let more = if entries.len() > SHOWN { ", ..." } else { "" };
            Err(Failure::usage(format!("no session is named, and there are {}", entries.len()))
                .with_hint(format!("the latest are {}{more}", names.join(", "))))
        }
    }
}

/// Tells whether the person is asked which session: by the debugger, at a terminal.
fn is_picked(command: &OsString) -> bool {
    let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    cfg!(feature = "tui") && command == "replay" && is_terminal
}

#[cfg(feature = "tui")]
fn picked(entries: Vec<SessionEntry>) -> Result<String, Failure> {
    let picked = super::replay::pick(entries)?;
    picked.ok_or_else(|| Failure::new(super::Exit::Interrupted, "no session was chosen"))
}

#[cfg(not(feature = "tui"))]
fn picked(_: Vec<SessionEntry>) -> Result<String, Failure> {
    Err(Failure::usage("no session is named"))
}

/// Tells whether a session's workspace is a directory of this machine at or above another, or a copy of it.
fn works_in(entry: &SessionEntry, directory: &Path) -> bool {
    let started = entry.origin.typed::<SessionStarted>().and_then(Result::ok);
    let spec = started.and_then(|started| WorkspaceSpec::of_session(&started.event).ok());
    // One that only keeps files for others is not meant.
    let spec = spec.filter(|spec| !matches!(spec, WorkspaceSpec::Host(options) if options.files_only));
    spec.is_some_and(|spec| spec.named_directory().is_some_and(|own| directory.starts_with(own)))
}
