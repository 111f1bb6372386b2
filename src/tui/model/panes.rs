//! Marks, and typed positions.

use std::sync::Arc;

use foldspace::Seq;

use super::{Failure, HistoryPosition, Model, Tone};

impl Model {
    /// Parses a position of the command line, `.` for the cursor, or `'a` for a mark.
    pub(super) fn position(&self, text: &str) -> Result<Seq, Failure> {
        match (text, text.strip_prefix('\'')) {
            (".", _) => Ok(self.step_end()),
            (_, Some(mark)) => self.marked(mark),
            _ => self.past.position(text),
        }
    }

    /// Parses `A..B`, or `A` to compare with the cursor: positions here, or `NAME` or `NAME@POSITION` of another session.
    pub(super) fn places(&self, text: &str) -> Result<(HistoryPosition, HistoryPosition), Failure> {
        let Some((from, to)) = text.split_once("..") else {
            return Ok((self.place(text.trim())?, self.place(".")?));
        };
        let or = |given, default| if str::is_empty(given) { default } else { given };
        Ok((self.place(or(from.trim(), "0"))?, self.place(or(to.trim(), "."))?))
    }

    fn place(&self, text: &str) -> Result<HistoryPosition, Failure> {
        if text == "." || text.starts_with('\'') {
            return Ok(HistoryPosition { past: Arc::clone(&self.past), seq: self.position(text)? });
        }
        if let Ok(position) = text.parse() {
            return Ok(HistoryPosition { past: Arc::clone(&self.past), seq: self.past.state_position(&position)? });
        }
        let (name, at) = text.rsplit_once('@').unwrap_or((text, "-0"));
        let past = Arc::new(self.past.sibling(name)?);
        let wrong = |_| {
            let head = past.head();
            Failure::usage(format!("no position: {text}; give NAME@POSITION, such as {name}@{head}"))
        };
        let seq = past.state_position(&at.parse().map_err(wrong)?)?;
        Ok(HistoryPosition { past, seq })
    }

    pub(super) fn set_mark(&mut self, text: &str) -> Result<(), Failure> {
        let mark = letter(text)?;
        self.marks.insert(mark, self.cursor);
        self.tell(Tone::Plain, format!("mark {mark} at {}", self.cursor));
        Ok(())
    }

    pub(super) fn marked(&self, text: &str) -> Result<Seq, Failure> {
        let mark = letter(text)?;
        let marked = self.marks.get(&mark).copied();
        marked.ok_or_else(|| Failure::usage(format!("mark {mark} is not set: m {mark} sets it")))
    }
}

fn letter(text: &str) -> Result<char, Failure> {
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(letter), None) if letter.is_ascii_alphanumeric() => Ok(letter),
        _ => Err(Failure::usage("a mark is one letter or digit")),
    }
}
