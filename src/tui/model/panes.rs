//! Marks, and positions as a person types them.

use std::sync::Arc;

use foldspace::{Seq, SessionError};

use super::{HistoryPosition, Model, Tone, ViewError};

fn words(text: impl Into<String>) -> ViewError {
    ViewError::Words(text.into())
}

impl Model {
    /// Parses a position: `12` or `@12`, `-5` before the last, `.` the cursor, `'a` a mark.
    pub(super) fn position(&self, text: &str) -> Result<Seq, ViewError> {
        let head = self.past.head();
        let number = |digits: &str| digits.parse::<Seq>().ok();
        let seq = match text {
            "." => Some(self.step_end()),
            _ if text.starts_with('\'') => Some(self.marked(&text[1..])?),
            _ => match text.strip_prefix('-') {
                Some(back) => number(back).map(|back| before_head(head, back)).transpose()?,
                None => number(text.strip_prefix('@').unwrap_or(text)),
            },
        };
        let seq = seq.ok_or_else(|| words(format!("no position: {text}; give a number, -N, . or 'a for a mark")))?;
        if seq > head {
            return Err(SessionError::NoPosition { seq, head }.into());
        }
        Ok(seq)
    }

    /// Parses `A..B`, or `A` against the cursor: positions here, `NAME` or `NAME@SEQ` of another session.
    pub(super) fn places(&self, text: &str) -> Result<(HistoryPosition, HistoryPosition), ViewError> {
        let Some((from, to)) = text.split_once("..") else {
            return Ok((self.place(text.trim())?, self.place(".")?));
        };
        let or = |text: &str, default: &str| {
            if text.trim().is_empty() { default.to_owned() } else { text.trim().to_owned() }
        };
        Ok((self.place(&or(from, "0"))?, self.place(&or(to, "."))?))
    }

    fn place(&self, text: &str) -> Result<HistoryPosition, ViewError> {
        let is_here = text == "." || text.starts_with(['\'', '@', '-']) || text.bytes().all(|b| b.is_ascii_digit());
        if is_here {
            return Ok(HistoryPosition { past: Arc::clone(&self.past), seq: self.position(text)? });
        }
        let (name, seq) = match text.rsplit_once('@') {
            Some((name, seq)) => (name, Some(seq)),
            None => (text, None),
        };
        let past = Arc::new(self.past.sibling(name)?);
        let head = past.head();
        let seq = match seq.map(str::parse::<Seq>) {
            None => head,
            Some(Ok(seq)) if seq <= head => seq,
            Some(Ok(seq)) => return Err(SessionError::NoPosition { seq, head }.into()),
            Some(Err(_)) => return Err(words(format!("no position: {text}; give NAME@SEQ, such as {name}@{head}"))),
        };
        Ok(HistoryPosition { past, seq })
    }

    pub(super) fn set_mark(&mut self, text: &str) -> Result<(), ViewError> {
        let mark = letter(text)?;
        self.marks.insert(mark, self.cursor);
        self.tell(Tone::Plain, format!("mark {mark} at {}", self.cursor));
        Ok(())
    }

    pub(super) fn marked(&self, text: &str) -> Result<Seq, ViewError> {
        let mark = letter(text)?;
        let marked = self.marks.get(&mark).copied();
        marked.ok_or_else(|| words(format!("there is no mark {mark}: m {mark} sets it")))
    }
}

fn before_head(head: Seq, back: u64) -> Result<Seq, ViewError> {
    let nothing = SessionError::NothingBack { count: back, head };
    head.checked_sub(back).ok_or_else(|| ViewError::Nowhere(nothing.to_string()))
}

fn letter(text: &str) -> Result<char, ViewError> {
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(letter), None) if letter.is_ascii_alphanumeric() => Ok(letter),
        _ => Err(words("a mark is one letter or digit")),
    }
}
