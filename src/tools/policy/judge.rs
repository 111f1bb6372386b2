//! Looks at every program that a command may run.

use std::rc::Rc;

use super::danger::{Program, Verdict, judge};
use super::find::{Aim, aim_of};
use super::names::{holds_subscript, may_change_programs};
use super::paths::{Whole, is_disk, is_sink, may_be, whole};
use super::places::Places;
use super::refusal::{Denied, Fuel, check_depth};
use super::rule::DenyRule;
use super::shell::{Command, Expansion, Piece, Reading, RedirectKind, Variables, Word, base_name, marker};
use super::walk::Walked;
use super::wrappers::{Runs, is_shell, runs};
use super::{With, interpreters::code_of};

pub(super) type Judged<T> = Result<T, Denied>;

/// Looks at a command and gathers what would have to be allowed.
pub(super) struct Judge<'p> {
    pub(super) rules: &'p [DenyRule],
    pub(super) fuel: Fuel,
    /// Where relative paths begin.
    pub(super) places: Places,
    /// What was followed through the script that is looked at.
    pub(super) walked: Walked,
    /// The programs found.
    pub(super) found: Vec<Found>,
    /// Something was not understood, so `found` may lack programs.
    pub(super) unclear: bool,
    /// A function stood for a program; something takes functions or variables back.
    pub(super) calls_function: bool,
    unsets: bool,
}

/// A program that a command runs.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) words: Vec<String>,
    /// How many of them are no guess.
    pub(super) sure: usize,
    /// Its output goes to a file.
    pub(super) writes: bool,
}

/// What a program can read.
#[derive(Clone, Debug, Default)]
pub(super) struct Input {
    /// Texts that are known.
    pub(super) texts: Vec<Rc<str>>,
    /// Comes from the network.
    pub(super) fetched: bool,
    /// Is a list of what is below `/` or home.
    whole: bool,
    zero: bool,
}

impl Input {
    /// A text, if there is one.
    pub(super) fn of(text: &str) -> Self {
        let texts = if text.is_empty() { Vec::new() } else { vec![Rc::from(text)] };
        Self { texts, ..Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.texts.is_empty() && !self.fetched && !self.whole && !self.zero
    }
}

/// Where a program runs.
#[derive(Clone)]
pub(super) struct Place<'v> {
    pub(super) input: Input,
    pub(super) writes: bool,
    pub(super) reading: Reading,
    pub(super) variables: &'v Variables,
    pub(super) depth: usize,
    /// The program may begin elsewhere: this is one of the places.
    pub(super) is_suffix: bool,
}

