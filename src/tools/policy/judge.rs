//! Looks at every program that a command may run, and gathers what would have to be allowed.

use super::With;
use super::bomb::has_fork_bomb;
use super::dangers::{Program, Verdict, is_fetcher, judge};
use super::names::{builtin, changes_programs, holds_subscript};
use super::paths::{Place, is_sink};
use super::raw::Raw;
use super::rule::DenyRule;
use super::words::{RedirectKind, Script, Simple, base_name, has, marker, shown, unmarked};
use super::wrappers::{EVALUATORS, Runs, is_shell, runs};

/// A command is refused, with the reason.
#[derive(Debug)]
pub(super) struct Denied(pub(super) String);

pub(super) type Judged<T> = Result<T, Denied>;

/// Levels of wrappers, and of shells in shells.
const DEPTH_MAX: usize = 16;
/// Steps for each byte of a command and of what it is run with, and for any.
pub(super) const STEPS_PER_BYTE: usize = 64;
pub(super) const STEPS: usize = 4_096;

pub(super) const RUNS_FETCHED: &str =
    "it would run what it has just fetched from the network; save it, look at it, then run it";

/// Kind of code that is not written where it runs, so that it may be any literal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Evaluates {
    Nothing,
    /// A program, by an expansion.
    Program,
    /// Text or a file, by an expansion, or read by a shell.
    Text,
}

/// A program that a command runs.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) words: Vec<String>,
    /// Its output goes to a file.
    pub(super) writes: bool,
}

/// Shell text that is still to be looked at.
struct Text {
    text: String,
    depth: usize,
    is_body: bool,
}

/// Findings on a command.
pub(super) struct Judge<'p> {
    rules: &'p [DenyRule],
    /// The programs found.
    pub(super) found: Vec<Found>,
    /// First part that is not plain, where there is one: `found` may lack programs.
    pub(super) unplain: Option<&'static str>,
    /// It is asked about as a whole, whatever is allowed.
    pub(super) asks: bool,
    pub(super) raw: Raw,
    pub(super) evaluates: Evaluates,
    pub(super) steps: usize,
    steps_max: usize,
    place: Place,
    texts: Vec<Text>,
    /// Texts that may be run where something is evaluated: quoted words, values, here-documents.
    literals: Vec<Text>,
    values: String,
    stdin: String,
}

impl<'p> Judge<'p> {
    pub(super) fn new(rules: &'p [DenyRule], bytes: usize, directory: &str, with: &With<'_>) -> Self {
        let unplain = with.env.iter().any(|(name, value)| changes_programs(name) || holds_subscript(value));
        let mut judge = Self {
            rules,
            found: Vec::new(),
            unplain: unplain.then_some("a variable that decides what runs"),
            asks: false,
            raw: Raw::default(),
            evaluates: Evaluates::Nothing,
            steps: 0,
            steps_max: STEPS + STEPS_PER_BYTE * bytes,
            place: Place::at(directory),
            texts: Vec::new(),
            literals: Vec::new(),
            values: String::new(),
            stdin: with.stdin.to_string(),
        };
        with.env.values().for_each(|value| judge.value(value));
        judge
    }

    /// Looks at shell text.
    pub(super) fn text(&mut self, text: &str) -> Judged<()> {
        self.texts.push(Text { text: text.to_owned(), depth: 0, is_body: false });
        self.all()
    }

    /// Looks at a program and its arguments.
    pub(super) fn arguments(&mut self, words: &[String]) -> Judged<()> {
        // Nothing expands it here, but nothing else is meant by it either.
        let home = |word: &String| match word.strip_prefix('~') {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("{}{rest}", marker::HOME),
            _ => word.chars().map(unmarked).collect(),
        };
        let command = Simple { words: words.iter().map(home).collect(), ..Simple::default() };
        self.script(&Script { commands: vec![command], ..Script::default() }, 0)?;
        self.all()
    }

