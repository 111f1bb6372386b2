//! Words as a shell sees them.

/// Stand for what a plain character cannot say. They are private use; text that holds them is not plain.
pub(super) mod marker {
    /// Text that is not known before the command runs.
    pub(crate) const UNKNOWN: char = '\u{f0000}';
    /// The home directory.
    pub(crate) const HOME: char = '\u{f0001}';
    /// A place where an unquoted value falls apart into words.
    pub(crate) const SPLIT: char = '\u{f0002}';
    /// An unquoted `{`, `,` and `}`.
    pub(crate) const OPEN: char = '\u{f0003}';
    pub(crate) const COMMA: char = '\u{f0004}';
    pub(crate) const CLOSE: char = '\u{f0005}';
    /// An unquoted `*`, `?` and `[`.
    pub(crate) const STAR: char = '\u{f0006}';
    pub(crate) const QUERY: char = '\u{f0007}';
    pub(crate) const BRACKET: char = '\u{f0008}';

    /// Whether the character is one of these.
    pub(crate) fn is(c: char) -> bool {
        (UNKNOWN..=BRACKET).contains(&c)
    }

    /// Whether the character matches names of files.
    pub(crate) fn is_glob(c: char) -> bool {
        (STAR..=BRACKET).contains(&c)
    }

    /// Whether the character may become any text.
    pub(crate) fn is_open(c: char) -> bool {
        is(c) && !is_glob(c) && c != HOME
    }

    /// What a variable's value is taken for.
    pub(crate) fn of_variable(name: &str) -> char {
        match name {
            "HOME" => HOME,
            "IFS" => SPLIT,
            _ => UNKNOWN,
        }
    }

    /// The text as it is written in a shell; what is unknown stays marked.
    pub(crate) fn written(text: &str) -> String {
        text.chars().map(as_written).collect()
    }

    pub(super) fn as_written(c: char) -> char {
        match c {
            HOME => '~',
            SPLIT => ' ',
            OPEN => '{',
            COMMA => ',',
            CLOSE => '}',
            STAR => '*',
            QUERY => '?',
            BRACKET => '[',
            c => c,
        }
    }
}

/// A word on its way.
#[derive(Debug, Default)]
pub(super) struct Word {
    pub(super) text: String,
    /// Bytes at its beginning that are neither quoted nor expanded.
    pub(super) bare: usize,
}

impl Word {
    /// Adds a character that is quoted, or a mark.
    pub(super) fn push(&mut self, c: char) {
        self.text.push(c);
    }

    /// Adds a character as it is.
    pub(super) fn push_bare(&mut self, c: char) {
        self.bare += if self.is_bare() { c.len_utf8() } else { 0 };
        self.text.push(c);
    }

    /// Whether nothing of it is quoted or expanded.
    pub(super) fn is_bare(&self) -> bool {
        self.bare == self.text.len()
    }

    /// Its text. Braces without a list, and brackets that nothing closes, are what they look like.
    pub(super) fn settled(self) -> String {
        let text = self.text;
        let is_list = text.contains(marker::OPEN)
            && text.contains(marker::CLOSE)
            && (text.contains(marker::COMMA) || text.contains(".."));
        let lone = !text.contains(']');
        let settled = |c| match c {
            marker::OPEN | marker::COMMA | marker::CLOSE if !is_list => marker::as_written(c),
            marker::BRACKET if lone => '[',
            c => c,
        };
        text.chars().map(settled).collect()
    }
}

/// The last part of a path.
pub(super) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Whether the character may stand in a variable's name.
pub(super) fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The character, or the mark of what is unknown for one that is a mark already.
pub(super) fn unmarked(c: char) -> char {
    if marker::is(c) { marker::UNKNOWN } else { c }
}

/// Whether a table has a name. Tables are texts with blanks between the names.
pub(super) fn has(table: &str, name: &str) -> bool {
    !name.is_empty() && table.split_whitespace().any(|known| known == name)
}

/// A word for a reader, with `…` for what is unknown.
pub(super) fn shown(word: &str) -> String {
    marker::written(word).replace(marker::UNKNOWN, "…")
}

/// A word as a shell reads it as one.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "%+,-./:=@_".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}