impl<'p> Judge<'p> {
    pub(super) fn new(rules: &'p [DenyRule], chars: usize, directory: &str) -> Self {
        Self {
            rules,
            fuel: Fuel::for_chars(chars),
            places: Places::at(directory),
            walked: Walked::default(),
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
    pub(super) fn text(&mut self, text: &str, reading: Reading, with: &With<'_>) -> Judged<()> {
        let outer = Input::of(&with.stdin);
        let around = Around { outer: &outer, reading, depth: 0, same_shell: false };
        self.script(text, with.variables(), around)
    }

    /// Looks at a program and its arguments.
    pub(super) fn arguments(&mut self, words: &[String], reading: Reading, with: &With<'_>) -> Judged<()> {
        let variables = with.variables();
        self.unclear |= variables.is_unclear();
        // Nobody expands it here, but nobody means it otherwise either.
        let home = |word: &String| match word.strip_prefix('~') {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("{}{rest}", marker::HOME),
            _ => word.chars().map(|c| if marker::is(c) { marker::UNKNOWN } else { c }).collect(),
        };
        let words: Vec<String> = words.iter().map(home).collect();
        let input = Input::of(&with.stdin);
        let place = Place { input, writes: false, reading, variables: &variables, depth: 0, is_suffix: false };
        self.program(&words, None, &place)
    }

    /// Looks at the interpreter of a script, which needs an entry where it is none of the system's.
    pub(super) fn interpreter_of_script(&mut self, interpreter: &str, with: &With<'_>) -> Judged<()> {
        let variables = with.variables();
        self.unclear |= variables.is_unclear();
        let place = Place {
            input: Input::default(),
            writes: false,
            reading: Reading::Posix,
            variables: &variables,
            depth: 0,
            is_suffix: false,
        };
        let words = [interpreter.to_owned()];
        self.rules(&words, &place)?;
        if !super::allow::is_standard(interpreter) {
            self.found.push(Found { words: words.to_vec(), sure: 1, writes: false });
        }
        Ok(())
    }

    pub(super) fn command(
        &mut self,
        command: &Command,
        expansion: &Expansion<'_>,
        around: Around<'_>,
        is_function: bool,
    ) -> Judged<()> {
        let (words, guess) = expansion.guessed_words(command, &mut self.fuel)?;
        let writes = self.writes(command, expansion)?;
        if words.is_empty() && writes {
            self.found.push(Found { words: vec![">".to_owned()], sure: 1, writes });
        }
        let input =
            match words.iter().any(|word| reads_input(base_name(word))) || words.iter().any(|w| !marker::none_in(w)) {
                true => self.input(command, expansion, around.outer)?,
                false => Input::default(),
            };
        let (reading, depth) = (around.reading, around.depth);
        let place = Place { input, writes, reading, variables: expansion.variables, depth, is_suffix: false };
        if guess != Some(0) && is_function {
            self.calls_function = true;
            self.rules(&words, &place)
        } else {
            self.program(&words, guess, &place)
        }
    }

    /// Checks where a command writes to; tells whether that is a file.
    fn writes(&mut self, command: &Command, expansion: &Expansion<'_>) -> Judged<bool> {
        let mut writes = false;
        for redirect in command.redirects.iter().filter(|redirect| redirect.kind == RedirectKind::Write) {
            let path = expansion.text(&redirect.target, &mut self.fuel)?;
            if is_disk(&path, &self.places) && self.rules.contains(&DenyRule::WriteToDisk) {
                return Err(Denied(format!("it would write to a disk's device file, {}", marker::written(&path))));
            }
            writes |= !is_sink(&path);
        }
        Ok(writes)
    }

    /// What a command can read, from all that is connected to it.
    pub(super) fn input(&mut self, command: &Command, expansion: &Expansion<'_>, outer: &Input) -> Judged<Input> {
        let mut input = outer.clone();
        for redirect in &command.redirects {
            let text = expansion.text(&redirect.target, &mut self.fuel)?;
            match redirect.kind {
                RedirectKind::Text => {
                    input.fetched |= text.contains(marker::FETCHED);
                    input.texts.push(text.into());
                }
                RedirectKind::Read => {
                    input.fetched |= text.contains(marker::FETCHED);
                    input.zero |= may_be(&text, "/dev/zero", &self.places);
                }
                RedirectKind::Write => {}
            }
        }
        let targets = command.redirects.iter().map(|redirect| &redirect.target);
        let inner = command.words.iter().chain(targets).flat_map(processes);
        for range in command.upstream.iter().cloned().chain(inner) {
            for source in &expansion.script.commands[range] {
                input.fetched |= expansion.fetches(source, &mut self.fuel)?;
                input.texts.extend(expansion.printed(source, &mut self.fuel)?.map(Rc::from));
                input.whole |= self.lists_whole(source, expansion)?;
            }
        }
        Ok(input)
    }

    fn lists_whole(&mut self, command: &Command, expansion: &Expansion<'_>) -> Judged<bool> {
        let words = expansion.words(command, &mut self.fuel)?;
        let Some((program, arguments)) = words.split_first() else { return Ok(false) };
        Ok(match base_name(program) {
            "find" => match aim_of(arguments, &self.places) {
                Aim { whole: Whole::Yes, narrowed } => {
                    self.unclear |= narrowed;
                    !narrowed
                }
                _ => false,
            },
            "ls" => arguments.iter().any(|word| whole(word, &self.places) == Whole::Yes),
            _ => false,
        })
    }

    /// Looks at a program and at what it runs in turn. A guess is the place of the first word that is one.
    pub(super) fn program(&mut self, words: &[String], guess: Option<usize>, place: &Place<'_>) -> Judged<()> {
        check_depth(place.depth)?;
        let Some((program, arguments)) = words.split_first() else {
            self.unclear |= guess.is_some();
            return Ok(());
        };
        self.rules(words, place)?;
        let bytes: usize = words.iter().map(String::len).sum();
        self.fuel.take(bytes / BYTES_PER_STEP)?;
        let sure = guess.unwrap_or(words.len());
        self.found.push(Found { words: words.to_vec(), sure, writes: place.writes });
        // Home is known well enough; what else is marked may be any program.
        self.unclear |= program.starts_with('~') || !marker::none_in(&program.replace(marker::HOME, ""));
        self.unclear |= guess == Some(0);
        let known = program.replace(marker::UNKNOWN, "");
        let name = base_name(&known);
        self.fuel.take(self.places.weight())?;
        self.directory(name, arguments);
        self.builtin(name, arguments, place)?;
        self.interpreter(name, arguments, place)?;
        for run in runs(name, arguments, place.reading) {
            let place = Place { depth: place.depth + 1, ..place.clone() };
            match run {
                Runs::Words(inner) => self.wrapped(name, words, inner, guess, &place)?,
                Runs::Anywhere => self.anywhere(name, words, guess, &place)?,
                run => {
                    self.unclear |= guess.is_some() && matches!(run, Runs::Text { .. });
                    self.run(name, run, place)?;
                }
            }
        }
        Ok(())
    }

    /// Keeps up with where relative paths begin.
    fn directory(&mut self, name: &str, arguments: &[String]) {
        let target = arguments.iter().find(|word| !word.starts_with('-') || *word == "-");
        match (name, target.map(String::as_str)) {
            ("popd", _) | ("cd" | "pushd", Some("-")) => self.places.back(),
            ("cd", None) => self.places.go(&marker::HOME.to_string()),
            ("pushd", None) => self.places.back(),
            ("cd" | "pushd", Some(target)) => self.places.go(target),
            _ => {}
        }
    }

    /// Notes what a shell's own commands may change, and what they evaluate.
    fn builtin(&mut self, name: &str, arguments: &[String], place: &Place<'_>) -> Judged<()> {
        self.unsets |= name == "unset";
        let left = |word: &str| word.split('=').next().unwrap_or_default().to_owned();
        let right = |word: &str| word.split_once('=').is_some_and(|(_, value)| may_change_programs(value));
        let sets = match name {
            "env" | "sudo" | "doas" => arguments
                .iter()
                .any(|word| word.contains('=') && !word.starts_with('-') && may_change_programs(&left(word))),
            "declare" | "typeset" | "local" => {
                let refers = arguments.iter().any(|word| word.starts_with('-') && word.contains('n'));
                arguments.iter().any(|word| may_change_programs(&left(word)) || (refers && right(word)))
            }
            "export" | "readonly" => arguments.iter().any(|word| may_change_programs(&left(word))),
            "read" | "mapfile" | "readarray" | "getopts" => arguments.iter().any(|word| may_change_programs(word)),
            "printf" | "wait" => {
                let named = arguments.iter().position(|word| word.starts_with("-v") || word.starts_with("-p"));
                named.is_some_and(|at| arguments.iter().skip(at).take(2).any(|word| may_change_programs(word)))
            }
            _ => false,
        };
        self.unclear |= sets;
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
        if matches!(name, "read" | "mapfile" | "readarray") {
            self.unclear |= place.input.texts.iter().any(|text| holds_subscript(text));
        }
        for word in arguments.iter().filter(|word| evaluates && holds_subscript(word)) {
            self.unclear = true;
            let around =
                Around { outer: &place.input, reading: place.reading, depth: place.depth + 1, same_shell: true };
            self.script(&marker::written(word), place.variables.clone(), around)?;
        }
        Ok(())
    }

    pub(super) fn rules(&mut self, words: &[String], place: &Place<'_>) -> Judged<()> {
        self.fuel.take((words.len() + 1).saturating_mul(self.places.weight()))?;
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
            places: &self.places,
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
}

/// What surrounds a command.
#[derive(Clone, Copy)]
pub(super) struct Around<'a> {
    pub(super) outer: &'a Input,
    pub(super) reading: Reading,
    pub(super) depth: usize,
    /// What it changes about its shell stays.
    pub(super) same_shell: bool,
}

/// Bytes of words that are copied for one step.
pub(super) const BYTES_PER_STEP: usize = 8;
pub(super) const RUNS_FETCHED: &str =
    "it would run what it has just fetched from the network; save it, look at it, then run it";

/// Whether what a program does depends on what it reads.
fn reads_input(name: &str) -> bool {
    is_shell(name)
        || matches!(
            name,
            "xargs"
                | "source"
                | "."
                | "dd"
                | "parallel"
                | "rm"
                | "chmod"
                | "chown"
                | "chgrp"
                | "read"
                | "mapfile"
                | "readarray"
        )
        || code_of(name, &[]).is_some()
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
