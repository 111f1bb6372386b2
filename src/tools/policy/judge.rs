//! Looks at every program that a command may run, and gathers what would have to be allowed.

use super::With;
use super::bomb::has_fork_bomb;
use super::dangers::{Program, Verdict, directories, find_aim, is_fetcher, is_narrowed, judge};
use super::names::{builtin, changes_programs, holds_subscript};
use super::paths::{Place, Whole, is_sink};
use super::raw::Raw;
use super::refusal::{Denied, STEPS, STEPS_PER_CHAR, check_depth};
use super::rule::DenyRule;
use super::shell::{RedirectKind, Script, Simple};
use super::words::{base_name, has, marker, quoted, shown, unmarked};
use super::wrappers::{EVALUATORS, Runs, directory_of, is_shell, replaced, runs};

pub(super) type Judged<T> = Result<T, Denied>;

pub(super) const RUNS_FETCHED: &str =
    "it would run what it has just fetched from the network; save it, look at it, then run it";

/// What is gathered about a command.
pub(super) struct Judge<'p> {
    rules: &'p [DenyRule],
    /// The programs found.
    pub(super) found: Vec<Found>,
    /// What is not plain, where something is: `found` may lack programs.
    pub(super) unplain: Option<&'static str>,
    /// It is asked about as a whole, whatever is allowed.
    pub(super) asks: bool,
    pub(super) raw: Raw,
    pub(super) steps: usize,
    steps_max: usize,
    texts: Vec<Text>,
    /// What the call gives its commands to read, until it was looked at.
    stdin: String,
    /// It names `/` or home.
    stdin_whole: bool,
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
    place: Place,
    depth: usize,
    is_body: bool,
}

/// What a command reads, or prints.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// Comes from the network.
    fetched: bool,
    /// Names `/` or home, or all that is below.
    whole: bool,
    /// Names some of these.
    narrowed: bool,
    zero: bool,
}

/// A command among the others of its text.
struct Around<'s> {
    script: &'s Script,
    at: usize,
    input: Stream,
    depth: usize,
    writes: bool,
    /// It runs what its words hold that is not known.
    runs_words: bool,
    output: Stream,
}

impl<'p> Judge<'p> {
    pub(super) fn new(rules: &'p [DenyRule], chars: usize, with: &With<'_>) -> Self {
        let place = Place::at(&with.directory);
        let unplain = with.env.iter().any(|(name, value)| changes_programs(name) || holds_subscript(value));
        Self {
            rules,
            found: Vec::new(),
            unplain: unplain.then_some("a variable that decides what runs"),
            asks: false,
            raw: Raw::new(rules, with.env.values()),
            steps: 0,
            steps_max: STEPS + STEPS_PER_CHAR * chars,
            texts: Vec::new(),
            stdin: with.stdin.to_string(),
            stdin_whole: with.stdin.split_whitespace().any(|word| place.whole(word) == Whole::Yes),
        }
    }

    /// Looks at shell text.
    pub(super) fn text(&mut self, text: &str, directory: &str) -> Judged<()> {
        self.add_text(text.to_owned(), &Place::at(directory), 0);
        self.all()
    }

    /// Looks at a program and its arguments.
    pub(super) fn arguments(&mut self, words: &[String], directory: &str) -> Judged<()> {
        // Nothing expands it here, but nothing else is meant by it either.
        let home = |word: &String| match word.strip_prefix('~') {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("{}{rest}", marker::HOME),
            _ => word.chars().map(unmarked).collect(),
        };
        let command = Simple { words: words.iter().map(home).collect(), ..Simple::default() };
        let script = Script { commands: vec![command], ..Script::default() };
        self.script(&script, Place::at(directory), 0)?;
        self.all()
    }

    /// Looks at the interpreter of a script, which needs an entry where it is none of the system's.
    pub(super) fn interpreter_of_script(&mut self, interpreter: &str, is_standard: bool) -> Judged<()> {
        let words = vec![interpreter.to_owned()];
        self.rules(&words, &Place::at(""), false, false)?;
        self.found.extend((!is_standard).then_some(Found { words, writes: false }));
        Ok(())
    }

