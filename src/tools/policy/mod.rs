//! Deciding if a command may run, from its text alone and before it runs.

mod allow;
pub(crate) mod command_time;
mod dangers;
mod effect_requests;
pub(crate) mod effect_text;
pub(crate) mod effects;
mod judge;
mod names;
mod paths;
pub(crate) mod python;
mod raw;
mod rule;
mod shell;
mod words;
mod wrappers;

#[cfg(test)]
mod effects_tests;
#[cfg(test)]
mod hostile_tests;
pub(crate) mod rules;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

pub(crate) use allow::is_standard;
pub use rule::DenyRule;
pub(crate) use words::base_name;

use allow::{FoundProgram, covers, is_harmless, name_of};
use judge::{Denied, Judge, Judged};
use words::SplitScript;

use crate::backends::ShellCommand;
use crate::engine::event::CommandLine;
use crate::engine::id::Digest;
use crate::reducers::Allowances;

/// The default limit for the characters of a model's command. A script or a file suits longer text better.
const USUAL_COMMAND_CHARS: usize = 4096;
/// The limit for the characters of a person's or a program's command, all arguments together.
pub const MAX_COMMAND_CHARS: usize = 1 << 20;
/// The limit for a script's characters.
pub const MAX_SCRIPT_CHARS: usize = 65_536;

/// A policy that allows, denies or asks about commands.
///
/// A denial always wins. Then each program that the command runs is compared with the allow list: in pipelines and
/// lists, and behind wrappers such as `sudo`, `env`, `xargs` and `sh -c`, which need their own entries. Harmless
/// builtins (`cd`, `echo`, `test`, `export`, ...) need no entry unless their output goes to a file. All other commands
/// need approval.
///
/// The policy parses plain commands: simple commands joined by `|`, `&&`, `||`, `;`, `&` and line ends, with
/// redirections, quoted words, and variables and globs as arguments. It does not parse substitutions, functions,
/// compound commands, `eval`, or expansions as a program or in a dangerous program's arguments. Commands with these
/// need approval as a whole, as do commands that `su`, `script`, `parallel`, `watch` and `env -S` run. With
/// `auto_confirm`, they are denied if they name a danger anywhere.
///
/// An entry is a program (`git`), a program with its first words (`git status`), a path as written (`./build.sh`), or a
/// whole literal command, which runs without variables and input. A bare name also covers the program in a standard
/// directory such as `/usr/bin`. A command with unknown programs is allowed only as a whole: `$x`, `sh` reading a pipe,
/// or a `PATH` changed by the command or its variables. A word from a variable matches no word of an entry.
///
/// ```
/// # use foldspace_tools as foldspace;
/// use std::collections::BTreeSet;
/// use foldspace::{backends::ShellCommand, tools::{AllowedBy, CommandPolicy, Decision}};
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
    /// The maximum number of characters. Longer commands are denied.
    pub max_chars: usize,
    /// The rules that deny a command, which take precedence over all permissions.
    pub deny: Vec<DenyRule>,
    /// The programs, programs with their first words, or whole commands that run without approval.
    pub allow: Vec<String>,
    /// True to approve commands that need approval.
    pub auto_confirm: bool,
}

impl Default for CommandPolicy {
    fn default() -> Self {
        Self { max_chars: USUAL_COMMAND_CHARS, deny: DenyRule::standard(), allow: Vec::new(), auto_confirm: false }
    }
}

/// A decision about a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The command may run.
    Allow {
        /// The reason for the permission.
        because: AllowedBy,
    },
    /// The command must not run.
    Deny {
        /// The reason, for the command's author.
        reason: String,
    },
    /// The command needs approval.
    Ask {
        /// The programs to approve, or the whole command if they are unknown.
        programs: Vec<String>,
    },
}

/// The reason that a command is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AllowedBy {
    /// The command runs no program that needs an entry.
    Harmless,
    /// The policy's allow list covers the command.
    List,
    /// The session's allowances cover the command, perhaps together with the list.
    Session,
    /// The policy approves without asking.
    AutoConfirm,
}

impl CommandPolicy {
    /// Returns the policy for commands that a person types: no questions, and a limit of [`MAX_COMMAND_CHARS`].
    pub fn typed() -> Self {
        Self { max_chars: MAX_COMMAND_CHARS, auto_confirm: true, ..Self::default() }
    }

    /// Decides about a command, given its session's allowances.
    ///
    /// The decision depends only on the command with its variables, standard input and directory, and on the
    /// allowances. Code ([`ShellCommand::is_code`]) may be longer than other commands.
    pub fn check(&self, command: &ShellCommand, allowed_in_session: &BTreeSet<String>) -> Decision {
        self.decide(command, allowed_in_session, false).unwrap_or_else(|Denied(reason)| Decision::Deny { reason })
    }

