//! Looks at every program that a command may run.

use super::bomb::has_fork_bomb;
use super::danger::{Program, Verdict, judge};
use super::interpreters::code_of;
use super::paths::{Whole, is_disk, is_sink, tidied, whole};
use super::refusal::{Denied, Fuel, check_depth};
use super::rule::DenyRule;
use super::shell::{Command, Expansion, Piece, Reading, RedirectKind, Script, Variables, Word, base_name, marker};
use super::wrappers::{Runs, is_shell, is_stdin, runs};

type Judged<T> = Result<T, Denied>;

/// Looks at a command and gathers what would have to be allowed.
pub(super) struct Judge<'p> {
    rules: &'p [DenyRule],
    fuel: Fuel,
    /// Relative paths may begin at `/` or at home.
    at_whole: bool,
    /// The programs found.
    pub(super) found: Vec<Found>,
    /// Something was not understood, so `found` may lack programs.
    unclear: bool,
    /// A function stood for a program; something takes functions or variables back.
    calls_function: bool,
    unsets: bool,
}

/// A program that a command runs.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) words: Vec<String>,
    /// Its output goes to a file.
    pub(super) writes: bool,
}

/// What a program can read.
#[derive(Clone, Debug, Default)]
struct Input {
    /// Texts that are known.
    texts: Vec<String>,
    /// Comes from the network.
    fetched: bool,
    /// Is a list of what is below `/` or home.
    whole: bool,
    zero: bool,
}

/// Where a program runs.
#[derive(Clone)]
struct Place<'v> {
    input: Input,
    writes: bool,
    reading: Reading,
    variables: &'v Variables,
    depth: usize,
}

impl<'p> Judge<'p> {
    pub(super) fn new(rules: &'p [DenyRule], chars: usize) -> Self {
        Self {
            rules,
            fuel: Fuel::for_chars(chars),
            at_whole: false,
            found: Vec::new(),
            unclear: false,
            calls_function: false,
            unsets: false,
        }
    }

    /// Whether more may run than what was found.
    pub(super) fn is_unclear(&self) -> bool {
        self.unclear || (self.calls_function && self.unsets)
    }

    /// Looks at shell text.
    pub(super) fn text(&mut self, text: &str, reading: Reading) -> Judged<()> {
        self.script(text, reading, Variables::with_arguments(&[]), &Input::default(), 0)
    }

    /// Looks at a program and its arguments.
    pub(super) fn arguments(&mut self, words: &[String]) -> Judged<()> {
        let variables = Variables::with_arguments(&[]);
        let input = Input::default();
        // Nobody expands it here, but nobody means it otherwise either.
        let home = |word: &String| match word.strip_prefix('~') {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("{}{rest}", marker::HOME),
            _ => word.chars().map(|c| if marker::is(c) { marker::UNKNOWN } else { c }).collect(),
        };
        let words: Vec<String> = words.iter().map(home).collect();
        let place = Place { input, writes: false, reading: Reading::Posix, variables: &variables, depth: 0 };
        self.program(&words, None, &place)
    }

    fn script(
        &mut self,
        text: &str,
        reading: Reading,
        mut variables: Variables,
        outer: &Input,
        depth: usize,
    ) -> Judged<()> {
        let script = Script::read(text, reading, depth, &mut self.fuel)?;
        self.unclear |= script.unclear || text.contains([marker::UNKNOWN, marker::FETCHED]);
        variables.learn(&script, &mut self.fuel)?;
        let expansion = Expansion { script: &script, variables: &variables, choice: Default::default() };
        if self.rules.contains(&DenyRule::ForkBomb) && has_fork_bomb(&expansion, &mut self.fuel)? {
            return Err(Denied("it defines a function that starts itself over and over (a fork bomb)".to_owned()));
        }
        for (index, command) in script.commands.iter().enumerate() {
            let (choices, all) = variables.choices(command, &script, &mut self.fuel)?;
            self.unclear |= !all;
            for choice in choices {
                let expansion = Expansion { script: &script, variables: &variables, choice };
                self.command(index, command, &expansion, Around { outer, reading, depth })?;
            }
        }
        Ok(())
    }

