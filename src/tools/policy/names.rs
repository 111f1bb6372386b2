//! Names of variables, and values that are more than text.

use super::shell::marker;

/// Whether a variable decides which programs run, or what they load.
pub(super) fn changes_programs(name: &str) -> bool {
    const NAMES: [&str; 17] = [
        "BASHOPTS",
        "BROWSER",
        "EDITOR",
        "ENV",
        "EXINIT",
        "GLOBIGNORE",
        "HOME",
        "MAKEFLAGS",
        "NODE_PATH",
        "PAGER",
        "PERL5DB",
        "PYTHONUSERBASE",
        "PYTHONWARNINGS",
        "RUSTC",
        "RUSTFLAGS",
        "VIMINIT",
        "VISUAL",
    ];
    const BEGINNINGS: [&str; 9] = ["BASH_", "DYLD_", "GIT_", "LD_", "LESS", "LUA_", "OPENSSL_", "PS", "npm_config_"];
    const ENDINGS: [&str; 17] = [
        "ASKPASS",
        "COMMAND",
        "EDITOR",
        "HOME",
        "LIB",
        "LINKER",
        "MAKEFLAGS",
        "OPT",
        "OPTIONS",
        "OPTS",
        "PAGER",
        "RSH",
        "RUNNER",
        "SHELL",
        "SSH",
        "STARTUP",
        "WRAPPER",
    ];
    let is_prompt = |rest: &str| rest.len() == 1 && rest.chars().all(|c| c.is_ascii_digit());
    let begins =
        |beginning: &str| name.strip_prefix(beginning).is_some_and(|rest| beginning != "PS" || is_prompt(rest));
    // `SRC_PATH` is a script's own; `PATH`, `PYTHONPATH`, `CLASSPATH` are not.
    let is_path = name.ends_with("PATH") && !name.contains('_');
    is_path
        || NAMES.contains(&name)
        || BEGINNINGS.iter().any(|beginning| begins(beginning))
        || ENDINGS.iter().any(|ending| name.len() > ending.len() && name.ends_with(ending))
        || name.contains("CONFIG")
}

/// Whether a word may name such a variable.
pub(super) fn may_change_programs(word: &str) -> bool {
    changes_programs(word.trim_end_matches('+')) || !marker::none_in(word)
}

/// Whether a text, taken as a variable's name or a number, may run commands: shells evaluate `a[$(command)]`.
pub(super) fn holds_subscript(text: &str) -> bool {
    text.contains(['[', marker::BRACKET]) && (text.contains("$(") || text.contains('`'))
}
