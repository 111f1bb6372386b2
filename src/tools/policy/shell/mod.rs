//! Splits shell text into simple commands of words: in one pass, without recursion, and without fail.
//!
//! It follows nothing. What is more than simple commands, joined, is noted as not plain, and split all the same, so that
//! what it holds can be compared with what is denied.

mod expansions;

use super::refusal::Denied;
use super::words::{Word, is_name, marker, unmarked};

/// What is done with the word behind an operator such as `>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RedirectKind {
    Read,
    Write,
    /// `<<<`, and `<<` once its body is known.
    Text,
    /// `>&` and `<&`.
    Copy,
    /// `<<`; whether leading tabs are removed.
    Document(bool),
}

#[derive(Debug)]
pub(super) struct Redirect {
    pub(super) kind: RedirectKind,
    /// A path, or a text.
    pub(super) target: String,
}

/// A simple command.
#[derive(Debug, Default)]
pub(super) struct Simple {
    pub(super) assignments: Vec<(String, String)>,
    pub(super) words: Vec<String>,
    pub(super) redirects: Vec<Redirect>,
    /// The command whose output it reads.
    pub(super) upstream: Option<usize>,
    /// The command that takes its output as a word.
    pub(super) holder: Option<usize>,
    pub(super) background: bool,
    /// Subshells and substitutions around it.
    pub(super) depth: usize,
    /// The words before `&>`, which plain shells read as `&` and `>`.
    pub(super) both: Option<usize>,
}

/// A function with the commands of its body.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) start: usize,
    pub(super) end: Option<usize>,
    depth: usize,
}

/// A text as its commands.
#[derive(Debug, Default)]
pub(super) struct Script {
    pub(super) commands: Vec<Simple>,
    pub(super) functions: Vec<Function>,
    /// Bodies of here-documents in which a shell looks for substitutions.
    pub(super) bodies: Vec<String>,
    /// What of it is not plain, where something is.
    pub(super) unplain: Option<&'static str>,
    /// Characters that were looked at.
    pub(super) steps: usize,
}

/// Words of a command that stand again behind a substitution, and bytes of each.
const WORDS_AGAIN: usize = 3;
const WORD_AGAIN_MAX: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Join {
    Pipe,
    List,
    Background,
    End,
}

/// A here-document that has not begun.
struct Pending {
    end: String,
    strips: bool,
    quoted: bool,
    redirect: usize,
    command: Option<usize>,
}

#[derive(Default)]
struct Reader<'t> {
    script: Script,
    rest: &'t str,
    command: Simple,
    word: Option<Word>,
    redirect: Option<RedirectKind>,
    double: bool,
    is_body: bool,
    /// What closes each substitution and subshell that is open, whether it stands in quotes, and the command that has it.
    open: Vec<(char, bool, Option<usize>)>,
    braces: usize,
    /// The functions whose bodies are open.
    bodies: Vec<usize>,
    /// The next command reads the latest one, or stands in a word of one.
    upstream: Option<usize>,
    /// An operator wants a command.
    wants: bool,
    pending: Vec<Pending>,
}

impl Script {
    /// Splits a text.
    pub(super) fn read(text: &str) -> Result<Self, Denied> {
        Reader { rest: text, ..Reader::default() }.all()
    }

    /// Splits what a shell finds to expand in the body of a here-document.
    pub(super) fn read_body(text: &str) -> Result<Self, Denied> {
        Reader { rest: text, double: true, is_body: true, ..Reader::default() }.all()
    }
}

