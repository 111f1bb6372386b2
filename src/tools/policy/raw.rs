//! Scans unplain text for dangers that several parts form together.

use super::dangers::{RuleVerdict, has_option, is_dangerous, is_fetcher, is_narrowed, judge};

use super::paths::{Whole, WorkingDirectory};
use super::rule::DenyRule;
use super::words::{RedirectKind, Simple, base_name, has, marker};

/// Programs that only inspect, print or store. Their arguments are not searched.
const INERT: &str = "ack ag apropos cat command du echo egrep fgrep file git grep head help hexdump less ls lsblk man \
    more od printf readlink realpath rg stat tail tee test type wc whatis whereis which [";

#[derive(Default)]
pub(super) struct Raw {
    /// The rules that deny a command of the text if another part supplies its target.
    pub(super) open: Vec<DenyRule>,
    /// True if a part that may supply a target names `/` or home.
    pub(super) roots: bool,
    pub(super) finds: bool,
    disks: bool,
    /// True if `rm` receives a command's output.
    is_given: bool,
    flags: bool,
}

impl Raw {
    /// Records the parts that a command names. `held` is true if other parts may read its output.
    pub(super) fn see(&mut self, command: &Simple, held: bool, rules: &[DenyRule], place: &WorkingDirectory) {
        let mut targets = command.redirects.iter().filter(|(kind, _)| *kind == RedirectKind::Write).peekable();
        let held = held || command.piped || targets.peek().is_some();
        for (_, target) in targets {
            self.gives(target);
            self.open.extend(target.contains(marker::is_open).then_some(DenyRule::WriteToDisk));
        }
        let first = command.words.first().map_or("", |word| base_name(word));
        if has(INERT, first) && !command.piped {
            return;
        }
        let is_read = has("parallel read xargs", first);
        let texts = command.redirects.iter().filter(|(kind, _)| is_read && *kind == RedirectKind::Text);
        texts.flat_map(|(_, text)| text.split_whitespace()).for_each(|word| self.gives(word));
        if first == "find" && is_narrowed(&command.words) {
            self.finds |= command.words.iter().any(|word| is_root(word));
        } else {
            command.words.iter().for_each(|word| self.gives(word));
        }
        let fetches = held && !has(INERT, first) && command.words.iter().any(|word| is_fetcher(base_name(word)));
        self.open.extend(fetches.then_some(DenyRule::RunFetched));

        self.flags |= command.piped && has_option(&command.words, &['r', 'R'], "recursive");
        let unknown = marker::UNKNOWN.to_string();
        let given = command.words.iter().map(|word| word.replace("{}", &unknown));
        let pieces = |word: String| word.split([marker::BRACE, ',', '}']).map(str::to_owned).collect::<Vec<_>>();
        let mut words: Vec<String> = given.flat_map(pieces).collect();
        match words.iter().position(|word| is_dangerous(base_name(word))) {
            Some(at) => drop(words.drain(..at)),
            // The program is unknown. Words after a substitution are separate commands.
            None => {
                let unknown = words.iter().position(|word| word.contains(marker::is_open)).map(|at| at + 1);
                let Some(start) = unknown.or(first.starts_with('-').then_some(0)) else { return };
                words.drain(..start);
                words.splice(..0, has_option(&words, &['f'], "force").then(|| "rm".to_owned()));
            }
        }
        let is_given = words.iter().any(|word| word.contains(marker::OUTPUT));
        self.is_given |= is_given && words.first().is_some_and(|word| base_name(word) == "rm");
        let fed = has("xargs parallel", first);
        if fed || words.iter().skip(1).all(|word| word.starts_with('-')) {
            words.push(format!("-r{unknown}"));
        }
        let is_open = |rule: &&DenyRule| match judge(rule, &words, place) {
            RuleVerdict::Denied(_) | RuleVerdict::Unsure => true,
            RuleVerdict::Asked => fed || **rule == DenyRule::MakeFilesystem,
            RuleVerdict::Fine => false,
        };
        self.open.extend(rules.iter().filter(is_open).cloned());
    }

    pub(super) fn gives(&mut self, word: &str) {
        let word = word.strip_prefix("of=").unwrap_or(word);
        let mut pieces = word.split([marker::BRACE, ',', '}', '=', ' ']).chain([word]);
        self.roots |= pieces.any(|word| is_root(word.trim_end_matches(marker::UNKNOWN)));
        self.disks |= WorkingDirectory::default().is_disk(word);
    }

    pub(super) fn danger(&self, rules: &[DenyRule], evaluates: bool) -> Option<&'static str> {
        let dangers = [
            (DenyRule::RemoveRoot, self.roots, "a recursive removal, and a path such as /"),
            (DenyRule::ChangeRoot, self.roots, "a recursive change of modes, and a path such as /"),
            (DenyRule::MakeFilesystem, true, "a program that makes file systems"),
            (DenyRule::WriteToDisk, self.disks, "a write, and a disk's device file"),
            (DenyRule::RunFetched, evaluates, RUNS_FETCHED),
        ];
        let is_open = |rule: &DenyRule| match rule {
            DenyRule::RemoveRoot if self.is_given && self.flags => true,
            DenyRule::WriteToDisk if evaluates => true,
            rule => self.open.contains(rule),
        };
        let mut named = dangers.iter().filter(|(rule, named, _)| *named && rules.contains(rule));
        named.find(|(rule, ..)| is_open(rule)).map(|(.., what)| *what)
    }
}

/// Returns true if a path names `/` or home, from any directory.
fn is_root(path: &str) -> bool {
    path.starts_with(['/', marker::HOME]) && WorkingDirectory::default().whole(path) == Whole::Yes
}

pub(super) const RUNS_FETCHED: &str =
    "it would run data just fetched from the network; save the data, inspect it, then run it";
