//! Words and commands as a shell parses them.

/// Private-use characters that represent expansions. Text that already contains them is not plain.
pub(super) mod marker {
    /// Text that is unknown before the command runs.
    pub(crate) const UNKNOWN: char = '\u{f0000}';
    pub(crate) const HOME: char = '\u{f0001}';
    /// Unquoted `*`, `?`, `[` and `{`. `BRACE` also represents other expansions to several words.
    pub(crate) const STAR: char = '\u{f0002}';
    pub(crate) const QUERY: char = '\u{f0003}';
    pub(crate) const BRACKET: char = '\u{f0004}';
    pub(crate) const BRACE: char = '\u{f0005}';
    /// The output of an inner command.
    pub(crate) const OUTPUT: char = '\u{f0006}';

    pub(crate) fn is(c: char) -> bool {
        (UNKNOWN..=OUTPUT).contains(&c)
    }

    pub(crate) fn is_glob(c: char) -> bool {
        (STAR..=BRACKET).contains(&c)
    }

    pub(crate) fn is_open(c: char) -> bool {
        matches!(c, UNKNOWN | BRACE | OUTPUT)
    }

    pub(crate) fn is_many(c: char) -> bool {
        is_open(c) || is_glob(c)
    }

    /// Returns the text as written in a shell; unknown parts stay marked.
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

#[derive(Debug, Default)]
pub(super) struct Word {
    pub(super) text: String,
    /// The number of leading bytes that are neither quoted nor expanded.
    pub(super) bare: usize,
    /// True if the word contains `{}`, which some shells expand to several words before a comma.
    pub(super) braces: bool,
}

impl Word {
    /// Adds a quoted character, or a mark.
    pub(super) fn push(&mut self, c: char) {
        self.text.push(c);
    }

    /// Adds an unquoted character.
    pub(super) fn push_bare(&mut self, c: char) {
        self.bare += if self.is_bare() { c.len_utf8() } else { 0 };
        self.text.push(c);
    }

    pub(super) fn is_bare(&self) -> bool {
        self.bare == self.text.len()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RedirectKind {
    Read,
    Write,
    /// `>&` and `<&`.
    Copy,
    /// `<<<`, and `<<` after its body is read.
    Text,
    /// `<<`, with flags for stripped tabs and a quoted end.
    Document(bool, bool),
}

#[derive(Debug, Default)]
pub(super) struct Simple {
    pub(super) assignments: Vec<(String, String)>,
    pub(super) words: Vec<String>,
    /// The redirections, with the text of here-documents.
    pub(super) redirects: Vec<(RedirectKind, String)>,
    /// True if the command reads the previous command's output.
    pub(super) reads: bool,
    /// True if another command reads its output, or has it as a word.
    pub(super) piped: bool,
}

#[derive(Debug, Default)]
pub(super) struct SplitScript {
    pub(super) commands: Vec<Simple>,
    /// The bodies of here-documents with substitutions, as separate texts.
    pub(super) bodies: Vec<String>,
    pub(super) defines: bool,
    /// True if a function starts itself in the background, or pipes into itself.
    pub(super) fork_bomb: bool,
    pub(super) unplain: Option<&'static str>,
    pub(super) steps: usize,
}

pub(crate) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

pub(super) fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Returns the character, or the unknown mark if the character is itself a mark.
pub(super) fn unmarked(c: char) -> char {
    if marker::is(c) { marker::UNKNOWN } else { c }
}

pub(super) fn has(table: &str, name: &str) -> bool {
    !name.is_empty() && table.split_whitespace().any(|known| known == name)
}

/// Renders a word for a reader, with `…` for unknown text.
pub(super) fn shown(word: &str) -> String {
    marker::written(word).replace([marker::UNKNOWN, marker::OUTPUT], "…")
}