impl Reader<'_> {
    fn all(mut self) -> Result<Script, Denied> {
        while let Some(c) = self.take() {
            match self.double {
                true => self.in_double(c)?,
                false => self.plainly(c)?,
            }
        }
        self.odd_if(self.double != self.is_body || !self.open.is_empty(), "something is opened and never closed");
        self.end_command(Join::End);
        self.odd_if(self.wants || !self.pending.is_empty(), "it ends too early");
        Ok(self.script)
    }

    fn odd(&mut self, what: &'static str) {
        self.script.unplain.get_or_insert(what);
    }

    fn odd_if(&mut self, is: bool, what: &'static str) {
        if is {
            self.odd(what);
        }
    }

    fn take(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.skip(c.len_utf8());
        Some(c)
    }

    fn skip(&mut self, bytes: usize) {
        self.script.steps += bytes;
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }

    /// Takes a text if it comes next.
    fn takes(&mut self, text: &str) -> bool {
        let found = self.rest.starts_with(text);
        self.skip(if found { text.len() } else { 0 });
        found
    }

    fn word(&mut self) -> &mut Word {
        self.word.get_or_insert_default()
    }

    fn plainly(&mut self, c: char) -> Result<(), Denied> {
        let begins = self.word.is_none();
        match c {
            '\\' => match self.take() {
                Some('\n') => {}
                Some(c) => self.word().push(unmarked(c)),
                None => self.odd("it ends with a backslash"),
            },
            '\'' => self.single(),
            '"' => {
                self.word();
                self.double = true;
            }
            '$' => self.dollar()?,
            '`' => self.tick()?,
            ' ' | '\t' => self.end_word(),
            '\n' => {
                self.end_command(Join::End);
                self.documents();
            }
            '#' if begins => self.skip(self.rest.find('\n').unwrap_or(self.rest.len())),
            ';' => {
                self.odd_if(self.rest.starts_with([';', '&']), "a `case`");
                self.end_command(Join::List);
            }
            '&' if self.rest.starts_with('>') => {
                self.end_word();
                self.command.both = Some(self.command.words.len());
                self.skip(1);
                self.redirect('>');
            }
            '&' => match self.takes("&") {
                true => self.operator(Join::List),
                false => self.end_command(Join::Background),
            },
            '|' => {
                let join = if self.takes("|") { Join::List } else { Join::Pipe };
                self.takes("&");
                self.operator(join);
            }
            '<' | '>' if self.takes("(") => self.enter(')', c == '>')?,
            '<' | '>' => {
                let is_fd = |word: &Word| word.is_bare() && word.text.chars().all(|c| c.is_ascii_digit());
                match self.word.as_ref().is_some_and(is_fd) && self.redirect.is_none() {
                    true => self.word = None,
                    false => self.end_word(),
                }
                self.redirect(c);
            }
            '(' => self.parenthesis()?,
            ')' => self.leave(')'),
            '~' => self.tilde(),
            '*' => self.word().push(marker::STAR),
            '?' => self.word().push(marker::QUERY),
            '[' if !begins || !self.rest.starts_with([' ', '\t', '[']) => self.word().push(marker::BRACKET),
            '{' if self.takes("}") => "{}".chars().for_each(|c| self.word().push_bare(c)),
            '{' if !begins || !self.rest.starts_with([' ', '\t', '\n']) => self.word().push(marker::OPEN),
            ',' => self.word().push(marker::COMMA),
            '}' if !begins => self.word().push(marker::CLOSE),
            c if marker::is(c) => {
                self.odd("an unknown text");
                self.word().push(marker::UNKNOWN);
            }
            c => self.word().push_bare(c),
        }
        Ok(())
    }

    fn single(&mut self) {
        let end = self.rest.find('\'').unwrap_or(self.rest.len());
        let text = &self.rest[..end];
        self.word.get_or_insert_default().text.extend(text.chars().map(unmarked));
        self.skip(end);
        let closed = self.take().is_some();
        self.odd_if(!closed, "a quote is never closed");
    }

    fn in_double(&mut self, c: char) -> Result<(), Denied> {
        match c {
            '"' if !self.is_body || !self.open.is_empty() => self.double = false,
            '\\' if self.takes("\n") => {}
            '\\' if self.rest.starts_with(['$', '`', '"', '\\']) => {
                let c = self.take().unwrap_or(c);
                self.word().push(c);
            }
            '$' => return self.dollar(),
            '`' => return self.tick(),
            c => {
                self.odd_if(marker::is(c), "an unknown text");
                self.word().push(unmarked(c));
            }
        }
        Ok(())
    }

    fn redirect(&mut self, c: char) {
        let kind = match c {
            '<' if self.takes("<<") => RedirectKind::Text,
            '<' if self.takes("<-") => RedirectKind::Document(true),
            '<' if self.takes("<") => RedirectKind::Document(false),
            _ if self.takes("&") => RedirectKind::Copy,
            '<' if !self.takes(">") => RedirectKind::Read,
            _ => {
                let _ = self.takes(">") || self.takes("|");
                RedirectKind::Write
            }
        };
        let another = self.redirect.replace(kind).is_some();
        self.odd_if(another, "a redirection without a word");
    }

    fn tilde(&mut self) {
        let begins = self.word.as_ref().is_none_or(|word| word.is_bare() && word.text.ends_with(['=', ':']));
        let is_user = |c: char| c.is_ascii_alphanumeric() || "_-+.".contains(c);
        let end = self.rest.find(|c| !is_user(c)).unwrap_or(self.rest.len());
        let ends = |c: char| c == '/' || c.is_whitespace() || ";&|<>():".contains(c);
        if !begins || !self.rest[end..].chars().next().is_none_or(ends) {
            return self.word().push('~');
        }
        let mark = if self.rest.starts_with(['+', '-']) { marker::UNKNOWN } else { marker::HOME };
        self.skip(end);
        self.word().push(mark);
    }

    fn end_word(&mut self) {
        let Some(word) = self.word.take() else { return };
        let (is_bare, bare, text) = (word.is_bare(), word.bare, word.settled());
        if let Some(kind) = self.redirect.take() {
            if let RedirectKind::Document(strips) = kind {
                self.odd_if(text.chars().any(marker::is), "a here-document whose end is not plain");
                let (end, redirect) = (text.clone(), self.command.redirects.len());
                self.pending.push(Pending { end, strips, quoted: !is_bare, redirect, command: None });
            }
            return self.command.redirects.push(Redirect { kind, target: text });
        }
        let words = &self.command.words;
        let is_function = words.first().is_some_and(|word| word == "function");
        match text.as_str() {
            "{" if is_bare && words.len() == 2 && is_function => {
                self.begin_function();
                self.braces += 1;
            }
            keyword if words.is_empty() && is_bare && self.command.assignments.is_empty() => match keyword {
                "!" => {}
                "{" | "}" => {
                    self.odd("a group in braces");
                    self.braces = if keyword == "{" { self.braces + 1 } else { self.braces.saturating_sub(1) };
                    self.end_functions();
                }
                "if" | "then" | "elif" | "else" | "fi" | "while" | "until" | "do" | "done" | "esac" | "coproc" => {
                    self.odd("a compound command");
                }
                _ => self.add_word(text, bare),
            },
            _ => self.add_word(text, bare),
        }
    }

    fn add_word(&mut self, text: String, bare: usize) {
        let first = self.command.words.is_empty();
        let is_compound = matches!(text.as_str(), "for" | "case" | "select" | "function" | "[[");
        self.odd_if(first && is_compound, "a compound command");
        let assigned = text.split_once('=').filter(|(name, _)| first && name.len() < bare);
        match assigned.map(|(name, value)| (name.trim_end_matches('+'), value)) {
            Some((name, value)) if !name.is_empty() && name.chars().all(is_name) => {
                self.command.assignments.push((name.to_owned(), value.to_owned()));
            }
            _ => self.command.words.push(text),
        }
    }

    /// Ends a command that needs one behind it.
    fn operator(&mut self, join: Join) {
        self.end_command(join);
        self.wants = true;
    }

    fn end_command(&mut self, join: Join) {
        self.end_word();
        let dangling = self.redirect.take().is_some();
        self.odd_if(dangling, "a redirection without a word");
        let mut command = std::mem::take(&mut self.command);
        let at = self.script.commands.len();
        if !command.words.is_empty() || !command.assignments.is_empty() || !command.redirects.is_empty() {
            let write = command.redirects.last().is_none_or(|redirect| redirect.target == "/dev/null");
            let differs = command.both.is_some_and(|both| both == 0 || both < command.words.len() || !write);
            self.odd_if(differs, "`&>`, which shells read in two ways");
            command.upstream = self.upstream.take();
            command.holder = self.open.last().and_then(|&(.., holder)| holder);
            command.background = join == Join::Background;
            command.depth = self.open.len();
            self.pending.iter_mut().for_each(|pending| pending.command = pending.command.or(Some(at)));
            self.script.steps += self.pending.len();
            self.script.commands.push(command);
            self.wants = false;
        } else {
            self.odd_if(join != Join::End, "an operator without a command");
        }
        match join {
            Join::Pipe => self.upstream = self.script.commands.len().checked_sub(1),
            Join::End if self.wants => {}
            _ => self.upstream = None,
        }
    }

    /// Reads the here-documents that begin on this line.
    fn documents(&mut self) {
        for pending in std::mem::take(&mut self.pending) {
            let mut body = String::new();
            let mut ended = false;
            while !ended && !self.rest.is_empty() {
                let end = self.rest.find('\n').unwrap_or(self.rest.len());
                let line = &self.rest[..end];
                let line = if pending.strips { line.trim_start_matches('\t') } else { line };
                let joins = !pending.quoted && line.ends_with('\\');
                ended = line == pending.end;
                if !ended {
                    body.extend([line, "\n"]);
                }
                self.skip(end + 1);
                self.odd_if(joins, "a here-document that joins lines");
            }
            self.odd_if(!ended, "a here-document that never ends");
            if !pending.quoted && body.contains(['$', '`']) {
                self.script.bodies.push(body.clone());
            }
            let command = pending.command.and_then(|at| self.script.commands.get_mut(at));
            match command.and_then(|command| command.redirects.get_mut(pending.redirect)) {
                Some(redirect) => *redirect = Redirect { kind: RedirectKind::Text, target: body },
                None => self.odd("a here-document inside a command"),
            }
        }
    }
}
