//! Deny list: tables of programs, and the rules for one program and its arguments.

use super::paths::{Place, Whole, is_sink};
use super::rule::{DenyRule, matches};
use super::words::{base_name, has, marker};
use super::wrappers::is_wrapper;

/// Programs that make a file system, or something else over all of a disk; `mkfs.*` too.
const MAKERS: &str = "mkdosfs mke2fs mkexfatfs mkfs mkntfs mkreiserfs mkswap mkudffs";
/// Programs that fetch something from the network.
const FETCHERS: &str = "GET aria2c axel curl fetch ftp http https lwp-download lwp-request lynx nc wget wget2";
/// Programs that write where their arguments say.
const WRITERS: &str = "dd tee shred wipefs blkdiscard sponge truncate cp mv install";
/// Those that write where their last argument says.
const COPIERS: &str = "cp mv install";
/// Programs that change modes or owners.
pub(super) const CHANGERS: &str = "chmod chown chgrp";
/// Tests of `find` by name.
const NAME_TESTS: &str = "-name -iname -path -ipath -wholename -iwholename -regex -iregex -lname";

/// A program that is about to run: all of its words, and what is known of where it does.
pub(super) struct Program<'a> {
    pub(super) words: &'a [String],
    pub(super) place: &'a Place,
    /// It reads `/dev/zero`.
    pub(super) reads_zero: bool,
}

/// Verdict of a rule on a program.
#[derive(Debug)]
pub(super) enum Verdict {
    Denied(String),
    /// It depends on something that is not plain.
    Unsure,
    /// It is asked about, whatever is allowed.
    Asked,
    Fine,
}

/// Tells whether the program fetches from the network.
pub(super) fn is_fetcher(name: &str) -> bool {
    has(FETCHERS, name)
}

/// Tells whether the program makes a file system.
pub(super) fn is_maker(name: &str) -> bool {
    has(MAKERS, name) || name.starts_with("mkfs.")
}

/// Applies a rule to a program.
pub(super) fn judge(rule: &DenyRule, program: &Program<'_>) -> Verdict {
    let Some((first, arguments)) = program.words.split_first() else { return Verdict::Fine };
    let name = base_name(first);
    match rule {
        DenyRule::RemoveRoot if name == "rm" => removes(program, arguments),
        DenyRule::RemoveRoot if name == "find" => finds(program, arguments),
        DenyRule::ChangeRoot if has(CHANGERS, name) => changes(program, arguments),
        DenyRule::MakeFilesystem if is_maker(name) => makes(program, arguments),
        DenyRule::DdFromZero if name == "dd" => {
            let zero = |path: &str| program.place.tidied(path) == "/dev/zero";
            let from_zero = arguments.iter().any(|word| word.strip_prefix("if=").is_some_and(zero));
            denied_if(program.reads_zero || from_zero, "it would write zeros with dd")
        }
        DenyRule::WriteToDisk if has(WRITERS, name) => writes(program, name, arguments),
        DenyRule::Program(denied) => denied_if(name == denied || first == denied, "the policy denies this program"),
        DenyRule::Pattern(pattern) => {
            let words = arguments.iter().map(|word| marker::written(word));
            let line = std::iter::once(name.to_owned()).chain(words).collect::<Vec<_>>().join(" ");
            denied_if(matches(pattern, &line), "the policy denies commands like this")
        }
        _ => Verdict::Fine,
    }
}

fn denied_if(denied: bool, reason: &str) -> Verdict {
    if denied { Verdict::Denied(reason.to_owned()) } else { Verdict::Fine }
}

/// Tells whether some option is given, by its letter or the beginning of its long name.
pub(super) fn has_option(arguments: &[String], letters: &[char], long: &str) -> bool {
    let options = arguments.iter().take_while(|word| *word != "--");
    options.filter_map(|word| word.strip_prefix('-')).any(|option| match option.strip_prefix('-') {
        Some(name) => !name.is_empty() && long.starts_with(name),
        None => option.contains(letters),
    })
}

/// Decides by what a program aims at, and whether its words are all plain.
fn decided<'w>(program: &Program<'_>, aims: impl Iterator<Item = &'w String>, globs: bool, reason: &str) -> Verdict {
    let aims: Vec<Whole> = aims.map(|path| program.place.whole(path)).collect();
    let is_odd = |c: char| marker::is_open(c) || (globs && marker::is_glob(c));
    let is_unsure = program.words.iter().skip(1).any(|word| word.contains(is_odd));
    if aims.contains(&Whole::Yes) {
        Verdict::Denied(format!("{reason} /, the home directory or what is above the workspace"))
    } else if is_unsure || aims.contains(&Whole::Perhaps) {
        Verdict::Unsure
    } else {
        Verdict::Fine
    }
}

const REMOVES: &str = "it would remove everything below";

fn removes(program: &Program<'_>, arguments: &[String]) -> Verdict {
    let recursive = has_option(arguments, &['r', 'R'], "recursive");
    let operands = arguments.iter().filter(|word| recursive && !word.starts_with('-'));
    decided(program, operands, recursive, REMOVES)
}

