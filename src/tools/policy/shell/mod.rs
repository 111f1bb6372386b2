//! Shell text as the commands that it may run.
//!
//! This is no interpreter's parser: it never fails. It finds every simple command in the text, wherever it hides, and
//! marks what it does not understand as unclear. Its work is counted and its depth bounded: the text may be hostile, and
//! general parsers of shell text were found to hang, panic or overflow the stack on a few chosen characters.

mod compound;
mod expand;
mod lists;
mod parser;
mod variables;
mod words;

use std::ops::Range;

pub(super) use expand::{Choice, Expansion, base_name};
pub(super) use variables::Variables;

use super::refusal::{Denied, Fuel};

/// Stand for what a plain character cannot say. They are private use; text that holds them is read as unknown.
pub(super) mod marker {
    /// Text that nobody knows before the command runs.
    pub(crate) const UNKNOWN: char = '\u{f0000}';
    /// Text that comes from the network.
    pub(crate) const FETCHED: char = '\u{f0001}';
    /// The home directory.
    pub(crate) const HOME: char = '\u{f0002}';
    /// A place where an unquoted value falls apart into words.
    pub(crate) const SPLIT: char = '\u{f0003}';
    /// An unquoted `{`.
    pub(crate) const OPEN: char = '\u{f0004}';
    /// An unquoted `,`.
    pub(crate) const COMMA: char = '\u{f0005}';
    /// An unquoted `}`.
    pub(crate) const CLOSE: char = '\u{f0006}';
    /// An unquoted `*`.
    pub(crate) const STAR: char = '\u{f0007}';
    /// An unquoted `?`.
    pub(crate) const QUERY: char = '\u{f0008}';
    /// An unquoted `[`.
    pub(crate) const BRACKET: char = '\u{f0009}';
    /// Stands before what a variable or a substitution was taken to be. Denials go by it, allowances do not.
    pub(crate) const GUESS: char = '\u{f000a}';

    /// Whether the character is one of these.
    pub(crate) fn is(c: char) -> bool {
        (UNKNOWN..=BRACKET).contains(&c)
    }

    /// Whether the character matches names of files.
    pub(crate) fn is_glob(c: char) -> bool {
        (STAR..=BRACKET).contains(&c)
    }

    /// Whether the text is known letter by letter.
    pub(crate) fn none_in(text: &str) -> bool {
        !text.chars().any(is)
    }

    /// The text as somebody would have written it; what is unknown stays marked.
    pub(crate) fn written(text: &str) -> String {
        text.chars().map(as_written).collect()
    }

    fn as_written(c: char) -> char {
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

/// How a text is read, where shells differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// As bash reads it.
    Bash,
    /// As a plain POSIX shell does: no `[[`, `((`, `$'...'`, `&>` and `{a,b}`.
    Posix,
}

/// Every command of a text, inner ones before those that hold them.
#[derive(Debug, Default)]
pub(super) struct Script {
    pub(super) commands: Vec<Command>,
    pub(super) functions: Vec<Function>,
    /// The bodies of here-documents.
    pub(super) documents: Vec<Word>,
    /// Parts of it that run apart, or again.
    pub(super) scopes: Vec<Scope>,
    /// Something in the text may mean another thing than what was found.
    pub(super) unclear: bool,
}

/// A simple command.
#[derive(Debug, Default)]
pub(super) struct Command {
    pub(super) assignments: Vec<(String, Word)>,
    pub(super) words: Vec<Word>,
    pub(super) redirects: Vec<Redirect>,
    /// The commands whose output it may read.
    pub(super) upstream: Vec<Range<usize>>,
    pub(super) background: bool,
    pub(super) piped: bool,
}

/// A file or text that a command is connected to.
#[derive(Clone, Debug)]
pub(super) struct Redirect {
    pub(super) kind: RedirectKind,
    pub(super) target: Word,
}

/// Which way a redirection goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RedirectKind {
    /// The file is read.
    Read,
    /// The file is written.
    Write,
    /// The text itself is read.
    Text,
}

/// Commands that stand together.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    pub(super) kind: ScopeKind,
    pub(super) commands: Range<usize>,
}

/// How commands run that stand together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScopeKind {
    /// In a shell of their own: nothing that they change about it stays.
    Subshell,
    /// Over and over.
    Loop,
    /// When the function is called.
    Function,
}

/// A function and the commands in it.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) body: Range<usize>,
    /// Lists around its definition.
    pub(super) nest: usize,
    /// It is defined whatever happens before.
    pub(super) sure: bool,
}

/// A word before expansion.
#[derive(Clone, Debug, Default)]
pub(super) struct Word {
    pub(super) pieces: Vec<Piece>,
    /// Some of it is quoted, so it stays a word even when it is empty.
    pub(super) quoted: bool,
}

/// A part of a word.
#[derive(Clone, Debug)]
pub(super) enum Piece {
    Text(String),
    Variable {
        name: String,
        quoted: bool,
        instead: Option<Word>,
        /// The operand becomes its value.
        assigns: bool,
    },
    /// What these commands print.
    Output {
        commands: Range<usize>,
        quoted: bool,
    },
    /// A file that these commands write, or read.
    Process(Range<usize>),
    /// A here-document by its number.
    Document(usize),
    Unknown,
}

impl Script {
    /// Reads a text.
    ///
    /// # Errors
    /// When it is nested too deeply or the fuel runs out.
    pub(super) fn read(text: &str, reading: Reading, depth: usize, fuel: &mut Fuel) -> Result<Self, Denied> {
        let mut script = Self::default();
        parser::Parser::new(text, reading, depth, &mut script, fuel)?.text()?;
        // Outer ones before those in them.
        script.scopes.reverse();
        script.scopes.sort_by_key(|scope| (scope.commands.start, std::cmp::Reverse(scope.commands.end)));
        Ok(script)
    }
}

impl Word {
    pub(super) fn push_char(&mut self, c: char) {
        match self.pieces.last_mut() {
            Some(Piece::Text(text)) => text.push(c),
            _ => self.pieces.push(Piece::Text(c.to_string())),
        }
    }

    pub(super) fn push_literal(&mut self, c: char) {
        match c {
            marker::UNKNOWN | marker::FETCHED => self.push_char(c),
            c if marker::is(c) => self.push_char(marker::UNKNOWN),
            c => self.push_char(c),
        }
    }
}