    fn command(
        &mut self,
        index: usize,
        command: &Command,
        expansion: &Expansion<'_>,
        around: Around<'_>,
    ) -> Judged<()> {
        let (words, guess) = expansion.guessed_words(command, &mut self.fuel)?;
        let writes = self.writes(command, expansion)?;
        if words.is_empty() && writes {
            self.found.push(Found { words: vec![">".to_owned()], writes });
        }
        let input =
            match words.iter().any(|word| reads_input(base_name(word))) || words.iter().any(|w| !marker::none_in(w)) {
                true => self.input(command, expansion, around.outer)?,
                false => Input::default(),
            };
        let assigned = command.assignments.iter().map(|(name, _)| name.as_str());
        self.unclear |= assigned.into_iter().any(changes_programs);
        let (reading, depth) = (around.reading, around.depth);
        let place = Place { input, writes, reading, variables: expansion.variables, depth };
        for (_, word) in &command.assignments {
            let value = expansion.text(word, &mut self.fuel)?;
            self.unclear |= holds_subscript(&value);
        }
        if guess != Some(0) && is_call_of_function(&words, index, expansion.script) {
            self.calls_function = true;
            return self.rules(&words, &place);
        }
        self.program(&words, guess, &place)
    }

    /// Checks where a command writes to; tells whether that is a file.
    fn writes(&mut self, command: &Command, expansion: &Expansion<'_>) -> Judged<bool> {
        let mut writes = false;
        for redirect in command.redirects.iter().filter(|redirect| redirect.kind == RedirectKind::Write) {
            let path = expansion.text(&redirect.target, &mut self.fuel)?;
            if is_disk(&path) && self.rules.contains(&DenyRule::WriteToDisk) {
                return Err(Denied(format!("it would write to a disk's device file, {}", marker::written(&path))));
            }
            writes |= !is_sink(&path);
        }
        Ok(writes)
    }

    /// What a command can read, from all that is connected to it.
    fn input(&mut self, command: &Command, expansion: &Expansion<'_>, outer: &Input) -> Judged<Input> {
        let mut input = outer.clone();
        for redirect in &command.redirects {
            let text = expansion.text(&redirect.target, &mut self.fuel)?;
            match redirect.kind {
                RedirectKind::Text => {
                    input.fetched |= text.contains(marker::FETCHED);
                    input.texts.push(text);
                }
                RedirectKind::Read => {
                    input.fetched |= text.contains(marker::FETCHED);
                    input.zero |= tidied(&text) == "/dev/zero";
                }
                RedirectKind::Write => {}
            }
        }
        let targets = command.redirects.iter().map(|redirect| &redirect.target);
        let inner = command.words.iter().chain(targets).flat_map(processes);
        for range in command.upstream.iter().cloned().chain(inner) {
            for source in &expansion.script.commands[range] {
                input.fetched |= expansion.fetches(source, &mut self.fuel)?;
                input.texts.extend(expansion.printed(source, &mut self.fuel)?);
                input.whole |= self.lists_whole(source, expansion)?;
            }
        }
        Ok(input)
    }

    fn lists_whole(&mut self, command: &Command, expansion: &Expansion<'_>) -> Judged<bool> {
        let words = expansion.words(command, &mut self.fuel)?;
        let Some((program, arguments)) = words.split_first() else { return Ok(false) };
        let is_whole = |word: &String| whole(word, false) == Whole::Yes;
        Ok(matches!(base_name(program), "find" | "ls") && arguments.iter().any(is_whole))
    }

    /// Looks at a program and at what it runs in turn. A guess is the place of the first word that is one.
    fn program(&mut self, words: &[String], guess: Option<usize>, place: &Place<'_>) -> Judged<()> {
        check_depth(place.depth)?;
        let Some((program, arguments)) = words.split_first() else {
            self.unclear |= guess.is_some();
            return Ok(());
        };
        self.rules(words, place)?;
        self.found.push(Found { words: words.to_vec(), writes: place.writes });
        // Home is known well enough; what else is marked may be any program.
        self.unclear |= program.starts_with('~') || !marker::none_in(&program.replace(marker::HOME, ""));
        self.unclear |= guess == Some(0);
        let known = program.replace(marker::UNKNOWN, "");
        let name = base_name(&known);
        self.places(name, arguments);
        self.builtin(name, arguments);
        self.interpreter(name, arguments, place)?;
        for run in runs(name, arguments, place.reading) {
            let place = Place { depth: place.depth + 1, ..place.clone() };
            match run {
                Runs::Words(inner) => self.wrapped(name, words, inner, guess, &place)?,
                run => {
                    self.unclear |= guess.is_some() && matches!(run, Runs::Text { .. });
                    self.run(run, place)?;
                }
            }
        }
        Ok(())
    }