    fn all(&mut self) -> Judged<()> {
        while let Some(Text { text, place, depth, is_body }) = self.texts.pop() {
            check_depth(depth)?;
            let mut script = if is_body { Script::read_body(&text)? } else { Script::read(&text)? };
            // The body itself is no command.
            script.commands.iter_mut().filter(|command| is_body && command.depth == 0).for_each(|c| c.words.clear());
            self.take(script.steps)?;
            self.script(&script, place, depth)?;
        }
        let steps = self.raw.finish()?;
        self.take(steps)
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

    fn add_text(&mut self, text: String, place: &Place, depth: usize) {
        self.texts.push(Text { text, place: place.clone(), depth, is_body: false });
    }

    fn denies(&self, rule: &DenyRule) -> bool {
        self.rules.contains(rule)
    }

    fn refuse_fetched(&self, is: bool) -> Judged<()> {
        match is && self.denies(&DenyRule::RunFetched) {
            true => Err(Denied(RUNS_FETCHED.to_owned())),
            false => Ok(()),
        }
    }

    fn script(&mut self, script: &Script, place: Place, depth: usize) -> Judged<()> {
        self.unplain = self.unplain.or(script.unplain);
        if self.denies(&DenyRule::ForkBomb) && has_fork_bomb(script) {
            return Err(Denied("it defines a function that starts itself over and over (a fork bomb)".to_owned()));
        }
        for body in &script.bodies {
            self.texts.push(Text { text: body.clone(), place: place.clone(), depth: depth + 1, is_body: true });
        }
        let mut places = vec![place];
        let mut done: Vec<(Stream, bool)> = Vec::new();
        for (at, command) in script.commands.iter().enumerate() {
            places.truncate(command.depth + 1);
            while places.len() <= command.depth {
                places.extend(places.last().cloned());
            }
            let input = command.upstream.and_then(|up| done.get(up)).map_or(Stream::default(), |(output, _)| *output);
            let held = command.holder.and_then(|holder| done.get(holder)).is_some_and(|(_, runs)| *runs);
            let mut around =
                Around { script, at, input, depth, writes: false, runs_words: false, output: Stream::default() };
            let Some(here) = places.last_mut() else { break };
            self.raw.see(command);
            self.redirects(command, here, &mut around)?;
            self.command(command, here, &mut around)?;
            if held {
                self.refuse_fetched(around.output.fetched)?;
                self.add_printed(command, here, depth + 1);
            }
            done.push((around.output, around.runs_words));
        }
        Ok(())
    }

    fn redirects(&mut self, command: &Simple, place: &Place, around: &mut Around<'_>) -> Judged<()> {
        for (name, value) in &command.assignments {
            if changes_programs(name) || holds_subscript(value) {
                self.odd("a variable that decides what runs");
            }
        }
        for redirect in &command.redirects {
            let target = &redirect.target;
            let is_copy =
                target == "-" || (!target.is_empty() && target.chars().all(|c| c.is_ascii_digit() || c == '-'));
            match redirect.kind {
                RedirectKind::Copy if is_copy => {}
                RedirectKind::Write | RedirectKind::Copy => {
                    if place.is_disk(target) && self.denies(&DenyRule::WriteToDisk) {
                        let path = shown(target);
                        return Err(Denied(format!("it would write to a disk's device file, {path}")));
                    }
                    if target.contains(|c| marker::is(c) && c != marker::HOME) {
                        self.odd("a redirection to an expansion");
                    }
                    around.writes |= !is_sink(target);
                }
                RedirectKind::Read => {
                    around.input.zero |= place.path(target) == "/dev/zero";
                    if target.contains(marker::is_open) || target.starts_with("/dev/tcp") {
                        self.odd("a redirection from an expansion");
                    }
                }
                RedirectKind::Text | RedirectKind::Document(_) => {
                    let whole = |word| place.whole(word) == Whole::Yes;
                    around.input.whole |= target.split_whitespace().any(whole);
                    let program = command.words.first().map_or("", String::as_str);
                    if has("read mapfile readarray", program) && holds_subscript(target) {
                        self.odd("a subscript");
                    }
                }
            }
        }
        if command.words.is_empty() && around.writes {
            self.found.push(Found { words: vec![">".to_owned()], writes: true });
        }
        Ok(())
    }

    fn command(&mut self, command: &Simple, place: &mut Place, around: &mut Around<'_>) -> Judged<()> {
        around.input.whole |= self.stdin_whole && command.upstream.is_none();
        let mut left = match command.words.is_empty() {
            true => Vec::new(),
            false => vec![(command.words.clone(), place.clone(), 0, false)],
        };
        while let Some((words, here, level, fed)) = left.pop() {
            check_depth(around.depth + level)?;
            let bytes: usize = words.iter().map(String::len).sum();
            self.take(1 + bytes / 8 + words.len() * here.weight())?;
            let Some((program, arguments)) = words.split_first() else {
                self.odd("a wrapper without a program");
                continue;
            };
            self.rules(&words, &here, fed, around.input.zero)?;
            self.found.push(Found { words: words.clone(), writes: around.writes });
            if program.contains(marker::is) || program.starts_with('~') {
                self.odd("an expansion in a program's place");
                around.runs_words = true;
                self.raw.runs_unknown = true;
                continue;
            }
            let name = base_name(program);
            self.unplain = self.unplain.or(builtin(name, arguments));
            place.go(name, arguments);
            self.prints(name, arguments, &here, around);
            let inner = self.runs(name, arguments, &here, level + 1, around)?;
            left.extend(inner.into_iter().map(|(words, here, fed)| (words, here, level + 1, fed)));
        }
        Ok(())
    }

    /// Notes what a program prints.
    fn prints(&self, name: &str, arguments: &[String], here: &Place, around: &mut Around<'_>) {
        let program = Program { name, words: &[], place: here, fed_whole: false, reads_zero: false };
        around.output.fetched |= is_fetcher(name) || around.input.fetched;
        around.output.narrowed |= around.input.narrowed;
        around.output.whole |= around.input.whole;
        match name {
            "find" if find_aim(&program, arguments) == Whole::Yes => match is_narrowed(arguments) {
                true => around.output.narrowed = true,
                false => around.output.whole = true,
            },
            "ls" | "echo" | "printf" | "yes" => {
                around.output.whole |= arguments.iter().any(|word| here.whole(word) == Whole::Yes);
            }
            _ => {}
        }
    }

    /// Looks at what a program runs in turn; gives the programs, from where they run, and whether all is given to them.
    fn runs(
        &mut self,
        name: &str,
        arguments: &[String],
        here: &Place,
        level: usize,
        around: &mut Around<'_>,
    ) -> Judged<Vec<(Vec<String>, Place, bool)>> {
        let depth = around.depth + level;
        if has(EVALUATORS, name) {
            self.odd("`eval` or its kin");
        }
        match runs(name, arguments) {
            Runs::Nothing => {}
            Runs::Unclear => self.odd("a wrapper that is not understood"),
            Runs::From(at, clear) => {
                if !clear {
                    self.odd("a wrapper's options that are not understood");
                }
                let (options, inner) = arguments.split_at(at);
                if matches!(name, "xargs" | "parallel") {
                    return self.fed(name, options, inner, here, depth, around);
                }
                let mut here = here.clone();
                if let Some(directory) = directory_of(name, options) {
                    here.go("cd", &[directory.to_owned()]);
                }
                let shell = arguments.iter().position(|word| !clear && is_shell(base_name(word)));
                let shell = shell.map(|at| (arguments[at..].to_vec(), here.clone(), false));
                return Ok(shell.into_iter().chain([(inner.to_vec(), here, false)]).collect());
            }
            Runs::Each(programs) => {
                let program = Program { name, words: &[], place: here, fed_whole: false, reads_zero: false };
                let all = !is_narrowed(arguments) && find_aim(&program, arguments) == Whole::Yes;
                let whole = |word: &String| if all { word.replace("{}", "/") } else { word.clone() };
                if directories(arguments).any(|word| word.contains(marker::is_open)) {
                    self.odd("an expansion in a program's place");
                }
                let programs = programs.into_iter().map(|words| words.iter().map(whole).collect());
                return Ok(programs.map(|words| (words, here.clone(), all)).collect());
            }
            Runs::Text(text) => {
                if text.contains(marker::is_open) {
                    self.odd("an expansion in a shell's text");
                    around.runs_words = true;
                    self.raw.runs_unknown = true;
                }
                self.raw.roots |= arguments.iter().any(|word| here.whole(word) == Whole::Yes);
                let mut words = text.split(|c: char| !c.is_ascii_alphanumeric());
                around.output.fetched |= words.any(is_fetcher);
                self.add_text(marker::written(&text), here, depth);
            }
            Runs::Stdin => self.reads(here, depth, around)?,
            Runs::File(path) if path.contains(marker::is) => {
                self.odd("an expansion in a script's place");
                around.runs_words = true;
            }
            Runs::File(_) => {}
            Runs::Code(words) => {
                self.refuse_fetched(words.is_empty() && around.input.fetched)?;
                self.raw.runs_unknown |= words.is_empty();
                around.runs_words = words.iter().any(|word| word.contains(marker::is_open));
            }
        }
        Ok(Vec::new())
    }

    /// Looks at what a shell reads.
    fn reads(&mut self, here: &Place, depth: usize, around: &Around<'_>) -> Judged<()> {
        self.odd("commands that a shell reads");
        self.raw.runs_unknown = true;
        self.refuse_fetched(around.input.fetched)?;
        let stdin = std::mem::take(&mut self.stdin);
        if !stdin.is_empty() {
            self.add_text(stdin, here, depth);
        }
        let mut at = Some(around.at);
        // What a shell before this one in the pipeline reads was added for that one.
        while let Some(command) = at.and_then(|at| around.script.commands.get(at)) {
            self.take(1)?;
            self.add_printed(command, here, depth);
            at = command.upstream;
            let is_reader = |up: usize| around.script.commands[up].words.iter().any(|word| is_shell(base_name(word)));
            if at.is_some_and(is_reader) {
                break;
            }
        }
        Ok(())
    }

    /// Adds what a command prints as far as it is written in the text.
    fn add_printed(&mut self, command: &Simple, here: &Place, depth: usize) {
        for redirect in command.redirects.iter().filter(|redirect| redirect.kind == RedirectKind::Text) {
            self.add_text(marker::written(&redirect.target), here, depth);
        }
        let printer = command.words.iter().position(|word| has("echo printf", base_name(word)));
        if let Some(at) = printer {
            let text = marker::written(&command.words[at + 1..].join(" "));
            self.add_text(text.replace("\\n", "\n").replace("\\t", "\t"), here, depth);
        }
    }

    /// Looks at what `xargs` or `parallel` runs with what it is given.
    fn fed(
        &mut self,
        name: &str,
        options: &[String],
        inner: &[String],
        here: &Place,
        depth: usize,
        around: &Around<'_>,
    ) -> Judged<Vec<(Vec<String>, Place, bool)>> {
        if around.input.narrowed {
            self.odd("what is found below / or home");
        }
        let mut parts = inner.splitn(2, |word| word.starts_with(":::"));
        let (command, values) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        self.refuse_fetched(around.input.fetched && command.iter().any(|word| is_shell(base_name(word))))?;
        let whole = around.input.whole || values.iter().any(|word| here.whole(word) == Whole::Yes);
        let given = if whole { "/".to_owned() } else { marker::UNKNOWN.to_string() };
        let mark = replaced(name, options).filter(|mark| command.iter().any(|word| word.contains(mark.as_str())));
        let mut words: Vec<String> = match &mark {
            Some(mark) => command.iter().map(|word| word.replace(mark.as_str(), &given)).collect(),
            None => command.iter().cloned().chain([given, marker::UNKNOWN.to_string()]).collect(),
        };
        if name == "xargs" {
            return Ok(vec![(words, here.clone(), whole)]);
        }
        if command.is_empty() {
            self.reads(here, depth, around)?;
            values.iter().for_each(|value| self.add_text(marker::written(value), here, depth));
        } else {
            if mark.is_none() && !values.is_empty() {
                words.truncate(command.len());
                words.extend(values.iter().map(|value| quoted(&marker::written(value))));
            }
            self.add_text(marker::written(&words.join(" ")), here, depth);
        }
        Ok(Vec::new())
    }

    fn rules(&mut self, words: &[String], place: &Place, fed_whole: bool, reads_zero: bool) -> Judged<()> {
        let name = base_name(words.first().map_or("", String::as_str));
        let program = Program { name, words, place, fed_whole, reads_zero };
        for rule in self.rules {
            match judge(rule, &program) {
                Verdict::Denied(reason) => {
                    let line = words.iter().map(|word| shown(word)).collect::<Vec<_>>().join(" ");
                    return Err(Denied(format!("{reason}: {}", cut(&line))));
                }
                Verdict::Unsure => self.odd("an expansion in the arguments of a dangerous program"),
                Verdict::Asked => self.asks = true,
                Verdict::Fine => {}
            }
        }
        Ok(())
    }
}

/// The beginning of a text for a reader.
fn cut(text: &str) -> String {
    const SHOWN_CHARS: usize = 200;
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
