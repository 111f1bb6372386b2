//! Command lines with typos, and help for optional sessions.

use std::ffi::OsString;

use clap::ArgMatches;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use foldspace::session::nearest;

use super::session_words::{self, SessionWords};
use super::{Failure, definition, former, help, left_out, output, text};

/// Commands and options that no suggestion names, since they destroy something or stop it.
const NEVER_SUGGESTED: [&str; 13] = [
    "accept-loss",
    "cancel",
    "detach",
    "drop",
    "force",
    "gc",
    "overwrite",
    "purge",
    "remove",
    "repair",
    "stop",
    "take-over",
    "yes",
];
/// Commands of other programs, with the commands that do the same here.
const ELSEWHERE: [(&[&str], &str); 7] = [
    (&["redo"], "`foldspace undo NAME --redo` takes the last undo back"),
    (
        &["continue", "resume"],
        "each command continues its session: `foldspace exec NAME make`; `foldspace run FILE --session NAME \
         --from-line N` continues a script",
    ),
    (
        &["abort", "kill", "pause"],
        "`foldspace cancel NAME` cancels a session's calls, `foldspace stop` stops the owner",
    ),
    (
        &["cd", "chmod", "cp", "find", "less", "mkdir", "mv", "touch"],
        "`foldspace exec NAME COMMAND` runs a command in a session, `foldspace shell NAME` is a prompt for several",
    ),
    (&["branch", "switch"], "`foldspace fork NAME` makes a child of a session, `foldspace sessions --tree` lists them"),
    (
        &["checkout", "reset"],
        "`foldspace rewind NAME --to N` goes back, `foldspace revert NAME FILE --at N` restores a file",
    ),
    (&["info", "inspect"], "`foldspace show NAME N` shows a call or event, `foldspace log NAME` lists them"),
];
/// The words that a person may use for the program's version.
const VERSION: &str = "version";

/// Parses the command line, or ends the program.
pub(super) fn matches() -> ArgMatches {
    let mut words = former::current(std::env::args_os().collect());
    let read = match read(&words) {
        // `diff` alone shows everything since the first call.
        Err(error) if lacks(&error, "<A..B>") => {
            words.push("..".into());
            self::read(&words)
        }
        read => read,
    };
    let error = match read {
        Ok(matches) => return matches,
        Err(error) => error,
    };
    for part in [ContextKind::InvalidSubcommand, ContextKind::InvalidArg] {
        if let Some(ContextValue::String(given)) = error.get(part)
            && let Some(failure) = left_out::needing(given)
        {
            end(&failure)
        }
    }
    if let Some(failure) = habit(&words, &error).or_else(|| elsewhere(&error)) {
        end(&failure)
    }
    match (error.kind(), error.get(ContextKind::InvalidSubcommand)) {
        (ErrorKind::DisplayHelp, _) => show(&error.render()),
        (ErrorKind::InvalidSubcommand, Some(ContextValue::String(given))) if given == "--all" => {
            show(&help::full().render_long_help())
        }
        (ErrorKind::InvalidSubcommand, Some(ContextValue::String(given))) if given == VERSION => {
            show(&definition().render_version().into())
        }
        (ErrorKind::InvalidSubcommand, _) => with_suggestion(error).exit(),
        (ErrorKind::UnknownArgument, _) => with_option(error, &words).exit(),
        (ErrorKind::InvalidValue, _) => with_value(error).exit(),
        _ => error.exit(),
    }
}

fn read(words: &[OsString]) -> Result<ArgMatches, clap::Error> {
    match SessionWords::of(words) {
        None => definition().try_get_matches_from(words),
        Some(words) => words.matches().unwrap_or_else(|failure| end(&failure)),
    }
}

fn end(failure: &Failure) -> ! {
    output::tell(failure);
    let Failure::Told { exit, .. } = failure else { std::process::exit(0) };
    std::process::exit(i32::from(exit.code()))
}

/// Returns true if a required argument is missing.
fn lacks(error: &clap::Error, wanted: &str) -> bool {
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(lacking)) => lacking.iter().any(|lacking| lacking == wanted),
        _ => false,
    }
}

