//! Splits shell text into simple commands, in one pass without recursion or errors. Parses only simple commands and
//! their joins. All other syntax is marked as not plain, but still split for the comparison with the deny list.

use super::words::{RedirectKind, Simple, SplitScript, Word, is_name, marker, unmarked};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Join {
    Pipe,
    /// `&&` and `||`.
    Logic,
    List,
    Background,
    End,
}

#[derive(Default)]
struct Tokenizer<'t> {
    script: SplitScript,
    rest: &'t str,
    command: Simple,
    word: Option<Word>,
    redirect: Option<RedirectKind>,
    double: bool,
    /// The closing character of each open substitution or subshell; true if it was opened in quotes.
    open: Vec<(char, bool)>,
    braces: usize,
    /// The names and depths of the functions with open bodies.
    functions: Vec<(String, usize)>,
    pipes: bool,
    /// True if the line has a `&>`, which shells read in two ways.
    has_both: bool,
    wants: bool,
    line: usize,
}

impl SplitScript {
    pub(super) fn read(text: &str) -> Self {
        let mut reader = Tokenizer { rest: text, ..Tokenizer::default() };
        while let Some(c) = reader.take() {
            if reader.double { reader.in_double(c) } else { reader.plainly(c) }
        }
        reader.odd_if(reader.double || !reader.open.is_empty(), "an unclosed quote or parenthesis");
        reader.end_command(Join::End);
        reader.odd_if(reader.wants, "an operator at the end");
        reader.documents();
        reader.script
    }
}

