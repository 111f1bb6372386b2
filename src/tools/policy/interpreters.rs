//! Interpreters other than shells.

/// Their names; a version may follow.
const INTERPRETERS: [&str; 10] = ["bun", "deno", "lua", "node", "nodejs", "perl", "php", "python", "ruby", "tclsh"];

/// The code that an interpreter is given as arguments; empty when it reads its code from the standard input.
///
/// None for other programs, and for interpreters that run a file or a module.
pub(super) fn code_of<'a>(name: &str, arguments: &'a [String]) -> Option<Vec<&'a str>> {
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    if !INTERPRETERS.contains(&plain) {
        return None;
    }
    let (code, module) = if plain == "python" { ("c", "m") } else { ("eEnpr", "") };
    let mut at = 0;
    while let Some(word) = arguments.get(at) {
        at += 1;
        match word.strip_prefix('-') {
            Some("") => return Some(Vec::new()),
            Some(long) if long.starts_with('-') => match long {
                "-eval" | "-print" => return Some(arguments.get(at).map(String::as_str).into_iter().collect()),
                _ => {}
            },
            Some(letters) if letters.contains(|c| module.contains(c)) => return None,
            Some(letters) if letters.contains(|c| code.contains(c)) => {
                return Some(vec![word.as_str(), arguments.get(at).map_or("", String::as_str)]);
            }
            Some(_) => {}
            None if super::wrappers::is_stdin(word) => return Some(Vec::new()),
            // A file; it may be one that another command writes.
            None => return Some(vec![word.as_str()]),
        }
    }
    Some(Vec::new())
}
