//! What programs run in turn.

use super::find::{Aim, aim_of, directories};
use super::interpreters::code_of;
use super::judge::{Around, BYTES_PER_STEP, Input, Judge, Judged, Place, RUNS_FETCHED};
use super::paths::{Whole, whole};
use super::refusal::Denied;
use super::rule::DenyRule;
use super::shell::{Reading, base_name, marker};
use super::wrappers::{Runs, directory_of, is_shell, is_stdin, replaced_by_xargs};

/// Words at which the program of a wrapper that was not understood is looked for.
const STARTS_MAX: usize = 32;

impl Judge<'_> {
    /// Looks at the program that a wrapper runs.
    pub(super) fn wrapped(
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
        let options = words.get(1..offset).unwrap_or_default();
        match name {
            "find" => self.found_by(words, &mut inner),
            "xargs" => return self.fed(options, &inner, guess, place),
            _ => {}
        }
        let before = self.places.clone();
        let moved = directory_of(name, options);
        moved.into_iter().for_each(|directory| self.places.go(directory));
        self.program(&inner, guess, place)?;
        if moved.is_some() {
            self.places = before;
        }
        Ok(())
    }

    /// Puts the directory that `find` looks through in place of what it finds there.
    fn found_by(&mut self, words: &[String], inner: &mut [String]) {
        let arguments = words.get(1..).unwrap_or_default();
        if aim_of(arguments, &self.places) == (Aim { whole: Whole::Yes, narrowed: false }) {
            let all = directories(arguments).into_iter().find(|path| whole(path, &self.places) == Whole::Yes);
            let all = all.unwrap_or("/");
            inner.iter_mut().for_each(|word| *word = word.replace("{}", all));
        }
    }

    /// Looks at the program that `xargs` runs with what it reads.
    fn fed(&mut self, options: &[String], inner: &[String], guess: Option<usize>, place: &Place<'_>) -> Judged<()> {
        let fetched = place.input.fetched && self.rules.contains(&DenyRule::RunFetched);
        if fetched && inner.iter().any(|word| is_shell(base_name(word))) {
            return Err(Denied(RUNS_FETCHED.to_owned()));
        }
        let texts = place.input.texts.clone();
        let Some(mark) = replaced_by_xargs(options) else {
            let given = texts.iter().flat_map(|text| text.split_whitespace());
            let words: Vec<String> = inner.iter().cloned().chain(given.map(str::to_owned)).collect();
            self.fuel.take(words.len())?;
            return self.program(&words, guess, place);
        };
        let mut any = false;
        for line in texts.iter().flat_map(|text| text.lines()).map(str::trim).filter(|line| !line.is_empty()) {
            any = true;
            self.fuel.take(inner.len())?;
            inner.iter().try_for_each(|word| self.replaces(word, mark, line))?;
            let words: Vec<String> = inner.iter().map(|word| word.replace(mark, line)).collect();
            self.program(&words, guess, place)?;
        }
        if any { Ok(()) } else { self.program(inner, guess, place) }
    }

    /// Takes what it costs to put a value in place of a mark, which may stand there often.
    fn replaces(&mut self, text: &str, mark: &str, value: &str) -> Judged<()> {
        self.fuel.take(text.matches(mark).count().saturating_mul(value.len()) / BYTES_PER_STEP)
    }

    /// Looks at every place where the program of a wrapper may begin that was not understood.
    pub(super) fn anywhere(
        &mut self,
        name: &str,
        words: &[String],
        guess: Option<usize>,
        place: &Place<'_>,
    ) -> Judged<()> {
        self.unclear = true;
        // Where the words began before, all ends of them are looked at already.
        if place.is_suffix {
            return Ok(());
        }
        let place = Place { is_suffix: true, ..place.clone() };
        let starts = (1..words.len()).filter(|&at| !words[at].starts_with('-')).take(STARTS_MAX);
        for at in starts {
            self.wrapped(name, words, words[at..].to_vec(), guess, &place)?;
        }
        Ok(())
    }

    pub(super) fn run(&mut self, name: &str, run: Runs, place: Place<'_>) -> Judged<()> {
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
                let around = Around { outer: &place.input, reading, depth: place.depth, same_shell };
                if name == "trap" {
                    let place = (text.clone(), reading, self.places.clone());
                    self.walked.traps.push(place);
                }
                self.script(&text, variables, around)
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
            Runs::Each { text, values, reading } => self.each(&text, &values, reading, &place),
            Runs::Unclear | Runs::Anywhere => {
                self.unclear = true;
                Ok(())
            }
        }
    }

    /// Looks at a text with each of its values, and each line that it reads.
    fn each(&mut self, text: &str, values: &[String], reading: Reading, place: &Place<'_>) -> Judged<()> {
        let lines = place.input.texts.iter().flat_map(|text| text.lines());
        let mut values: Vec<&str> = values.iter().map(String::as_str).chain(lines).collect();
        if values.is_empty() {
            self.unclear |= text.is_empty();
            values.push("");
        }
        if place.input.fetched && text.is_empty() && self.rules.contains(&DenyRule::RunFetched) {
            return Err(Denied(RUNS_FETCHED.to_owned()));
        }
        for value in values {
            self.fuel.take(text.len() + value.len())?;
            self.replaces(text, "{}", value)?;
            let line = if text.contains("{}") { text.replace("{}", value) } else { format!("{text} {value}") };
            let around = Around { outer: &Input::default(), reading, depth: place.depth, same_shell: false };
            self.script(&marker::written(&line), place.variables.inherited(&[]), around)?;
        }
        Ok(())
    }

    /// Looks at the commands that a shell reads.
    fn stdin(&mut self, reading: Reading, place: &Place<'_>) -> Judged<()> {
        if place.input.fetched && self.rules.contains(&DenyRule::RunFetched) {
            return Err(Denied(RUNS_FETCHED.to_owned()));
        }
        self.unclear = true;
        for text in &place.input.texts {
            let variables = place.variables.inherited(&[]);
            let around = Around { outer: &Input::default(), reading, depth: place.depth, same_shell: false };
            self.script(&marker::written(text), variables, around)?;
        }
        Ok(())
    }

    pub(super) fn interpreter(&mut self, name: &str, arguments: &[String], place: &Place<'_>) -> Judged<()> {
        let Some(code) = code_of(name, arguments) else { return Ok(()) };
        let fetched =
            code.iter().any(|code| code.contains(marker::FETCHED)) || (code.is_empty() && place.input.fetched);
        match fetched && self.rules.contains(&DenyRule::RunFetched) {
            true => Err(Denied(RUNS_FETCHED.to_owned())),
            false => Ok(()),
        }
    }
}
