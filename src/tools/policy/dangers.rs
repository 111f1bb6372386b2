//! The deny list: tables of programs, and the rules for a program with its arguments.

use super::paths::{Whole, WorkingDirectory, is_sink};
use super::rule::{DenyRule, matches};
use super::words::{base_name, has, marker};
use super::wrappers::{is_wrapper, programs};

/// Programs that overwrite a whole disk, such as file system makers. `mkfs.*` belongs to them, too.
const MAKERS: &str = "mkdosfs mke2fs mkexfatfs mkfs mkntfs mkreiserfs mkswap mkudffs";
const FETCHERS: &str = "GET aria2c axel curl fetch ftp http https lwp-download lwp-request lynx nc wget wget2";
/// Programs that write to their operands. `COPIERS` write to the last operand.
const WRITERS: &str = "dd tee shred wipefs blkdiscard sponge truncate";
const COPIERS: &str = "cp mv install";
const CHANGERS: &str = "chmod chown chgrp";
const NAME_TESTS: &str = "-name -iname -path -ipath -wholename -iwholename -regex -iregex -lname";

/// Programs that destroy a volume or expose the machine if each pattern matches one of their arguments.
const RUINOUS: [(&str, &str, &str); 12] = [
    ("btrfs", "subvolume delete", DESTROYS),
    ("lvremove pvremove vgremove", "", DESTROYS),
    ("zfs zpool", "destroy", DESTROYS),
    ("nvme", "format", DESTROYS),
    ("nvme", "sanitize", DESTROYS),
    ("hdparm", "--security-erase*", DESTROYS),
    (ENGINES, "/:*", HANDS_OVER),
    (ENGINES, "-v/:*", HANDS_OVER),
    (ENGINES, "--volume=/:*", HANDS_OVER),
    (ENGINES, "*bind*,s*=/,*", HANDS_OVER),
    (ENGINES, "--privileged --pid=host", HANDS_OVER),
    (ENGINES, "--privileged --pid host", HANDS_OVER),
];
const ENGINES: &str = "docker nerdctl podman";

const REMOVES: &str = "it would remove everything below";
const MOVES: &str = "it would move away everything below";
const DESTROYS: &str = "it would destroy a volume";
const HANDS_OVER: &str = "it would give a container access to the whole machine";
const ENDS_ALL: &str = "it would kill all processes";
const PROTECTED: &str = "/, a system directory, the home directory or a directory above the workspace";
const CHANGES: &str = "it would change the modes or owners of everything below";
const LIKE_THIS: &str = "the policy denies commands like this";
pub(super) const WRITES_DISK: &str = "it would write to a disk's device file or a file that the system needs";
const MAKES: &str = "it would create a file system on a device";
pub(super) const WRITES_ZEROS: &str = "it would write zeros with dd";

#[derive(Debug)]
pub(super) enum RuleVerdict {
    Denied(String),
    /// The verdict depends on an expansion.
    Unsure,
    /// The command needs approval, regardless of the allow list.
    Asked,
    Fine,
}

pub(super) fn is_fetcher(name: &str) -> bool {
    has(FETCHERS, name)
}

fn is_maker(name: &str) -> bool {
    has(MAKERS, name) || name.starts_with("mkfs.")
}

/// Returns true if one of the standard rules applies to the program.
pub(super) fn is_dangerous(name: &str) -> bool {
    let tables = [CHANGERS, WRITERS, COPIERS, "rm find"];
    is_maker(name) || tables.iter().any(|table| has(table, name))
}

