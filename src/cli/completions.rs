use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use clap::{Arg, ArgMatches};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};
use foldspace::event::CallStatus;
use foldspace::reducers::{CallEntry, Entry, ToolCalls};
use foldspace::{EntryPath, State, Tools, VirtualFileSystem};

use super::data_directory::default_directory;
use super::{Failure, Globals, Out, definition, help, open, registry, session_words, text};

/// The variable that a shell's script sets to request completions.
const VARIABLE: &str = "FOLDSPACE_COMPLETE";
/// The time limit for the store's answer, since the shell waits for it.
const STORE_REPLY_TIMEOUT: Duration = Duration::from_secs(1);

/// Prints a shell's completions, including sessions, files and calls
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  source <(foldspace completions bash)          in ~/.bashrc
  source <(foldspace completions zsh)           in ~/.zshrc, after compinit
  foldspace completions fish | source           in ~/.config/fish/config.fish")]
pub(super) struct Completions {
    /// The shell
    shell: clap_complete::Shell,
}

impl Completions {
    pub(super) fn run(&self, _: &Globals, out: &mut Out) -> Result<(), Failure> {
        let shells = Shells::builtins();
        let (shell, mut script) = (self.shell.to_string(), Vec::new());
        if let Some(shell) = shells.completer(&shell) {
            let written = shell.write_registration(VARIABLE, "foldspace", "foldspace", &program(), &mut script);
            written.map_err(|error| Failure::io("write", "the completions", &error))?;
        }
        out.raw(&script)
    }
}

/// Returns a path of this program that works from any directory.
fn program() -> String {
    let called = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    let called = if called.components().count() > 1 { std::path::absolute(&called).unwrap_or(called) } else { called };
    if called.as_os_str().is_empty() { "foldspace".to_owned() } else { called.to_string_lossy().into_owned() }
}

/// Answers a shell's script. Returns false if the program was not started by such a script. Ignores errors.
pub(super) fn answer() -> bool {
    let here = std::env::current_dir().ok();
    let words = std::env::args_os();
    CompleteEnv::with_factory(completing).var(VARIABLE).try_complete(words, here.as_deref()).unwrap_or(true)
}

