//! The reader's position in a text: characters, blanks, comments, here-documents.

use super::{Piece, Reading, Scope, ScopeKind, Script, Word};
use crate::tools::policy::refusal::{Denied, Fuel, check_depth};

/// Reads one text into a script.
pub(super) struct Parser<'p> {
    pub(super) chars: Vec<char>,
    pub(super) at: usize,
    pub(super) reading: Reading,
    pub(super) depth: usize,
    /// Lists around the one that is read.
    pub(super) nest: usize,
    pub(super) script: &'p mut Script,
    pub(super) fuel: &'p mut Fuel,
    pending: Vec<Pending>,
}

/// A here-document whose body begins after the next newline.
struct Pending {
    document: usize,
    end: String,
    literal: bool,
    strip_tabs: bool,
}

impl<'p> Parser<'p> {
    pub(super) fn new(
        text: &str,
        reading: Reading,
        depth: usize,
        script: &'p mut Script,
        fuel: &'p mut Fuel,
    ) -> Result<Self, Denied> {
        check_depth(depth)?;
        let chars: Vec<char> = text.chars().collect();
        fuel.take(chars.len().saturating_add(1))?;
        Ok(Self { chars, at: 0, reading, depth, nest: 0, script, fuel, pending: Vec::new() })
    }

    /// A reader of another text that adds to the same script.
    pub(super) fn inner(&mut self, text: &str) -> Result<Parser<'_>, Denied> {
        let mut inner = Parser::new(text, self.reading, self.depth + 1, self.script, self.fuel)?;
        inner.nest = self.nest + 1;
        Ok(inner)
    }

    /// Notes that the commands from here on to the last one stand together.
    pub(super) fn scope(&mut self, kind: ScopeKind, start: usize) {
        let commands = start..self.script.commands.len();
        if !commands.is_empty() {
            self.script.scopes.push(Scope { kind, commands });
        }
    }

    /// Runs a part of the grammar one level deeper.
    pub(super) fn deeper<T>(&mut self, part: impl FnOnce(&mut Self) -> Result<T, Denied>) -> Result<T, Denied> {
        self.depth += 1;
        check_depth(self.depth)?;
        let result = part(self);
        self.depth -= 1;
        result
    }

    pub(super) fn bash(&self) -> bool {
        self.reading == Reading::Bash
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.peek_at(0)
    }

    pub(super) fn peek_at(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    pub(super) fn next(&mut self) -> Option<char> {
        let c = self.peek();
        self.at += usize::from(c.is_some());
        c
    }

    pub(super) fn eat(&mut self, text: &str) -> bool {
        let here = self.sees(text);
        if here {
            self.at += text.chars().count();
        }
        here
    }

    pub(super) fn sees(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(ahead, c)| self.peek_at(ahead) == Some(c))
    }

    pub(super) fn unclear(&mut self) {
        self.script.unclear = true;
    }

    /// Passes over blanks, joined lines and a comment.
    pub(super) fn blanks(&mut self) {
        loop {
            match self.peek() {
                Some(' ' | '\t') => self.at += 1,
                Some('\\') if self.peek_at(1) == Some('\n') => self.at += 2,
                _ => break,
            }
        }
        if self.peek() == Some('#') {
            while self.peek().is_some_and(|c| c != '\n') {
                self.at += 1;
            }
        }
    }

    /// Passes over blanks and newlines, and the here-documents that begin there.
    pub(super) fn lines(&mut self) -> Result<(), Denied> {
        loop {
            self.blanks();
            if !self.newline()? {
                return Ok(());
            }
        }
    }

    pub(super) fn newline(&mut self) -> Result<bool, Denied> {
        if self.peek() != Some('\n') {
            return Ok(false);
        }
        self.at += 1;
        for pending in std::mem::take(&mut self.pending) {
            self.document(&pending)?;
        }
        Ok(true)
    }

    /// Notes a here-document; its body is read when the line ends.
    pub(super) fn expect_document(&mut self, end: String, literal: bool, strip_tabs: bool) -> Word {
        let document = self.script.documents.len();
        self.script.documents.push(Word { pieces: vec![Piece::Unknown], quoted: true });
        self.pending.push(Pending { document, end, literal, strip_tabs });
        Word { pieces: vec![Piece::Document(document)], quoted: true }
    }

    fn document(&mut self, pending: &Pending) -> Result<(), Denied> {
        let start = self.at;
        let mut body = String::new();
        let mut joined = false;
        while self.at < self.chars.len() {
            let mut line: String = self.chars.iter().skip(self.at).take_while(|&&c| c != '\n').collect();
            let length = line.chars().count() + 1;
            self.fuel.take(length)?;
            self.at = (self.at + length).min(self.chars.len());
            if pending.strip_tabs {
                line = line.trim_start_matches('\t').to_owned();
            }
            if line == pending.end {
                // Shells do not agree on whether a joined line can end a document.
                self.script.unclear |= joined;
                return self.finish_document(pending, &body);
            }
            joined = !pending.literal && line.ends_with('\\');
            self.script.unclear |= joined && pending.end.contains('\\');
            body.push_str(&line);
            body.push('\n');
        }
        // Nothing ends it, so what follows may be its body, or commands.
        self.unclear();
        self.finish_document(pending, &body)?;
        self.at = start;
        Ok(())
    }

    fn finish_document(&mut self, pending: &Pending, body: &str) -> Result<(), Denied> {
        let mut word = Word { pieces: Vec::new(), quoted: true };
        match pending.literal {
            true => body.chars().for_each(|c| word.push_literal(c)),
            false => self.inner(body)?.quoted_until(&mut word, None)?,
        }
        if let Some(document) = self.script.documents.get_mut(pending.document) {
            *document = word;
        }
        Ok(())
    }
}