pub(super) fn judge(rule: &DenyRule, words: &[String], place: &WorkingDirectory) -> RuleVerdict {
    let Some((first, arguments)) = words.split_first() else { return RuleVerdict::Fine };
    let name = base_name(first);
    let recursive = |letters: &[char]| has_option(arguments, letters, "recursive");
    let operands = arguments.iter().filter(|word| !word.starts_with('-'));
    let is_program = |denied: &String| denied_if(name == denied || first == denied, "the policy denies this program");
    match rule {
        DenyRule::RemoveRoot if name == "rm" => decided(arguments, place, recursive(&['r', 'R']), operands, REMOVES),
        DenyRule::RemoveRoot if name == "find" => finds(arguments, place),
        DenyRule::RemoveRoot if name == "mv" => {
            let moved = operands.clone().take(operands.count().saturating_sub(1));
            denied_if(covers_any(moved, place), &format!("{MOVES} {PROTECTED}"))
        }
        DenyRule::RemoveRoot if name == "rsync" => {
            let deletes = arguments.iter().any(|word| word.starts_with("--del"));
            let covers = covers_any(operands.clone().next_back().into_iter(), place);
            denied_if(deletes && covers, &format!("{REMOVES} {PROTECTED}"))
        }
        DenyRule::Ruin => ruin(name, arguments).map_or(RuleVerdict::Fine, |reason| denied_if(true, reason)),
        DenyRule::ChangeRoot if has(CHANGERS, name) => {
            // The first operand is the mode or the owner, unless the mode looks like an option, such as `-w`.
            let aims = operands.clone().skip(usize::from(operands.count() > 1));
            decided(arguments, place, recursive(&['R']), aims, CHANGES)
        }
        DenyRule::MakeFilesystem if is_maker(name) => {
            let on_device = |word: &String| word.contains(marker::is) || place.tidied(word).starts_with("/dev");
            if arguments.iter().any(on_device) { RuleVerdict::Denied(MAKES.to_owned()) } else { RuleVerdict::Asked }
        }
        DenyRule::DdFromZero if name == "dd" => {
            let zero = |path: &str| place.tidied(path) == "/dev/zero";
            match arguments.iter().any(|word| word.strip_prefix("if=").is_some_and(zero)) {
                true if is_counted(arguments) => RuleVerdict::Asked,
                reads_zeros => denied_if(reads_zeros, WRITES_ZEROS),
            }
        }
        DenyRule::WriteToDisk if has(WRITERS, name) => {
            let mut targets = arguments.iter().filter(|word| name != "dd" || word.starts_with("of="));
            match targets.any(|word| place.is_vital(value(word))) {
                true => RuleVerdict::Denied(WRITES_DISK.to_owned()),
                false if arguments.iter().any(|word| is_odd(word, name == "dd")) => RuleVerdict::Unsure,
                false => RuleVerdict::Fine,
            }
        }
        DenyRule::WriteToDisk if name == "find" => {
            let is_target = |word: &str| word.starts_with("-fprint") || word == "-fls";
            let written = arguments.windows(2).any(|pair| is_target(&pair[0]) && place.is_vital(&pair[1]));
            denied_if(written, WRITES_DISK)
        }
        DenyRule::WriteToDisk if has(COPIERS, name) => copies(arguments, place),
        DenyRule::Program(denied) => is_program(denied),
        DenyRule::Words(denied) if !denied.contains(' ') => is_program(denied),
        DenyRule::Words(denied) => {
            let line = line(name, arguments);
            let rest = line.strip_prefix(denied.as_str());
            denied_if(rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' ')), LIKE_THIS)
        }
        DenyRule::Pattern(pattern) => denied_if(matches(pattern, &line(name, arguments)), LIKE_THIS),
        _ => RuleVerdict::Fine,
    }
}

fn line(name: &str, arguments: &[String]) -> String {
    let words = arguments.iter().map(|word| marker::written(word));
    std::iter::once(name.to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

fn denied_if(denied: bool, reason: &str) -> RuleVerdict {
    if denied { RuleVerdict::Denied(reason.to_owned()) } else { RuleVerdict::Fine }
}

/// Returns true if an option is present, by a letter or by a prefix of its long name.
pub(super) fn has_option(arguments: &[String], letters: &[char], long: &str) -> bool {
    let options = arguments.iter().take_while(|word| *word != "--");
    options.filter_map(|word| word.strip_prefix('-')).any(|option| match option.strip_prefix('-') {
        Some(name) => !name.is_empty() && long.starts_with(name),
        None => option.contains(letters),
    })
}

fn decided<'w>(
    arguments: &[String],
    place: &WorkingDirectory,
    recursive: bool,
    aims: impl Iterator<Item = &'w String>,
    reason: &str,
) -> RuleVerdict {
    let aims: Vec<Whole> = aims.filter(|_| recursive).map(|path| covered(path, place)).collect();
    if aims.contains(&Whole::Yes) {
        return RuleVerdict::Denied(format!("{reason} {PROTECTED}"));
    }
    match arguments.iter().any(|word| is_odd(word, recursive)) || aims.contains(&Whole::Perhaps) {
        true if recursive => RuleVerdict::Unsure,
        true => RuleVerdict::Asked,
        false => RuleVerdict::Fine,
    }
}

/// Returns the path's coverage of protected directories, including system directories.
fn covered(path: &str, place: &WorkingDirectory) -> Whole {
    if place.is_system(path) { Whole::Yes } else { place.whole(path) }
}

fn covers_any<'w>(mut paths: impl Iterator<Item = &'w String>, place: &WorkingDirectory) -> bool {
    paths.any(|path| covered(path, place) == Whole::Yes)
}