/// Returns the definition of the program, with completers that read the store.
fn completing() -> clap::Command {
    definition().mut_subcommands(|command| {
        let name = command.get_name().to_owned();
        let next = command.get_positionals().nth(1).and_then(|arg| LiveNames::of(&name, arg));
        // Help hides the options of every command.
        let shown = command.mut_args(|arg| if arg.is_global_set() { arg.hide(false) } else { arg });
        shown.mut_args(|arg| match LiveNames::of(&name, &arg) {
            // The session may be omitted, so the word may be the next argument.
            Some(names) if arg.get_id() == "session" && arg.is_positional() => {
                let all = move |word: &OsStr| {
                    let next = next.map(|next| next.fitting(word)).unwrap_or_default();
                    names.fitting(word).into_iter().chain(next).collect::<Vec<_>>()
                };
                arg.add(ArgValueCompleter::new(all))
            }
            Some(names) => arg.add(ArgValueCompleter::new(move |word: &OsStr| names.fitting(word))),
            None => arg,
        })
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LiveNames {
    Sessions,
    Slices,
    Paths,
    Calls,
    Tools,
    Kinds,
}

impl LiveNames {
    /// Returns the kind of names that complete an argument of a command.
    fn of(command: &str, arg: &Arg) -> Option<Self> {
        Some(match (command, arg.get_id().as_str()) {
            (_, "session" | "sessions" | help::OPTION | "child" | "into" | "expect") => Self::Sessions,
            ("state" | "bisect", "slice") => Self::Slices,
            ("tools", "name") | ("fork", "tools") => Self::Tools,
            ("log", "kind") => Self::Kinds,
            (_, "path" | "paths") | ("log", "glob") | ("merge", "ours" | "theirs") | ("replay", "changes") => {
                Self::Paths
            }
            ("replay", "until") => return None,
            (_, "at" | "before" | "until" | "to" | "seq" | "call" | "good" | "bad") | ("what-if", "replace") => {
                Self::Calls
            }
            _ => return None,
        })
    }

    fn fitting(self, word: &OsStr) -> Vec<CompletionCandidate> {
        let Some(word) = word.to_str().map(str::to_owned) else { return Vec::new() };
        let (known, answer) = mpsc::channel();
        std::thread::spawn(move || known.send(self.known(&word).unwrap_or_default()));
        answer.recv_timeout(STORE_REPLY_TIMEOUT).unwrap_or_default()
    }

    fn known(self, word: &str) -> Option<Vec<CompletionCandidate>> {
        let names: Vec<(String, String)> = match self {
            Self::Sessions => sessions()?,
            Self::Slices => registry().slices().iter().map(|slice| named(slice.name)).collect(),
            Self::Tools => Tools::standard().names().map(named).collect(),
            Self::Kinds => {
                let registry = super::registry();
                let mut kinds: Vec<&str> = registry.event_kinds().collect();
                kinds.sort_unstable();
                kinds.into_iter().map(named).collect()
            }
            Self::Paths => paths(&state()?, word),
            Self::Calls => calls(&state()?),
        };
        // A shell would change the meaning of other names.
        let is_plain = |name: &str| !name.starts_with('-') && text::shell_word(name) == name;
        let fits = names.into_iter().filter(|(name, _)| name.starts_with(word) && is_plain(name));
        Some(fits.map(|(name, help)| candidate(name, help)).collect())
    }
}

fn named(name: &str) -> (String, String) {
    (name.to_owned(), String::new())
}

fn candidate(name: String, help: String) -> CompletionCandidate {
    CompletionCandidate::new(name).help((!help.is_empty()).then(|| help.into()))
}

/// Returns the command line before the word to complete, as far as it parses.
fn given() -> Option<ArgMatches> {
    let mut words: Vec<_> = std::env::args_os().skip_while(|word| word != "--").skip(1).collect();
    let at = std::env::var("_CLAP_COMPLETE_INDEX").ok().and_then(|at| at.parse().ok());
    words.truncate(at.unwrap_or(words.len().saturating_sub(1)));
    definition().ignore_errors(true).try_get_matches_from(words).ok()
}

fn store(given: &ArgMatches) -> Option<open::OpenedStore> {
    open::glance(&data(given)?).ok()
}

fn data(given: &ArgMatches) -> Option<PathBuf> {
    let data = given.try_get_one::<PathBuf>("data").ok().flatten().cloned();
    data.or_else(default_directory)
}

/// Returns the names of the sessions, latest first.
fn sessions() -> Option<Vec<(String, String)>> {
    let mut entries = store(&given()?)?.sessions.list().ok()?;
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.updated));
    Some(entries.iter().map(|entry| (entry.name(), text::moment(entry.updated))).collect())
}

/// Returns the state of the session on the command line, else of the attached directory's session.
fn state() -> Option<State> {
    let given = given()?;
    let opened = store(&given)?;
    let (_, command) = given.subcommand()?;
    let named = |id| command.try_get_one::<String>(id).ok().flatten().cloned();
    let own = || session_words::attached_session(&data(&given)?);
    let named = named(help::OPTION).or_else(|| named("session")).or_else(|| named("child"));
    let find = |wanted: &String| opened.sessions.find(wanted).ok();
    let entry = named.as_ref().and_then(find).or_else(|| find(&own()?))?;
    opened.sessions.session(entry.id).ok()?.state().ok()
}

/// Returns the entries of the directory part of a word.
fn paths(state: &State, word: &str) -> Vec<(String, String)> {
    let within = word.rfind('/').map_or("", |cut| &word[..=cut]);
    let Ok(directory) = EntryPath::lookup(within) else { return Vec::new() };
    let path = |(path, entry): (&EntryPath, &Entry)| {
        let name = EntryPath::from_bytes(path.name()).map(|name| name.to_string()).unwrap_or_default();
        (format!("{within}{name}{}", if entry.is_directory() { "/" } else { "" }), String::new())
    };
    VirtualFileSystem::of(state).children(&directory).map(path).collect()
}

/// Returns the numbers of the calls, latest first.
fn calls(state: &State) -> Vec<(String, String)> {
    let Some(calls) = state.slice::<ToolCalls>() else { return Vec::new() };
    let call = |call: &CallEntry| {
        let status = call.status.map_or("no outcome", CallStatus::word);
        (call.call.to_string(), format!("{} {status}", text::one_line(&call.tool, 80)))
    };
    calls.iter().rev().map(call).collect()
}
