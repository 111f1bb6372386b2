//! Command lines with typos, and help for optional sessions.

use std::ffi::OsString;

use clap::ArgMatches;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use foldspace::session::nearest;

use super::session_words::SessionWords;
use super::{Exit, Failure, definition, left_out, output};

/// Parses the command line, or ends the program.
pub(super) fn matches() -> ArgMatches {
    let words: Vec<OsString> = std::env::args_os().collect();
    let read = match SessionWords::of(&words) {
        None => definition().try_get_matches_from(&words),
        Some(words) => words.matches().unwrap_or_else(|failure| {
            output::tell(&failure);
            let Failure::Told { exit, .. } = failure else { std::process::exit(0) };
            std::process::exit(i32::from(exit.code()))
        }),
    };
    let error = match read {
        Ok(matches) => return matches,
        Err(error) => error,
    };
    for part in [ContextKind::InvalidSubcommand, ContextKind::InvalidArg] {
        if let Some(ContextValue::String(given)) = error.get(part)
            && let Some(failure) = left_out::needing(given)
        {
            output::tell(&failure);
            std::process::exit(i32::from(Exit::Usage.code()))
        }
    }
    match error.kind() {
        ErrorKind::DisplayHelp => with_optional_session(&error),
        ErrorKind::InvalidSubcommand => with_suggestion(error).exit(),
        ErrorKind::InvalidValue => with_value(error).exit(),
        _ => error.exit(),
    }
}

/// Prints help that shows the session as optional: to the parser it is required.
fn with_optional_session(help: &clap::Error) -> ! {
    let shown = help.render().ansi().to_string().replace("<SESSION>", "[SESSION]");
    // The reader may be gone.
    drop(std::io::Write::write_all(&mut anstream::stdout(), shown.as_bytes()));
    std::process::exit(0)
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
