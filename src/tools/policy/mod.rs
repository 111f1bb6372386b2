//! Whether a command may run: decided from its text alone, before anything runs.

mod allow;
mod bomb;
mod dangers;
mod judge;
mod names;
mod paths;
mod raw;
mod rule;
mod shell;
mod words;
mod wrappers;

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use rule::DenyRule;

use allow::{covers, is_harmless, is_standard, name_of};
use judge::{Denied, Judge};
use words::{base_name, quoted};
use wrappers::is_shell;

use crate::backends::ShellCommand;
use crate::engine::event::CommandLine;
use crate::engine::id::Digest;

/// Characters of a command, all arguments together, unless a policy says otherwise.
const MAX_COMMAND_CHARS: usize = crate::backends::MAX_COMMAND_CHARS;
/// Characters of a script.
pub const MAX_SCRIPT_CHARS: usize = 65_536;

/// Decides whether a command may run.
///
/// A denial always wins. Else every program that the command runs is compared with the allow list: in pipelines and
/// lists, and behind wrappers such as `sudo`, `env`, `xargs` and `sh -c`, which need entries of their own. What a shell
/// does by itself and harms nothing (`cd`, `echo`, `test`, `export`, ...) needs no entry unless its output goes to a
/// file. Whatever is neither denied nor allowed is asked for.
///
/// Plain commands are understood: simple commands joined by `|`, `&&`, `||`, `;`, `&` and line ends, with redirections,
/// quoted words, and variables and globs as arguments. Nothing else is followed: substitutions, functions, compound
/// commands, `eval`, expansions in a program's place or in the arguments of a dangerous program are asked about as a
/// whole. Where questions are answered with yes, they are denied if they name a danger anywhere.
///
/// An entry is a program (`git`), a program with its first words (`git status`), a path as it is written
/// (`./build.sh`), or a whole command, letter by letter, which is run with no variables and no input. A bare name also means the program in a standard directory
/// such as `/usr/bin`. A command whose programs are not known beforehand (`$x`, `sh` reading a pipe, a changed `PATH`,
/// whether the command changes it or the variables do that it is run with) is never allowed by entries for programs,
/// only as a whole. A word that comes from a variable matches no word of an entry.
///
/// ```
/// use std::collections::BTreeSet;
/// use foldspace::{AllowedBy, CommandPolicy, Decision, ShellCommand};
///
/// let policy = CommandPolicy { allow: vec!["git status".into(), "head".into()], ..CommandPolicy::default() };
/// let none = BTreeSet::new();
///
/// let decision = policy.check(&ShellCommand::shell("git status | head -n 3"), &none);
/// assert_eq!(decision, Decision::Allow { because: AllowedBy::List });
///
/// let decision = policy.check(&ShellCommand::shell("git status && make -j2"), &none);
/// assert_eq!(decision, Decision::Ask { programs: vec!["make".into()] });
///
/// let decision = policy.check(&ShellCommand::shell("sudo sh -c 'r\\m -fr //'"), &none);
/// assert!(matches!(decision, Decision::Deny { .. }));
///
/// let decision = policy.check(&ShellCommand::shell("echo 'rm -rf /'"), &none);
/// assert_eq!(decision, Decision::Allow { because: AllowedBy::Harmless });
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CommandPolicy {
    /// Longer commands are denied.
    pub max_chars: usize,
    /// What is denied, whatever else allows it.
    pub deny: Vec<DenyRule>,
    /// Programs, programs with their first words, or whole commands that run without asking.
    pub allow: Vec<String>,
    /// Nobody is asked: what would be asked for is allowed.
    pub auto_confirm: bool,
}

impl Default for CommandPolicy {
    fn default() -> Self {
        Self { max_chars: MAX_COMMAND_CHARS, deny: DenyRule::standard(), allow: Vec::new(), auto_confirm: false }
    }
}

/// A command as it is looked at.
#[derive(Clone, Copy, Debug)]
enum View<'a> {
    Shell(&'a str),
    Arguments(&'a [String]),
    Script { text: &'a str, interpreter: &'a str },
}

/// What a command is run with.
#[derive(Clone, Debug, Default)]
struct With<'w> {
    env: Cow<'w, BTreeMap<String, String>>,
    stdin: Cow<'w, str>,
    directory: String,
    is_code: bool,
}

impl With<'_> {
    fn bytes(&self) -> usize {
        self.stdin.len() + self.env.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
    }
}

impl<'a> From<&'a CommandLine> for View<'a> {
    fn from(command: &'a CommandLine) -> Self {
        match command {
            CommandLine::Shell(text) => Self::Shell(text),
            CommandLine::Args(words) => Self::Arguments(words),
            CommandLine::Script { script, interpreter } => Self::Script { text: script, interpreter },
        }
    }
}

/// What a policy says of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// It may run.
    Allow {
        /// What allows it.
        because: AllowedBy,
    },
    /// It must not run.
    Deny {
        /// Why, for whoever wrote the command.
        reason: String,
    },
    /// Somebody has to allow it first.
    Ask {
        /// What would have to be allowed: programs, or the whole command where they are not known.
        programs: Vec<String>,
    },
}

/// What allows a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AllowedBy {
    /// It runs no program that would need an entry.
    Harmless,
    /// The policy's allow list.
    List,
    /// What was allowed for the session, perhaps together with the list.
    Session,
    /// Nobody is asked.
    AutoConfirm,
}