fn ruin(name: &str, arguments: &[String]) -> Option<&'static str> {
    let fits = |pattern: &str| arguments.iter().any(|word| matches(pattern, word));
    let asks = arguments.iter().any(|word| has("--help --version", word));
    // With one argument, `-1` is a signal.
    let ends_all = name == "kill" && arguments.len() > 1 && arguments.last().is_some_and(|word| word == "-1");
    let mut entries = RUINOUS.iter().filter(|(names, ..)| !asks && has(names, name));
    let found = entries.find(|(_, patterns, _)| patterns.split_whitespace().all(fits)).map(|(.., reason)| *reason);
    found.or(ends_all.then_some(ENDS_ALL))
}

/// Returns true if `dd` copies a limited number of blocks.
pub(super) fn is_counted(words: &[String]) -> bool {
    words.iter().any(|word| word.starts_with("count="))
}

/// Returns true if a word may expand to any other word.
fn is_odd(word: &str, or_files: bool) -> bool {
    word.contains(|c| marker::is_open(c) || (or_files && marker::is_glob(c)))
}

fn finds(arguments: &[String], place: &WorkingDirectory) -> RuleVerdict {
    let here = ".".to_owned();
    let is_option = |word: &&String| has("-H -L -P -D", word) || word.starts_with("-O");
    let directories = arguments.iter().take_while(|word| !word.starts_with(['-', '(', '!']) || is_option(word));
    let directories: Vec<&String> = directories.filter(|word| !is_option(word)).collect();
    let aims = if directories.is_empty() { vec![&here] } else { directories };
    match decided(arguments, place, deletes(arguments), aims.into_iter(), REMOVES) {
        RuleVerdict::Denied(_) if is_narrowed(arguments) => RuleVerdict::Unsure,
        verdict => verdict,
    }
}

fn copies(arguments: &[String], place: &WorkingDirectory) -> RuleVerdict {
    // The first operand is read, unless `-t` names a target, which may be a directory.
    let names = |word: &String| word.starts_with("-t") || word.starts_with("--t");
    let operands = arguments.iter().filter(|word| !word.starts_with('-') || names(word));
    let first = usize::from(!arguments.iter().any(names));
    let targets: Vec<&str> = operands.skip(first).map(|word| value(word).trim_start_matches("-t")).collect();
    let in_devices = targets.iter().any(|path| place.tidied(path).starts_with("/dev") && !is_sink(path));
    let held = |word: &String| in_devices && place.is_disk(&format!("/dev/{}", base_name(word)));
    match targets.iter().any(|path| place.is_vital(path)) || arguments.iter().any(held) {
        true => RuleVerdict::Denied(WRITES_DISK.to_owned()),
        false if in_devices || arguments.iter().any(|word| is_odd(word, false)) => RuleVerdict::Unsure,
        false => RuleVerdict::Fine,
    }
}

fn value(word: &str) -> &str {
    word.rsplit_once('=').map_or(word, |(_, value)| value)
}

pub(super) fn is_narrowed(arguments: &[String]) -> bool {
    let all = |pattern: &str| pattern.chars().all(|c| matches!(c, '*' | '.' | '?') || marker::is_glob(c));
    let names = |pair: &[String]| has(NAME_TESTS, &pair[0]) && !all(&pair[1]);
    !arguments.iter().any(|word| has("! -not -o -or ,", word)) && arguments.windows(2).any(names)
}

fn deletes(arguments: &[String]) -> bool {
    let is_remover = |word: &String| has("rm unlink shred", base_name(word));
    let removes = |program: &[String]| match program.split_first() {
        Some((first, rest)) => is_remover(first) || (is_wrapper(base_name(first)) && rest.iter().any(is_remover)),
        None => false,
    };
    // The word after a name test is a name.
    let is_named = |at: usize| at > 0 && has(NAME_TESTS, &arguments[at - 1]);
    let deletes = arguments.iter().enumerate().any(|(at, word)| word == "-delete" && !is_named(at));
    deletes || programs(arguments).any(removes)
}
