//! Names of variables, and values that are more than text.

use super::words::{has, marker};

/// Whether a variable decides which programs run, or what they load.
pub(super) fn changes_programs(name: &str) -> bool {
    const NAMES: &str = "BASHOPTS BROWSER EDITOR ENV EXINIT GLOBIGNORE HOME MAKEFLAGS NODE_PATH PAGER PERL5DB PYTHONUSERBASE PYTHONWARNINGS RUSTC RUSTFLAGS VIMINIT VISUAL";
    const BEGINNINGS: &str = "BASH_ DYLD_ GIT_ LD_ LESS LUA_ OPENSSL_ PS npm_config_";
    const ENDINGS: &str =
        "ASKPASS COMMAND EDITOR HOME LIB LINKER MAKEFLAGS OPT OPTIONS OPTS PAGER RSH RUNNER SHELL SSH STARTUP WRAPPER";
    let is_prompt = |rest: &str| rest.len() == 1 && rest.chars().all(|c| c.is_ascii_digit());
    let begins =
        |beginning: &str| name.strip_prefix(beginning).is_some_and(|rest| beginning != "PS" || is_prompt(rest));
    // `SRC_PATH` is a script's own; `PATH`, `PYTHONPATH`, `CLASSPATH` are not.
    let is_path = name.ends_with("PATH") && !name.contains('_');
    is_path
        || has(NAMES, name)
        || BEGINNINGS.split(' ').any(begins)
        || ENDINGS.split(' ').any(|ending| name.len() > ending.len() && name.ends_with(ending))
        || name.contains("CONFIG")
}

/// Whether a word may name such a variable.
pub(super) fn may_change_programs(word: &str) -> bool {
    changes_programs(word.trim_end_matches('+')) || word.chars().any(marker::is)
}

/// Whether a text, taken as a variable's name or a number, may run commands: shells evaluate `a[$(command)]`.
pub(super) fn holds_subscript(text: &str) -> bool {
    text.contains(['[', marker::BRACKET]) && (text.contains("$(") || text.contains('`'))
}

/// Builtins that harm nothing: no entry is needed, unless its output goes to a file.
pub(super) const HARMLESS: &str = ": [ [[ ]] break builtin cd command continue declare dirs echo eval exec exit export \
    false getopts local popd printf pushd pwd read readonly return set shift test true type typeset umask unset wait";

/// Names what of a builtin is not plain: it sets what decides which programs run, or evaluates its words.
pub(super) fn builtin(name: &str, arguments: &[String]) -> Option<&'static str> {
    let left = |word: &String| word.split('=').next().unwrap_or_default().to_owned();
    let names = |word: &String| may_change_programs(&left(word));
    let option =
        |letters: &str| arguments.iter().any(|word| word.starts_with('-') && word.contains(|c| letters.contains(c)));
    let brackets = |word: &String| word.contains(['[', marker::BRACKET]);
    let sets = match name {
        "env" | "sudo" | "doas" => arguments
            .iter()
            .any(|word| word.contains('=') && !word.starts_with('-') && may_change_programs(&left(word))),
        "declare" | "typeset" | "local" => option("niaA") || arguments.iter().any(names),
        "export" | "readonly" | "read" | "mapfile" | "readarray" | "getopts" | "unset" => arguments.iter().any(names),
        "printf" | "wait" => {
            let named =
                arguments.iter().position(|word| word.starts_with("-v") || word.contains('p') && word.starts_with('-'));
            named.is_some_and(|at| arguments.iter().skip(at).take(2).any(|word| may_change_programs(word)))
        }
        _ => false,
    };
    let evaluates = match name {
        "[" | "test" => option("vR") && arguments.iter().any(|word| brackets(word) || word.contains(marker::is_open)),
        "wait" | "getopts" | "read" | "mapfile" | "readarray" | "unset" => {
            arguments.iter().any(|word| brackets(word) || word.contains("$("))
        }
        "printf" => arguments.iter().any(|word| word.starts_with("-v")) && arguments.iter().any(brackets),
        "declare" | "typeset" | "local" | "export" | "readonly" => arguments.iter().any(|word| brackets(&left(word))),
        _ => false,
    };
    let subscript = has("[ test declare export let local printf read readonly typeset unset wait getopts", name)
        && arguments.iter().any(|word| holds_subscript(word));
    match (sets, evaluates || subscript) {
        (true, _) => Some("a variable that decides what runs"),
        (_, true) => Some("a subscript"),
        _ => None,
    }
}