    /// Looks at the interpreter of a script, which needs an entry where it is none of the system's.
    pub(super) fn interpreter_of_script(&mut self, interpreter: &str, is_standard: bool) -> Judged<()> {
        let words = vec![interpreter.to_owned()];
        self.rules(&words, false)?;
        self.found.extend((!is_standard).then_some(Found { words, writes: false }));
        Ok(())
    }

    fn all(&mut self) -> Judged<()> {
        loop {
            while let Some(Text { text, depth, is_body }) = self.texts.pop() {
                if depth > DEPTH_MAX {
                    let reason = format!("nested more than {DEPTH_MAX} levels deep; write it flatter, or as a script");
                    return Err(Denied(reason));
                }
                let mut script = if is_body { Script::read_body(&text) } else { Script::read(&text) };
                if is_body {
                    // The body itself is no command.
                    let read = script.commands.iter_mut().filter(|command| command.words.len() == 1);
                    read.filter(|command| command.words[0].contains('\n')).for_each(|command| command.words.clear());
                }
                self.take(script.steps)?;
                self.script(&script, depth)?;
            }
            if self.evaluates == Evaluates::Nothing || self.literals.is_empty() {
                let stdin = std::mem::take(&mut self.stdin);
                stdin.split_whitespace().for_each(|word| self.raw.gives(word));
                return Ok(());
            }
            self.texts.append(&mut self.literals);
            let values = std::mem::take(&mut self.values);
            self.add_text(values, 0);
        }
    }

    fn take(&mut self, steps: usize) -> Judged<()> {
        self.steps += steps;
        match self.steps > self.steps_max {
            true => Err(Denied(format!("too tangled to be judged in {} steps; split it up", self.steps_max))),
            false => Ok(()),
        }
    }

    fn odd(&mut self, what: &'static str) {
        self.unplain.get_or_insert(what);
    }

    fn evaluates(&mut self, evaluated: Evaluates, what: &'static str) {
        self.odd(what);
        self.evaluates = self.evaluates.max(evaluated);
    }

    fn add_text(&mut self, text: String, depth: usize) {
        self.texts.push(Text { text, depth: depth + 1, is_body: false });
    }

    fn literal(&mut self, text: &str, depth: usize) {
        self.literals.push(Text { text: marker::written(text), depth: depth + 1, is_body: false });
    }

    /// Notes the value of a variable.
    fn value(&mut self, value: &str) {
        self.raw.gives(value);
        self.values.push_str(&marker::written(value));
        self.values.push(' ');
        self.literal(value, 0);
    }

    fn refuse_fetched(&self, is: bool) -> Judged<()> {
        match is && self.rules.contains(&DenyRule::RunFetched) {
            true => Err(Denied(RUNS_FETCHED.to_owned())),
            false => Ok(()),
        }
    }

    fn script(&mut self, script: &Script, depth: usize) -> Judged<()> {
        self.unplain = self.unplain.or(script.unplain);
        if script.unplain.is_some() {
            // Where commands run is not followed.
            self.place.leave();
        }
        if self.rules.contains(&DenyRule::ForkBomb) && has_fork_bomb(script) {
            return Err(Denied("it defines a function that starts itself over and over (a fork bomb)".to_owned()));
        }
        let bodies = script.bodies.iter().map(|body| Text { text: body.clone(), depth: depth + 1, is_body: true });
        self.texts.extend(bodies);
        // Which commands print something from the network.
        let mut fetched: Vec<bool> = Vec::new();
        for command in &script.commands {
            let mut fed = command.upstream.and_then(|up| fetched.get(up)).is_some_and(|fetched| *fetched);
            self.raw.see(command, !script.functions.is_empty());
            let (writes, zero) = self.redirects(command, depth)?;
            self.command(command, &mut fed, writes, zero, depth)?;
            fetched.push(fed);
        }
        Ok(())
    }

