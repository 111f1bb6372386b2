//! What `find` aims at, and what it does there.

use super::paths::{Whole, matches_all, whole};
use super::places::Places;
use super::shell::base_name;
use super::wrappers::is_wrapper;

/// What `find` looks through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Aim {
    pub(super) whole: Whole,
    /// It takes only what has some name.
    pub(super) narrowed: bool,
}

/// The directories that `find` looks through.
pub(super) fn directories(arguments: &[String]) -> Vec<&str> {
    let mut at = 0;
    while let Some(word) = arguments.get(at) {
        at += match word.as_str() {
            "-D" => 2,
            "-H" | "-L" | "-P" => 1,
            word if word.starts_with("-O") => 1,
            _ => break,
        };
    }
    let given = arguments.iter().skip(at).take_while(|word| !word.starts_with(['-', '(', '!']));
    let given: Vec<&str> = given.map(String::as_str).collect();
    if given.is_empty() { vec!["."] } else { given }
}

/// What `find` takes.
pub(super) fn aim_of(arguments: &[String], places: &Places) -> Aim {
    let mut aim = Whole::No;
    for directory in directories(arguments) {
        match whole(directory, places) {
            Whole::Yes => aim = Whole::Yes,
            Whole::Perhaps if aim == Whole::No => aim = Whole::Perhaps,
            _ => {}
        }
    }
    Aim { whole: aim, narrowed: is_narrowed(arguments) }
}

fn is_narrowed(arguments: &[String]) -> bool {
    let is_other = |word: &String| matches!(word.as_str(), "!" | "-not" | "-o" | "-or" | ",");
    let names = |pair: &[String]| {
        let test = matches!(
            pair[0].as_str(),
            "-name" | "-iname" | "-path" | "-ipath" | "-wholename" | "-iwholename" | "-regex" | "-iregex" | "-lname"
        );
        test && !matches_all(&pair[1]) && pair[1] != ".*"
    };
    !arguments.iter().any(is_other) && arguments.windows(2).any(names)
}

/// Whether it removes what it finds.
pub(super) fn removers(arguments: &[String]) -> bool {
    let mut at = 0;
    while let Some(word) = arguments.get(at) {
        at += 1;
        let length = match word.as_str() {
            "-delete" => return true,
            "-exec" | "-execdir" | "-ok" | "-okdir" => command_length(&arguments[at..]),
            // The word after these is a name, whatever it looks like.
            "-name" | "-iname" | "-path" | "-ipath" | "-wholename" | "-iwholename" | "-regex" | "-iregex"
            | "-lname" => 1,
            _ => 0,
        };
        let program = &arguments[at..(at + length).min(arguments.len())];
        let is_remover = |word: &String| matches!(base_name(word), "rm" | "unlink" | "shred");
        let removes = match program.first() {
            Some(first) if is_wrapper(base_name(first)) => program.iter().any(is_remover),
            Some(first) => is_remover(first),
            None => false,
        };
        if (word.starts_with("-exec") || word.starts_with("-ok")) && removes {
            return true;
        }
        at += length;
    }
    false
}

/// Words up to the one that ends a command of `find`.
pub(super) fn command_length(rest: &[String]) -> usize {
    rest.iter().position(|word| word == ";" || word == "+").unwrap_or(rest.len())
}