    /// Notes what a shell's own commands may change.
    fn builtin(&mut self, name: &str, arguments: &[String]) {
        self.unsets |= name == "unset";
        if matches!(name, "env" | "export" | "sudo" | "declare" | "typeset" | "readonly" | "local") {
            let names = arguments.iter().filter_map(|word| word.split_once('=')).map(|(name, _)| name);
            self.unclear |= names.into_iter().any(changes_programs);
        }
        let evaluates = matches!(
            name,
            "[" | "[["
                | "declare"
                | "export"
                | "let"
                | "local"
                | "printf"
                | "read"
                | "readonly"
                | "test"
                | "typeset"
                | "unset"
        );
        self.unclear |= evaluates && arguments.iter().any(|word| holds_subscript(word));
    }

    /// Looks at the program that a wrapper runs.
    fn wrapped(
        &mut self,
        name: &str,
        words: &[String],
        mut inner: Vec<String>,
        guess: Option<usize>,
        place: &Place<'_>,
    ) -> Judged<()> {
        let offset = words.len() - inner.len().min(words.len());
        let guess = match name {
            // Its programs stand in the midst of its words.
            "find" => guess.map(|_| 0),
            _ => guess.map(|guess| guess.saturating_sub(offset)),
        };
        if name == "xargs" {
            let fetched = place.input.fetched && self.rules.contains(&DenyRule::RunFetched);
            if fetched && inner.iter().any(|word| is_shell(base_name(word))) {
                return Err(Denied(RUNS_FETCHED.to_owned()));
            }
            let given = place.input.texts.iter().flat_map(|text| text.split_whitespace());
            inner.extend(given.map(str::to_owned));
            self.fuel.take(inner.len())?;
        }
        self.program(&inner, guess, place)
    }

    fn run(&mut self, run: Runs, place: Place<'_>) -> Judged<()> {
        let fetched = self.rules.contains(&DenyRule::RunFetched);
        match run {
            Runs::Words(words) => self.program(&words, None, &place),
            Runs::Text { text, reading, arguments, same_shell } => {
                if fetched && text.contains(marker::FETCHED) {
                    return Err(Denied(RUNS_FETCHED.to_owned()));
                }
                let variables = match same_shell {
                    true => place.variables.clone(),
                    false => place.variables.inherited(&arguments),
                };
                self.script(&text, reading, variables, &place.input, place.depth)
            }
            Runs::Stdin(reading) => self.stdin(reading, &place),
            Runs::File(path) if is_stdin(&path) => self.stdin(place.reading, &place),
            Runs::File(path) => {
                let reads_process = path.contains([marker::UNKNOWN, marker::FETCHED]);
                match reads_process {
                    true => self.stdin(place.reading, &place),
                    false => Ok(()),
                }
            }
            Runs::Unclear => {
                self.unclear = true;
                Ok(())
            }
        }
    }

    /// Looks at the commands that a shell reads.
    fn stdin(&mut self, reading: Reading, place: &Place<'_>) -> Judged<()> {
        if place.input.fetched && self.rules.contains(&DenyRule::RunFetched) {
            return Err(Denied(RUNS_FETCHED.to_owned()));
        }
        self.unclear = true;
        for text in &place.input.texts {
            let variables = place.variables.inherited(&[]);
            self.script(&marker::written(text), reading, variables, &Input::default(), place.depth)?;
        }
        Ok(())
    }

    fn interpreter(&mut self, name: &str, arguments: &[String], place: &Place<'_>) -> Judged<()> {
        let Some(code) = code_of(name, arguments) else { return Ok(()) };
        let fetched =
            code.iter().any(|code| code.contains(marker::FETCHED)) || (code.is_empty() && place.input.fetched);
        match fetched && self.rules.contains(&DenyRule::RunFetched) {
            true => Err(Denied(RUNS_FETCHED.to_owned())),
            false => Ok(()),
        }
    }

