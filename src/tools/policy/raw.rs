//! What a text names that is not plain: dangers, whatever they are in the midst of.

use super::dangers::{has_option, is_fetcher, is_maker, is_narrowed};
use super::judge::RUNS_FETCHED;
use super::names::holds_subscript;
use super::paths::{Place, Whole, whole_text};
use super::refusal::Denied;
use super::rule::{DenyRule, matches};
use super::shell::{RedirectKind, Script, Simple};
use super::words::{base_name, has, marker};

/// Programs that only look, print or store: what they are given is not searched.
const INERT: &str = "ack ag apropos cat command du echo egrep fgrep file git grep head help hexdump less ls lsblk man \
    more od printf readlink realpath rg stat tail test type wc whatis whereis which [";
/// Programs whose bodies of here-documents are not searched.
const PRINTS: &str = "cat echo git printf tee";
/// Commands that give their words to others, and such whose words may be assignments.
const GIVES: &str = "cd echo for printf pushd select set yes";
const SETS: &str = "declare env export local readonly typeset";
/// Places of a command at which a pattern is tried.
const STARTS_MAX: usize = 32;

/// What was seen.
#[derive(Default)]
pub(super) struct Raw {
    rules: Vec<DenyRule>,
    /// Values that a program in an unknown place may be, and texts that may be run.
    values: Vec<String>,
    texts: Vec<String>,
    /// What a command names all by itself.
    pub(super) named: Option<String>,
    /// What is named in several places.
    pub(super) likely: Option<String>,
    /// Something is run that is not known, or that is read.
    pub(super) runs_unknown: bool,
    /// `/`, home, or a disk is named where others may take it from.
    pub(super) roots: bool,
    disks: bool,
    removes: bool,
    writes: bool,
    fetches: bool,
    is_late: bool,
}

impl Raw {
    pub(super) fn new<'e>(rules: &[DenyRule], env: impl Iterator<Item = &'e String>) -> Self {
        let mut raw = Self { rules: rules.to_vec(), ..Self::default() };
        env.for_each(|value| raw.value(value));
        raw
    }

    fn value(&mut self, value: &str) {
        self.gives(value);
        self.values.push(value.to_owned());
    }

    fn gives(&mut self, word: &str) {
        self.roots |= is_whole(word);
        self.disks |= Place::at("").is_disk(word);
    }

    /// Notes what a command names.
    pub(super) fn see(&mut self, command: &Simple) {
        let first = command.words.first().map_or("", |word| base_name(word));
        let words: Vec<String> = command.words.iter().flat_map(|word| pieces(word)).filter(|w| w != "--").collect();
        command.assignments.iter().for_each(|(_, value)| self.value(value));
        for word in command.assignments.iter().map(|(_, value)| value).chain(&command.words) {
            if word.contains(marker::SPLIT) {
                pieces(word).for_each(|piece| self.gives(&piece));
            }
            // Shells evaluate what looks like a subscript.
            if holds_subscript(word) && (!has(INERT, first) || has("test [", first) || word.contains(marker::UNKNOWN)) {
                self.texts.push(marker::written(word));
            }
        }
        let gives = has(GIVES, first) || (first == "find" && !is_narrowed(&words));
        words.iter().filter(|_| gives).for_each(|word| self.gives(word));
        let set = words.iter().filter(|_| has(SETS, first)).filter_map(|word| word.split_once('='));
        set.for_each(|(_, value)| self.value(value));
        let texts = command.redirects.iter().filter(|redirect| redirect.kind == RedirectKind::Text);
        self.texts.extend(texts.filter(|_| !has(PRINTS, first)).map(|redirect| redirect.target.clone()));

        let recursive = has_option(&words, &['r', 'R'], "recursive");
        let any = |is: &dyn Fn(&str) -> bool| words.iter().any(|word| is(base_name(word)));
        let open = words.iter().any(|word| word.contains(marker::is) || matches!(word.as_str(), "." | "./"));
        let to_open = |r: &super::shell::Redirect| r.kind == RedirectKind::Write && r.target.contains(marker::is_open);
        self.removes |= any(&|name| name == "rm") && recursive && open;
        self.writes |= command.redirects.iter().any(to_open) || (open && any(&|name| has("dd tee cp", name)));
        self.fetches |= words.iter().enumerate().any(|(at, word)| is_fetcher(base_name(word)) && prints(&words[at..]));
        if !has(INERT, first) {
            let named = self.rules.iter().any(|rule| names(rule, &words, first, recursive));
            self.note(named.then(|| marker::written(&words.join(" "))));
        }
    }

    fn note(&mut self, reason: Option<String>) {
        let place = if self.is_late { &mut self.likely } else { &mut self.named };
        *place = place.take().or(reason);
    }

    /// Looks at texts that may be run, and at what is named in several places; tells the steps.
    pub(super) fn finish(&mut self) -> Result<usize, Denied> {
        self.is_late = true;
        let mut texts = std::mem::take(&mut self.texts);
        if self.runs_unknown {
            let values = std::mem::take(&mut self.values);
            texts.push(values.join(" "));
            texts.extend(values);
        }
        let mut steps = 0;
        for text in texts {
            let script = Script::read(&text)?;
            steps += script.steps;
            script.commands.iter().for_each(|command| self.see(command));
        }
        let reasons = [
            (self.removes && self.roots, DenyRule::RemoveRoot, "a recursive removal, and a path such as /"),
            (self.writes && self.disks, DenyRule::WriteToDisk, "a write, and a disk's device file"),
            (self.fetches && self.runs_unknown, DenyRule::RunFetched, RUNS_FETCHED),
        ];
        let reason = reasons.into_iter().find(|(is, rule, _)| *is && self.rules.contains(rule));
        self.note(reason.map(|(.., reason)| reason.to_owned()));
        Ok(steps)
    }
}

