//! Splits shell text into simple commands of words: in one pass, without recursion, and without fail.
//!
//! It follows nothing. What is more than simple commands, joined, is noted as not plain, and split all the same, so that
//! what it holds can be compared with what is denied.

use super::words::{Function, Redirect, RedirectKind, Script, Simple, Word, is_name, marker, unmarked};

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
    /// Character that closes each open substitution and subshell, and whether it stands in quotes.
    open: Vec<(char, bool)>,
    braces: usize,
    /// The functions whose bodies are open.
    bodies: Vec<usize>,
    /// The next command reads this one.
    upstream: Option<usize>,
    /// An operator wants a command.
    wants: bool,
    pending: Vec<Pending>,
}

impl Script {
    /// Splits a text.
    pub(super) fn read(text: &str) -> Self {
        Reader { rest: text, ..Reader::default() }.all()
    }

    /// Splits what a shell finds to expand in the body of a here-document.
    pub(super) fn read_body(text: &str) -> Self {
        Reader { rest: text, double: true, is_body: true, ..Reader::default() }.all()
    }
}

impl Reader<'_> {
    fn all(mut self) -> Script {
        while let Some(c) = self.take() {
            if self.double { self.in_double(c) } else { self.plainly(c) }
        }
        self.odd_if(self.double != self.is_body || !self.open.is_empty(), "something is opened and never closed");
        self.end_command(Join::End);
        self.odd_if(self.wants || !self.pending.is_empty(), "it ends too early");
        self.script
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

    fn plainly(&mut self, c: char) {
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
            '$' => self.dollar(),
            '`' => self.tick(),
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
            '&' if self.takes(">") => {
                self.end_word();
                self.command.both = Some(self.command.words.len());
                self.redirect('>');
            }
            '&' if self.takes("&") => self.operator(Join::List),
            '&' => self.end_command(Join::Background),
            '|' => {
                let join = if self.takes("|") { Join::List } else { Join::Pipe };
                self.takes("&");
                self.operator(join);
            }
            '<' | '>' if self.takes("(") => self.enter(')'),
            '<' | '>' => {
                let is_fd = |word: &Word| word.is_bare() && word.text.chars().all(|c| c.is_ascii_digit());
                match self.word.as_ref().is_some_and(is_fd) && self.redirect.is_none() {
                    true => self.word = None,
                    false => self.end_word(),
                }
                self.redirect(c);
            }
            '(' => self.parenthesis(),
            ')' => self.leave(')'),
            '~' => self.tilde(),
            '*' => self.word().push(marker::STAR),
            '?' => self.word().push(marker::QUERY),
            '[' if !begins || !self.rest.starts_with([' ', '\t', '[']) => self.word().push(marker::BRACKET),
            '{' if self.takes("}") => "{}".chars().for_each(|c| self.word().push_bare(c)),
            '{' if !begins || !self.rest.starts_with([' ', '\t', '\n']) => self.word().push(marker::BRACE),
            c if marker::is(c) => {
                self.odd("an unknown text");
                self.word().push(marker::UNKNOWN);
            }
            c => self.word().push_bare(c),
        }
    }

    fn single(&mut self) {
        let end = self.rest.find('\'').unwrap_or(self.rest.len());
        let text = &self.rest[..end];
        self.word.get_or_insert_default().text.extend(text.chars().map(unmarked));
        self.skip(end);
        let closed = self.take().is_some();
        self.odd_if(!closed, "a quote is never closed");
    }

    fn in_double(&mut self, c: char) {
        match c {
            '"' if !self.is_body || !self.open.is_empty() => self.double = false,
            '\\' if self.takes("\n") => {}
            '\\' if self.rest.starts_with(['$', '`', '"', '\\']) => {
                let c = self.take().unwrap_or(c);
                self.word().push(c);
            }
            '$' => self.dollar(),
            '`' => self.tick(),
            c => {
                self.odd_if(marker::is(c), "an unknown text");
                self.word().push(unmarked(c));
            }
        }
    }

    /// Reads what is behind a `$`.
    fn dollar(&mut self) {
        let end = self.rest.find(|c| !is_name(c)).unwrap_or(self.rest.len());
        match self.rest.chars().next().unwrap_or(' ') {
            '(' => {
                self.skip(1);
                self.enter(')');
            }
            '{' => self.parameter(),
            c @ ('\'' | '"' | '[') if !self.double => {
                self.odd("`$'`, `$\"` or `$[`");
                self.word().push(marker::UNKNOWN);
                if c == '\'' {
                    self.skip(1);
                    // What it stands for is not looked at; a quote in it may be escaped.
                    while self.take().is_some_and(|c| c != '\'' && (c != '\\' || self.take().is_some())) {}
                }
            }
            c if c.is_ascii_digit() || "@*#?-$!".contains(c) => {
                self.skip(1);
                self.word().push(marker::UNKNOWN);
            }
            _ if end > 0 => {
                let mark = mark_of(&self.rest[..end]);
                self.skip(end);
                self.word().push(mark);
            }
            c => {
                self.odd_if(matches!(c, '\\' | '['), "a `$` before a backslash or bracket");
                self.word().push('$');
            }
        }
    }

    /// Reads `${NAME}`, perhaps with a literal word for when it is empty, or the beginning of something else.
    fn parameter(&mut self) {
        let is_literal = |c: char| c.is_ascii_alphanumeric() || "_-./:@%#+?,*".contains(c);
        let inner = &self.rest[1..];
        let inner = &inner[..inner.find(|c| !is_literal(c)).unwrap_or(inner.len())];
        let length = usize::from(inner.starts_with('#') && inner.len() > 1);
        let name = length + inner[length..].find(|c| !is_name(c)).unwrap_or(inner.len() - length);
        let name = if name == 0 && inner.starts_with(['@', '*', '?', '-']) { 1 } else { name };
        let is_known =
            |rest: &str| rest.is_empty() || rest.trim_start_matches(':').starts_with(['-', '+', '?', '#', '%']);
        let closed = self.rest[1 + inner.len()..].starts_with('}');
        let is_plain = closed && name > 0 && is_known(&inner[name..]) && !inner[name..].starts_with("::");
        let (name, rest) = inner.split_at(name);
        let word: String = rest.trim_start_matches([':', '-', '+', '?', '=']).to_owned();
        let mark = if rest.is_empty() && is_plain { mark_of(name) } else { marker::UNKNOWN };
        self.odd_if(!is_plain || inner.contains('*'), "an expansion with more than a name");
        // What follows a name that is not plain is split as it comes.
        self.skip(if is_plain { inner.len() + 2 } else { 1 + name.len() });
        self.word().push(mark);
        if is_plain && !word.is_empty() {
            [marker::BRACE.to_string(), word, marker::UNKNOWN.to_string()]
                .iter()
                .for_each(|part| self.word().text.push_str(part));
        }
    }

    fn tick(&mut self) {
        match self.open.iter().any(|&(closes, _)| closes == '`') {
            true => self.leave('`'),
            false => self.enter('`'),
        }
    }

    /// Ends the command before, and begins one inside, whose output is a word of the one before.
    fn enter(&mut self, closes: char) {
        self.odd("a substitution");
        self.word().push(marker::OUTPUT);
        let double = std::mem::take(&mut self.double);
        self.end_command(Join::List);
        self.open.push((closes, double));
    }

    /// Ends a substitution or a subshell; the words behind it are split as a command of their own.
    fn leave(&mut self, closes: char) {
        self.odd("a `)` or a backtick");
        self.end_command(Join::End);
        let at = self.open.iter().rposition(|&(open, _)| open == closes);
        if let Some((_, double)) = at.and_then(|at| self.open.drain(at..).next()) {
            self.double = double;
        }
        self.end_functions();
    }

    /// Begins a subshell, or a function.
    fn parenthesis(&mut self) {
        self.end_word();
        self.odd("a subshell or a function");
        let blank = self.rest.len() - self.rest.trim_start_matches([' ', '\t']).len();
        let named = self.command.words.first().is_some_and(|word| word == "function");
        if self.command.words.len() == 1 + usize::from(named) && self.rest[blank..].starts_with(')') {
            self.skip(blank + 1);
            self.begin_function();
            return;
        }
        self.end_command(Join::List);
        self.open.push((')', false));
    }

    fn begin_function(&mut self) {
        let name = std::mem::take(&mut self.command).words.pop().unwrap_or_default();
        let (start, depth) = (self.script.commands.len(), self.open.len() + self.braces);
        self.bodies.push(self.script.functions.len());
        self.script.functions.push(Function { name, start, end: None, depth });
    }

    /// Ends the functions whose body is closed here.
    fn end_functions(&mut self) {
        let (all, depth) = (self.script.commands.len(), self.open.len() + self.braces);
        while let Some(&at) = self.bodies.last().filter(|&&at| self.script.functions[at].depth >= depth) {
            self.script.functions[at].end = Some(all);
            self.bodies.pop();
        }
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
        let Some(Word { text, bare }) = self.word.take() else { return };
        let is_bare = bare == text.len();
        if let Some(kind) = self.redirect.take() {
            if let RedirectKind::Document(strips) = kind {
                self.odd_if(text.chars().any(marker::is), "a here-document whose end is not plain");
                let (end, redirect) = (text.clone(), self.command.redirects.len());
                self.pending.push(Pending { end, strips, quoted: !is_bare, redirect, command: None });
            }
            return self.command.redirects.push(Redirect { kind, target: text });
        }
        let words = &self.command.words;
        let is_function = words.len() == 2 && words[0] == "function";
        let begins = words.is_empty() && self.command.assignments.is_empty();
        match text.as_str() {
            "{" if is_bare && is_function => {
                self.begin_function();
                self.braces += 1;
            }
            "!" if is_bare && begins => {}
            "{" | "}" if is_bare && begins => {
                self.odd("a group in braces");
                self.braces = if text == "{" { self.braces + 1 } else { self.braces.saturating_sub(1) };
                self.end_functions();
            }
            "if" | "then" | "elif" | "else" | "fi" | "while" | "until" | "do" | "done" | "esac" | "coproc"
                if is_bare && begins =>
            {
                self.odd("a compound command");
            }
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
            let sinks = command.redirects.last().is_none_or(|redirect| redirect.target == "/dev/null");
            let differs = command.both.is_some_and(|both| both == 0 || both < command.words.len() || !sinks);
            self.odd_if(differs, "`&>`, which shells read in two ways");
            command.upstream = self.upstream.take();
            command.background = join == Join::Background;
            command.piped = join == Join::Pipe || !self.open.is_empty();
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

/// Returns the mark of a variable's value.
fn mark_of(name: &str) -> char {
    match name {
        "HOME" => marker::HOME,
        "IFS" => marker::BRACE,
        _ => marker::UNKNOWN,
    }
}