impl Tokenizer<'_> {
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

    /// Skips a text if it is next. Returns true if it was.
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
                None => self.odd("a backslash at the end"),
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
                self.has_both = false;
            }
            '#' if begins => self.skip(self.rest.find('\n').unwrap_or(self.rest.len())),
            ';' => {
                self.odd_if(self.rest.starts_with([';', '&']), "a `case`");
                self.end_command(Join::List);
            }
            '&' if self.takes(">") => self.both(),
            '&' if self.takes("&") => self.end_command(Join::Logic),
            '&' => self.end_command(Join::Background),
            '|' => {
                let join = if self.takes("|") { Join::Logic } else { Join::Pipe };
                self.takes("&");
                self.end_command(join);
            }
            '<' | '>' if self.takes("(") => self.substitute(')'),
            '<' | '>' => self.begin_redirect(c),
            '(' => self.parenthesis(),
            ')' => self.leave(')'),
            '~' => self.tilde(),
            '*' => self.word().push(marker::STAR),
            '?' => self.word().push(marker::QUERY),
            '[' if !begins || !self.rest.starts_with([' ', '\t', '[']) => self.word().push(marker::BRACKET),
            '{' if self.takes("}") => {
                "{}".chars().for_each(|c| self.word().push_bare(c));
                self.word().braces = true;
            }
            ',' if self.word.as_ref().is_some_and(|word| word.braces) => self.word().push(marker::BRACE),
            '{' if !begins || !self.rest.starts_with([' ', '\t', '\n']) => self.word().push(marker::BRACE),
            c if marker::is(c) => {
                self.odd("a private-use character");
                self.word().push(marker::UNKNOWN);
            }
            c => self.word().push_bare(c),
        }
    }

    fn begin_redirect(&mut self, c: char) {
        let is_fd = |word: &Word| word.is_bare() && word.text.chars().all(|c| c.is_ascii_digit());
        let is_named = |text: &str| text.starts_with(marker::BRACE) && text.ends_with('}') && !text.contains(',');
        let named = self.word.as_ref().is_some_and(|word| is_named(&word.text));
        self.odd_if(named, "a redirection that sets a variable");
        match self.word.as_ref().is_some_and(is_fd) && self.redirect.is_none() {
            true => self.word = None,
            false => self.end_word(),
        }
        self.redirect(c);
    }

    fn single(&mut self) {
        let end = self.rest.find('\'').unwrap_or(self.rest.len());
        let text = &self.rest[..end];
        self.word.get_or_insert_default().text.extend(text.chars().map(unmarked));
        self.skip(end);
        let closed = self.take().is_some();
        self.odd_if(!closed, "an unclosed quote");
    }

    fn in_double(&mut self, c: char) {
        match c {
            '"' => self.double = false,
            '\\' if self.takes("\n") => {}
            '\\' if self.rest.starts_with(['$', '`', '"', '\\']) => {
                let c = self.take().unwrap_or(c);
                self.word().push(c);
            }
            '$' => self.dollar(),
            '`' => self.tick(),
            c => {
                self.odd_if(marker::is(c), "a private-use character");
                self.word().push(unmarked(c));
            }
        }
    }

    fn dollar(&mut self) {
        let end = self.rest.find(|c| !is_name(c)).unwrap_or(self.rest.len());
        match self.rest.chars().next().unwrap_or(' ') {
            '(' => {
                self.skip(1);
                self.substitute(')');
            }
            '{' => self.parameter(),
            c @ ('\'' | '"' | '[') if !self.double => {
                self.odd("`$'`, `$\"` or `$[`");
                self.word().push(marker::UNKNOWN);
                if c == '\'' {
                    self.skip(1);
                    // Skip the text. A quote in it may be escaped.
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
                // Not quoted: a here-document with a delimiter that contains `$` is expanded.
                if self.double { self.word().push('$') } else { self.word().push_bare('$') }
            }
        }
    }

    /// Reads `${NAME}`, perhaps with a literal default or pattern, or the beginning of another expansion.
    fn parameter(&mut self) {
        let is_literal = |c: char| is_name(c) || "-./:@%#+?,*".contains(c);
        let inner = &self.rest[1..];
        let inner = &inner[..inner.find(|c| !is_literal(c)).unwrap_or(inner.len())];
        let named = inner.strip_prefix('#').unwrap_or(inner);
        let end = if named.starts_with(['@', '?', '-']) { Some(1) } else { named.find(|c| !is_name(c)) };
        let (name, rest) = named.split_at(end.unwrap_or(named.len()));
        let is_known = rest.is_empty() || rest.trim_start_matches(':').starts_with(['-', '+', '?', '#', '%']);
        let closed = self.rest[1 + inner.len()..].starts_with('}');
        let is_pattern = rest.starts_with(['#', '%']) && rest.contains('*');
        let is_known = is_known && !rest.starts_with("::") && (is_pattern || !rest.contains('*'));
        let is_plain = closed && is_known && !name.is_empty();
        let word = rest.trim_start_matches([':', '-', '+', '?', '=']);
        let text = match rest.is_empty() || (is_plain && rest.trim_start_matches(':').starts_with('?')) {
            true => mark_of(if rest.is_empty() { inner } else { name }).to_string(),
            false if is_pattern && is_plain => format!("{}{}{word}}}", marker::UNKNOWN, marker::BRACE),
            false if is_plain => format!("{0}{1}{word}{0}", marker::UNKNOWN, marker::BRACE),
            false => marker::UNKNOWN.to_string(),
        };
        self.odd_if(!is_plain, "an expansion with more than a name");
        // Text after an unplain name is split like other text.
        self.skip(if is_plain { inner.len() + 2 } else { 1 + inner.len() - rest.len() });
        self.word().text.push_str(&text);
    }

    fn tick(&mut self) {
        match self.open.last() {
            Some(('`', _)) => self.leave('`'),
            _ => self.substitute('`'),
        }
    }

    /// Ends the outer command and begins an inner command. Its output is a word of the outer command.
    fn substitute(&mut self, closes: char) {
        self.word().push(marker::OUTPUT);
        self.enter(closes, "a substitution");
    }

    fn enter(&mut self, closes: char, what: &'static str) {
        self.odd(what);
        let double = std::mem::take(&mut self.double);
        self.end_command(Join::List);
        self.open.push((closes, double));
    }

    /// Ends a substitution or a subshell. The words after it are split as a separate command.
    fn leave(&mut self, closes: char) {
        self.odd("a `)` or a backtick");
        self.end_command(Join::End);
        if let Some((_, double)) = self.open.pop_if(|(open, _)| *open == closes) {
            self.double = double;
        }
        self.end_functions();
    }

    fn parenthesis(&mut self) {
        self.end_word();
        let blank = self.rest.len() - self.rest.trim_start_matches([' ', '\t']).len();
        if self.command.words.is_empty() || !self.rest[blank..].starts_with(')') {
            return self.enter(')', "a subshell");
        }
        self.skip(blank + 1);
        self.begin_function();
    }

    fn begin_function(&mut self) {
        self.odd("a function");
        let name = std::mem::take(&mut self.command).words.pop().unwrap_or_default();
        self.functions.push((name, self.open.len() + self.braces));
        self.script.defines = true;
    }

    fn end_functions(&mut self) {
        while self.functions.pop_if(|(_, depth)| *depth >= self.open.len() + self.braces).is_some() {}
    }

    fn redirect(&mut self, c: char) {
        let kind = match c {
            '<' if self.takes("<<") => RedirectKind::Text,
            '<' if self.takes("<-") => RedirectKind::Document(true, false),
            '<' if self.takes("<") => RedirectKind::Document(false, false),
            _ if self.takes("&") => RedirectKind::Copy,
            '<' if !self.takes(">") => RedirectKind::Read,
            _ => {
                let _ = self.takes(">") || self.takes("|");
                RedirectKind::Write
            }
        };
        let another = self.redirect.replace(kind).is_some();
        self.odd_if(another, "a redirection without a target");
    }

    /// Reads `&>`, which POSIX shells read as `&` and `>`.
    fn both(&mut self) {
        self.end_word();
        let behind = self.rest.trim_start_matches(['>', ' ']).strip_prefix("/dev/null");
        let behind = behind.map(|rest| rest.trim_start_matches(' '));
        let ends = behind.is_some_and(|rest| rest.is_empty() || rest.starts_with(['\n', ';', '|', '&']));
        self.odd_if(!ends, "`&>`, which shells read in two ways");
        if !ends && !std::mem::replace(&mut self.has_both, true) {
            // The command for a POSIX shell. This text also contains the line's next `&>`.
            let line = self.rest.lines().next().unwrap_or_default();
            self.script.steps += line.len();
            self.script.bodies.push(format!(">{line}"));
        }
        self.redirect('>');
    }

    fn tilde(&mut self) {
        if !self.word.as_ref().is_none_or(|word| word.is_bare() && word.text.ends_with(['=', ':'])) {
            return self.word().push_bare('~');
        }
        let mark = if self.rest.starts_with(['+', '-']) { marker::UNKNOWN } else { marker::HOME };
        self.skip(self.rest.find(|c| !is_name(c) && !"-+.".contains(c)).unwrap_or(self.rest.len()));
        self.word().push(mark);
    }

    fn end_word(&mut self) {
        let Some(Word { text, bare, .. }) = self.word.take() else { return };
        let is_bare = bare == text.len();
        let words = &self.command.words;
        let is_function = words.len() == 2 && words[0] == "function";
        let begins = words.is_empty() && self.command.assignments.is_empty();
        match text.as_str() {
            _ if self.redirect.is_some() => self.add_redirect(text, is_bare),
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

    fn add_redirect(&mut self, target: String, is_bare: bool) {
        let Some(kind) = self.redirect.take() else { return };
        let closes = kind == RedirectKind::Copy && target.starts_with('-') && target.len() > 1;
        self.odd_if(closes, "a word directly after `>&-`");
        let is_stream = !target.is_empty() && target.chars().all(|c| c.is_ascii_digit() || c == '-');
        let kind = match kind {
            RedirectKind::Copy if is_stream => return,
            RedirectKind::Copy => RedirectKind::Write,
            RedirectKind::Document(strips, _) => {
                self.odd_if(target.chars().any(marker::is), "a here-document with an expansion in its delimiter");
                RedirectKind::Document(strips, !is_bare)
            }
            kind => kind,
        };
        self.command.redirects.push((kind, target));
    }

    fn add_word(&mut self, text: String, bare: usize) {
        let first = self.command.words.is_empty();
        let is_compound = matches!(text.as_str(), "for" | "case" | "select" | "function" | "[[");
        self.odd_if(first && is_compound, "a compound command");
        let assigned = text.split_once('=').filter(|(name, _)| first && name.len() < bare);
        match assigned.map(|(name, value)| (name.trim_end_matches('+'), value)) {
            Some((name, value))
                if name.starts_with(|c| is_name(c) && !c.is_ascii_digit()) && name.chars().all(is_name) =>
            {
                self.command.assignments.push((name.to_owned(), value.to_owned()));
            }
            _ => self.command.words.push(text),
        }
    }

    fn end_command(&mut self, join: Join) {
        self.end_word();
        let dangling = self.redirect.take().is_some();
        self.odd_if(dangling, "a redirection without a target");
        let mut command = std::mem::take(&mut self.command);
        if command.words.is_empty() && command.assignments.is_empty() && command.redirects.is_empty() {
            self.odd_if(join != Join::End, "an operator without a command");
        } else {
            command.reads = self.pipes;
            command.piped = join == Join::Pipe || !self.open.is_empty();
            let own = self.functions.last().map(|(name, _)| name);
            let is_own = |command: &Simple| own.is_some_and(|own| command.words.first() == Some(own));
            let reads_itself = command.reads && self.script.commands.last().is_some_and(is_own);
            self.script.fork_bomb |= is_own(&command) && (join == Join::Background || reads_itself);
            self.script.commands.push(command);
            (self.pipes, self.wants) = (false, false);
        }
        self.pipes = join == Join::Pipe || (self.pipes && join == Join::End);
        self.wants |= matches!(join, Join::Pipe | Join::Logic);
    }

    fn documents(&mut self) {
        for at in std::mem::replace(&mut self.line, self.script.commands.len())..self.script.commands.len() {
            let mut redirects = std::mem::take(&mut self.script.commands[at].redirects);
            for (kind, target) in &mut redirects {
                if let RedirectKind::Document(strips, quoted) = *kind {
                    (*kind, *target) = (RedirectKind::Text, self.body(target, strips, quoted));
                }
            }
            self.script.commands[at].redirects = redirects;
        }
    }

    fn body(&mut self, end: &str, strips: bool, quoted: bool) -> String {
        let mut body = String::new();
        while !self.rest.is_empty() {
            let line = &self.rest[..self.rest.find('\n').unwrap_or(self.rest.len())];
            self.skip(line.len() + 1);
            let line = if strips { line.trim_start_matches('\t') } else { line };
            if line == end {
                if !quoted && body.contains(['$', '`']) {
                    // Quotes have no meaning in a here-document.
                    self.script.bodies.push(format!("echo \"{}\"", body.replace('"', " ")));
                }
                return body;
            }
            self.odd_if(!quoted && line.ends_with('\\'), "a here-document that joins lines");
            body.extend([line, "\n"]);
        }
        self.odd("an unterminated here-document");
        body
    }
}

fn mark_of(name: &str) -> char {
    match name {
        "HOME" => marker::HOME,
        "IFS" => marker::BRACE,
        _ => marker::UNKNOWN,
    }
}
