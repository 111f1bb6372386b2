//! Which programs an allow list covers.

use super::judge::{Found, shown};
use super::shell::{base_name, marker};

/// Directories whose programs are meant by their bare names.
const STANDARD: [&str; 6] = ["/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/", "/usr/local/bin/", "/usr/local/sbin/"];

/// What a shell does by itself and what harms nothing: no entry is needed, unless its output goes to a file.
const HARMLESS: [&str; 36] = [
    "", ":", "[", "[[", "]]", "break", "builtin", "cd", "command", "continue", "declare", "dirs", "echo", "eval",
    "exec", "exit", "export", "false", "getopts", "local", "popd", "printf", "pushd", "pwd", "read", "readonly",
    "return", "set", "shift", "test", "true", "type", "typeset", "umask", "unset", "wait",
];

/// Whether a program needs no entry.
pub(super) fn is_harmless(found: &Found) -> bool {
    !found.writes && found.words.first().is_some_and(|program| HARMLESS.contains(&program.as_str()))
}

/// Whether an entry, a program or a program with its first words, covers a program.
pub(super) fn covers(entry: &str, found: &Found) -> bool {
    let mut entry = entry.split_whitespace();
    let Some(program) = entry.next() else { return false };
    let Some((word, arguments)) = found.words.split_first() else { return false };
    let is_program = marker::written(word) == program || (is_standard(word) && base_name(word) == program);
    // What is only guessed at matches no word of an entry.
    let mut arguments = arguments.iter().take(found.sure.saturating_sub(1));
    is_program && entry.all(|wanted| arguments.next().is_some_and(|word| word == wanted))
}

/// Whether a program is found by its name, or in a standard directory.
pub(super) fn is_standard(word: &str) -> bool {
    let directory = &word[..word.len() - base_name(word).len()];
    directory.is_empty() || STANDARD.contains(&directory)
}

/// What somebody would have to allow for this program.
pub(super) fn name_of(found: &Found) -> String {
    let word = found.words.first().map_or("", String::as_str);
    let base = base_name(word);
    shown(if is_standard(word) { base } else { word })
}
