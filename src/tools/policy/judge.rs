//! Inspects every program that a command may run, and collects the allow list entries that it needs.

use super::allow::{FoundProgram, is_standard};
use super::dangers::{RuleVerdict, WRITES_DISK, WRITES_ZEROS, is_counted, is_fetcher, judge};
use super::names::{builtin, changes_programs, evaluates, holds_subscript};
use super::paths::{WorkingDirectory, is_sink, is_stream};
use super::raw::{RUNS_FETCHED, Raw};
use super::rule::DenyRule;
use super::words::{RedirectKind, Simple, SplitScript, base_name, has, marker, shown, unmarked};
use super::wrappers::{Runs, is_foreign, is_shell, runs};
use crate::backends::ShellCommand;
use crate::engine::event::CommandLine;

#[derive(Debug)]
pub(super) struct Denied(pub(super) String);

pub(super) type Judged<T> = Result<T, Denied>;

/// The limit for steps: per byte of a command and its input, plus a constant.
pub(super) const STEPS_PER_BYTE: usize = 32;
pub(super) const STEPS: usize = 4_096;

const IS_BOMB: &str = "it defines a function that starts itself endlessly (a fork bomb)";
const DECIDES: &str = "a variable that determines which programs run";

#[derive(Default)]
pub(super) struct Judge<'p> {
    rules: &'p [DenyRule],
    pub(super) found: Vec<FoundProgram>,
    /// The first unplain part. If there is one, `found` may lack programs.
    pub(super) unplain: Option<&'static str>,
    /// True if the whole command needs approval, regardless of the allow list.
    pub(super) asks: bool,
    pub(super) raw: Raw,
    /// True if the command runs code from elsewhere, which may be any literal.
    pub(super) evaluates: bool,
    pub(super) steps: usize,
    steps_max: usize,
    place: WorkingDirectory,
    /// True if a file was opened for reading, so a stream may be that file.
    opens: bool,
    reads_fetched: bool,
    prints_fetched: bool,
    texts: Vec<String>,
    /// The texts that an evaluation may run: quoted words, values, here-documents.
    literals: Vec<String>,
    values: String,
}

/// Returns true for options of a shell that change how it runs a script, but not what it runs: `-eu`.
fn is_mode(word: &str) -> bool {
    word.strip_prefix('-').is_some_and(|flags| !flags.is_empty() && flags.chars().all(|flag| "abefhuvx".contains(flag)))
}

impl<'p> Judge<'p> {
    pub(super) fn new(rules: &'p [DenyRule], command: &ShellCommand) -> Self {
        let stdin = String::from_utf8_lossy(&command.stdin);
        let given: usize = command.env.iter().map(|(name, value)| name.len() + value.len()).sum();
        let steps_max = STEPS + STEPS_PER_BYTE * (command.command.chars() + given + stdin.len());
        let place = WorkingDirectory::at(&command.cwd.to_string());
        let mut judge = Self { rules, steps_max, place, literals: vec![stdin.to_string()], ..Self::default() };
        for (name, value) in &command.env {
            if changes_programs(name) || holds_subscript(value) {
                judge.odd(DECIDES);
            }
            judge.value(value);
        }
        judge
    }

    pub(super) fn look(&mut self, command: &ShellCommand) -> Judged<()> {
        match &command.command {
            CommandLine::Shell(text) => self.texts.push(text.clone()),
            CommandLine::Args(words) => self.arguments(words)?,
            CommandLine::Script { script, interpreter } => self.interpreted(interpreter, script)?,
        }
        loop {
            while let Some(text) = self.texts.pop() {
                self.script(&SplitScript::read(&text))?;
            }
            if !self.evaluates || self.literals.is_empty() {
                let stdin = String::from_utf8_lossy(&command.stdin);
                stdin.split_whitespace().for_each(|word| self.raw.gives(word));
                return Ok(());
            }
            self.texts.append(&mut self.literals);
            self.texts.push(std::mem::take(&mut self.values));
        }
    }

    fn interpreted(&mut self, interpreter: &str, script: &str) -> Judged<()> {
        let words: Vec<String> = interpreter.split_whitespace().map(str::to_owned).collect();
        let program = words.first().map_or("", String::as_str);
        let is_shell = is_shell(base_name(program));
        if !is_shell || !words.iter().skip(1).all(|word| is_mode(word)) {
            // A wrapper may run a shell.
            let texts = if is_shell { &mut self.texts } else { &mut self.literals };
            texts.extend((words.len() > 1).then(|| script.to_owned()));
            return self.arguments(&words);
        }
        let foreign = is_foreign(base_name(program));
        self.rules(&words)?;
        // A shell by its bare name or in a standard directory needs no entry.
        self.found.extend((!is_standard(program)).then_some(FoundProgram { words, writes: false }));
        if foreign {
            self.evaluates("a shell with another syntax");
        }
        self.texts.push(script.to_owned());
        Ok(())
    }

