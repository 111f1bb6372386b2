//! The names of variables and builtins, and values that a shell evaluates.

use super::words::{has, is_name, marker};

/// Builtins that need no entry unless their output goes to a file.
pub(super) const HARMLESS: &str = ": [ break builtin cd command continue declare dirs echo eval exec exit export \
    false getopts local popd printf pushd pwd read readonly return set shift test true type typeset umask unset wait";
const SETTERS: &str = "declare export getopts local mapfile read readarray readonly typeset unset";
/// Variables that determine which programs run or what they load, and prefixes and suffixes of such names.
const DECIDING: &str = "BASHOPTS BROWSER EDITOR ENV EXINIT GCONV_PATH GLOBIGNORE HOME MAKEFILES MAKEFLAGS \
    NODE_PATH PAGER PERL5DB PS0 PS1 PS2 PS3 PS4 PYTHONUSERBASE PYTHONWARNINGS RUSTC RUSTDOC RUSTFLAGS VIMINIT VISUAL \
    ZDOTDIR";
const BEGINNINGS: &str = "BASH_ DYLD_ GIT_ LD_ LESS LUA_ OPENSSL_ npm_config_";
const ENDINGS: &str = "ASKPASS COMMAND EDITOR HOME LIB LINKER MAKEFLAGS OPT OPTIONS OPTS PAGER RSH RUNNER RUSTC RUSTFLAGS \
    SHELL SSH STARTUP WRAPPER";

/// Numeric variables. Shells evaluate values added to them.
const NUMBERS: &str = "HISTCMD LINENO OPTIND RANDOM SECONDS SRANDOM";
const MEANINGS: &str = "keyword histexpand history";

pub(super) fn changes_meanings<'w>(mut options: impl Iterator<Item = &'w String>) -> bool {
    options.any(|word| {
        let is_short = word.starts_with(['-', '+']) && !word.starts_with("--");
        has(MEANINGS, word) || (is_short && word.contains(['k', 'H'])) || word.contains(marker::is_many)
    })
}

/// Returns true if a variable determines which programs run or what they load.
pub(super) fn changes_programs(name: &str) -> bool {
    // `PATH`, `PYTHONPATH` and `CLASSPATH` count. `SRC_PATH` is probably a script's own variable.
    let is_path = name.ends_with("PATH") && !name.contains('_');
    let ends = |ending: &str| name.strip_suffix(ending).is_some_and(|rest| !rest.is_empty());
    is_path
        || has(DECIDING, name)
        || BEGINNINGS.split(' ').any(|beginning| name.starts_with(beginning))
        || ENDINGS.split_whitespace().any(ends)
        || name.contains("CONFIG")
}

pub(super) fn evaluates(name: &str, value: &str) -> bool {
    holds_subscript(value) || (has(NUMBERS, name) && value.contains(marker::is_open))
}

/// Returns true if a text may run commands when used as a variable's name or a number: shells evaluate `a[$(command)]`.
pub(super) fn holds_subscript(text: &str) -> bool {
    text.contains(['[', marker::BRACKET]) && (text.contains("$(") || text.contains('`'))
}

/// Names the unplain part of a builtin: it sets a deciding variable, or evaluates its words.
pub(super) fn builtin(name: &str, arguments: &[String]) -> Option<&'static str> {
    let any = |is: &dyn Fn(&str) -> bool| arguments.iter().any(|word| is(word));
    let option = |letters: &[char]| any(&|word| word.starts_with('-') && word.contains(letters));
    let left = |word: &str| word.split('=').next().unwrap_or_default().trim_end_matches('+').to_owned();
    let assigns = |word: &str| word.split_once('=').is_some_and(|(_, value)| evaluates(&left(word), value));
    let changes = |word: &str| {
        changes_programs(&left(word))
            || left(word).contains(marker::is)
            || assigns(word)
            || (name == "unset" && word.contains(marker::is))
    };
    let names = |word: &str| changes(word) || word.contains('[');
    let sets = has(SETTERS, name);
    let is_unplain = match name {
        "env" | "sudo" | "doas" => any(&|word| word.contains('=') && !word.starts_with('-') && changes(word)),
        "declare" | "typeset" | "local" => option(&['n', 'i', 'a', 'A']),
        "printf" if arguments.first().is_some_and(|word| word.starts_with("-v")) => {
            let again = arguments.iter().skip(1).take(2).any(|word| word.starts_with("-v"));
            again || arguments.iter().take(2).any(|word| names(word.trim_start_matches("-v")))
        }
        // The first argument may expand to `-v`.
        "printf" => arguments
            .first()
            .is_some_and(|word| word.starts_with(marker::is_open) && word.chars().all(|c| is_name(c) || marker::is(c))),
        "set" => changes_meanings(arguments.iter().take_while(|word| *word != "--")),
        "wait" => option(&['p']),
        "[" | "test" => any(&|word| has("-v -R", word)) && any(&names),
        _ => false,
    };
    if is_unplain || (sets && any(&changes)) {
        Some("a variable that determines which programs run, or is set or tested by name")
    } else if (sets && any(&|word| left(word).contains('[')))
        || ((sets || has("[ break continue exit let printf return shift test umask wait", name))
            && any(&holds_subscript))
    {
        Some("a subscript")
    } else {
        None
    }
}