/// Whether a command's words name what a rule denies.
fn names(rule: &DenyRule, words: &[String], first: &str, recursive: bool) -> bool {
    let any = |is: &dyn Fn(&str) -> bool| words.iter().any(|word| is(base_name(word)));
    let given = |word: &str| words.iter().any(|given| given == word);
    let whole = || words.iter().any(|word| is_whole(word));
    match rule {
        DenyRule::RemoveRoot => {
            let unknown = first.contains(marker::is) && has_option(words, &['f'], "force");
            let deletes = given("-delete") || any(&|name| has("rm unlink shred", name));
            let finds = any(&|name| name == "find") && deletes && !is_narrowed(words);
            whole() && (recursive && (unknown || any(&|name| name == "rm")) || finds)
        }
        DenyRule::ChangeRoot => {
            has_option(words, &['R'], "recursive") && any(&|name| has("chmod chown chgrp", name)) && whole()
        }
        DenyRule::MakeFilesystem => any(&is_maker),
        DenyRule::DdFromZero => any(&|name| name == "dd") && given("if=/dev/zero"),
        DenyRule::WriteToDisk => {
            words.iter().any(|word| Place::at("").is_disk(word.strip_prefix("of=").unwrap_or(word)))
        }
        DenyRule::Program(name) => words.iter().any(|word| word == name || base_name(word) == name),
        DenyRule::Pattern(pattern) => {
            (0..words.len().min(STARTS_MAX)).any(|at| matches(pattern, &marker::written(&words[at..].join(" "))))
        }
        _ => false,
    }
}

/// What a word may fall apart into.
fn pieces(word: &str) -> impl Iterator<Item = String> + '_ {
    word.split(marker::SPLIT).flat_map(|part| {
        let list = part.split_once(marker::OPEN).map(|(_, rest)| rest.split(marker::CLOSE).next().unwrap_or(rest));
        let piece = |piece: &str| match piece
            .trim_end_matches(|c| word.contains(marker::SPLIT) && matches!(c, marker::UNKNOWN | '}'))
        {
            "" => piece.to_owned(),
            known => known.to_owned(),
        };
        list.unwrap_or(part).split(marker::COMMA).map(piece)
    })
}

/// Whether a path names `/` or home, wherever that is.
fn is_whole(path: &str) -> bool {
    path.starts_with(['/', marker::HOME]) && whole_text(path) == Whole::Yes
}

/// Whether a program that fetches prints what it fetches.
fn prints(words: &[String]) -> bool {
    let saves = |word: &String| has("-o -O --output --remote-name", word) || word.starts_with("--output=");
    let out = words.windows(2).any(|pair| pair[0].ends_with(['O', 'o']) && pair[1] == "-")
        || words.iter().any(|word| word.ends_with("O-"));
    out || !(has("wget wget2 aria2c axel", base_name(&words[0])) || words.iter().any(saves))
}
