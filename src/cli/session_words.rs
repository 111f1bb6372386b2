//! Command lines without a session, which use the session of the current directory.

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, FromArgMatches};
use foldspace::event::SessionStarted;
use foldspace::hub::attached_at;
use foldspace::session::name_of;
use foldspace::store::SessionEntry;
use foldspace::{Registry, WorkspaceSpec};

use super::{Cli, Failure, Globals, definition, open, output, text};

/// Commands that require the name of their session, since they can't be undone.
const NAMED: [&str; 1] = ["remove"];
/// Commands that work without a session, but prefer the directory's session.
const PREFERRING: [&str; 1] = ["ui"];
/// The option that names the session.
pub(super) const OPTION: &str = "named_session";
const SHOWN: usize = 10;
/// The minimum length of an ambiguous argument, in characters, to mean the beginning of a session's id.
const ID_CHARS: usize = 6;

/// The command line of a command that takes a session as its first argument.
pub(super) struct SessionWords {
    command: clap::Command,
    /// The arguments, without the option that names a session.
    words: Vec<OsString>,
    /// The index of the session among them.
    at: usize,
    /// The value of the option.
    named: Option<OsString>,
}

/// The session of the current directory.
struct DirectorySession {
    session: String,
    directory: PathBuf,
}

/// Adds the option `-s` to a command that takes a session as its first argument.
pub(super) fn with_option(command: clap::Command) -> clap::Command {
    if !takes_session(&command) {
        return command;
    }
    let about = "Names the session [default: the first argument, or the session of the current directory]";
    command.arg(Arg::new(OPTION).short('s').long("session").value_name("NAME").help(about))
}

fn takes_session(command: &clap::Command) -> bool {
    let is_first = command.get_positionals().next().is_some_and(|first| first.get_id() == "session");
    let has_own = |arg: &Arg| arg.get_short() == Some('s') || arg.get_long() == Some("session");
    is_first && !command.get_arguments().any(|arg| arg.get_id() != OPTION && has_own(arg))
}

impl SessionWords {
    /// Parses the arguments of a command that takes a session as its first argument; `None` for other commands.
    pub(super) fn of(words: &[OsString]) -> Option<Self> {
        let definition = definition();
        let has_value = |word: &OsStr| {
            let long = word.to_str().and_then(|word| word.strip_prefix("--"));
            let mut options = definition.get_opts().filter(|option| option.get_action().takes_values());
            options.any(|option| option.get_long() == long && long.is_some())
        };
        let mut at = 1;
        while words.get(at)?.as_encoded_bytes().starts_with(b"-") {
            at += if has_value(&words[at]) { 2 } else { 1 };
        }
        let command = definition.find_subcommand(&words[at]).filter(|command| takes_session(command))?.clone();
        let (mut kept, mut named) = (words[..=at].to_vec(), None);
        let mut rest = words[at + 1..].iter();
        while let Some(word) = rest.next() {
            match word.to_str() {
                Some("--") => {
                    kept.push(word.clone());
                    kept.extend(rest.by_ref().cloned());
                }
                Some("-s" | "--session") if rest.len() > 0 => named = rest.next().cloned(),
                Some(text) if text.starts_with("--session=") => {
                    named = text.strip_prefix("--session=").map(OsString::from)
                }
                Some(text) if text.starts_with("-s") && text.len() > 2 => named = Some(OsString::from(&text[2..])),
                _ => kept.push(word.clone()),
            }
        }
        Some(Self { command, words: kept, at: at + 1, named })
    }

