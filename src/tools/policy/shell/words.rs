//! Words: quotes, escapes, expansions.

use super::parser::Parser;
use super::{Piece, ScopeKind, Word, marker};
use crate::tools::policy::refusal::Denied;

type Parsed<T> = Result<T, Denied>;

/// Whether an unquoted character ends a word.
pub(super) fn ends_word(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | ';' | '&' | '|' | '<' | '>' | '(' | ')')
}

fn in_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

impl Parser<'_> {
    /// Reads a word; it may be empty where no word is.
    pub(super) fn word(&mut self) -> Parsed<Word> {
        let mut word = Word::default();
        if matches!(self.peek(), Some('<' | '>')) && self.peek_at(1) == Some('(') {
            self.at += 2;
            let commands = self.substitution()?;
            word.pieces.push(Piece::Process(commands));
        }
        self.tilde(&mut word);
        self.unquoted(&mut word, ends_word)?;
        Ok(word)
    }

    /// Reads unquoted text up to a character that ends it.
    pub(super) fn unquoted(&mut self, word: &mut Word, ends: fn(char) -> bool) -> Parsed<()> {
        while let Some(c) = self.peek() {
            if ends(c) {
                return Ok(());
            }
            self.at += 1;
            match c {
                '\\' => match self.next() {
                    Some('\n') => {}
                    Some(next) => {
                        word.quoted = true;
                        word.push_literal(next);
                    }
                    None => word.push_char('\\'),
                },
                '\'' => self.single_quoted(word),
                '"' => {
                    word.quoted = true;
                    self.quoted_until(word, Some('"'))?;
                }
                '$' => self.dollar(word, false)?,
                '`' => self.backquoted(word, false)?,
                '*' => word.push_char(marker::STAR),
                '?' => word.push_char(marker::QUERY),
                '[' => word.push_char(marker::BRACKET),
                '{' if self.bash() => word.push_char(marker::OPEN),
                ',' if self.bash() => word.push_char(marker::COMMA),
                '}' if self.bash() => word.push_char(marker::CLOSE),
                c => word.push_literal(c),
            }
        }
        Ok(())
    }

    /// Reads what stands in double quotes, or in a here-document that is expanded.
    pub(super) fn quoted_until(&mut self, word: &mut Word, end: Option<char>) -> Parsed<()> {
        while let Some(c) = self.next() {
            match c {
                c if Some(c) == end => return Ok(()),
                '\\' => match self.peek() {
                    Some('\n') => self.at += 1,
                    Some(next @ ('$' | '`' | '"' | '\\')) => {
                        self.at += 1;
                        word.push_char(next);
                    }
                    _ => word.push_char('\\'),
                },
                '$' => self.dollar(word, true)?,
                '`' => self.backquoted(word, true)?,
                c => word.push_literal(c),
            }
        }
        if end.is_some() {
            self.unclear();
        }
        Ok(())
    }

    fn single_quoted(&mut self, word: &mut Word) {
        word.quoted = true;
        loop {
            match self.next() {
                Some('\'') => return,
                Some(c) => word.push_literal(c),
                None => return self.unclear(),
            }
        }
    }

    fn tilde(&mut self, word: &mut Word) {
        if self.peek() != Some('~') {
            return;
        }
        // `~+` is the working directory.
        let here = self.bash() && self.peek_at(1) == Some('+');
        let mut ahead = 1 + usize::from(here);
        while !here && self.peek_at(ahead).is_some_and(|c| in_name(c) || c == '-') {
            ahead += 1;
        }
        if self.peek_at(ahead).is_none_or(|c| c == '/' || ends_word(c)) {
            self.at += ahead;
            word.push_char(if here { '.' } else { marker::HOME });
        }
    }

    fn backquoted(&mut self, word: &mut Word, quoted: bool) -> Parsed<()> {
        let mut text = String::new();
        loop {
            match self.next() {
                Some('`') => break,
                Some('\\') => match self.next() {
                    Some(c @ ('`' | '\\' | '$')) => text.push(c),
                    Some('"') if quoted => text.push('"'),
                    Some(c) => text.extend(['\\', c]),
                    None => text.push('\\'),
                },
                Some(c) => text.push(c),
                None => {
                    self.unclear();
                    break;
                }
            }
        }
        let start = self.script.commands.len();
        self.inner(&text)?.text()?;
        self.scope(ScopeKind::Subshell, start);
        word.pieces.push(Piece::Output { commands: start..self.script.commands.len(), quoted });
        Ok(())
    }

    /// Reads commands up to the closing parenthesis.
    pub(super) fn substitution(&mut self) -> Parsed<std::ops::Range<usize>> {
        let start = self.script.commands.len();
        self.deeper(|parser| parser.parenthesized())?;
        self.scope(ScopeKind::Subshell, start);
        Ok(start..self.script.commands.len())
    }

    fn dollar(&mut self, word: &mut Word, quoted: bool) -> Parsed<()> {
        match self.peek() {
            Some('(') if self.peek_at(1) == Some('(') && self.is_arithmetic() => {
                self.at += 2;
                self.arithmetic("))")?;
                word.pieces.push(Piece::Unknown);
            }
            Some('(') => {
                self.at += 1;
                let commands = self.substitution()?;
                word.pieces.push(Piece::Output { commands, quoted });
            }
            Some('[') if self.bash() => {
                self.at += 1;
                self.arithmetic("]")?;
                word.pieces.push(Piece::Unknown);
            }
            Some('{') => {
                self.at += 1;
                self.deeper(|parser| parser.parameter(word, quoted))?;
            }
            Some('\'') if self.bash() && !quoted => {
                self.at += 1;
                self.ansi_quoted(word);
            }
            // `$"..."` is a translated string.
            Some('"') if self.bash() && !quoted => {}
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                let name = self.name();
                word.pieces.push(Piece::Variable { name, quoted, instead: None, assigns: false });
            }
            Some(c @ ('0'..='9' | '@' | '*' | '#' | '?' | '-' | '$' | '!')) => {
                self.at += 1;
                word.pieces.push(Piece::Variable { name: c.to_string(), quoted, instead: None, assigns: false });
            }
            // Shells join lines before they look for expansions.
            Some('\\') if self.peek_at(1) == Some('\n') => {
                self.unclear();
                word.push_char('$');
            }
            _ => word.push_char('$'),
        }
        Ok(())
    }

    fn name(&mut self) -> String {
        let start = self.at;
        while self.peek().is_some_and(in_name) {
            self.at += 1;
        }
        self.chars[start..self.at].iter().collect()
    }

    /// Reads the rest of `${...}`.
    fn parameter(&mut self, word: &mut Word, quoted: bool) -> Parsed<()> {
        // `${ commands; }` runs commands.
        if self.bash() && matches!(self.peek(), Some(' ' | '\t' | '\n' | '|')) {
            self.unclear();
            word.pieces.push(Piece::Unknown);
            self.at += usize::from(self.peek() == Some('|'));
            self.list()?;
            self.eat("}");
            return Ok(());
        }
        let plain = !matches!(self.peek(), Some('#' | '!')) || self.peek_at(1) == Some('}');
        self.at += usize::from(!plain);
        let name = match self.peek() {
            Some(c) if in_name(c) => self.name(),
            Some(c @ ('@' | '*' | '#' | '?' | '-' | '$' | '!')) => {
                self.at += 1;
                c.to_string()
            }
            _ => String::new(),
        };
        let start = self.at;
        let is_instead = self.eat(":+") || self.eat("+");
        let assigns = !is_instead && (self.eat(":=") || self.eat("="));
        let is_default = is_instead || assigns || self.eat(":-") || self.eat("-");
        let mut operand = Word::default();
        self.operand(&mut operand, quoted)?;
        let is_bare = self.at == start + 1;
        word.pieces.push(match plain && !name.is_empty() {
            true if is_instead => Piece::Variable { name: String::new(), quoted, instead: Some(operand), assigns },
            true if is_default => Piece::Variable { name, quoted, instead: Some(operand), assigns },
            true if is_bare => Piece::Variable { name, quoted, instead: None, assigns: false },
            // Its commands are in the script; its text is anybody's guess.
            _ => {
                self.evaluated(&operand)?;
                Piece::Unknown
            }
        });
        Ok(())
    }

    /// Finds the commands in a text that the shell expands once more: it evaluates subscripts, though they are quoted.
    pub(super) fn evaluated(&mut self, word: &Word) -> Parsed<()> {
        for piece in &word.pieces {
            let Piece::Text(text) = piece else { continue };
            // `${x@P}` expands what the variable holds.
            self.script.unclear |= text == "@P";
            if text.contains("$(") || text.contains('`') {
                self.unclear();
                let mut ignored = Word::default();
                self.inner(text)?.quoted_until(&mut ignored, None)?;
            }
        }
        Ok(())
    }

    fn operand(&mut self, operand: &mut Word, quoted: bool) -> Parsed<()> {
        loop {
            match quoted {
                // In double quotes a single quote is a plain character.
                true => self.operand_quoted(operand)?,
                false => self.unquoted(operand, |c| c == '}')?,
            }
            match self.next() {
                Some('}') => return Ok(()),
                Some(_) => {}
                None => {
                    self.unclear();
                    return Ok(());
                }
            }
        }
    }

    fn operand_quoted(&mut self, operand: &mut Word) -> Parsed<()> {
        while let Some(c) = self.peek() {
            if c == '}' {
                return Ok(());
            }
            self.at += 1;
            match c {
                '\\' => match self.next() {
                    Some('\n') | None => {}
                    Some(c) => operand.push_literal(c),
                },
                '$' => self.dollar(operand, true)?,
                '`' => self.backquoted(operand, true)?,
                '"' => self.deeper(|parser| parser.quoted_until(operand, Some('"')))?,
                '\'' => {
                    // Shells differ in whether it quotes here.
                    self.unclear();
                    operand.push_char('\'');
                }
                c => operand.push_literal(c),
            }
        }
        Ok(())
    }

    /// Whether the parentheses that open here close together, as those of arithmetic do.
    pub(super) fn is_arithmetic(&self) -> bool {
        let mut open = 0_usize;
        let mut quote = None;
        let mut at = self.at;
        while let Some(&c) = self.chars.get(at) {
            match (c, quote) {
                ('\\', None | Some('"')) => at += 1,
                (c, Some(end)) if c == end => quote = None,
                (_, Some(_)) => {}
                ('\'' | '"', None) => quote = Some(c),
                ('(', None) => open += 1,
                (')', None) if open == 2 => return self.chars.get(at + 1) == Some(&')'),
                (')', None) => open = open.saturating_sub(1),
                _ => {}
            }
            at += 1;
        }
        false
    }

    /// Reads arithmetic: only the substitutions in it run anything.
    pub(super) fn arithmetic(&mut self, end: &str) -> Parsed<()> {
        let (open, close) = if end == "]" { ('[', ']') } else { ('(', ')') };
        let mut ignored = Word::default();
        let mut inner = 0_usize;
        while self.at < self.chars.len() {
            if inner == 0 && self.eat(end) {
                return Ok(());
            }
            match self.next() {
                Some('$') => self.deeper(|parser| parser.dollar(&mut ignored, true))?,
                Some('`') => self.backquoted(&mut ignored, true)?,
                Some('\\') => {
                    // What is quoted here may be expanded as a subscript.
                    let c = self.next();
                    self.script.unclear |= matches!(c, Some('$' | '`'));
                }
                Some(c) if c == open => inner += 1,
                Some(c) if c == close => inner = inner.saturating_sub(1),
                _ => {}
            }
        }
        self.unclear();
        Ok(())
    }

    /// Reads the rest of `$'...'`.
    fn ansi_quoted(&mut self, word: &mut Word) {
        word.quoted = true;
        loop {
            match self.next() {
                Some('\'') => return,
                Some('\\') => match self.escaped() {
                    Some(c) => word.push_literal(c),
                    None => word.pieces.push(Piece::Unknown),
                },
                Some(c) => word.push_literal(c),
                None => return self.unclear(),
            }
        }
    }

    /// The character of an escape sequence, if there is one.
    fn escaped(&mut self) -> Option<char> {
        match self.next()? {
            'a' => Some('\u{7}'),
            'b' => Some('\u{8}'),
            'e' | 'E' => Some('\u{1b}'),
            'f' => Some('\u{c}'),
            'n' => Some('\n'),
            'r' => Some('\r'),
            't' => Some('\t'),
            'v' => Some('\u{b}'),
            'x' => self.digits(16, 2),
            'u' => self.digits(16, 4),
            'U' => self.digits(16, 8),
            '0'..='7' => {
                self.at -= 1;
                self.digits(8, 3)
            }
            c @ ('\\' | '\'' | '"' | '?') => Some(c),
            _ => None,
        }
    }

    fn digits(&mut self, radix: u32, most: usize) -> Option<char> {
        let mut value = None;
        for _ in 0..most {
            let Some(digit) = self.peek().and_then(|c| c.to_digit(radix)) else { break };
            self.at += 1;
            value = Some(value.unwrap_or(0_u32).saturating_mul(radix).saturating_add(digit));
        }
        value.and_then(char::from_u32).filter(|&c| c != '\0')
    }
}
