//! What is denied: tables of programs, and the rules for one program and its arguments.

use super::paths::{Place, Whole, matches_all, tidied};
use super::rule::{DenyRule, matches};
use super::words::{base_name, has, marker};
use super::wrappers::{command_length, is_wrapper};

/// Programs that make a file system, or something else over all of a disk; `mkfs.*` too.
const MAKERS: &str = "mkdosfs mke2fs mkexfatfs mkfs mkntfs mkreiserfs mkswap mkudffs";
/// Programs that fetch something from the network.
const FETCHERS: &str = "GET aria2c axel curl fetch ftp http https lwp-download lwp-request lynx nc wget wget2";
/// Programs that write where their arguments say.
const WRITERS: &str = "dd tee shred wipefs blkdiscard sponge truncate cp mv install";
/// Programs whose arguments decide whether they are a danger.
const CHANGERS: &str = "chmod chown chgrp";
/// Tests of `find` by name.
const NAME_TESTS: &str = "-name -iname -path -ipath -wholename -iwholename -regex -iregex -lname";
const ROOTS: &str = "/, the home directory or what is above the workspace";

/// What is known of a program that is about to run.
pub(super) struct Program<'a> {
    /// The last part of its path.
    pub(super) name: &'a str,
    /// All of its words, the first being the program.
    pub(super) words: &'a [String],
    pub(super) place: &'a Place,
    /// What it reads, or is given, are paths below `/` or home.
    pub(super) fed_whole: bool,
    /// It reads `/dev/zero`.
    pub(super) reads_zero: bool,
}

/// What a rule says of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Denied(String),
    /// It depends on something that is not plain.
    Unsure,
    /// It is asked about, whatever is allowed.
    Asked,
    Fine,
}

/// Whether the program fetches from the network.
pub(super) fn is_fetcher(name: &str) -> bool {
    has(FETCHERS, name)
}

/// Whether the program makes a file system.
pub(super) fn is_maker(name: &str) -> bool {
    has(MAKERS, name) || name.starts_with("mkfs.")
}

/// Applies a rule to a program.
pub(super) fn judge(rule: &DenyRule, program: &Program<'_>) -> Verdict {
    match rule {
        DenyRule::RemoveRoot => removes(program),
        DenyRule::ChangeRoot => changes(program),
        DenyRule::MakeFilesystem if is_maker(program.name) => makes(program),
        DenyRule::DdFromZero if program.name == "dd" => {
            let zero = |path: &str| tidied(&program.place.path(path)) == "/dev/zero";
            let from_zero = program.words.iter().any(|word| word.strip_prefix("if=").is_some_and(zero));
            denied_if(program.reads_zero || from_zero, "it would write zeros with dd")
        }
        DenyRule::WriteToDisk => writes(program),
        DenyRule::Program(name) => {
            let is_named = program.name == name || program.words.first().is_some_and(|word| word == name);
            denied_if(is_named, "the policy denies this program")
        }
        DenyRule::Pattern(pattern) => {
            let words = program.words.iter().skip(1).map(|word| marker::written(word));
            let line = std::iter::once(program.name.to_owned()).chain(words).collect::<Vec<_>>().join(" ");
            denied_if(matches(pattern, &line), "the policy denies commands like this")
        }
        _ => Verdict::Fine,
    }
}

fn denied_if(denied: bool, reason: &str) -> Verdict {
    if denied { Verdict::Denied(reason.to_owned()) } else { Verdict::Fine }
}

/// Whether some option is given, by its letter or the beginning of its long name.
pub(super) fn has_option(arguments: &[String], letters: &[char], long: &str) -> bool {
    let options = arguments.iter().take_while(|word| *word != "--");
    options.filter_map(|word| word.strip_prefix('-')).any(|option| match option.starts_with('-') {
        true => option.len() > 1 && long.starts_with(&option[1..]),
        false => option.contains(letters),
    })
}

fn aims<'w>(program: &Program<'_>, mut paths: impl Iterator<Item = &'w String>) -> Whole {
    let mut aim = Whole::No;
    let yes = paths.any(|path| {
        let whole = program.place.whole(path);
        aim = if whole == Whole::No { aim } else { whole };
        whole == Whole::Yes
    });
    if yes { Whole::Yes } else { aim }
}

/// Decides by what a program aims at, and whether its words are all plain.
fn decided(aim: Whole, words: &[String], globs: bool, reason: &str) -> Verdict {
    let is_odd = |c: char| marker::is_open(c) || (globs && marker::is_glob(c));
    match aim {
        Whole::Yes => Verdict::Denied(format!("{reason} {ROOTS}")),
        Whole::No if !words.iter().any(|word| word.contains(is_odd)) => Verdict::Fine,
        _ => Verdict::Unsure,
    }
}

fn removes(program: &Program<'_>) -> Verdict {
    let reason = "it would remove everything below";
    let arguments = program.words.get(1..).unwrap_or_default();
    let recursive = has_option(arguments, &['r', 'R'], "recursive");
    let operands = arguments.iter().filter(|word| !word.starts_with('-'));
    match program.name {
        "rm" if program.fed_whole => decided(Whole::Yes, arguments, true, reason),
        "rm" if recursive => decided(aims(program, operands), arguments, true, reason),
        "rm" => decided(Whole::No, arguments, false, reason),
        "find" => match removers(arguments) {
            true if is_narrowed(arguments) => Verdict::Unsure.min_of(find_aim(program, arguments) == Whole::No),
            true => decided(find_aim(program, arguments), arguments, true, reason),
            false => decided(Whole::No, arguments, false, reason),
        },
        _ => Verdict::Fine,
    }
}