    fn arguments(&mut self, words: &[String]) -> Judged<()> {
        // An argument list is not expanded, but `~` can only mean the home directory.
        let home = |word: &String| match word.strip_prefix('~') {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("{}{rest}", marker::HOME),
            _ => word.chars().map(unmarked).collect(),
        };
        let command = Simple { words: words.iter().map(home).collect(), ..Simple::default() };
        self.script(&SplitScript { commands: vec![command], ..SplitScript::default() })
    }

    fn take(&mut self, steps: usize) -> Judged<()> {
        self.steps += steps;
        match self.steps > self.steps_max {
            true => Err(Denied(format!("it is too complex to be judged in {} steps; split it up", self.steps_max))),
            false => Ok(()),
        }
    }

    fn odd(&mut self, what: &'static str) {
        self.unplain.get_or_insert(what);
    }

    fn evaluates(&mut self, what: &'static str) {
        self.odd(what);
        self.evaluates = true;
    }

    fn value(&mut self, value: &str) {
        self.raw.gives(value);
        let value = marker::written(value);
        self.values.extend([&value, " "]);
        self.literals.push(value);
    }

    fn refuse(&self, is: bool, rule: &DenyRule, reason: &str) -> Judged<()> {
        if is && self.rules.contains(rule) { Err(Denied(reason.to_owned())) } else { Ok(()) }
    }

    fn script(&mut self, script: &SplitScript) -> Judged<()> {
        self.take(script.steps)?;
        if let Some(what) = script.unplain {
            self.odd(what);
            // The working directory is not tracked through compound commands.
            self.place.leave();
        }
        self.refuse(script.fork_bomb, &DenyRule::ForkBomb, IS_BOMB)?;
        self.texts.extend(script.bodies.iter().cloned());
        self.prints_fetched = false;
        for command in &script.commands {
            self.reads_fetched = self.prints_fetched && command.reads;
            self.prints_fetched = self.reads_fetched;
            self.raw.see(command, script.defines, self.rules, &self.place);
            self.literals(command);
            let writes = self.redirects(command)?;
            self.command(command, writes)?;
        }
        Ok(())
    }

    /// Collects the texts of a command that an evaluation may run. Skips texts that a command only stores or shows,
    /// unless another command reads them or they look like a subscript, which shells evaluate in any word.
    fn literals(&mut self, command: &Simple) {
        let is_storing = |word: &String| has("cat echo git printf tee", base_name(word));
        let stored = !command.piped && command.words.first().is_some_and(is_storing);
        let texts = command.redirects.iter().filter(|(kind, _)| !stored && *kind == RedirectKind::Text);
        let words = command.words.iter().skip(1).filter(|word| word.contains([' ', '\t', '\n', ';']));
        let words = words.filter(|word| !stored || holds_subscript(word));
        let all = words.chain(texts.map(|(_, text)| text));
        self.literals.extend(all.map(|text| marker::written(text).replace("\\n", "\n")));
    }

    /// Inspects assignments and redirections. Returns true if the command writes a file.
    fn redirects(&mut self, command: &Simple) -> Judged<bool> {
        for (name, value) in &command.assignments {
            if changes_programs(name) || evaluates(name, value) {
                self.evaluates(DECIDES);
            }
            self.value(value);
        }
        let runs = |table: &str| command.words.iter().any(|word| has(table, base_name(word)));
        self.opens |= command.redirects.iter().any(|(kind, _)| *kind == RedirectKind::Read);
        let mut writes = false;
        for (kind, target) in &command.redirects {
            match kind {
                RedirectKind::Read => {
                    let zeros = self.place.tidied(target) == "/dev/zero" && runs("dd");
                    let is_counted = is_counted(&command.words);
                    self.asks |= zeros && is_counted;
                    self.refuse(zeros && !is_counted, &DenyRule::DdFromZero, WRITES_ZEROS)?;
                    if target.contains(marker::is_open)
                        || target.starts_with("/dev/tcp")
                        || target.starts_with("/dev/udp")
                    {
                        self.odd("a redirection from an expansion");
                    }
                }
                RedirectKind::Write => {
                    let reason = format!("{WRITES_DISK}, {}", shown(target));
                    self.refuse(self.place.is_vital(target), &DenyRule::WriteToDisk, &reason)?;
                    if target.contains(|c| marker::is(c) && c != marker::HOME) {
                        self.odd("a redirection to an expansion");
                    }
                    writes |= !is_sink(target) || (self.opens && is_stream(target));
                }
                _ if runs("read mapfile readarray") && holds_subscript(target) => self.evaluates("a subscript"),
                _ => {}
            }
        }
        if command.words.is_empty() && writes {
            self.found.push(FoundProgram { words: vec![">".to_owned()], writes });
        }
        Ok(writes)
    }

