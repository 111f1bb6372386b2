//! Words as the shell would expand them, as far as that is known beforehand.

use std::collections::BTreeMap;
use std::ops::Range;

use super::variables::Variables;
use super::{Command, Piece, RedirectKind, Script, Word, marker};
use crate::tools::policy::refusal::{Denied, Fuel};
use crate::tools::policy::wrappers::is_wrapper;

/// A value beyond this is unknown; so are more words than that from one.
const VALUE_MAX: usize = 16 * 1024;
const FIELDS_MAX: usize = 64;
/// Functions that call each other, as far as they are followed to see whether something is fetched.
const FUNCTIONS_MAX: usize = 4;

/// Programs that fetch something from the network.
pub(in crate::tools::policy) const FETCHERS: [&str; 14] = [
    "GET",
    "aria2c",
    "axel",
    "curl",
    "fetch",
    "ftp",
    "http",
    "https",
    "lwp-download",
    "lwp-request",
    "lynx",
    "nc",
    "wget",
    "wget2",
];

/// Which of its values each variable has.
pub(in crate::tools::policy) type Choice = BTreeMap<String, usize>;

/// Expands the words of a script.
pub(in crate::tools::policy) struct Expansion<'e> {
    pub(in crate::tools::policy) script: &'e Script,
    pub(in crate::tools::policy) variables: &'e Variables,
    pub(in crate::tools::policy) choice: Choice,
}

