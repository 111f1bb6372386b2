//! Text that is shown to people.

use std::borrow::Cow;

use crate::engine::path;

/// Returns true if a character misleads a reader: it is invisible, or changes how other text looks.
pub fn misleads(c: char) -> bool {
    path::misleads(c)
}

/// Escapes misleading characters.
pub fn visible(text: &str) -> Cow<'_, str> {
    escaped(text, misleads)
}

/// Escapes misleading characters except line ends and tabs.
pub fn visible_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| misleads(c) && c != '\n' && c != '\t')
}

fn escaped(text: &str, is_unsafe: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(&is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            c if !is_unsafe(c) => shown.push(c),
            '\n' => shown.push_str("\\n"),
            '\t' => shown.push_str("\\t"),
            '\r' => shown.push_str("\\r"),
            c if c.is_ascii() => shown.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => shown.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_shows_hidden_characters() {
        let hostile = "a\u{1b}[2J\u{9b}\u{202e}\u{2066}\u{200b}\u{61c}\u{ad}\u{fff9}\u{feff}\u{e0041}\t\r\nz";
        let shown = visible(hostile);
        assert!(shown.chars().all(|c| (' '..='~').contains(&c)), "{shown}");
        assert!(shown.ends_with("\\u{61c}\\u{ad}\\u{fff9}\\u{feff}\\u{e0041}\\t\\r\\nz"), "{shown}");
        assert_eq!(visible_lines("a\tb\r\n"), "a\tb\\r\n");
    }
}