    fn command(&mut self, command: &Simple, writes: bool) -> Judged<()> {
        let mut left = vec![command.words.clone()];
        while let Some(words) = left.pop().filter(|_| !command.words.is_empty()) {
            self.take(words.iter().map(|word| word.len() + 1).sum())?;
            self.rules(&words)?;
            match words.split_first() {
                Some((program, arguments)) => left.append(&mut self.program(program, arguments)?),
                None => self.odd("a wrapper without a program"),
            }
            self.found.push(FoundProgram { words, writes });
        }
        Ok(())
    }

    fn program(&mut self, program: &str, arguments: &[String]) -> Judged<Vec<Vec<String>>> {
        let name = base_name(program);
        self.unplain = self.unplain.or(builtin(name, arguments));
        if matches!(name, "cd" | "pushd" | "popd") {
            let default = if name == "cd" { marker::HOME.to_string() } else { "-".to_owned() };
            let target = arguments.iter().find(|word| !word.starts_with('-') || *word == "-");
            self.place.go(target.unwrap_or(&default));
        }
        self.prints_fetched |= is_fetcher(name);
        let fetches = |text: &str| text.split(|c: char| !c.is_ascii_alphanumeric()).any(is_fetcher);
        match runs(program, arguments) {
            // Shells evaluate any word that looks like a subscript.
            Runs::Nothing if self.unplain.is_some() && !has("git grep rg", name) => {
                self.evaluates |= arguments.iter().any(|word| holds_subscript(word));
            }
            Runs::Nothing => {}
            Runs::Programs(programs, is_clear) => {
                let options = ["-C", "-D", "-w", "--chdir", "--w"];
                let leaves = |word: &String| options.iter().any(|option| word.starts_with(option));
                if name == "chroot" || (name != "find" && arguments.iter().any(leaves)) {
                    self.place.leave();
                }
                if !is_clear {
                    self.evaluates("unsupported options of a wrapper");
                }
                if name == "xargs" && (self.raw.roots || self.raw.finds) {
                    self.odd("paths such as / for `xargs`");
                }
                return Ok(programs);
            }
            Runs::Text(text) => {
                if text.contains(marker::is_open) {
                    self.evaluates("an expansion in a shell's text");
                }
                if is_foreign(name) {
                    self.evaluates("a shell with another syntax");
                }
                self.prints_fetched |= fetches(&text);
                self.texts.push(marker::written(&text));
            }
            Runs::Code => self.refuse(self.reads_fetched, &DenyRule::RunFetched, RUNS_FETCHED)?,
            Runs::Unclear(what) => {
                self.refuse(self.reads_fetched, &DenyRule::RunFetched, RUNS_FETCHED)?;
                self.evaluates(what);
                let text = arguments.join(" ");
                self.prints_fetched |= fetches(&text);
                self.literals.extend((!program.contains(marker::is)).then(|| marker::written(&text)));
            }
        }
        Ok(Vec::new())
    }

    fn rules(&mut self, words: &[String]) -> Judged<()> {
        let rules = self.rules;
        for rule in rules {
            match judge(rule, words, &self.place) {
                RuleVerdict::Denied(reason) => {
                    let line = words.iter().map(|word| shown(word)).collect::<Vec<_>>().join(" ");
                    let end = line.char_indices().nth(200).map_or(line.len(), |(at, _)| at);
                    let more = if end < line.len() { "…" } else { "" };
                    return Err(Denied(format!("{reason}: {}{more}", &line[..end])));
                }
                RuleVerdict::Unsure => {
                    self.raw.open.push(rule.clone());
                    self.odd("an expansion in the arguments of a dangerous program");
                }
                RuleVerdict::Asked => self.asks = true,
                RuleVerdict::Fine => {}
            }
        }
        Ok(())
    }
}