/// Names the right command for a command line that another program would understand.
fn habit(words: &[OsString], error: &clap::Error) -> Option<Failure> {
    let at = session_words::command_at(&definition(), words)?;
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(given)) => given.as_str(),
        _ => "",
    };
    let session = words.get(at + 1).and_then(|word| word.to_str()).map_or("NAME".into(), text::shell_word);
    let (argument, value) = (text(ContextKind::InvalidArg), text::shell_word(text(ContextKind::InvalidValue)));
    let is_range = argument == "[A..B]" && error.kind() == ErrorKind::ValueValidation;
    let (problem, hint) = match (words[at].to_str()?, error.kind()) {
        ("show", ErrorKind::MissingRequiredArgument) if lacks(error, "<SEQ>") => (
            "`show` takes the number of a call or event".to_owned(),
            format!("`foldspace log {session} --calls` lists the calls; `show {session} -0` is the last event"),
        ),
        ("diff", _) if is_range && value.parse::<u64>().is_ok() => (
            format!("`diff` takes two positions, not one: {value}"),
            format!(
                "`foldspace show {session} {value}` shows the changes of a call, \
                 `foldspace diff {session} {value}..` all changes since"
            ),
        ),
        ("diff", _) if is_range && !value.contains("..") => (
            format!("`diff` takes two positions before a path: {value}"),
            format!("`foldspace diff {session} .. {value}` shows all changes of a path"),
        ),
        (command @ ("rewind" | "undo"), ErrorKind::UnknownArgument) if argument.parse::<u64>().is_ok() => {
            let option = if command == "undo" { "--call" } else { "--to" };
            let hint = format!("`foldspace {command} {session} {option} {argument}`");
            (format!("`{command}` takes the number with an option"), hint)
        }
        _ => return None,
    };
    Some(Failure::usage(problem).with_hint(hint))
}

/// Names the command that does what a command of another program does.
fn elsewhere(error: &clap::Error) -> Option<Failure> {
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let (_, hint) = ELSEWHERE.iter().find(|(names, _)| names.contains(&given.as_str()))?;
    Some(Failure::usage(format!("no command is called {given}")).with_hint(*hint))
}

/// Prints help, and ends the program. It shows the session as optional: to the parser it is required.
fn show(shown: &StyledStr) -> ! {
    let shown = shown.ansi().to_string().replace("<SESSION>", "[SESSION]");
    // The reader may be gone.
    drop(std::io::Write::write_all(&mut anstream::stdout(), shown.as_bytes()));
    std::process::exit(0)
}

/// Suggests the most similar of `known`, unless it is dangerous.
fn meant<'a>(wanted: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    nearest(wanted, known).filter(|meant| !NEVER_SUGGESTED.contains(meant))
}

fn with_suggestion(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(wanted)) = error.get(ContextKind::InvalidSubcommand) else { return error };
    let command = definition();
    let shown = command.get_subcommands().filter(|command| !command.is_hide_set()).map(clap::Command::get_name);
    let meant = meant(wanted, shown).map(str::to_owned);
    error.remove(ContextKind::SuggestedSubcommand);
    error.remove(ContextKind::Suggested);
    if let Some(meant) = meant {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![meant]));
    }
    error
}

/// Suggests the most similar option; the parser's own suggestions are too broad.
fn with_option(mut error: clap::Error, words: &[OsString]) -> clap::Error {
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidArg).cloned() else { return error };
    let wanted = given.trim_start_matches('-').split('=').next().unwrap_or_default();
    let mut definition = definition();
    definition.build();
    let command = session_words::command_at(&definition, words).and_then(|at| words[at].to_str());
    let command = match command.filter(|name| definition.find_subcommand(name).is_some()) {
        Some(name) => definition.find_subcommand_mut(name),
        None => Some(&mut definition),
    };
    let Some(command) = command else { return error };
    let meant = meant(wanted, command.get_arguments().filter_map(clap::Arg::get_long));
    let meant = meant.map(|meant| ContextValue::String(format!("--{meant}")));
    error.remove(ContextKind::SuggestedArg);
    error.remove(ContextKind::Suggested);
    if let Some(meant) = meant.filter(|_| given.starts_with('-')) {
        error.insert(ContextKind::SuggestedArg, meant);
    }
    error.insert(ContextKind::Usage, ContextValue::StyledStr(command.render_usage()));
    error
}

/// Suggests the value most similar to the given value; the parser's own suggestions are too broad.
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
