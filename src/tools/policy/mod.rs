//! Decides whether a command may run: from its text alone, before anything runs.

mod allow;
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
pub(crate) mod rules;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

pub use rule::DenyRule;

use allow::FoundProgram;
use allow::{covers, is_harmless, name_of};
use judge::{Denied, Judge, Judged};

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
/// whole. So is what `su`, `script`, `parallel`, `watch` and `env -S` run. Where questions are answered with yes, all
/// these are denied if they name a danger anywhere.
///
/// An entry is a program (`git`), a program with its first words (`git status`), a path as it is written
/// (`./build.sh`), or a whole command, letter by letter, which is run with no variables and no input. A bare name also
/// means the program in a standard directory such as `/usr/bin`. A command whose programs are not known beforehand
/// (`$x`, `sh` reading a pipe, a changed `PATH`, whether the command changes it or the variables do that it is run
/// with) is never allowed by entries for programs, only as a whole. A word that comes from a variable matches no word
/// of an entry.
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
    /// Allows what would be asked for, without a question.
    pub auto_confirm: bool,
}

impl Default for CommandPolicy {
    fn default() -> Self {
        Self { max_chars: MAX_COMMAND_CHARS, deny: DenyRule::standard(), allow: Vec::new(), auto_confirm: false }
    }
}

/// Says what becomes of a command.
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
        /// The reason, for the author of the command.
        reason: String,
    },
    /// It has to be allowed first.
    Ask {
        /// What would have to be allowed: programs, or the whole command where they are not known.
        programs: Vec<String>,
    },
}

/// Names what allows a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AllowedBy {
    /// It runs no program that would need an entry.
    Harmless,
    /// The policy's allow list.
    List,
    /// What was allowed for the session, perhaps together with the list.
    Session,
    /// No question is asked.
    AutoConfirm,
}

impl CommandPolicy {
    /// Decides about a command, given what was allowed for its session.
    ///
    /// It goes by the command, its variables, its standard input and its directory, and looks at nothing else: the same
    /// arguments give the same decision. Code ([`ShellCommand::is_code`]) may be longer than other commands.
    pub fn check(&self, command: &ShellCommand, allowed_in_session: &BTreeSet<String>) -> Decision {
        self.decide(command, allowed_in_session).unwrap_or_else(|Denied(reason)| Decision::Deny { reason })
    }

    fn decide(&self, command: &ShellCommand, allowed_in_session: &BTreeSet<String>) -> Judged<Decision> {
        self.check_text(command)?;
        let mut judge = Judge::new(&self.deny, command);
        judge.look(command)?;
        self.compare(&judge, &whole(command), allowed_in_session)
    }

    /// Refuses too many characters, and such as do not belong in a command.
    fn check_text(&self, command: &ShellCommand) -> Judged<()> {
        let is_script = matches!(command.command, CommandLine::Script { .. });
        let limit = if is_script { self.max_chars.max(MAX_SCRIPT_CHARS) } else { self.max_chars };
        let chars = command.command.chars();
        if chars > limit && !command.is_code {
            return Err(Denied(format!("it has {chars} characters; at most {limit} are allowed")));
        }
        let is_control = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
        let control = command.command.to_string().chars().find(|&c| is_control(c));
        match control.filter(|_| self.deny.contains(&DenyRule::ControlCharacters)) {
            Some(c) => Err(Denied(format!("it holds the control character {}; leave it out", c.escape_unicode()))),
            None => Ok(()),
        }
    }

    /// Compares what was found with what is allowed.
    fn compare(&self, judge: &Judge<'_>, whole: &str, in_session: &BTreeSet<String>) -> Judged<Decision> {
        let needed: Vec<&FoundProgram> = judge.found.iter().filter(|found| !is_harmless(found)).collect();
        let listed = |found: &&&FoundProgram| self.allow.iter().any(|entry| covers(entry, found));
        let by_session = |found: &&&FoundProgram| in_session.iter().any(|entry| covers(entry, found));
        let unlisted: Vec<&FoundProgram> = needed.iter().filter(|found| !listed(found)).copied().collect();
        let asked: BTreeSet<String> = unlisted.iter().filter(|found| !by_session(found)).map(|f| name_of(f)).collect();
        let is_unclear = judge.unplain.is_some() || judge.asks;
        let is_whole = |entry: &String| entry.trim() == whole;
        let because = match is_unclear {
            false if needed.is_empty() => AllowedBy::Harmless,
            false if unlisted.is_empty() => AllowedBy::List,
            false if asked.is_empty() => AllowedBy::Session,
            _ if self.allow.iter().any(is_whole) => AllowedBy::List,
            _ if in_session.iter().any(is_whole) => AllowedBy::Session,
            _ if self.auto_confirm => {
                let danger = judge.raw.danger(&self.deny, judge.evaluates);
                if let (Some(what), Some(danger)) = (judge.unplain, danger) {
                    let reason =
                        format!("it is not plain ({what}), and names what is denied ({danger}); say it plainly");
                    return Err(Denied(reason));
                }
                AllowedBy::AutoConfirm
            }
            true => return Ok(Decision::Ask { programs: vec![whole.to_owned()] }),
            false => return Ok(Decision::Ask { programs: asked.into_iter().collect() }),
        };
        Ok(Decision::Allow { because })
    }
}

/// Writes a command as an entry of its own, so that no other command reads the same.
fn whole(command: &ShellCommand) -> String {
    let line = match &command.command {
        CommandLine::Script { script, interpreter } => format!("#!{interpreter}\n{}", script.trim()),
        line => line.to_string().trim().to_owned(),
    };
    let quoted = |value: &String| CommandLine::Args(vec![value.clone()]);
    let variables: String = command.env.iter().map(|(name, value)| format!("{name}={} ", quoted(value))).collect();
    let input = match command.stdin.is_empty() {
        true => String::new(),
        false => format!(" < stdin {}", Digest::of(&command.stdin)),
    };
    format!("{variables}{line}{input}")
}
