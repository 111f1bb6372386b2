//! Words and commands as a shell sees them.

/// Names characters that stand for what a plain one cannot say. They are private use; text that holds them is not plain.
pub(super) mod marker {
    /// Text that is not known before the command runs.
    pub(crate) const UNKNOWN: char = '\u{f0000}';
    /// The home directory.
    pub(crate) const HOME: char = '\u{f0001}';
    /// An unquoted `*`, `?`, `[` and `{`; the last one for what else makes several words of one.
    pub(crate) const STAR: char = '\u{f0002}';
    pub(crate) const QUERY: char = '\u{f0003}';
    pub(crate) const BRACKET: char = '\u{f0004}';
    pub(crate) const BRACE: char = '\u{f0005}';
    /// Output of a command inside.
    pub(crate) const OUTPUT: char = '\u{f0006}';

    /// Tells whether the character is one of these.
    pub(crate) fn is(c: char) -> bool {
        (UNKNOWN..=OUTPUT).contains(&c)
    }

    /// Tells whether the character matches names of files.
    pub(crate) fn is_glob(c: char) -> bool {
        (STAR..=BRACKET).contains(&c)
    }

    /// Tells whether the character may become any text.
    pub(crate) fn is_open(c: char) -> bool {
        matches!(c, UNKNOWN | BRACE | OUTPUT)
    }

    /// Tells whether the character may make several words of one.
    pub(crate) fn is_many(c: char) -> bool {
        is_open(c) || is_glob(c)
    }

    /// Returns the text as it is written in a shell; what is unknown stays marked.
    pub(crate) fn written(text: &str) -> String {
        let as_written = |c| match c {
            HOME => '~',
            STAR => '*',
            QUERY => '?',
            BRACKET => '[',
            BRACE => '{',
            c => c,
        };
        text.chars().map(as_written).collect()
    }
}

/// Builds a word.
#[derive(Debug, Default)]
pub(super) struct Word {
    pub(super) text: String,
    /// Bytes at its beginning that are neither quoted nor expanded.
    pub(super) bare: usize,
    /// It holds `{}`, which a comma behind it makes several words of in some shells.
    pub(super) braces: bool,
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

    /// Tells whether nothing of it is quoted or expanded.
    pub(super) fn is_bare(&self) -> bool {
        self.bare == self.text.len()
    }
}

/// Names the meaning of the word behind an operator such as `>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RedirectKind {
    Read,
    Write,
    /// `>&` and `<&`.
    Copy,
    /// `<<<`, and `<<` once its body is read.
    Text,
    /// `<<`; whether leading tabs are removed, and whether its end is quoted.
    Document(bool, bool),
}

/// Holds a simple command.
#[derive(Debug, Default)]
pub(super) struct Simple {
    pub(super) assignments: Vec<(String, String)>,
    pub(super) words: Vec<String>,
    /// Its redirections, with the text of its here-documents.
    pub(super) redirects: Vec<(RedirectKind, String)>,
    /// It reads what the command before it prints.
    pub(super) reads: bool,
    /// Another command reads its output, or has it as a word.
    pub(super) piped: bool,
}

/// Holds a text as its commands.
#[derive(Debug, Default)]
pub(super) struct SplitScript {
    pub(super) commands: Vec<Simple>,
    /// Bodies of here-documents in which a shell looks for substitutions, as texts of their own.
    pub(super) bodies: Vec<String>,
    /// It has functions.
    pub(super) defines: bool,
    /// A function starts itself in the background, or pipes into itself.
    pub(super) fork_bomb: bool,
    /// First part that is not plain, where there is one.
    pub(super) unplain: Option<&'static str>,
    /// Bytes that were looked at.
    pub(super) steps: usize,
}

/// Returns the last part of a path.
pub(super) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Tells whether the character may stand in a variable's name.
pub(super) fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Returns the character, or the mark of what is unknown for one that is a mark already.
pub(super) fn unmarked(c: char) -> char {
    if marker::is(c) { marker::UNKNOWN } else { c }
}

/// Tells whether a table has a name. Tables are texts with blanks between the names.
pub(super) fn has(table: &str, name: &str) -> bool {
    !name.is_empty() && table.split_whitespace().any(|known| known == name)
}

/// Shows a word to a reader, with `…` for what is unknown.
pub(super) fn shown(word: &str) -> String {
    marker::written(word).replace([marker::UNKNOWN, marker::OUTPUT], "…")
}
