//! Makes recorded text safe for a terminal.

use foldspace::view;
use unicode_width::UnicodeWidthChar;

const TAB: usize = 4;
/// Maximum marks shown on one letter; a text may have thousands.
const MARKS_MAX: usize = 2;

/// Returns columns `skipped..skipped + width` of a text as one safe line: without control, direction or invisible
/// characters, with tabs as spaces.
pub(crate) fn clean(text: &str, skipped: usize, width: usize) -> String {
    let mut shown = String::new();
    let (mut column, mut marks) = (0, 0);
    let end = skipped.saturating_add(width);
    let mut put = |column: &mut usize, c: char, wide: usize| {
        if *column >= skipped && *column + wide <= end {
            shown.push(c);
        } else if *column < end && *column + wide > skipped {
            // Half of a wide character at an edge.
            shown.push(' ');
        }
        *column += wide;
    };
    for c in text.chars() {
        if column >= end && c.width() != Some(0) {
            break;
        }
        match c.width() {
            _ if c == '\t' => (0..TAB - column % TAB).for_each(|_| put(&mut column, ' ', 1)),
            Some(0) if is_mark(c) && marks < MARKS_MAX && column > skipped => {
                marks += 1;
                put(&mut column, c, 0);
                continue;
            }
            Some(0) if is_mark(c) => continue,
            Some(wide @ 1..) if !view::misleads(c) => put(&mut column, c, wide),
            _ => escape(c).chars().for_each(|c| put(&mut column, c, 1)),
        }
        marks = 0;
    }
    shown
}

pub(crate) fn fitted(text: &str, width: usize) -> String {
    match columns(&clean(text, 0, width.saturating_add(1))) > width {
        true => format!("{}…", clean(text, 0, width.saturating_sub(1))),
        false => clean(text, 0, width),
    }
}

/// Breaks a text into safe lines, between words where it can. The later ones keep the indentation.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let text = clean(text.trim_end(), 0, usize::MAX);
    let (mut rest, mut lines) = (&*text, Vec::new());
    let indent = " ".repeat((text.len() - text.trim_start_matches(' ').len()).min(width / 2));
    loop {
        let begin = if lines.is_empty() { "" } else { &*indent };
        let (room, mut used) = (width.saturating_sub(begin.len()).max(2), 0);
        let over = rest.char_indices().find(|(_, c)| {
            used += c.width().unwrap_or(0);
            used > room
        });
        let Some((over, _)) = over else {
            lines.push(format!("{begin}{rest}"));
            return lines;
        };
        let is_end = rest[over..].starts_with(' ');
        let space = if is_end { Some(over) } else { rest[..over].rfind(' ') };
        let end = space.filter(|end| !rest[..*end].trim_start().is_empty()).unwrap_or(over);
        lines.push(format!("{begin}{}", &rest[..end]));
        rest = rest[end..].trim_start_matches(' ');
    }
}

pub(crate) fn columns(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

fn is_mark(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}' | '\u{20d0}'..='\u{20ff}')
}

fn escape(c: char) -> String {
    match c {
        '\r' => "\\r".to_owned(),
        '\n' => "\\n".to_owned(),
        c if c.is_ascii() => format!("\\x{:02x}", u32::from(c)),
        c => format!("\\u{{{:x}}}", u32::from(c)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clean_text_has_no_terminal_control() {
        let hostile = "a\u{1b}[2J\u{9b}1m\r\n\u{7}\u{202e}evil\u{2066}\u{200b}\u{feff}\u{ad}z";
        let shown = clean(hostile, 0, 500);
        assert!(shown.chars().all(|c| (' '..='~').contains(&c)), "{shown:?}");
        assert!(shown.starts_with("a\\x1b[2J\\u{9b}1m\\r\\n"), "{shown}");
    }

    #[test]
    fn clean_text_counts_wide_characters() {
        assert_eq!(clean("a\u{6f22}\u{5b57}b", 0, 4), "a\u{6f22} ");
        assert_eq!(clean("a\u{6f22}\u{5b57}b", 2, 4), " \u{5b57}b");
        assert_eq!(columns(&clean(&"\u{6f22}".repeat(90_000), 3, 80)), 80);
    }

    #[test]
    fn clean_text_marks_its_cut() {
        assert_eq!([fitted("abcd", 4), fitted("abcde", 4), fitted("a\nb", 3)], ["abcd", "abc…", "a\\…"]);
        assert_eq!([fitted("\u{6f22}\u{6f22}", 4), fitted("\u{6f22}\u{6f22}", 3)], ["\u{6f22}\u{6f22}", "\u{6f22}…"]);
    }

    #[test]
    fn wrapped_text_breaks_between_words_and_keeps_indentation() {
        assert_eq!(wrapped("  one two three", 9), ["  one two", "  three"]);
        assert_eq!(wrapped("abcdefgh ij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(wrapped("\u{6f22}\u{6f22}\u{1b}x", 5), ["\u{6f22}\u{6f22}\\", "x1bx"]);
        assert_eq!([wrapped("", 4), wrapped("abcd ", 4)], [[""], ["abcd"]]);
    }

    #[test]
    fn clean_text_keeps_tabs_and_marks() {
        assert_eq!(clean("a\tb", 0, 80), "a   b");
        assert_eq!(clean("e\u{301}x", 0, 80), "e\u{301}x");
        let pile = format!("e{}x", "\u{301}".repeat(1000));
        assert_eq!(clean(&pile, 0, 80).chars().count(), 4);
    }
}
