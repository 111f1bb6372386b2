//! Expansions, substitutions, subshells and functions: what is not plain, but for variables.

use super::{Function, Join, Reader, WORD_AGAIN_MAX, WORDS_AGAIN};
use crate::tools::policy::refusal::{Denied, check_depth};
use crate::tools::policy::words::{is_name, marker};

impl Reader<'_> {
    /// Reads what is behind a `$`.
    pub(super) fn dollar(&mut self) -> Result<(), Denied> {
        let name = self.rest.len() - self.rest.trim_start_matches(is_name).len();
        let next = self.rest.chars().next().unwrap_or(' ');
        match next {
            '(' => {
                self.skip(1);
                return self.enter(')', false);
            }
            '{' => self.parameter(),
            '\'' | '"' | '[' if !self.double => {
                self.odd("`$'`, `$\"` or `$[`");
                self.word().push(marker::UNKNOWN);
                if self.takes("'") {
                    // What it stands for is not looked at; a quote in it may be escaped.
                    while self.take().is_some_and(|c| c != '\'' && (c != '\\' || self.take().is_some())) {}
                }
            }
            c if c.is_ascii_digit() || "@*#?-$!".contains(c) => {
                self.skip(1);
                self.word().push(marker::UNKNOWN);
            }
            _ if name > 0 => {
                let mark = marker::of_variable(&self.rest[..name]);
                self.skip(name);
                self.word().push(mark);
            }
            c => {
                self.odd_if(matches!(c, '\\' | '['), "a `$` before a backslash or bracket");
                self.word().push('$');
            }
        }
        Ok(())
    }

    /// Reads what is behind `${`: a name, perhaps with a literal word for when it is empty.
    pub(super) fn parameter(&mut self) {
        self.skip(1);
        let is_literal = |c: char| c.is_ascii_alphanumeric() || "_-./:@%#+?*,".contains(c);
        let end = self.rest.find(|c| !is_literal(c)).unwrap_or(self.rest.len());
        let inner = self.rest[..end].strip_prefix('#').filter(|rest| !rest.is_empty()).unwrap_or(&self.rest[..end]);
        let name = inner.find(|c| !is_name(c)).unwrap_or(inner.len());
        let name = if name == 0 { inner.chars().next().map_or(0, char::len_utf8) } else { name };
        let (name, operator) = inner.split_at(name);
        let operand = operator.trim_start_matches([':', '-', '+', '?', '=']);
        let is_known = operator.is_empty() || operator.trim_start_matches(':').starts_with(['-', '+', '?', '#', '%']);
        let plain = self.rest[end..].starts_with('}') && !name.is_empty() && is_known && !operator.starts_with("::");
        let mark = if operator.is_empty() && plain { marker::of_variable(name) } else { marker::UNKNOWN };
        let read = match plain {
            true => end + 1,
            // What follows is split as it comes.
            false => end - operand.len() + usize::from(self.rest[end..].starts_with('=')),
        };
        self.odd_if(!plain, "an expansion with more than a name");
        let operand = if plain { operand.to_owned() } else { String::new() };
        self.skip(read);
        self.word().push(mark);
        if mark == marker::UNKNOWN && (!operand.is_empty() || !plain) {
            self.word().push(marker::SPLIT);
            self.word().text.push_str(&operand);
            self.odd_if(operand.contains('*'), "an expansion with a pattern");
            // What stands behind the operand is no word of its own.
            plain.then(|| self.word().push(marker::UNKNOWN));
        }
    }

    pub(super) fn tick(&mut self) -> Result<(), Denied> {
        match self.open.iter().any(|&(closes, ..)| closes == '`') {
            true => self.leave('`'),
            false => return self.enter('`', false),
        }
        Ok(())
    }

    /// Ends the command before, and begins one inside, whose output is a word of the one before.
    pub(super) fn enter(&mut self, closes: char, reads: bool) -> Result<(), Denied> {
        check_depth(self.open.len())?;
        self.odd("a substitution");
        self.word().push(marker::UNKNOWN);
        let double = std::mem::take(&mut self.double);
        self.end_command(Join::List);
        let holder = self.script.commands.len().checked_sub(1);
        self.open.push((closes, double, holder));
        self.upstream = holder.filter(|_| reads);
        Ok(())
    }

    pub(super) fn leave(&mut self, closes: char) {
        self.odd("a `)` or a backtick");
        self.end_command(Join::End);
        let at = self.open.iter().rposition(|&(open, ..)| open == closes);
        if let Some((_, double, holder)) = at.and_then(|at| self.open.drain(at..).next()) {
            self.double = double;
            // What follows are words of the command before, of which the first few tell what it is.
            let before = holder.and_then(|holder| self.script.commands.get(holder)).map_or(&[][..], |held| &held.words);
            let short = before.iter().take(WORDS_AGAIN).filter(|word| word.len() <= WORD_AGAIN_MAX);
            self.command.words = short.cloned().collect();
        }
        self.end_functions();
    }

    /// Begins a subshell, or a function.
    pub(super) fn parenthesis(&mut self) -> Result<(), Denied> {
        check_depth(self.open.len())?;
        self.end_word();
        self.odd("a subshell or a function");
        let blank = self.rest.len() - self.rest.trim_start_matches([' ', '\t']).len();
        let named = self.command.words.first().is_some_and(|word| word == "function");
        if self.command.words.len() == 1 + usize::from(named) && self.rest[blank..].starts_with(')') {
            self.skip(blank + 1);
            self.begin_function();
            return Ok(());
        }
        let upstream = self.upstream.filter(|_| self.command.words.is_empty());
        self.end_command(Join::List);
        self.upstream = upstream;
        self.open.push((')', false, self.open.last().and_then(|&(.., holder)| holder)));
        Ok(())
    }

    pub(super) fn begin_function(&mut self) {
        let name = std::mem::take(&mut self.command).words.pop().unwrap_or_default();
        let (start, depth) = (self.script.commands.len(), self.open.len() + self.braces);
        self.bodies.push(self.script.functions.len());
        self.script.functions.push(Function { name, start, end: None, depth });
    }

    /// Ends the functions whose body is closed here.
    pub(super) fn end_functions(&mut self) {
        let (all, depth) = (self.script.commands.len(), self.open.len() + self.braces);
        while let Some(&at) = self.bodies.last().filter(|&&at| self.script.functions[at].depth >= depth) {
            self.script.functions[at].end = Some(all);
            self.bodies.pop();
        }
    }
}