    /// Decides about a command. If everything is allowed in the session, allows commands that need approval.
    pub(crate) fn check_allowed(&self, command: &ShellCommand, in_session: &Allowances) -> Decision {
        let decision = self.decide(command, &in_session.programs, in_session.everything);
        decision.unwrap_or_else(|Denied(reason)| Decision::Deny { reason })
    }

    /// Returns the words of the rules that deny commands by their first words.
    pub fn denied_words(&self) -> Vec<String> {
        let words = |rule: &DenyRule| match rule {
            DenyRule::Words(words) => Some(words.clone()),
            _ => None,
        };
        self.deny.iter().filter_map(words).collect()
    }

    fn decide(&self, command: &ShellCommand, in_session: &BTreeSet<String>, everything: bool) -> Judged<Decision> {
        self.check_text(command)?;
        let mut judge = Judge::new(&self.deny, command);
        judge.look(command)?;
        self.compare(&judge, &whole(command), in_session, everything)
    }

    fn check_text(&self, command: &ShellCommand) -> Judged<()> {
        let is_script = matches!(command.command, CommandLine::Script { .. });
        let (limit, advice) = match is_script {
            true => (self.max_chars.max(MAX_SCRIPT_CHARS), "write it with write_file, and run the file"),
            false => (self.max_chars, "use execute_script, or write long texts with write_file"),
        };
        let chars = command.command.chars();
        if chars > limit && !command.is_code {
            return Err(Denied(format!("it has {chars} characters; at most {limit} are allowed: {advice}")));
        }
        let is_control = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
        let control = command.command.to_string().chars().find(|&c| is_control(c));
        match control.filter(|_| self.deny.contains(&DenyRule::ControlCharacters)) {
            Some(c) => Err(Denied(format!("it contains the control character {}; remove it", c.escape_unicode()))),
            None => Ok(()),
        }
    }

    /// Finds denied words in a text that is not plain.
    fn named_in(&self, text: &str) -> Option<&str> {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        self.deny.iter().find_map(|rule| match rule {
            DenyRule::Words(words) if names(&text, words) => Some(words.as_str()),
            _ => None,
        })
    }

    fn compare(
        &self,
        judge: &Judge<'_>,
        whole: &str,
        in_session: &BTreeSet<String>,
        everything: bool,
    ) -> Judged<Decision> {
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
            _ if self.auto_confirm || everything => {
                let danger = judge.raw.danger(&self.deny, judge.evaluates).or_else(|| self.named_in(whole));
                if let (Some(what), Some(danger)) = (judge.unplain, danger) {
                    let reason = format!(
                        "it is not plain ({what}), and may do what the policy denies ({danger}); write a plain command"
                    );
                    return Err(Denied(reason));
                }
                if self.auto_confirm { AllowedBy::AutoConfirm } else { AllowedBy::Session }
            }
            true => return Ok(Decision::Ask { programs: vec![whole.to_owned()] }),
            false => return Ok(Decision::Ask { programs: asked.into_iter().collect() }),
        };
        Ok(Decision::Allow { because })
    }
}

/// Finds a simple command that runs one of these programs. Returns its name and the variables set only for it.
pub(crate) fn program_among(line: &CommandLine, names: &[&str]) -> Option<(String, Vec<(String, String)>)> {
    let known = |word: &String| names.contains(&base_name(word)).then(|| base_name(word).to_owned());
    match line {
        CommandLine::Args(words) => Some((known(words.first()?)?, Vec::new())),
        CommandLine::Shell(text) => SplitScript::read(text)
            .commands
            .into_iter()
            .find_map(|simple| Some((known(simple.words.first()?)?, simple.assignments))),
        CommandLine::Script { .. } => None,
    }
}

/// Returns the name of the program that a command runs last, whose exit code it has; `None` for a command that is not
/// plain.
pub(crate) fn last_program(line: &CommandLine) -> Option<String> {
    let text = match line {
        CommandLine::Args(words) => return Some(base_name(words.first()?).to_owned()),
        CommandLine::Shell(text) => text,
        CommandLine::Script { interpreter, script } => {
            wrappers::is_shell(base_name(interpreter.split_whitespace().next()?)).then_some(script)?
        }
    };
    let split = SplitScript::read(text);
    let word = split.commands.last().filter(|_| split.unplain.is_none())?.words.first()?;
    Some(base_name(word).to_owned())
}

/// Returns true if a text contains these words as whole words.
fn names(text: &str, words: &str) -> bool {
    let ends = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && !matches!(c, '_' | '-'));
    text.match_indices(words)
        .any(|(at, _)| ends(text[..at].chars().next_back()) && ends(text[at + words.len()..].chars().next()))
}

/// Returns the unique entry for a whole command.
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
    let input = if command.input.is_some() { format!("{input} < input") } else { input };
    format!("{variables}{line}{input}")
}
