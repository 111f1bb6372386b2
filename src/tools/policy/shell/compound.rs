//! Compound commands and functions.

use super::lists::plain;
use super::parser::Parser;
use super::words::ends_word;
use super::{Command, Function, Piece, ScopeKind, Word};
use crate::tools::policy::refusal::Denied;

type Parsed<T> = Result<T, Denied>;

impl Parser<'_> {
    /// Reads a compound command, if one begins here.
    pub(super) fn compound(&mut self) -> Parsed<bool> {
        if self.bash() && self.sees("((") && self.is_arithmetic() {
            self.at += 2;
            self.arithmetic("))")?;
        } else if self.eat("(") {
            let start = self.script.commands.len();
            self.parenthesized()?;
            self.scope(ScopeKind::Subshell, start);
        } else if self.eat_reserved("{") {
            self.part("}")?;
        } else if self.eat_reserved("if") {
            self.part("then")?;
            self.branches()?;
        } else if self.eat_reserved("while") || self.eat_reserved("until") {
            let start = self.script.commands.len();
            self.part("do")?;
            self.part("done")?;
            self.scope(ScopeKind::Loop, start);
        } else if self.eat_reserved("for") || (self.bash() && self.eat_reserved("select")) {
            let start = self.script.commands.len();
            self.each()?;
            self.scope(ScopeKind::Loop, start);
        } else if self.eat_reserved("case") {
            self.case()?;
        } else if self.bash() && self.eat_reserved("[[") {
            self.test()?;
        } else if self.bash() && self.eat_reserved("function") {
            self.blanks();
            let name = self.word()?;
            self.blanks();
            if self.eat("(") {
                self.blanks();
                self.eat(")");
            }
            self.nest -= 1;
            self.function(&name)?;
            self.nest += 1;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Reads a list and the word that ends it.
    fn part(&mut self, end: &str) -> Parsed<()> {
        self.list()?;
        if !self.eat_reserved(end) {
            self.unclear();
        }
        Ok(())
    }

    fn branches(&mut self) -> Parsed<()> {
        loop {
            self.list()?;
            if self.eat_reserved("elif") {
                self.part("then")?;
            } else if !self.eat_reserved("else") {
                break;
            }
        }
        if !self.eat_reserved("fi") {
            self.unclear();
        }
        Ok(())
    }

    /// Reads the rest of a `for` loop. Its words are what the variable may be.
    fn each(&mut self) -> Parsed<()> {
        self.blanks();
        let mut values = Command::default();
        if self.bash() && self.sees("((") {
            self.at += 2;
            self.arithmetic("))")?;
        } else {
            let name = plain(&self.word()?).unwrap_or_default();
            self.lines()?;
            if self.eat_reserved("in") {
                self.blanks();
                while self.peek().is_some_and(|c| !ends_word(c)) {
                    values.assignments.push((name.clone(), self.word()?));
                    self.blanks();
                }
            } else {
                let all = Piece::Variable { name: "@".to_owned(), quoted: false, instead: None, assigns: false };
                values.assignments.push((name, Word { pieces: vec![all], quoted: false }));
            }
        }
        self.script.commands.push(values);
        self.separators()?;
        match self.eat_reserved("{") {
            true => self.part("}"),
            false if self.eat_reserved("do") => self.part("done"),
            false => {
                self.unclear();
                Ok(())
            }
        }
    }

    fn case(&mut self) -> Parsed<()> {
        self.blanks();
        self.word()?;
        self.lines()?;
        if !self.eat_reserved("in") {
            self.unclear();
            return Ok(());
        }
        loop {
            self.lines()?;
            if self.eat_reserved("esac") {
                return Ok(());
            }
            self.eat("(");
            loop {
                self.blanks();
                self.word()?;
                self.blanks();
                if !self.eat("|") {
                    break;
                }
            }
            if !self.eat(")") {
                self.unclear();
                return Ok(());
            }
            self.list()?;
            let again = self.eat(";;&") || self.eat(";;") || self.eat(";&");
            if !again && !self.sees_reserved("esac") {
                self.unclear();
                return Ok(());
            }
        }
    }

    /// Reads the rest of `[[ ... ]]`.
    fn test(&mut self) -> Parsed<()> {
        loop {
            self.lines()?;
            match self.peek() {
                None => {
                    self.unclear();
                    return Ok(());
                }
                Some(c) if ends_word(c) && !self.sees("<(") && !self.sees(">(") => self.at += 1,
                Some(_) => {
                    let word = self.word()?;
                    if plain(&word).is_some_and(|word| word == "]]") {
                        return Ok(());
                    }
                    self.evaluated(&word)?;
                }
            }
        }
    }

    pub(super) fn function(&mut self, name: &Word) -> Parsed<()> {
        self.lines()?;
        let start = self.script.commands.len();
        self.nest += 1;
        self.deeper(|parser| parser.command())?;
        self.nest -= 1;
        let body = start..self.script.commands.len();
        self.scope(ScopeKind::Function, start);
        match plain(name) {
            Some(name) => self.script.functions.push(Function { name, body, nest: self.nest, sure: false }),
            None => self.unclear(),
        }
        Ok(())
    }
}
