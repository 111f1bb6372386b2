//! The parser of predicates, by recursive descent with a depth limit.

use regex::RegexBuilder;
use serde_json::Value;

use super::{COMPARISONS, Operand, PointerStep, PredicateTerm, SlicePointer};
use crate::engine::error::ValueError;
use crate::engine::nearest::nearest;
use crate::engine::path::EntryPath;
use crate::engine::slice::Slice;
use crate::reducers::VirtualFileSystem;

const CHARS_MAX: usize = 4096;
const DEPTH_MAX: usize = 64;
/// The limit for a compiled regular expression, in bytes.
const REGEX_MAX: usize = 1 << 20;

/// Returns the error for a predicate that is invalid at a character, counted from 1.
fn wrong_at(character: usize, what: impl std::fmt::Display) -> ValueError {
    ValueError::new(format!("invalid predicate at character {character}: {what}"))
}

type Parsed<T> = Result<T, ValueError>;

pub(super) fn parse(text: &str, slices: &[&str]) -> Parsed<PredicateTerm> {
    let mut reader = PredicateParser { text: text.chars().take(CHARS_MAX + 1).collect(), at: 0, depth: 0, slices };
    if reader.text.len() > CHARS_MAX {
        reader.at = CHARS_MAX;
        return Err(reader.wrong(format!("more than {CHARS_MAX} characters")));
    }
    let condition = reader.any()?;
    match reader.rest() {
        None => Ok(condition),
        Some(_) => Err(reader.wrong("expected `and`, `or` or the end")),
    }
}

struct PredicateParser<'a> {
    text: Vec<char>,
    at: usize,
    depth: usize,
    slices: &'a [&'a str],
}