impl CommandPolicy {
    /// Decides about a command, given what was allowed for its session.
    ///
    /// It goes by the command, its variables, its standard input and its directory, and looks at nothing else: the same
    /// arguments give the same decision. Code ([`ShellCommand::is_code`]) may be longer than other commands.
    pub fn check(&self, command: &ShellCommand, allowed_in_session: &BTreeSet<String>) -> Decision {
        let with = With {
            env: Cow::Borrowed(&command.env),
            stdin: String::from_utf8_lossy(&command.stdin),
            directory: command.cwd.to_string(),
            is_code: command.is_code,
        };
        self.decide((&command.command).into(), &with, allowed_in_session)
    }

    fn decide(&self, command: View<'_>, with: &With<'_>, allowed_in_session: &BTreeSet<String>) -> Decision {
        let bytes = match self.check_text(command, with.is_code) {
            Ok(bytes) => bytes,
            Err(Denied(reason)) => return Decision::Deny { reason },
        };
        let mut judge = Judge::new(&self.deny, bytes + with.bytes(), &with.directory, with);
        if let Err(Denied(reason)) = look(&mut judge, command) {
            return Decision::Deny { reason };
        }
        self.compare(&judge, &whole(command, with), allowed_in_session)
    }

    /// Refuses too many characters and such as do not belong in a command; gives the bytes.
    fn check_text(&self, command: View<'_>, is_code: bool) -> Result<usize, Denied> {
        let (texts, limit) = match command {
            View::Shell(text) => (vec![text], self.max_chars),
            View::Arguments(words) => (words.iter().map(String::as_str).collect(), self.max_chars),
            View::Script { text, interpreter } => (vec![text, interpreter], self.max_chars.max(MAX_SCRIPT_CHARS)),
        };
        let chars: usize = texts.iter().map(|text| text.chars().count()).sum();
        if chars > limit && !is_code {
            return Err(Denied(format!("it has {chars} characters; at most {limit} are allowed")));
        }
        let is_control = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
        let control = texts.iter().find_map(|text| text.chars().find(|&c| is_control(c)));
        match control.filter(|_| self.deny.contains(&DenyRule::ControlCharacters)) {
            Some(c) => Err(Denied(format!("it holds the control character {}; leave it out", c.escape_unicode()))),
            None => Ok(texts.iter().map(|text| text.len()).sum()),
        }
    }

    fn compare(&self, judge: &Judge<'_>, whole: &str, in_session: &BTreeSet<String>) -> Decision {
        let needed: Vec<_> = judge.found.iter().filter(|found| !is_harmless(found)).collect();
        let listed = |found: &&&judge::Found| self.allow.iter().any(|entry| covers(entry, found));
        let by_session = |found: &&&judge::Found| in_session.iter().any(|entry| covers(entry, found));
        let unlisted: Vec<_> = needed.iter().filter(|found| !listed(found)).collect();
        let is_whole = |entry: &String| entry.trim() == whole;
        let is_unclear = judge.unplain.is_some() || judge.asks;
        let because = if is_unclear {
            None
        } else if needed.is_empty() {
            Some(AllowedBy::Harmless)
        } else if unlisted.is_empty() {
            Some(AllowedBy::List)
        } else if unlisted.iter().all(by_session) {
            Some(AllowedBy::Session)
        } else {
            None
        };
        let because = because.or_else(|| self.allow.iter().any(is_whole).then_some(AllowedBy::List));
        let because = because.or_else(|| in_session.iter().any(is_whole).then_some(AllowedBy::Session));
        let danger = judge.raw.danger(&self.deny, judge.evaluates);
        if let (None, true, Some(what), Some(danger)) = (because, self.auto_confirm, judge.unplain, danger) {
            let reason = format!("it is not plain ({what}), and names what is denied ({danger}); say it plainly");
            return Decision::Deny { reason };
        }
        match because.or(self.auto_confirm.then_some(AllowedBy::AutoConfirm)) {
            Some(because) => Decision::Allow { because },
            None if is_unclear => Decision::Ask { programs: vec![whole.to_owned()] },
            None => {
                let asked = unlisted.iter().filter(|found| !by_session(found)).map(|found| name_of(found));
                let asked: BTreeSet<String> = asked.collect();
                Decision::Ask { programs: asked.into_iter().collect() }
            }
        }
    }
}

fn look(judge: &mut Judge<'_>, command: View<'_>) -> Result<(), Denied> {
    match command {
        View::Shell(text) => judge.text(text),
        View::Arguments(words) => judge.arguments(words),
        View::Script { text, interpreter } if is_shell(base_name(interpreter)) => {
            judge.interpreter_of_script(interpreter, is_standard(interpreter))?;
            judge.text(text)
        }
        View::Script { interpreter, .. } => judge.arguments(&[interpreter.to_owned()]),
    }
}

/// A command as an entry of its own, written so that no other command reads the same.
fn whole(command: View<'_>, with: &With<'_>) -> String {
    let line = match command {
        View::Shell(text) => text.trim().to_owned(),
        View::Arguments(words) => words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
        View::Script { text, interpreter } => format!("#!{interpreter}\n{}", text.trim()),
    };
    let variables: String = with.env.iter().map(|(name, value)| format!("{name}={} ", quoted(value))).collect();
    let input = match with.stdin.is_empty() {
        true => String::new(),
        false => format!(" < stdin {}", Digest::of(with.stdin.as_bytes())),
    };
    format!("{variables}{line}{input}")
}
