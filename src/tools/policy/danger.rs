//! The built-in rules for one program and its arguments.

use super::find::{Aim, aim_of, removers};
use super::paths::{Whole, is_disk, may_be, whole};
use super::places::Places;
use super::rule::{DenyRule, matches};
use super::shell::{base_name, marker};

/// What is known of a program that is about to run.
pub(super) struct Program<'a> {
    /// The last part of its path, with what is unknown left out.
    pub(super) name: &'a str,
    /// All of its words, the first being the program.
    pub(super) words: &'a [String],
    /// Where relative paths begin.
    pub(super) places: &'a Places,
    /// What it reads are paths below `/` or home.
    pub(super) fed_whole: bool,
    /// It reads `/dev/zero`.
    pub(super) reads_zero: bool,
}

/// What a rule says of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Denied(&'static str),
    /// It depends on something unknown.
    Unsure,
    Fine,
}

/// Programs that make a file system, or something else over all of a disk.
const MAKERS: [&str; 8] = ["mkdosfs", "mke2fs", "mkexfatfs", "mkfs", "mkntfs", "mkreiserfs", "mkswap", "mkudffs"];

/// Applies a rule to a program.
pub(super) fn judge(rule: &DenyRule, program: &Program<'_>) -> Verdict {
    match rule {
        DenyRule::RemoveRoot => removes_whole(program),
        DenyRule::ChangeRoot => changes_whole(program),
        DenyRule::MakeFilesystem => denied_if(
            MAKERS.contains(&program.name) || program.name.starts_with("mkfs."),
            "it would make a file system over what is there",
        ),
        DenyRule::DdFromZero => denied_if(is_dd_from_zero(program), "it would write zeros with dd"),
        DenyRule::WriteToDisk => denied_if(writes_to_disk(program), "it would write to a disk's device file"),
        DenyRule::Program(name) => {
            let is_named = program.name == name || program.words.first().is_some_and(|word| word == name);
            denied_if(is_named, "the policy denies this program")
        }
        DenyRule::Pattern(pattern) => {
            let words = program.words.iter().skip(1).map(|word| marker::written(word));
            let line = std::iter::once(program.name.to_owned()).chain(words).collect::<Vec<_>>().join(" ");
            denied_if(matches(pattern, &line), "the policy denies commands like this")
        }
        DenyRule::ControlCharacters | DenyRule::ForkBomb | DenyRule::RunFetched => Verdict::Fine,
    }
}

fn denied_if(denied: bool, reason: &'static str) -> Verdict {
    if denied { Verdict::Denied(reason) } else { Verdict::Fine }
}

/// Whether some option is given, by its letter or the beginning of its long name.
fn has_option(arguments: &[String], letters: &[char], long: &str) -> bool {
    let options = arguments.iter().take_while(|word| *word != "--");
    options.filter_map(|word| word.strip_prefix('-')).any(|option| match option.starts_with('-') {
        true => option.len() > 1 && long.starts_with(&option[1..]),
        false => option.contains(letters),
    })
}

fn aims(program: &Program<'_>, arguments: &[String]) -> Whole {
    let mut aim = Whole::No;
    for argument in arguments.iter().filter(|word| !word.starts_with('-')) {
        match whole(argument, program.places) {
            Whole::Yes => return Whole::Yes,
            Whole::Perhaps => aim = Whole::Perhaps,
            Whole::No => {}
        }
    }
    aim
}

fn verdict(aim: Whole, reason: &'static str) -> Verdict {
    match aim {
        Whole::Yes => Verdict::Denied(reason),
        Whole::Perhaps => Verdict::Unsure,
        Whole::No => Verdict::Fine,
    }
}

fn removes_whole(program: &Program<'_>) -> Verdict {
    let reason = "it would remove everything below /, the home directory or what is above the workspace";
    let arguments = program.words.get(1..).unwrap_or_default();
    let recursive = has_option(arguments, &['r', 'R'], "recursive");
    match program.name {
        "rm" if program.fed_whole => Verdict::Denied(reason),
        "rm" if recursive => verdict(aims(program, arguments), reason),
        "find" if removers(arguments) => match aim_of(arguments, program.places) {
            Aim { whole: Whole::Yes, narrowed: true } => Verdict::Unsure,
            aim => verdict(aim.whole, reason),
        },
        // Whatever program it is, with these words it may only be rm.
        "" if recursive && has_option(arguments, &['f'], "force") => match aims(program, arguments) {
            Whole::Yes => Verdict::Denied(reason),
            _ => Verdict::Fine,
        },
        _ => Verdict::Fine,
    }
}

fn changes_whole(program: &Program<'_>) -> Verdict {
    let reason =
        "it would change the modes or owners of everything below /, the home directory or what is above the workspace";
    let arguments = program.words.get(1..).unwrap_or_default();
    if !matches!(program.name, "chmod" | "chown" | "chgrp") || !has_option(arguments, &['R'], "recursive") {
        return Verdict::Fine;
    }
    if program.fed_whole {
        return Verdict::Denied(reason);
    }
    // The first operand is the mode or the owner.
    let operands: Vec<String> = arguments.iter().filter(|word| !word.starts_with('-')).skip(1).cloned().collect();
    // A mode such as `-w` looks like an option.
    let all = if operands.is_empty() { arguments } else { &operands };
    verdict(aims(program, all), reason)
}

fn is_dd_from_zero(program: &Program<'_>) -> bool {
    let from_zero =
        |word: &String| word.strip_prefix("if=").is_some_and(|path| may_be(path, "/dev/zero", program.places));
    program.name == "dd" && (program.reads_zero || program.words.iter().any(from_zero))
}

fn writes_to_disk(program: &Program<'_>) -> bool {
    let arguments = program.words.get(1..).unwrap_or_default();
    let is_disk = |path: &str| is_disk(path, program.places);
    match program.name {
        "dd" => arguments.iter().any(|word| word.strip_prefix("of=").is_some_and(is_disk)),
        "tee" | "shred" | "wipefs" | "blkdiscard" | "sponge" | "truncate" => arguments.iter().any(|word| is_disk(word)),
        "cp" | "mv" | "install" => {
            let operands: Vec<&String> = arguments.iter().filter(|word| !word.starts_with('-')).collect();
            let named = arguments.iter().filter_map(|word| {
                word.strip_prefix("--target-directory=")
                    .or_else(|| word.strip_prefix("-t").filter(|path| !path.is_empty()))
            });
            // `-t` takes the next word, which is an operand here; whatever is given may be where it goes.
            let given = arguments.iter().any(|word| word == "-t" || word.starts_with("--target-d"));
            let last = operands.last().map(|word| word.as_str());
            let mut targets = named.chain(last).chain(operands.iter().map(|word| word.as_str()).filter(|_| given));
            targets.any(|target| {
                let into = |from: &&String| is_disk(&format!("{target}/{}", base_name(from)));
                is_disk(target) || operands.iter().any(into)
            })
        }
        _ => false,
    }
}