    /// Returns the parsed command line.
    pub(super) fn matches(&self) -> Result<Result<ArgMatches, clap::Error>, Failure> {
        if let Some(named) = &self.named {
            return Ok(self.with(named));
        }
        let as_is = definition().try_get_matches_from(&self.words);
        // If an added session does not parse, none was left out.
        let Ok(with) = self.with(OsStr::new("session")) else { return Ok(as_is) };
        let globals = Cli::from_arg_matches(&with).map_err(|error| Failure::usage(error.to_string()))?.globals;
        let name = self.command.get_name();
        if NAMED.contains(&name) {
            return Ok(as_is);
        }
        if with.subcommand().is_some_and(|(_, given)| given.contains_id(OPTION)) {
            return Err(Failure::usage("-s is combined with other short options").with_hint("separate it: -s NAME"));
        }
        let (first, others) = self.positionals(&with);
        match (as_is, first) {
            (Ok(as_is), None) if !PREFERRING.contains(&name) => Ok(Ok(as_is)),
            (Ok(as_is), None) => match own(&globals)? {
                Some(own) => Ok(self.with(own.session.as_ref())),
                None => Ok(Ok(as_is)),
            },
            (Ok(as_is), Some(first)) => match own(&globals)? {
                Some(own) if self.is_next(&globals, &own, &first, &others)? => Ok(self.with(own.session.as_ref())),
                _ => Ok(Ok(as_is)),
            },
            (Err(error), first) => match usual(&globals, name, first.as_deref(), &error)? {
                Some(session) => Ok(self.with(session.as_ref())),
                None => Ok(Err(error)),
            },
        }
    }

    fn with(&self, session: &OsStr) -> Result<ArgMatches, clap::Error> {
        let (before, after) = self.words.split_at(self.at);
        let words = before.iter().cloned().chain([session.to_owned()]).chain(after.iter().cloned());
        definition().try_get_matches_from(words)
    }

    /// Returns the first argument after the session, and all such arguments with their names.
    fn positionals(&self, with: &ArgMatches) -> (Option<OsString>, Vec<(String, OsString)>) {
        let Some((_, given)) = with.subcommand() else { return (None, Vec::new()) };
        let mut all = Vec::new();
        for arg in self.command.get_positionals().skip(1).filter(|arg| !arg.is_last_set()) {
            let id = arg.get_id().as_str();
            let is_given = given.value_source(id) == Some(clap::parser::ValueSource::CommandLine);
            let values = given.get_raw(id).into_iter().flatten().filter(|_| is_given);
            all.extend(values.map(|value| (id.to_owned(), value.to_owned())));
        }
        (all.first().map(|(_, value)| value.clone()), all)
    }

    /// Returns true if the first argument is not a session, but the argument after it. Fails if it may be both.
    fn is_next(
        &self,
        globals: &Globals,
        own: &DirectorySession,
        first: &OsStr,
        others: &[(String, OsString)],
    ) -> Result<bool, Failure> {
        let entries = open::glance(&open::existing(globals)?)?.sessions.list()?;
        let is_name = entries.iter().any(|entry| first.to_str() == Some(&*name_of(entry)));
        let begins = |entry: &SessionEntry| first.to_str().is_some_and(|first| entry.id.to_string().starts_with(first));
        let is_known = is_name || (first.len() >= ID_CHARS && entries.iter().any(begins));
        let makes_sense = others.iter().all(|(id, value)| fits(id, value, &own.directory));
        if !is_known {
            return Ok(true);
        }
        if !makes_sense {
            return Ok(false);
        }
        let own = entries.iter().find(|entry| entry.id.to_string() == own.session).map_or(own.session.clone(), name_of);
        let (first, name) = (text::one_line(&first.to_string_lossy(), 80), self.command.get_name());
        let problem = format!("{first} is ambiguous: a session, and something in this directory's session");
        let hint = format!(
            "`{name} -s {first}` means the session, `{name} -s {} {first}` means {first} in this directory's session",
            text::one_line(&own, 80)
        );
        Err(Failure::usage(problem).with_hint(hint))
    }
}

/// Returns true if an argument may mean something in the session of a directory.
fn fits(id: &str, value: &OsStr, directory: &Path) -> bool {
    match id {
        "path" | "paths" => {
            let below = Path::new(value).strip_prefix("/").unwrap_or(Path::new(value));
            directory.join(below).symlink_metadata().is_ok()
        }
        // A file to write is seldom called like a session.
        "file" => false,
        "slice" => Registry::standard().slices().iter().any(|slice| value.to_str() == Some(slice.name)),
        _ => true,
    }
}