impl Verdict {
    fn min_of(self, fine: bool) -> Self {
        if fine { Self::Fine } else { self }
    }
}

fn changes(program: &Program<'_>) -> Verdict {
    let reason = "it would change the modes or owners of everything below";
    let arguments = program.words.get(1..).unwrap_or_default();
    if !has(CHANGERS, program.name) {
        return Verdict::Fine;
    }
    if !has_option(arguments, &['R'], "recursive") {
        return decided(Whole::No, arguments, false, reason);
    }
    // The first operand is the mode or the owner; a mode such as `-w` looks like an option.
    let operands = arguments.iter().filter(|word| !word.starts_with('-'));
    let skipped = usize::from(operands.clone().count() > 1);
    let aim = if program.fed_whole { Whole::Yes } else { aims(program, operands.skip(skipped)) };
    decided(aim, arguments, true, reason)
}

fn makes(program: &Program<'_>) -> Verdict {
    let is_device = |word: &String| {
        let path = tidied(&program.place.path(word));
        word.contains(marker::is) || path.starts_with("/dev") || path.contains(marker::is_open)
    };
    match program.words.iter().skip(1).any(is_device) {
        true => denied_if(true, "it would make a file system over what is there"),
        false => Verdict::Asked,
    }
}

fn writes(program: &Program<'_>) -> Verdict {
    let arguments = program.words.get(1..).unwrap_or_default();
    if !has(WRITERS, program.name) {
        return Verdict::Fine;
    }
    let is_disk = |path: &str| program.place.is_disk(path);
    let denied = match program.name {
        "dd" => arguments.iter().any(|word| word.strip_prefix("of=").is_some_and(is_disk)),
        "cp" | "mv" | "install" => {
            let operands: Vec<&str> =
                arguments.iter().filter(|word| !word.starts_with('-')).map(String::as_str).collect();
            let named = arguments.iter().filter_map(|word| {
                word.strip_prefix("--target-directory=").or(word.strip_prefix("-t").filter(|path| !path.is_empty()))
            });
            // `-t` takes the next word, which is an operand here.
            let next = arguments.iter().position(|word| word == "-t" || word == "--target-directory");
            let next = next.and_then(|at| arguments.get(at + 1)).map(String::as_str);
            let mut targets = named.chain(operands.last().copied()).chain(next);
            targets.any(|target| {
                // Where the target is no `/dev`, and no way to it, what is copied there does not matter.
                let may_hold = tidied(&program.place.path(target)).starts_with("/dev");
                is_disk(target)
                    || (may_hold && operands.iter().any(|from| is_disk(&format!("{target}/{}", base_name(from)))))
            })
        }
        _ => arguments.iter().any(|word| is_disk(word)),
    };
    let reason = "it would write to a disk's device file";
    if denied { denied_if(true, reason) } else { decided(Whole::No, arguments, program.name == "dd", reason) }
}

/// The directories that `find` looks through.
pub(super) fn directories(arguments: &[String]) -> impl Iterator<Item = &String> {
    let mut after = 0;
    let options = arguments.iter().take_while(move |word| {
        let is_option = after > 0 || matches!(word.as_str(), "-H" | "-L" | "-P" | "-D") || word.starts_with("-O");
        after = if after > 0 { 0 } else { usize::from(*word == "-D") };
        is_option
    });
    arguments.iter().skip(options.count()).take_while(|word| !word.starts_with(['-', '(', '!']))
}

/// What `find` aims at; where it names nothing, at where it runs.
pub(super) fn find_aim(program: &Program<'_>, arguments: &[String]) -> Whole {
    match directories(arguments).next() {
        Some(_) => aims(program, directories(arguments)),
        None => program.place.whole("."),
    }
}

/// Whether it takes only what has some name.
pub(super) fn is_narrowed(arguments: &[String]) -> bool {
    let names = |pair: &[String]| has(NAME_TESTS, &pair[0]) && !matches_all(&pair[1]) && pair[1] != ".*";
    !arguments.iter().any(|word| has("! -not -o -or ,", word)) && arguments.windows(2).any(names)
}

/// Whether it removes what it finds.
fn removers(arguments: &[String]) -> bool {
    let mut at = 0;
    while let Some(word) = arguments.get(at) {
        at += 1;
        let length = match word.as_str() {
            "-delete" => return true,
            "-exec" | "-execdir" | "-ok" | "-okdir" => command_length(&arguments[at..]),
            // The word after these is a name, whatever it looks like.
            word => usize::from(has(NAME_TESTS, word)),
        };
        let program = &arguments[at..(at + length).min(arguments.len())];
        let is_remover = |word: &String| has("rm unlink shred", base_name(word));
        let removes = program.first().is_some_and(|first| match is_wrapper(base_name(first)) {
            true => program.iter().any(is_remover),
            false => is_remover(first),
        });
        if removes && !has(NAME_TESTS, word) {
            return true;
        }
        at += length;
    }
    false
}