    fn rules(&mut self, words: &[String], place: &Place<'_>) -> Judged<()> {
        self.fuel.take(words.len() + 1)?;
        let Some(program) = words.first() else { return Ok(()) };
        if program.contains(marker::FETCHED) && self.rules.contains(&DenyRule::RunFetched) {
            return Err(Denied(RUNS_FETCHED.to_owned()));
        }
        let known: Vec<String> = match words.iter().all(|word| marker::none_in(word)) {
            true => words.to_vec(),
            false => words.iter().enumerate().map(|(at, word)| without_unknown(at, word)).collect(),
        };
        let program = Program {
            name: base_name(known.first().map_or("", String::as_str)),
            words: &known,
            at_whole: self.at_whole,
            fed_whole: place.input.whole,
            reads_zero: place.input.zero,
        };
        for rule in self.rules {
            match judge(rule, &program) {
                Verdict::Denied(reason) => {
                    let line = words.iter().map(|word| shown(word)).collect::<Vec<_>>().join(" ");
                    return Err(Denied(format!("{reason}: {}", cut(&line))));
                }
                Verdict::Unsure => self.unclear = true,
                Verdict::Fine => {}
            }
        }
        Ok(())
    }

    /// Keeps up with where relative paths begin.
    fn places(&mut self, name: &str, arguments: &[String]) {
        if matches!(name, "cd" | "pushd") {
            let target = arguments.iter().find(|word| !word.starts_with('-') || *word == "-");
            self.at_whole = target.is_none_or(|path| whole(path, self.at_whole) == Whole::Yes);
        }
    }
}

/// What surrounds a command.
#[derive(Clone, Copy)]
struct Around<'a> {
    outer: &'a Input,
    reading: Reading,
    depth: usize,
}

const RUNS_FETCHED: &str = "it would run what it has just fetched from the network; save it, look at it, then run it";

/// Whether what a program does depends on what it reads.
fn reads_input(name: &str) -> bool {
    is_shell(name)
        || matches!(name, "xargs" | "source" | "." | "dd" | "parallel" | "rm" | "chmod" | "chown" | "chgrp")
        || code_of(name, &[]).is_some()
}

/// Whether a variable decides which programs run, or what they load.
fn changes_programs(name: &str) -> bool {
    const NAMES: [&str; 13] = [
        "BASH_ENV",
        "BROWSER",
        "EDITOR",
        "ENV",
        "HOME",
        "PAGER",
        "PATH",
        "PERL5OPT",
        "PROMPT_COMMAND",
        "PS4",
        "PYTHONSTARTUP",
        "SHELLOPTS",
        "VISUAL",
    ];
    NAMES.contains(&name) || name.starts_with("LD_") || name.starts_with("GIT_") || name.ends_with("_OPTIONS")
}

/// Whether a text, taken as a variable's name or a number, may run commands: shells evaluate `a[$(command)]`.
fn holds_subscript(text: &str) -> bool {
    text.contains(['[', marker::BRACKET]) && (text.contains("$(") || text.contains('`'))
}

/// Whether the command calls a function that is surely defined by then.
fn is_call_of_function(words: &[String], index: usize, script: &Script) -> bool {
    let Some(name) = words.first() else { return false };
    script.functions.iter().any(|function| function.sure && function.name == *name && function.body.end <= index)
}

fn processes(word: &Word) -> Vec<std::ops::Range<usize>> {
    let ranges = word.pieces.iter().filter_map(|piece| match piece {
        Piece::Process(commands) => Some(commands.clone()),
        _ => None,
    });
    ranges.collect()
}

/// A program's name or option may be what is left when what is unknown is empty.
fn without_unknown(at: usize, word: &str) -> String {
    match at == 0 || word.starts_with('-') {
        true => word.replace(marker::UNKNOWN, ""),
        false => word.to_owned(),
    }
}

/// A word for a reader, with `…` for what is unknown.
pub(super) fn shown(word: &str) -> String {
    marker::written(word).replace([marker::UNKNOWN, marker::FETCHED], "…")
}

/// The beginning of a text for a reader.
fn cut(text: &str) -> String {
    const SHOWN_CHARS: usize = 200;
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