impl Expansion<'_> {
    /// The words that a word becomes.
    pub(in crate::tools::policy) fn fields(&self, word: &Word, fuel: &mut Fuel) -> Result<Vec<String>, Denied> {
        let raw = self.raw(word, fuel)?;
        let mut fields = Vec::new();
        for expanded in braces(raw, fuel)? {
            let several = expanded.contains(marker::SPLIT);
            for field in expanded.split(marker::SPLIT).filter(|field| !field.is_empty() || !several) {
                fields.push(without_lone_bracket(field));
            }
        }
        fields.retain(|field| word.quoted || !field.is_empty());
        Ok(fields)
    }

    /// All words of a command.
    pub(in crate::tools::policy) fn words(&self, command: &Command, fuel: &mut Fuel) -> Result<Vec<String>, Denied> {
        Ok(self.guessed_words(command, fuel)?.0)
    }

    /// All words of a command, and the place of the first that is a guess.
    pub(in crate::tools::policy) fn guessed_words(
        &self,
        command: &Command,
        fuel: &mut Fuel,
    ) -> Result<(Vec<String>, Option<usize>), Denied> {
        let mut words = Vec::new();
        let mut guess = None;
        for word in &command.words {
            for field in self.fields(word, fuel)? {
                if !field.contains(marker::GUESS) {
                    words.push(field);
                    continue;
                }
                guess = guess.or(Some(words.len()));
                let field = field.replace(marker::GUESS, "");
                if word.quoted || !field.is_empty() {
                    words.push(field);
                }
            }
        }
        Ok((words, guess))
    }

    /// What a word is where it stays one.
    pub(in crate::tools::policy) fn text(&self, word: &Word, fuel: &mut Fuel) -> Result<String, Denied> {
        let raw = self.raw(word, fuel)?;
        let literal = |c: char| match c {
            marker::SPLIT => ' ',
            marker::OPEN => '{',
            marker::COMMA => ',',
            marker::CLOSE => '}',
            c => c,
        };
        Ok(raw.chars().filter(|&c| c != marker::GUESS).map(literal).collect())
    }

    fn raw(&self, word: &Word, fuel: &mut Fuel) -> Result<String, Denied> {
        let mut raw = String::new();
        for piece in &word.pieces {
            match piece {
                Piece::Text(text) => raw.push_str(text),
                Piece::Variable { name, quoted, instead, .. } => {
                    // Whether it is set is not known for sure, so the operand is one more value.
                    let operand = instead.as_ref().filter(|_| self.variables.is_operand(name, &self.choice));
                    let value = match (self.variables.get(name, &self.choice), operand) {
                        (_, Some(operand)) => self.raw(operand, fuel)?,
                        (Some(value), None) => value.to_owned(),
                        (None, None) => marker::UNKNOWN.to_string(),
                    };
                    // `"$@"` falls apart even in quotes.
                    match (name.as_str(), *quoted) {
                        ("@", true) => {
                            raw.push(marker::GUESS);
                            raw.push_str(&value.replace(marker::SPLIT, "\u{f0003}\u{f000a}"));
                        }
                        ("HOME" | "IFS", _) => self.push_value(&mut raw, &value, *quoted),
                        (_, quoted) => self.push_guess(&mut raw, &value, quoted),
                    }
                }
                Piece::Output { commands, quoted } => {
                    let value = self.output(commands, fuel)?;
                    self.push_guess(&mut raw, &value, *quoted);
                }
                Piece::Process(commands) => raw.push(self.unknown(commands, fuel)?),
                Piece::Document(number) => {
                    if let Some(document) = self.script.documents.get(*number) {
                        raw.push_str(&self.raw(document, fuel)?);
                    }
                }
                Piece::Unknown => raw.push(marker::UNKNOWN),
            }
            if raw.len() > VALUE_MAX {
                return Ok(marker::UNKNOWN.to_string());
            }
        }
        fuel.take(raw.len() + 1)?;
        Ok(raw)
    }

    fn push_guess(&self, raw: &mut String, value: &str, quoted: bool) {
        let start = raw.len();
        self.push_value(raw, value, quoted);
        // Each of the words that it becomes is one.
        let guessed = raw.split_off(start).replace(marker::SPLIT, "\u{f0003}\u{f000a}");
        raw.push(marker::GUESS);
        raw.push_str(&guessed);
    }

    fn push_value(&self, raw: &mut String, value: &str, quoted: bool) {
        raw.extend(value.chars().map(|c| match c {
            marker::SPLIT if quoted => ' ',
            c if quoted => c,
            c if c.is_whitespace() || self.variables.separates(c) => marker::SPLIT,
            '*' => marker::STAR,
            '?' => marker::QUERY,
            '[' => marker::BRACKET,
            c => c,
        }));
    }

    /// What commands print, where that is plain; else that it is unknown.
    pub(in crate::tools::policy) fn output(&self, commands: &Range<usize>, fuel: &mut Fuel) -> Result<String, Denied> {
        if let [command] = &self.script.commands[commands.clone()]
            && let Some(text) = self.printed(command, fuel)?
        {
            return Ok(text.trim_end_matches('\n').to_owned());
        }
        Ok(self.unknown(commands, fuel)?.to_string())
    }

    /// What a command prints, if it does nothing else.
    pub(in crate::tools::policy) fn printed(
        &self,
        command: &Command,
        fuel: &mut Fuel,
    ) -> Result<Option<String>, Denied> {
        let words = self.words(command, fuel)?;
        let Some((program, arguments)) = words.split_first() else { return Ok(None) };
        match base_name(program) {
            "echo" | "yes" => Ok(Some(echoed(arguments))),
            "printf" => Ok(Some(formatted(arguments))),
            "cat" | "tee" => {
                let given = command.redirects.iter().find(|redirect| redirect.kind == RedirectKind::Text);
                given.map(|redirect| self.text(&redirect.target, fuel)).transpose()
            }
            _ => Ok(None),
        }
    }

    fn unknown(&self, commands: &Range<usize>, fuel: &mut Fuel) -> Result<char, Denied> {
        for command in &self.script.commands[commands.clone()] {
            if self.fetches(command, fuel)? {
                return Ok(marker::FETCHED);
            }
        }
        Ok(marker::UNKNOWN)
    }

    /// Whether a command brings something from the network.
    pub(in crate::tools::policy) fn fetches(&self, command: &Command, fuel: &mut Fuel) -> Result<bool, Denied> {
        self.fetches_by(command, FUNCTIONS_MAX, fuel)
    }

    /// The same, with so many functions that may call each other.
    fn fetches_by(&self, command: &Command, functions: usize, fuel: &mut Fuel) -> Result<bool, Denied> {
        let words = self.words(command, fuel)?;
        let Some(name) = words.first() else { return Ok(false) };
        let program = base_name(name);
        let mut others = words.iter().skip(1);
        // What it runs may be text in which the fetcher is one word of many.
        let in_text = |word: &String| word.split(|c: char| " \t\n;&|()`'\"".contains(c)).any(is_fetcher);
        let runs_others = is_wrapper(program) || program == "eval";
        if is_fetcher(program)
            || program.contains(marker::FETCHED)
            || (runs_others && others.clone().any(in_text))
            || (matches!(program, "echo" | "printf") && others.any(|word| word.contains(marker::FETCHED)))
        {
            return Ok(true);
        }
        let called = self.script.functions.iter().filter(|function| functions > 0 && function.name == *name);
        for command in called.flat_map(|function| &self.script.commands[function.body.clone()]) {
            if self.fetches_by(command, functions - 1, fuel)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn is_fetcher(word: &str) -> bool {
    FETCHERS.contains(&base_name(word))
}

/// The part of a path after the last slash.
pub(in crate::tools::policy) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// A `[` that nothing closes is no pattern.
fn without_lone_bracket(field: &str) -> String {
    match field.contains(marker::BRACKET) && !field.contains(']') {
        true => field.replace(marker::BRACKET, "["),
        false => field.to_owned(),
    }
}

fn echoed(arguments: &[String]) -> String {
    let is_flag =
        |word: &&String| word.len() > 1 && word.starts_with('-') && word[1..].chars().all(|c| "neE".contains(c));
    let flags = arguments.iter().take_while(is_flag).count();
    unescaped(&marker::written(&arguments[flags..].join(" ")))
}

fn formatted(arguments: &[String]) -> String {
    let arguments = if arguments.first().is_some_and(|word| word == "--") { &arguments[1..] } else { arguments };
    let Some((format, values)) = arguments.split_first() else { return String::new() };
    let mut values = values.iter();
    let mut text = String::new();
    let mut format = format.chars().peekable();
    while let Some(c) = format.next() {
        match (c, format.peek()) {
            ('%', Some('s' | 'b' | 'c' | 'd' | 'q')) => {
                format.next();
                text.push_str(values.next().map_or("", String::as_str));
            }
            _ => text.push(c),
        }
    }
    for value in values {
        text.push(' ');
        text.push_str(value);
    }
    unescaped(&marker::written(&text))
}

/// Text with its backslash sequences read.
fn unescaped(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::new();
    let mut at = 0;
    while let Some(&c) = chars.get(at) {
        at += 1;
        if c != '\\' {
            out.push(c);
            continue;
        }
        let kind = chars.get(at).copied();
        at += 1;
        let (radix, most) = match kind {
            Some('n') => {
                out.push('\n');
                continue;
            }
            Some('t') => {
                out.push('\t');
                continue;
            }
            Some('x') => (16, 2),
            Some('0'..='7') => {
                at -= 1;
                (8, 4)
            }
            Some(c) => {
                out.extend(['\\', c].iter().skip(usize::from(c == '\\')));
                continue;
            }
            None => break,
        };
        let digits = chars[at.min(chars.len())..].iter().take(most).map_while(|c| c.to_digit(radix));
        let digits: Vec<u32> = digits.collect();
        at += digits.len();
        let value = digits.iter().fold(0_u32, |value, digit| value * radix + digit);
        out.extend(char::from_u32(value).filter(|&c| c != '\0'));
    }
    out
}

/// Expands `{a,b}`.
fn braces(raw: String, fuel: &mut Fuel) -> Result<Vec<String>, Denied> {
    let mut left = vec![raw];
    let mut done = Vec::new();
    while let Some(text) = left.pop() {
        fuel.take(text.len() / 4 + 1)?;
        match first_group(&text) {
            Some((start, commas, end)) => {
                let width = marker::COMMA.len_utf8();
                let mut from = start + width;
                for to in commas.iter().copied().chain([end]) {
                    left.push(format!("{}{}{}", &text[..start], &text[from..to], &text[end + width..]));
                    from = to + width;
                }
            }
            None => done.push(text),
        }
        if left.len() + done.len() > FIELDS_MAX {
            return Ok(vec![marker::UNKNOWN.to_string()]);
        }
    }
    let literal = |c: char| match c {
        marker::OPEN => '{',
        marker::COMMA => ',',
        marker::CLOSE => '}',
        c => c,
    };
    // The last alternative was taken first.
    done.reverse();
    Ok(done.into_iter().map(|text| text.chars().map(literal).collect()).collect())
}

/// The leftmost braces that hold alternatives: where they open, their commas, where they close.
fn first_group(text: &str) -> Option<(usize, Vec<usize>, usize)> {
    let mut open: Vec<(usize, Vec<usize>)> = Vec::new();
    let mut first: Option<(usize, Vec<usize>, usize)> = None;
    for (at, c) in text.char_indices() {
        match c {
            marker::OPEN => open.push((at, Vec::new())),
            marker::COMMA => open.iter_mut().last().into_iter().for_each(|(_, commas)| commas.push(at)),
            marker::CLOSE => {
                let Some((start, commas)) = open.pop() else { continue };
                if !commas.is_empty() && first.as_ref().is_none_or(|(earlier, ..)| start < *earlier) {
                    first = Some((start, commas, at));
                }
            }
            _ => {}
        }
    }
    first
}
