//! Command lines without a session, which use the session of the current directory.

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, FromArgMatches};
use foldspace::WorkspaceSpec;
use foldspace::event::SessionStarted;
use foldspace::hub::attached_at;
use foldspace::store::SessionEntry;

use super::help::{OPTION, definition, takes_session};
use super::{Cli, Failure, Globals, did_you_mean, open, output, registry, text};

/// Commands that require the name of their session, since they can't be undone.
const NAMED: [&str; 1] = ["remove"];
/// Commands that work without a session, but prefer the directory's session.
const PREFERRING: [&str; 1] = ["ui"];
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

/// Returns true if a command takes another command as its last arguments.
fn runs_command(command: &clap::Command) -> bool {
    command.get_positionals().any(Arg::is_trailing_var_arg_set)
}

fn is_option(word: &OsStr) -> bool {
    word.as_encoded_bytes().starts_with(b"-")
}

/// Returns true if `word` is an option, or short options, with a value in the next word.
fn takes_next(command: &clap::Command, word: &OsStr) -> bool {
    let needs_value = |option: &&Arg| {
        option.get_action().takes_values() && option.get_num_args().is_none_or(|count| count.min_values() > 0)
    };
    let with_values = || command.get_opts().filter(needs_value);
    let is_short = |short| with_values().any(|option| option.get_short() == Some(short));
    let Some(options) = word.to_str().and_then(|word| word.strip_prefix('-')) else { return false };
    match options.strip_prefix('-') {
        Some(long) => with_values().any(|option| option.get_long() == Some(long)),
        None => options.find(is_short).is_some_and(|at| options[at..].chars().count() == 1),
    }
}

/// Returns the index of the command's name.
pub(super) fn command_at(definition: &clap::Command, words: &[OsString]) -> Option<usize> {
    let mut at = 1;
    while is_option(words.get(at)?) {
        at += if takes_next(definition, &words[at]) { 2 } else { 1 };
    }
    Some(at)
}