/// Finds the session of the current directory: the attached session, else the latest that works there.
fn own(globals: &Globals) -> Result<Option<DirectorySession>, Failure> {
    if let Some(attached) = attached(globals) {
        return Ok(Some(attached));
    }
    match open::existing(globals).and_then(|data| open::glance(&data)) {
        Ok(opened) => Ok(working(&opened.sessions.list()?)),
        Err(_) => Ok(None),
    }
}

fn attached(globals: &Globals) -> Option<DirectorySession> {
    let found = attached_at(&open::directory(globals).ok()?, &std::env::current_dir().ok()?)?;
    Some(DirectorySession { session: found.session.to_string(), directory: found.directory.0 })
}

/// Returns the session attached to the current directory or to a parent of it.
pub(super) fn attached_session(data: &Path) -> Option<String> {
    attached_at(data, &std::env::current_dir().ok()?).map(|found| found.session.to_string())
}

fn working(entries: &[SessionEntry]) -> Option<DirectorySession> {
    let here = std::env::current_dir().ok()?;
    let works = |entry: &SessionEntry| Some((name_of(entry), directory_of(entry)?));
    let mut here = entries.iter().rev().filter_map(works).filter(|(_, directory)| here.starts_with(directory));
    here.next().map(|(session, directory)| DirectorySession { session, directory })
}

/// Returns the local directory that a session works in or has a copy of.
fn directory_of(entry: &SessionEntry) -> Option<PathBuf> {
    let started = entry.origin.typed::<SessionStarted>()?.ok()?;
    let spec = WorkspaceSpec::of_session(&started.event).ok()?;
    // A session without commands does not work in its directory: it only records the files there.
    let keeps_only = matches!(&spec, WorkspaceSpec::Host(options) if options.files_only);
    spec.named_directory().filter(|_| !keeps_only).map(Path::to_owned)
}

/// Finds the session for a command line without one; `None` if its error has another cause.
fn usual(
    globals: &Globals,
    command: &str,
    first: Option<&OsStr>,
    error: &clap::Error,
) -> Result<Option<String>, Failure> {
    let attached = attached(globals);
    if let (Some(attached), None) = (&attached, first) {
        return Ok(Some(attached.session.clone()));
    }
    let is_missing = error.kind() == ErrorKind::MissingRequiredArgument;
    let entries = match (is_missing, open::existing(globals)) {
        (false, Err(_)) => return Ok(None),
        (false, Ok(data)) => open::glance(&data)?.sessions.list()?,
        (true, _) => open::reading(globals)?.sessions.list()?,
    };
    if first.is_some_and(|first| entries.iter().any(|entry| first.to_str() == Some(&*name_of(entry)))) {
        return Ok(None);
    }
    if let Some(attached) = attached {
        return Ok(Some(attached.session));
    }
    let own = working(&entries).map(|own| own.session);
    let only = || entries.first().filter(|_| is_missing && entries.len() == 1).map(name_of);
    if let Some(session) = own.or_else(only) {
        output::note(&format!("session {}", text::one_line(&session, 80)));
        return Ok(Some(session));
    }
    let attaches = "`foldspace attach` starts a session for a directory";
    match &entries[..] {
        _ if !is_missing => Ok(None),
        [] => Err(Failure::missing("no sessions found").with_hint(format!("`foldspace new` creates one; {attaches}"))),
        _ if is_picked(command) => picked(entries).map(Some),
        _ => {
            let names: Vec<String> =
                entries.iter().rev().take(SHOWN).map(|entry| text::one_line(&name_of(entry), 80)).collect();
            let more = if entries.len() > SHOWN { ", ..." } else { "" };
            Err(Failure::usage(format!("no session named: the store has {}", entries.len()))
                .with_hint(format!("the latest are {}{more}; {attaches}", names.join(", "))))
        }
    }
}

/// Returns true if the person picks the session: in the debugger, at a terminal.
fn is_picked(command: &str) -> bool {
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
    Err(Failure::usage("no session named"))
}