    /// Looks at what is read and written; tells whether a file is written, and whether `/dev/zero` is read.
    fn redirects(&mut self, command: &Simple, depth: usize) -> Judged<(bool, bool)> {
        for (name, value) in &command.assignments {
            if changes_programs(name) || holds_subscript(value) {
                self.evaluates(Evaluates::Program, "a variable that decides what runs");
            }
            self.value(value);
        }
        let (mut writes, mut zero) = (false, false);
        for redirect in &command.redirects {
            let target = &redirect.target;
            let is_copy = !target.is_empty() && target.chars().all(|c| c.is_ascii_digit() || c == '-');
            match redirect.kind {
                RedirectKind::Copy if is_copy => {}
                RedirectKind::Write | RedirectKind::Copy => {
                    if self.place.is_disk(target) && self.rules.contains(&DenyRule::WriteToDisk) {
                        return Err(Denied(format!("it would write to a disk's device file, {}", shown(target))));
                    }
                    if target.contains(|c| marker::is(c) && c != marker::HOME) {
                        self.odd("a redirection to an expansion");
                    }
                    writes |= !is_sink(target);
                }
                RedirectKind::Read => {
                    zero |= self.place.tidied(target) == "/dev/zero";
                    if target.contains(marker::is_open) || target.starts_with("/dev/tcp") {
                        self.odd("a redirection from an expansion");
                    }
                }
                RedirectKind::Text | RedirectKind::Document(_) => {
                    if !stores(command) {
                        self.literal(target, depth);
                    }
                    let reads = command.words.first().is_some_and(|word| has("read mapfile readarray", word));
                    if reads && holds_subscript(target) {
                        self.evaluates(Evaluates::Program, "a subscript");
                    }
                }
            }
        }
        if command.words.is_empty() && writes {
            self.found.push(Found { words: vec![">".to_owned()], writes: true });
        }
        Ok((writes, zero))
    }

    /// Looks at a command, and at what its wrappers run. `fed` tells whether it reads what was fetched, and then
    /// whether it prints that.
    fn command(&mut self, command: &Simple, fed: &mut bool, writes: bool, zero: bool, depth: usize) -> Judged<()> {
        let reads_fetched = *fed;
        let mut left = Vec::from([(command.words.clone(), 0)]);
        left.retain(|(words, _)| !words.is_empty());
        while let Some((words, level)) = left.pop() {
            self.take(1 + words.iter().map(String::len).sum::<usize>() / 8)?;
            let Some((program, arguments)) = words.split_first().filter(|_| level <= DEPTH_MAX) else {
                self.odd("a wrapper without a program, or too many");
                continue;
            };
            self.rules(&words, zero)?;
            self.found.push(Found { words: words.clone(), writes });
            let stored = stores(command);
            // Shells evaluate what looks like a subscript, whatever it is given to.
            let may_run = |word: &&String| !stored || holds_subscript(word);
            for word in arguments.iter().filter(may_run).filter(|word| word.contains([' ', '\t', '\n', ';'])) {
                self.literal(word, depth);
            }
            if program.contains(marker::is) || program.starts_with('~') {
                self.refuse_fetched(reads_fetched)?;
                let prints = program.contains(marker::OUTPUT);
                let evaluated = if prints { Evaluates::Text } else { Evaluates::Program };
                self.evaluates(evaluated, "an expansion in a program's place");
                continue;
            }
            let name = base_name(program);
            *fed |= is_fetcher(name);
            self.unplain = self.unplain.or(builtin(name, arguments));
            if self.unplain.is_some() && !has("git grep rg", name) && arguments.iter().any(|word| holds_subscript(word))
            {
                self.evaluates(Evaluates::Program, "a subscript");
            }
            if matches!(name, "cd" | "pushd" | "popd") {
                let target = arguments.iter().find(|word| !word.starts_with('-') || *word == "-").map(String::as_str);
                self.place.go(if name == "cd" { target } else { target.or(Some("-")) });
            }
            if !stored && has("echo printf", name) || has(EVALUATORS, name) {
                self.literal(&arguments.join(" ").replace("\\n", "\n").replace("\\t", "\t"), depth);
            }
            if has(EVALUATORS, name) {
                *fed |= arguments.iter().any(|word| fetches(word));
                self.evaluates(Evaluates::Text, "`eval` or its kin");
            }
            let inner = self.runs(name, arguments, (reads_fetched, &mut *fed), depth)?;
            left.extend(inner.into_iter().map(|words| (words, level + 1)));
        }
        Ok(())
    }

