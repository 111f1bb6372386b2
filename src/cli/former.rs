//! Names that commands had before, which scripts may still use.

use std::ffi::OsString;

use super::definition;
use super::session_words::command_at;

const FORMER: [(&str, &[&str]); 5] = [
    ("commit-notes", &["blame", "--write-notes"]),
    ("fsck", &["check", "--bytes"]),
    ("history", &["log"]),
    ("stat", &["ls", "--stat"]),
    ("tree", &["sessions", "--tree"]),
];

/// Replaces a command's former name, also after `help`.
pub(super) fn current(mut words: Vec<OsString>) -> Vec<OsString> {
    let Some(at) = command_at(&definition(), &words) else { return words };
    let is_help = words[at] == "help";
    let at = if is_help { at + 1 } else { at };
    let now = FORMER.iter().find(|(name, _)| words.get(at).is_some_and(|word| word == name));
    if let Some((_, now)) = now {
        let now = now.iter().filter(|word| !(is_help && word.starts_with('-')));
        words.splice(at..=at, now.map(OsString::from));
    }
    words
}
