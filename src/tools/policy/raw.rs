//! Scan of a text that is not plain for dangers that come together from several places.

use super::dangers::{CHANGERS, deletes, has_option, is_fetcher, is_maker, is_narrowed};
use super::judge::{Evaluates, RUNS_FETCHED};
use super::paths::{Place, Whole};
use super::rule::DenyRule;
use super::words::{RedirectKind, Simple, base_name, has, marker};

/// Programs that only look, print or store: what they are given is not searched.
const INERT: &str = "ack ag apropos cat command du echo egrep fgrep file git grep head help hexdump less ls lsblk man \
    more od printf readlink realpath rg stat tail tee test type wc whatis whereis which [";

/// Flags for what was seen.
#[derive(Default)]
pub(super) struct Raw {
    removes: bool,
    changes: bool,
    makes: bool,
    writes: bool,
    fetches: bool,
    /// `/` or home is named where others may take it from.
    roots: bool,
    /// `find` looks through these, perhaps for some names only.
    finds_roots: bool,
    /// A disk is named.
    disks: bool,
}

impl Raw {
    /// Notes what a command names. `held` tells that what it prints may be read elsewhere in the text.
    pub(super) fn see(&mut self, command: &Simple, held: bool) {
        let first = command.words.first().map_or("", |word| base_name(word));
        let pieces = |word: &String| word.split([marker::BRACE, ',', '}']).map(str::to_owned).collect::<Vec<_>>();
        let words: Vec<String> = command.words.iter().flat_map(pieces).filter(|word| word != "--").collect();
        let any = |is: &dyn Fn(&str) -> bool| words.iter().any(|word| is(base_name(word)));
        let is_inert = has(INERT, first) && !command.piped;
        let targets = command.redirects.iter().filter(|redirect| redirect.kind == RedirectKind::Write);
        let values = command.assignments.iter().map(|(_, value)| value);
        let given = command.words.iter().filter(|_| !(is_inert || first == "find" && is_narrowed(&words)));
        values.chain(given).chain(targets.clone().map(|redirect| &redirect.target)).for_each(|word| self.gives(word));

        let is_open = |word: &String| word.contains(marker::is) || matches!(word.as_str(), "." | "./" | "{}");
        let opens = command.words.iter().chain(&words).any(|word| is_open(word) || is_root(word))
            || words.iter().skip(1).all(|word| word.starts_with('-'));
        self.finds_roots |= first == "find" && words.iter().any(|word| is_root(word));
        let recursive = has_option(&words, &['r', 'R'], "recursive");
        // Words behind a substitution stand alone.
        let is_unknown = first.contains(marker::is_open) || first.starts_with('-');
        let forced = is_unknown && has_option(&words, &['f'], "force") && words.iter().any(|word| is_root(word));
        let removes = any(&|name| name == "rm") || forced;
        self.removes |= removes && (recursive && opens || has("xargs parallel", first)) || deletes(&words);
        self.changes |= any(&|name| has(CHANGERS, name)) && has_option(&words, &['R'], "recursive");
        self.makes |= !is_inert && any(&is_maker);
        self.writes |= targets.clone().any(|redirect| redirect.target.contains(marker::is_open));
        self.writes |= any(&|name| has("dd tee cp shred wipefs", name));
        let saves = words.iter().any(|word| has("-o -O --output --remote-name", word) || word.starts_with("--output="));
        let to_output = words.iter().any(|word| word.ends_with("O-") || word == "-");
        let fetcher = words.iter().map(|word| base_name(word)).find(|name| is_fetcher(name));
        let prints = fetcher.is_some_and(|name| to_output || !(saves || has("wget wget2 aria2c axel", name)));
        self.fetches |= prints && !has(INERT, first) && (held || command.piped || targets.count() > 0);
    }

    /// Notes a word that others may take.
    pub(super) fn gives(&mut self, word: &str) {
        let word = word.strip_prefix("of=").unwrap_or(word);
        let mut pieces = word
            .split([marker::BRACE, ',', '}', '=', ' '])
            .chain([word])
            .map(|word| word.trim_end_matches(marker::UNKNOWN));
        self.roots |= pieces.any(is_root);
        self.disks |= Place::at("").is_disk(word);
    }

    pub(super) fn names_roots(&self) -> bool {
        self.roots || self.finds_roots
    }

    /// Names a danger that a rule denies, given what the text evaluates.
    pub(super) fn danger(&self, rules: &[DenyRule], evaluates: Evaluates) -> Option<&'static str> {
        let dangers = [
            (self.removes && self.roots, DenyRule::RemoveRoot, "a recursive removal, and a path such as /"),
            (self.changes && self.roots, DenyRule::ChangeRoot, "a recursive change of modes, and a path such as /"),
            (self.makes, DenyRule::MakeFilesystem, "a program that makes file systems"),
            (
                self.disks && (self.writes || evaluates > Evaluates::Nothing),
                DenyRule::WriteToDisk,
                "a write, and a disk's device file",
            ),
            (self.fetches && evaluates == Evaluates::Text, DenyRule::RunFetched, RUNS_FETCHED),
        ];
        dangers.into_iter().find(|(is, rule, _)| *is && rules.contains(rule)).map(|(.., what)| what)
    }
}

/// Tells whether a path names `/` or home, whatever the directory.
fn is_root(path: &str) -> bool {
    path.starts_with(['/', marker::HOME]) && Place::at("").whole(path) == Whole::Yes
}