impl PredicateParser<'_> {
    fn wrong(&self, what: impl std::fmt::Display) -> ValueError {
        wrong_at(self.at + 1, what)
    }

    /// Skips whitespace, and returns the next character.
    fn rest(&mut self) -> Option<char> {
        self.while_is(char::is_whitespace);
        self.text.get(self.at).copied()
    }

    fn sign(&mut self, sign: &str) -> bool {
        self.rest();
        let fits = sign.chars().enumerate().all(|(n, c)| self.text.get(self.at + n) == Some(&c));
        self.at += if fits { sign.chars().count() } else { 0 };
        fits
    }

    /// Takes a word if it is next and complete.
    fn word(&mut self, word: &str) -> bool {
        let start = self.at;
        let fits = self.sign(word) && !self.text.get(self.at).is_some_and(|c| is_name(*c));
        if !fits {
            self.at = start;
        }
        fits
    }

    fn any(&mut self) -> Parsed<PredicateTerm> {
        let mut any = vec![self.all()?];
        while self.sign("||") || self.word("or") {
            any.push(self.all()?);
        }
        Ok(PredicateTerm::Any(any))
    }

    fn all(&mut self) -> Parsed<PredicateTerm> {
        let mut all = vec![self.one()?];
        while self.sign("&&") || self.word("and") {
            all.push(self.one()?);
        }
        Ok(PredicateTerm::All(all))
    }

    fn one(&mut self) -> Parsed<PredicateTerm> {
        if self.depth >= DEPTH_MAX {
            return Err(self.wrong(format!("nested deeper than {DEPTH_MAX}")));
        }
        self.depth += 1;
        let condition = if self.word("not") || self.sign("!") {
            PredicateTerm::Not(Box::new(self.one()?))
        } else if self.sign("(") {
            let condition = self.any()?;
            self.need(")")?;
            condition
        } else {
            self.test()?
        };
        self.depth -= 1;
        Ok(condition)
    }

    fn need(&mut self, sign: &str) -> Parsed<()> {
        if self.sign(sign) { Ok(()) } else { Err(self.wrong(format!("expected `{sign}`"))) }
    }

    /// Takes the next characters while they match.
    fn while_is(&mut self, fits: impl Fn(char) -> bool) -> String {
        let taken: String = self.text[self.at..].iter().copied().take_while(|c| fits(*c)).collect();
        self.at += taken.chars().count();
        taken
    }

    fn test(&mut self) -> Parsed<PredicateTerm> {
        let left = self.operand()?;
        if self.word("exists") {
            return Ok(PredicateTerm::Exists(left));
        }
        if self.word("contains") {
            return Ok(PredicateTerm::Contains(left, self.operand()?));
        }
        if self.word("matches") {
            return self.regex().map(|regex| PredicateTerm::Matches(left, Box::new(regex)));
        }
        match COMPARISONS.into_iter().find(|(sign, _)| self.sign(sign)) {
            Some((_, comparison)) => Ok(PredicateTerm::Compare(left, comparison, self.operand()?)),
            None if self.sign("=") => Err(self.wrong("write `==` for a comparison")),
            // An entry alone asks if it exists.
            None if matches!(&left, Operand::Place(place) if place.entry.is_some() && place.steps.is_empty()) => {
                Ok(PredicateTerm::Exists(left))
            }
            None => Ok(PredicateTerm::True(left)),
        }
    }

    fn regex(&mut self) -> Parsed<regex::Regex> {
        if self.rest() != Some('"') {
            return Err(self.wrong("expected a regular expression in quotes"));
        }
        let start = self.at;
        let quoted = self.quoted()?;
        // Only quotes are escaped in the expression; other backslashes belong to it.
        let pattern = quoted[1..quoted.len() - 1].replace("\\\"", "\"");
        RegexBuilder::new(&pattern).size_limit(REGEX_MAX).build().map_err(|error| {
            let what = format!("invalid regular expression: {}", regex_error(&error));
            wrong_at(start + 1, what)
        })
    }

    fn operand(&mut self) -> Parsed<Operand> {
        match self.rest() {
            Some('"') => self.text().map(|text| Operand::Literal(Value::String(text))),
            Some(c) if c.is_ascii_digit() || c == '-' => self.number(),
            _ if self.word("true") => Ok(Operand::Literal(Value::Bool(true))),
            _ if self.word("false") => Ok(Operand::Literal(Value::Bool(false))),
            _ if self.word("null") => Ok(Operand::Literal(Value::Null)),
            _ if self.sign("count(") => {
                let place = self.place()?;
                self.need(")").map(|()| Operand::Count(place))
            }
            Some(c) if is_name(c) => self.place().map(Operand::Place),
            _ => Err(self.wrong("expected a place such as `Usage.calls`, a number or a string in quotes")),
        }
    }

    fn number(&mut self) -> Parsed<Operand> {
        let start = self.at;
        let text = self.while_is(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
        let number = serde_json::from_str(&text).ok().filter(Value::is_number);
        number.map(Operand::Literal).ok_or_else(|| wrong_at(start + 1, "invalid number"))
    }

    fn text(&mut self) -> Parsed<String> {
        let start = self.at;
        let quoted = self.quoted()?;
        serde_json::from_str(&quoted).map_err(|error| wrong_at(start + 1, format!("invalid string: {error}")))
    }

    /// Reads a string with its quotes.
    fn quoted(&mut self) -> Parsed<String> {
        let start = self.at;
        self.at += 1;
        while let Some(c) = self.text.get(self.at) {
            self.at += if *c == '\\' { 2 } else { 1 };
            if *c == '"' {
                return Ok(self.text[start..self.at].iter().collect());
            }
        }
        self.at = self.text.len();
        Err(self.wrong("the closing quote is missing"))
    }

    fn name(&mut self) -> Parsed<String> {
        let name = self.while_is(is_name);
        if name.is_empty() { Err(self.wrong("expected a name")) } else { Ok(name) }
    }

    fn place(&mut self) -> Parsed<SlicePointer> {
        self.rest();
        let start = self.at;
        let slice = self.name()?;
        if !self.slices.contains(&slice.as_str()) {
            let meant = nearest(&slice, self.slices.iter().copied());
            let meant = meant.map(|meant| format!(" (did you mean {meant}?)")).unwrap_or_default();
            let what = format!("unknown slice {slice:?}{meant}; slices: {}", self.slices.join(", "));
            return Err(wrong_at(start + 1, what));
        }
        let mut place = SlicePointer { slice, entry: None, steps: Vec::new() };
        let is_files = place.slice == VirtualFileSystem::NAME;
        loop {
            let wants_entry = is_files && place.entry.is_none();
            match self.text.get(self.at) {
                Some('.') if wants_entry => place.entry = Some(self.bare_path()?),
                Some('[') if wants_entry => place.entry = Some(self.quoted_path()?),
                Some('.') if place.steps.is_empty() && self.text.get(self.at + 1) == Some(&'/') => {
                    place.steps = self.pointer();
                }
                Some('.') => {
                    self.at += 1;
                    place.steps.push(PointerStep::Field(self.name()?));
                }
                Some('[') => place.steps.push(self.item()?),
                _ => return Ok(place),
            }
        }
    }

    /// Reads a JSON pointer up to the next space or closing parenthesis.
    fn pointer(&mut self) -> Vec<PointerStep> {
        self.at += 2;
        let text = self.while_is(|c| !c.is_whitespace() && c != ')');
        text.split('/').map(|token| PointerStep::Field(token.replace("~1", "/").replace("~0", "~"))).collect()
    }

    fn item(&mut self) -> Parsed<PointerStep> {
        self.at += 1;
        let step = match self.rest() {
            Some('"') => PointerStep::Field(self.text()?),
            Some(c) if c.is_ascii_digit() => {
                let digits = self.name()?;
                PointerStep::Item(digits.parse().map_err(|_| self.wrong("invalid item number"))?)
            }
            _ => return Err(self.wrong("expected an item number or a name in quotes")),
        };
        self.need("]").map(|()| step)
    }

    fn quoted_path(&mut self) -> Parsed<EntryPath> {
        match self.item()? {
            PointerStep::Field(text) => self.path(&text),
            PointerStep::Item(_) => Err(self.wrong("files have paths in quotes, not numbers")),
        }
    }

    /// Reads a path up to the next space or closing parenthesis.
    fn bare_path(&mut self) -> Parsed<EntryPath> {
        self.at += 1;
        let start = self.at;
        let text = self.while_is(|c| !c.is_whitespace() && c != ')');
        if text.starts_with('/') {
            return self.path(&text);
        }
        Err(wrong_at(start + 1, "expected a path that begins with `/`, as in VirtualFileSystem./a.txt"))
    }

    fn path(&self, text: &str) -> Parsed<EntryPath> {
        let path = EntryPath::lookup(text).map_err(|error| self.wrong(error.to_string()))?;
        if path.is_root() { Err(self.wrong("`/` is no entry; use count(VirtualFileSystem)")) } else { Ok(path) }
    }
}

/// Returns the reason of a regular expression's error: the last line, since the others draw the expression.
pub fn regex_error(error: &impl std::fmt::Display) -> String {
    let error = error.to_string();
    let last = error.lines().last().unwrap_or_default();
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-')
}
