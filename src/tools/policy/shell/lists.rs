//! Lists, pipelines, simple commands and their redirections.

use super::parser::Parser;
use super::words::ends_word;
use super::{Command, Piece, Redirect, RedirectKind, Scope, ScopeKind, Word, marker};
use crate::tools::policy::refusal::Denied;

type Parsed<T> = Result<T, Denied>;

/// Words that end the list in which they begin a command.
const CLOSERS: [&str; 8] = ["then", "elif", "else", "fi", "do", "done", "esac", "}"];

impl Parser<'_> {
    /// Reads the whole text, whatever stands in it.
    pub(super) fn text(&mut self) -> Parsed<()> {
        loop {
            self.list()?;
            if self.at >= self.chars.len() {
                return Ok(());
            }
            // Something closes here that nothing opened.
            self.unclear();
            self.step()?;
        }
    }

    /// Passes over a word or a character that is out of place.
    fn step(&mut self) -> Parsed<()> {
        let start = self.at;
        self.word()?;
        self.at = self.at.max(start + 1);
        Ok(())
    }

    /// Reads commands up to the closing parenthesis, and that.
    pub(super) fn parenthesized(&mut self) -> Parsed<()> {
        self.nest += 1;
        loop {
            self.list()?;
            if self.eat(")") {
                break;
            }
            self.unclear();
            if self.at >= self.chars.len() {
                break;
            }
            self.step()?;
        }
        self.nest -= 1;
        Ok(())
    }

    /// Reads commands up to something that ends a list.
    pub(super) fn list(&mut self) -> Parsed<()> {
        loop {
            self.separators()?;
            match self.peek() {
                None | Some(')') => return Ok(()),
                Some(';') if self.sees(";;") || self.sees(";&") => return Ok(()),
                _ if CLOSERS.iter().any(|closer| self.sees_reserved(closer)) => return Ok(()),
                _ => {}
            }
            let start = self.at;
            let functions = self.script.functions.len();
            let alone = self.and_or()?;
            let new = self.script.functions.get_mut(functions..).and_then(|new| new.last_mut());
            if let Some(function) = new.filter(|function| function.nest == self.nest) {
                function.sure = alone && self.nest == 0;
            }
            if self.at == start {
                self.unclear();
                self.step()?;
            }
        }
    }

    pub(super) fn separators(&mut self) -> Parsed<()> {
        loop {
            self.lines()?;
            match self.peek() {
                Some(';') if !self.sees(";;") && !self.sees(";&") => self.at += 1,
                Some('&') if !self.sees("&>") || !self.bash() => self.at += 1,
                _ => return Ok(()),
            }
        }
    }

    /// Reads pipelines joined by `&&` and `||`; tells whether it was one command in the foreground.
    fn and_or(&mut self) -> Parsed<bool> {
        let start = self.script.commands.len();
        let mut alone = self.pipeline()?;
        loop {
            self.blanks();
            if !self.eat("&&") && !self.eat("||") {
                break;
            }
            alone = false;
            self.lines()?;
            self.pipeline()?;
        }
        if self.peek() == Some('&') {
            alone = false;
            self.scope(ScopeKind::Subshell, start);
            self.script.commands[start..].iter_mut().for_each(|command| command.background = true);
            self.fuel.take(self.script.commands.len() - start)?;
        }
        Ok(alone)
    }

    fn pipeline(&mut self) -> Parsed<bool> {
        let start = self.script.commands.len();
        let mut alone = true;
        let mut stages = Vec::new();
        loop {
            let stage = self.script.commands.len();
            self.deeper(|parser| parser.command())?;
            stages.push(stage..self.script.commands.len());
            if stage > start {
                let commands = &mut self.script.commands[stage..];
                self.fuel.take(commands.len())?;
                commands.iter_mut().for_each(|command| command.upstream.push(start..stage));
            }
            self.blanks();
            if self.sees("||") || !(self.eat("|&") || self.eat("|")) {
                break;
            }
            alone = false;
            self.lines()?;
        }
        if !alone {
            self.fuel.take(self.script.commands.len() - start)?;
            self.script.commands[start..].iter_mut().for_each(|command| command.piped = true);
            let stages = stages.into_iter().filter(|stage| !stage.is_empty());
            let scopes = stages.map(|commands| Scope { kind: ScopeKind::Subshell, commands });
            self.script.scopes.extend(scopes);
        }
        Ok(alone)
    }

    pub(super) fn command(&mut self) -> Parsed<()> {
        self.blanks();
        while self.eat_reserved("!") || (self.bash() && self.eat_reserved("time")) {
            self.blanks();
            self.eat_reserved("-p");
            self.blanks();
        }
        if self.bash() && self.eat_reserved("coproc") {
            return self.deeper(|parser| parser.command());
        }
        let start = self.script.commands.len();
        self.nest += 1;
        let compound = self.compound()?;
        self.nest -= 1;
        match compound {
            true => self.group_redirects(start),
            false => self.simple(),
        }
    }

    /// Reads the redirections of a compound command; they hold for the commands in it.
    fn group_redirects(&mut self, start: usize) -> Parsed<()> {
        loop {
            self.blanks();
            if !self.at_redirect() {
                return Ok(());
            }
            let end = self.script.commands.len();
            if let Some(redirect) = self.redirect()? {
                self.fuel.take(end - start + 1)?;
                for command in &mut self.script.commands[start..end] {
                    command.redirects.push(redirect.clone());
                }
                if start == end {
                    self.script.commands.push(Command { redirects: vec![redirect], ..Command::default() });
                }
            }
        }
    }

    fn simple(&mut self) -> Parsed<()> {
        let mut command = Command::default();
        let mut outputs = Vec::new();
        loop {
            self.blanks();
            if self.at_redirect() {
                if let Some(redirect) = self.redirect()? {
                    outputs.extend(processes(&redirect.target));
                    command.redirects.push(redirect);
                }
                continue;
            }
            match self.peek() {
                Some('<' | '>') => command.words.push(self.word()?),
                Some('(') if command.words.len() == 1 && self.eats_parentheses() => {
                    let name = command.words.remove(0);
                    return self.function(&name);
                }
                Some('(') => {
                    self.unclear();
                    self.at += 1;
                    self.substitution()?;
                }
                Some(c) if !ends_word(c) => self.word_or_assignment(&mut command)?,
                _ => break,
            }
        }
        outputs.extend(command.words.iter().flat_map(processes));
        let index = self.script.commands.len();
        if !command.words.is_empty() || !command.assignments.is_empty() || !command.redirects.is_empty() {
            self.script.commands.push(command);
            for inner in outputs.into_iter().flatten() {
                self.fuel.take(1)?;
                self.script.commands[inner].upstream.push(index..index + 1);
            }
        }
        Ok(())
    }

    fn eats_parentheses(&mut self) -> bool {
        let start = self.at;
        self.at += 1;
        self.blanks();
        let is_function = self.eat(")");
        if !is_function {
            self.at = start;
        }
        is_function
    }

    fn word_or_assignment(&mut self, command: &mut Command) -> Parsed<()> {
        let Some(length) = self.assigned_name().filter(|_| command.words.is_empty()) else {
            command.words.push(self.word()?);
            return Ok(());
        };
        let text: String = self.chars[self.at..self.at + length].iter().collect();
        let name: String = text.chars().take_while(|&c| c.is_ascii_alphanumeric() || c == '_').collect();
        self.at += length;
        if self.eat("(") {
            self.array(&name, command)?;
            return Ok(());
        }
        let mut value = self.word()?;
        if text.ends_with("+=") {
            value.pieces.insert(0, Piece::Variable { name: name.clone(), quoted: true, instead: None, assigns: false });
        }
        command.assignments.push((name, value));
        Ok(())
    }

    fn array(&mut self, name: &str, command: &mut Command) -> Parsed<()> {
        loop {
            self.lines()?;
            match self.peek() {
                Some(')') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(c) if !ends_word(c) => {
                    let value = self.word()?;
                    command.assignments.push((name.to_owned(), value));
                }
                _ => {
                    self.unclear();
                    return Ok(());
                }
            }
        }
    }

    /// The length of `name=`, `name+=` or `name[...]=`, if that is what stands here.
    fn assigned_name(&self) -> Option<usize> {
        let first = self.peek()?;
        if !first.is_ascii_alphabetic() && first != '_' {
            return None;
        }
        let mut length = 1;
        while self.peek_at(length).is_some_and(|c| c.is_ascii_alphanumeric() || c == '_') {
            length += 1;
        }
        if self.bash() && self.peek_at(length) == Some('[') {
            while self.peek_at(length).is_some_and(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '[')) {
                length += 1;
            }
            length += usize::from(self.peek_at(length) == Some(']'));
        }
        length += usize::from(self.peek_at(length) == Some('+') && self.peek_at(length + 1) == Some('='));
        (self.peek_at(length) == Some('=')).then_some(length + 1)
    }

    fn at_redirect(&self) -> bool {
        let digits = self.chars.iter().skip(self.at).take_while(|c| c.is_ascii_digit()).count();
        match self.peek_at(digits) {
            Some('<' | '>') => digits > 0 || self.peek_at(1) != Some('('),
            Some('&') => digits == 0 && self.bash() && self.peek_at(1) == Some('>'),
            _ => false,
        }
    }

    /// Reads a redirection; none where only numbers are joined.
    fn redirect(&mut self) -> Parsed<Option<Redirect>> {
        while self.peek().is_some_and(|c| c.is_ascii_digit()) {
            self.at += 1;
        }
        if self.eat("<<<") {
            self.blanks();
            let target = self.word()?;
            return Ok(Some(Redirect { kind: RedirectKind::Text, target }));
        }
        if self.eat("<<") {
            let strip_tabs = self.eat("-");
            self.blanks();
            let (end, literal) = self.delimiter();
            let target = self.expect_document(end, literal, strip_tabs);
            return Ok(Some(Redirect { kind: RedirectKind::Text, target }));
        }
        let operators = ["&>>", "&>", ">>", ">|", ">&", "<>", "<&", ">", "<"];
        let operator = operators.into_iter().find(|operator| self.eat(operator)).unwrap_or_default();
        self.blanks();
        let target = self.word()?;
        let is_number = |word: &str| word.trim_end_matches('-').chars().all(|c| c.is_ascii_digit());
        if matches!(operator, ">&" | "<&") && plain(&target).is_some_and(|word| is_number(&word)) {
            return Ok(None);
        }
        let kind = if matches!(operator, "<" | "<&") { RedirectKind::Read } else { RedirectKind::Write };
        Ok(Some(Redirect { kind, target }))
    }

    /// The word that ends a here-document, as it was written but without its quotes.
    fn delimiter(&mut self) -> (String, bool) {
        let mut end = String::new();
        let mut literal = false;
        let mut quote = None;
        while let Some(c) = self.peek() {
            match quote {
                None if ends_word(c) => break,
                None if matches!(c, '\'' | '"') => {
                    literal = true;
                    quote = Some(c);
                }
                None | Some('"') if c == '\\' => {
                    literal = true;
                    self.at += 1;
                    end.extend(self.peek());
                }
                Some(open) if c == open => quote = None,
                _ => end.push(c),
            }
            self.at += 1;
        }
        // Shells differ in what such a delimiter is.
        self.script.unclear |= quote.is_some() || end.contains(['$', '`', '\n', '\\']);
        (end, literal)
    }

    pub(super) fn sees_reserved(&self, word: &str) -> bool {
        let length = word.chars().count();
        self.sees(word) && self.peek_at(length).is_none_or(ends_word)
    }

    pub(super) fn eat_reserved(&mut self, word: &str) -> bool {
        let here = self.sees_reserved(word);
        if here {
            self.at += word.chars().count();
        }
        here
    }
}

/// A word without expansions, as text.
pub(super) fn plain(word: &Word) -> Option<String> {
    match word.pieces.as_slice() {
        [Piece::Text(text)] if marker::none_in(text) => Some(text.clone()),
        [] if word.quoted => Some(String::new()),
        _ => None,
    }
}

fn processes(word: &Word) -> Vec<std::ops::Range<usize>> {
    let ranges = word.pieces.iter().filter_map(|piece| match piece {
        Piece::Process(commands) => Some(commands.clone()),
        _ => None,
    });
    ranges.collect()
}