fn finds(program: &Program<'_>, arguments: &[String]) -> Verdict {
    let removes = deletes(arguments);
    let here = ".".to_owned();
    let mut aims: Vec<&String> = directories(arguments).collect();
    if aims.is_empty() {
        aims.push(&here);
    }
    match decided(program, aims.into_iter().filter(|_| removes), removes, REMOVES) {
        Verdict::Denied(_) if is_narrowed(arguments) => Verdict::Unsure,
        verdict => verdict,
    }
}

fn changes(program: &Program<'_>, arguments: &[String]) -> Verdict {
    let recursive = has_option(arguments, &['R'], "recursive");
    // The first operand is the mode or the owner; a mode such as `-w` looks like an option.
    let operands = arguments.iter().filter(|word| recursive && !word.starts_with('-'));
    let skipped = usize::from(operands.clone().count() > 1);
    decided(program, operands.skip(skipped), recursive, "it would change the modes or owners of everything below")
}

fn makes(program: &Program<'_>, arguments: &[String]) -> Verdict {
    let on_device = |word: &String| word.contains(marker::is) || program.place.tidied(word).starts_with("/dev");
    match arguments.iter().any(on_device) {
        true => denied_if(true, "it would make a file system over what is there"),
        false => Verdict::Asked,
    }
}

fn writes(program: &Program<'_>, name: &str, arguments: &[String]) -> Verdict {
    let is_disk = |path: &str| program.place.is_disk(path);
    let value = |word: &String| word.rsplit_once('=').map_or(word.clone(), |(_, value)| value.to_owned());
    let copies = has(COPIERS, name);
    let targets: Vec<String> = match name {
        "dd" => arguments.iter().filter(|word| word.starts_with("of=")).map(value).collect(),
        _ if copies => {
            // A target may be named by `-t`, too, and be a directory.
            let last = arguments.iter().rfind(|word| !word.starts_with('-'));
            let named = arguments.iter().skip_while(|word| !word.starts_with("-t") && !word.starts_with("--t")).take(2);
            last.into_iter().chain(named).map(|word| value(word).trim_start_matches("-t").to_owned()).collect()
        }
        _ => arguments.to_vec(),
    };
    let in_devices = |path: &String| program.place.tidied(path).starts_with("/dev") && !is_sink(path);
    match decided(program, std::iter::empty(), name == "dd", "") {
        _ if targets.iter().any(|path| is_disk(path)) => denied_if(true, "it would write to a disk's device file"),
        // A directory that holds disks.
        _ if copies && targets.iter().any(in_devices) => {
            let held = arguments.iter().any(|word| is_disk(&format!("/dev/{}", base_name(word))));
            if held { denied_if(true, "it would write to a disk's device file") } else { Verdict::Unsure }
        }
        verdict => verdict,
    }
}

/// The directories that `find` looks through.
pub(super) fn directories(arguments: &[String]) -> impl Iterator<Item = &String> {
    let is_option = |word: &&String| matches!(word.as_str(), "-H" | "-L" | "-P" | "-D") || word.starts_with("-O");
    let is_test = move |word: &&String| word.starts_with(['-', '(', '!']) && !is_option(word);
    arguments.iter().take_while(move |word| !is_test(word)).filter(move |word| !is_option(word))
}

/// Tells whether `find` takes only files of some name.
pub(super) fn is_narrowed(arguments: &[String]) -> bool {
    let all = |pattern: &str| pattern.chars().all(|c| matches!(c, '*' | '.' | '?') || marker::is_glob(c));
    let names = |pair: &[String]| has(NAME_TESTS, &pair[0]) && !all(&pair[1]);
    !arguments.iter().any(|word| has("! -not -o -or ,", word)) && arguments.windows(2).any(names)
}

/// Tells whether `find` removes the files that it finds.
pub(super) fn deletes(arguments: &[String]) -> bool {
    let is_remover = |word: &String| has("rm unlink shred", base_name(word));
    // The word behind a test is a name, whatever it looks like.
    let named = |at: usize| at > 0 && has(NAME_TESTS, &arguments[at - 1]);
    let deletes = arguments.iter().enumerate().any(|(at, word)| word == "-delete" && !named(at));
    deletes
        || programs(arguments).any(|program| match program.split_first() {
            Some((first, rest)) => is_remover(first) || (is_wrapper(base_name(first)) && rest.iter().any(is_remover)),
            None => false,
        })
}

/// The programs that `find` runs.
pub(super) fn programs(arguments: &[String]) -> impl Iterator<Item = &[String]> {
    let runs = |word: &String| has("-exec -execdir -ok -okdir", word);
    arguments.split_inclusive(move |word| runs(word)).skip(1).map(|rest| {
        let end = rest.iter().position(|word| word == ";" || word == "+").unwrap_or(rest.len());
        &rest[..end]
    })
}