    /// Looks at what a program runs in turn; gives the programs among its arguments.
    fn runs(
        &mut self,
        name: &str,
        arguments: &[String],
        (fetched, prints): (bool, &mut bool),
        depth: usize,
    ) -> Judged<Vec<Vec<String>>> {
        match runs(name, arguments) {
            Runs::Nothing => {}
            Runs::Unclear => {
                self.refuse_fetched(fetched)?;
                self.evaluates(Evaluates::Text, "a wrapper that is not understood");
            }
            Runs::From(at, clear) => {
                let (options, inner) = arguments.split_at(at);
                if !clear {
                    self.evaluates(Evaluates::Program, "a wrapper's options that are not understood");
                }
                let leaves =
                    |word: &String| ["-C", "-D", "-w", "--chdir", "--w"].iter().any(|name| word.starts_with(name));
                if name == "chroot" || options.iter().any(leaves) {
                    self.place.leave();
                }
                let mut inner = inner.to_vec();
                if name == "xargs" {
                    let runs_text = inner.iter().any(|word| is_shell(base_name(word)));
                    self.refuse_fetched(fetched && runs_text)?;
                    if runs_text {
                        self.evaluates(Evaluates::Text, "commands that a shell reads");
                    }
                    if self.raw.names_roots() {
                        self.odd("paths such as / for `xargs`");
                    }
                    inner.push(marker::UNKNOWN.to_string());
                }
                return Ok(vec![inner]);
            }
            Runs::Each(programs) => return Ok(programs),
            Runs::Text(text) => {
                if text.contains(marker::is_open) {
                    self.evaluates(Evaluates::Text, "an expansion in a shell's text");
                }
                *prints |= fetches(&text);
                self.add_text(marker::written(&text), depth);
            }
            Runs::Stdin => {
                self.refuse_fetched(fetched)?;
                self.evaluates(Evaluates::Text, "commands that a shell reads");
                let stdin = std::mem::take(&mut self.stdin);
                self.add_text(stdin, depth);
            }
            Runs::Code => self.refuse_fetched(fetched)?,
            Runs::File(path) if path.contains(marker::OUTPUT) => {
                self.evaluates(Evaluates::Text, "a script that another command prints");
            }
            Runs::File(path) if path.contains(marker::is) => {
                self.evaluates(Evaluates::Program, "an expansion in a script's place");
            }
            Runs::File(_) => {}
        }
        Ok(Vec::new())
    }

    fn rules(&mut self, words: &[String], reads_zero: bool) -> Judged<()> {
        let rules = self.rules;
        for rule in rules {
            match judge(rule, &Program { words, place: &self.place, reads_zero }) {
                Verdict::Denied(reason) => {
                    let line = words.iter().map(|word| shown(word)).collect::<Vec<_>>().join(" ");
                    let end = line.char_indices().nth(200).map_or(line.len(), |(at, _)| at);
                    let more = if end < line.len() { "…" } else { "" };
                    return Err(Denied(format!("{reason}: {}{more}", &line[..end])));
                }
                Verdict::Unsure => self.odd("an expansion in the arguments of a dangerous program"),
                Verdict::Asked => self.asks = true,
                Verdict::Fine => {}
            }
        }
        Ok(())
    }
}

/// Tells whether a text names a program that fetches.
fn fetches(text: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric()).any(is_fetcher)
}

/// Tells whether a command only stores or shows what it is given: no other command reads that.
fn stores(command: &Simple) -> bool {
    !command.piped && command.words.first().is_some_and(|word| has("cat echo git printf tee", base_name(word)))
}
