//! Comparing programs with the entries of an allow list.

use super::names::HARMLESS;
use super::words::{base_name, has, marker, shown};

/// The directories of programs that a bare name also covers.
const STANDARD: [&str; 6] = ["/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/", "/usr/local/bin/", "/usr/local/sbin/"];

pub(super) fn is_harmless(found: &FoundProgram) -> bool {
    !found.writes && found.words.first().is_some_and(|program| program.is_empty() || has(HARMLESS, program))
}

/// Returns true if an entry (a program, perhaps with its first words) covers a program.
pub(super) fn covers(entry: &str, found: &FoundProgram) -> bool {
    let mut entry = entry.split_whitespace();
    let Some(program) = entry.next() else { return false };
    let Some((word, arguments)) = found.words.split_first() else { return false };
    let is_program = marker::written(word) == program || (is_standard(word) && base_name(word) == program);
    let mut arguments = arguments.iter();
    is_program && entry.all(|wanted| arguments.next().is_some_and(|word| word == wanted))
}

pub(crate) fn is_standard(word: &str) -> bool {
    let directory = &word[..word.len() - base_name(word).len()];
    directory.is_empty() || STANDARD.contains(&directory)
}

pub(super) fn name_of(found: &FoundProgram) -> String {
    let word = found.words.first().map_or("", String::as_str);
    let base = base_name(word);
    shown(if is_standard(word) { base } else { word })
}

#[derive(Debug)]
pub(super) struct FoundProgram {
    pub(super) words: Vec<String>,
    pub(super) writes: bool,
}