impl SessionWords {
    /// Parses the arguments of a command that takes a session as its first argument; `None` for other commands.
    pub(super) fn of(words: &[OsString]) -> Option<Self> {
        let definition = definition();
        let at = command_at(&definition, words)?;
        let command = definition.find_subcommand(&words[at]).filter(|command| takes_session(command))?.clone();
        let (mut kept, mut named) = (words[..=at].to_vec(), None);
        let mut rest = words[at + 1..].iter();
        while let Some(word) = rest.next() {
            match word.to_str() {
                Some("-s" | "--session") if rest.len() > 0 => named = rest.next().cloned(),
                Some(text) if text.starts_with("--session=") => {
                    named = text.strip_prefix("--session=").map(OsString::from)
                }
                Some(text) if text.starts_with("-s") && text.len() > 2 => named = Some(OsString::from(&text[2..])),
                text => {
                    kept.push(word.clone());
                    let runs = runs_command(&command);
                    let more = match text {
                        Some("--") => usize::MAX,
                        // The other words may be the other command's.
                        _ if runs && !is_option(word) => usize::MAX,
                        _ => usize::from(runs && takes_next(&command, word)),
                    };
                    kept.extend(rest.by_ref().take(more).cloned());
                }
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
        let with = match self.with(OsStr::new("session")) {
            Ok(with) => with,
            Err(missing) => return self.missing(missing, as_is),
        };
        let globals = Cli::from_arg_matches(&with).map_err(|error| Failure::usage(error.to_string()))?.globals;
        let name = self.command.get_name();
        if NAMED.contains(&name) {
            return Ok(as_is);
        }
        if with.subcommand().is_some_and(|(_, given)| given.contains_id(OPTION)) {
            return Err(Failure::usage("-s is combined with other short options").with_hint("separate it: -s NAME"));
        }
        if runs_command(&self.command) {
            return self.before_command(&globals, as_is);
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
            (Err(error), first) => {
                let is_missing = error.kind() == ErrorKind::MissingRequiredArgument;
                match usual(&globals, name, first.as_deref(), is_missing)? {
                    Some(session) => Ok(self.with(session.as_ref())),
                    None => Ok(Err(error)),
                }
            }
        }
    }

    /// Returns the error about missing arguments, without the session if the directory has one.
    fn missing(
        &self,
        missing: clap::Error,
        as_is: Result<ArgMatches, clap::Error>,
    ) -> Result<Result<ArgMatches, clap::Error>, Failure> {
        let added = |words: &[&str]| {
            let words = self.words.iter().cloned().chain(words.iter().map(OsString::from));
            definition().try_get_matches_from(words).ok()
        };
        // If added arguments do not parse, none was left out.
        let with = added(&["session", "path"]).or_else(|| added(&["session", "path", "--at=0"]));
        let Some(with) = with else { return Ok(as_is) };
        let globals = Cli::from_arg_matches(&with).map_err(|error| Failure::usage(error.to_string()))?.globals;
        Ok(if as_is.is_err() && own(&globals)?.is_some() { Err(missing) } else { as_is })
    }

    /// Returns the parsed command line of a command such as `exec`: the word before the other command is the session.
    fn before_command(
        &self,
        globals: &Globals,
        as_is: Result<ArgMatches, clap::Error>,
    ) -> Result<Result<ArgMatches, clap::Error>, Failure> {
        let after_options = |mut at: usize| {
            while self.words.get(at).is_some_and(|word| is_option(word) && word != "--") {
                at += if takes_next(&self.command, &self.words[at]) { 2 } else { 1 };
            }
            at
        };
        let at = after_options(self.at);
        let is_end = |at: usize| self.words.get(at).is_some_and(|word| word == "--");
        if !is_end(at) && is_end(after_options(at + 1)) {
            // A single word before it is the session.
            return Ok(as_is);
        }
        let is_new = self.words[self.at..at.min(self.words.len())].iter().any(|word| word == "--new");
        if is_new {
            self.check_new(at)?;
        }
        let first = match self.words.get(at).filter(|_| !is_new) {
            None if as_is.is_ok() => return Ok(as_is),
            Some(word) if word != "--" => word,
            _ => {
                let session = usual(globals, self.command.get_name(), None, true)?;
                return Ok(session.map_or(as_is, |session| self.with(session.as_ref())));
            }
        };
        let (entries, own) = (open::reading(globals)?.sessions.list()?, own(globals)?);
        if is_known(&entries, first, if own.is_some() { ID_CHARS } else { 1 }) {
            return Ok(as_is);
        }
        let (shown, name) = (text::one_line(&first.to_string_lossy(), 80), self.command.get_name());
        let names: Vec<String> = entries.iter().map(SessionEntry::name).collect();
        let meant = did_you_mean(&first.to_string_lossy(), names.iter().map(String::as_str));
        let what = format!("no session is called {shown:?}: `{name}` takes the session first");
        match own {
            Some(own) if meant.is_empty() => Ok(self.with(own.session.as_ref())),
            Some(_) => Err(Failure::missing(what)
                .with_hint(format!("{meant}`{name} -- {shown}` runs {shown} in the session of this directory"))),
            None => Err(Failure::missing(what).with_hint(format!(
                "{meant}`foldspace sessions` lists them, `foldspace new NAME --dir .` begins one in this directory"
            ))),
        }
    }

    /// Checks that a command follows the name of a new session.
    fn check_new(&self, at: usize) -> Result<(), Failure> {
        let (name, shown) = (self.command.get_name(), |word: &OsStr| text::one_line(&word.to_string_lossy(), 80));
        match (self.words.get(at), self.words.get(at + 1)) {
            (Some(session), None) if session != "--" && runs_command(&self.command) && name != "shell" => {
                let session = shown(session);
                let hint = format!(
                    "`foldspace {name} --new {session} make` runs a command, `foldspace new {session}` runs none"
                );
                Err(Failure::usage(format!("{name} --new {session} lacks a command")).with_hint(hint))
            }
            (Some(session), Some(option)) if session != "--" && option != "--" && is_option(option) => {
                let (session, option) = (shown(session), shown(option));
                let hint = format!(
                    "options of `{name}` come before the session; `foldspace new {session}` takes those of a workspace"
                );
                Err(Failure::usage(format!("{option} after the session belongs to no command")).with_hint(hint))
            }
            _ => Ok(()),
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
        for arg in self.command.get_positionals().skip(1).filter(|arg| !arg.is_trailing_var_arg_set()) {
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
        let makes_sense = others.iter().all(|(id, value)| fits(id, value, &own.directory));
        if !is_known(&entries, first, ID_CHARS) {
            return Ok(true);
        }
        if !makes_sense {
            return Ok(false);
        }
        let own = entries
            .iter()
            .find(|entry| entry.id.to_string() == own.session)
            .map_or_else(|| own.session.clone(), |entry| entry.name());
        let (first, name) = (text::one_line(&first.to_string_lossy(), 80), self.command.get_name());
        let problem = format!("{first} is ambiguous: a session, and something in this directory's session");
        let hint = format!(
            "`{name} -s {first}` means the session, `{name} -s {} {first}` means {first} in this directory's session",
            text::one_line(&own, 80)
        );
        Err(Failure::usage(problem).with_hint(hint))
    }
}

/// Returns true if `word` is a session's name, or the beginning of an id with at least `least` characters.
fn is_known(entries: &[SessionEntry], word: &OsStr, least: usize) -> bool {
    let Some(word) = word.to_str() else { return false };
    let begins = |entry: &SessionEntry| word.len() >= least && entry.id.to_string().starts_with(word);
    entries.iter().any(|entry| *word == entry.name() || begins(entry))
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
        "slice" => registry().slices().iter().any(|slice| value.to_str() == Some(slice.name)),
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
    let works = |entry: &SessionEntry| Some((entry.name(), directory_of(entry)?));
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

/// Finds the session for a command line without one; `None` if its error has another cause than missing words.
fn usual(globals: &Globals, command: &str, first: Option<&OsStr>, is_missing: bool) -> Result<Option<String>, Failure> {
    let attached = attached(globals);
    if let (Some(attached), None) = (&attached, first) {
        return Ok(Some(attached.session.clone()));
    }
    let entries = match (is_missing, open::existing(globals)) {
        (false, Err(_)) => return Ok(None),
        (false, Ok(data)) => open::glance(&data)?.sessions.list()?,
        (true, _) => open::reading(globals)?.sessions.list()?,
    };
    if first.is_some_and(|first| entries.iter().any(|entry| first.to_str() == Some(&*entry.name()))) {
        return Ok(None);
    }
    if let Some(attached) = attached {
        return Ok(Some(attached.session));
    }
    let own = working(&entries).map(|own| own.session);
    let only = || entries.first().filter(|_| is_missing && entries.len() == 1).map(SessionEntry::name);
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
                entries.iter().rev().take(SHOWN).map(|entry| text::one_line(&entry.name(), 80)).collect();
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
