//! Whether a command may run: decided from its text alone, before anything runs.

mod allow;
mod bomb;
mod danger;
mod interpreters;
mod judge;
mod paths;
mod refusal;
mod rule;
mod shell;
mod wrappers;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

pub use rule::DenyRule;

use allow::{covers, is_harmless, name_of};
use judge::Judge;
use refusal::Denied;
use shell::{Reading, base_name};
use wrappers::{is_shell, reading_of};

use crate::engine::event::CommandLine;

/// Characters of a command, all arguments together, unless a policy says otherwise.
const MAX_COMMAND_CHARS: usize = crate::backends::MAX_COMMAND_CHARS;
/// Characters of a script.
pub const MAX_SCRIPT_CHARS: usize = 65_536;

/// Decides whether a command may run.
///
/// A denial always wins. Else every program that the command may run is compared with the allow list: in pipelines,
/// lists, subshells, substitutions, functions, and behind wrappers such as `sudo`, `env`, `xargs` and `sh -c`, which
/// need entries of their own. What a shell does by itself and harms nothing (`cd`, `echo`, `test`, `export`, ...) needs
/// no entry unless its output goes to a file. Whatever is neither denied nor allowed is asked for.
///
/// An entry is a program (`git`), a program with its first words (`git status`), a path as it is written
/// (`./build.sh`), or a whole command, letter by letter. A bare name also means the program in a standard directory
/// such as `/usr/bin`. A command whose programs are not known beforehand (`$x`, `sh` reading a pipe, a changed `PATH`)
/// is never allowed by entries for programs, only as a whole.
///
/// ```
/// use std::collections::BTreeSet;
/// use foldspace::{AllowedBy, CommandLine, CommandPolicy, Decision};
///
/// let policy = CommandPolicy { allow: vec!["git status".into(), "head".into()], ..CommandPolicy::default() };
/// let none = BTreeSet::new();
///
/// let decision = policy.check(&CommandLine::Shell("git status | head -n 3".into()), &none);
/// assert_eq!(decision, Decision::Allow { because: AllowedBy::List });
///
/// let decision = policy.check(&CommandLine::Shell("git status && make -j2".into()), &none);
/// assert_eq!(decision, Decision::Ask { programs: vec!["make".into()] });
///
/// let decision = policy.check(&CommandLine::Shell("sudo sh -c 'r\\m -fr //'".into()), &none);
/// assert!(matches!(decision, Decision::Deny { .. }));
///
/// let decision = policy.check(&CommandLine::Shell("echo 'rm -rf /'".into()), &none);
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
    /// Decides about a command, given what was allowed for its session. It looks at nothing but its arguments.
    pub fn check(&self, command: &CommandLine, allowed_in_session: &BTreeSet<String>) -> Decision {
        self.decide(command.into(), allowed_in_session)
    }

    fn decide(&self, command: View<'_>, allowed_in_session: &BTreeSet<String>) -> Decision {
        let chars = match self.check_text(command) {
            Ok(chars) => chars,
            Err(Denied(reason)) => return Decision::Deny { reason },
        };
        let mut judge = Judge::new(&self.deny, chars);
        if let Err(Denied(reason)) = look(&mut judge, command) {
            return Decision::Deny { reason };
        }
        self.compare(&judge, &whole(command), allowed_in_session)
    }

    /// Counts the characters, and refuses too many and such as do not belong in a command.
    fn check_text(&self, command: View<'_>) -> Result<usize, Denied> {
        let (texts, limit) = match command {
            View::Shell(text) => (vec![text], self.max_chars),
            View::Arguments(words) => (words.iter().map(String::as_str).collect(), self.max_chars),
            View::Script { text, interpreter } => (vec![text, interpreter], self.max_chars.max(MAX_SCRIPT_CHARS)),
        };
        let chars: usize = texts.iter().map(|text| text.chars().count()).sum();
        if chars > limit {
            return Err(Denied(format!("it has {chars} characters; at most {limit} are allowed")));
        }
        let is_control = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
        let control = texts.iter().find_map(|text| text.chars().find(|&c| is_control(c)));
        match control.filter(|_| self.deny.contains(&DenyRule::ControlCharacters)) {
            Some(c) => Err(Denied(format!("it holds the control character {}; leave it out", c.escape_unicode()))),
            None => Ok(chars),
        }
    }

    fn compare(&self, judge: &Judge<'_>, whole: &str, in_session: &BTreeSet<String>) -> Decision {
        let needed: Vec<_> = judge.found.iter().filter(|found| !is_harmless(found)).collect();
        let listed = |found: &&&judge::Found| self.allow.iter().any(|entry| covers(entry, found));
        let by_session = |found: &&&judge::Found| in_session.iter().any(|entry| covers(entry, found));
        let unlisted: Vec<_> = needed.iter().filter(|found| !listed(found)).collect();
        let is_whole = |entry: &String| entry.trim() == whole;
        let because = if judge.is_unclear() {
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
        match because.or(self.auto_confirm.then_some(AllowedBy::AutoConfirm)) {
            Some(because) => Decision::Allow { because },
            None if judge.is_unclear() => Decision::Ask { programs: vec![whole.to_owned()] },
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
        // Nobody knows which shell /bin/sh is.
        View::Shell(text) => both(judge, text),
        View::Arguments(words) => judge.arguments(words),
        View::Script { text, interpreter } => {
            let name = base_name(interpreter);
            if !is_shell(name) {
                return judge.arguments(&[interpreter.to_owned()]);
            }
            match name {
                "sh" | "ash" => both(judge, text),
                name => judge.text(text, reading_of(name, Reading::Posix)),
            }
        }
    }
}

fn both(judge: &mut Judge<'_>, text: &str) -> Result<(), Denied> {
    judge.text(text, Reading::Bash)?;
    judge.text(text, Reading::Posix)
}

/// A command as an entry of its own, written so that no other command reads the same.
fn whole(command: View<'_>) -> String {
    match command {
        View::Shell(text) => text.trim().to_owned(),
        View::Arguments(words) => words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
        View::Script { text, interpreter } => format!("#!{interpreter}\n{}", text.trim()),
    }
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "%+,-./:=@_".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}
