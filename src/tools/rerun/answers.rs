//! Answers to questions about commands, repeated from a recording.

use std::sync::{Arc, Mutex, PoisonError};

use super::super::words;
use crate::engine::event::{CommandDecided, CommandLine, PolicyDecision};
use crate::engine::id::Digest;
use crate::tools::call::approval::{ALLOW_IT, NAMES_SHOWN};
use crate::tools::call::approver::{ApprovalAnswer, Asker, Asking, CommandQuestion};
use crate::tools::call::shell::beginning;
use crate::tools::policy::rules::ShellRules;

/// Approver that repeats recorded answers; without a recorded answer it asks another approver.
///
/// A history may come from anywhere. So recorded approvals count only if commands run in a sandbox; recorded refusals
/// always count.
pub(super) struct Answers {
    recorded: Mutex<Vec<CommandDecided>>,
    may_allow: bool,
    otherwise: Option<Arc<dyn Asker>>,
    advice: Option<Arc<str>>,
}

impl Answers {
    /// Creates an approver from rules for commands.
    pub(super) fn new(rules: &ShellRules, may_allow: bool) -> Self {
        let ShellRules { asker: otherwise, advice, .. } = rules.clone();
        Self { recorded: Mutex::default(), may_allow, otherwise, advice }
    }

    pub(super) fn hold(&self, decisions: Vec<CommandDecided>) {
        *self.recorded.lock().unwrap_or_else(PoisonError::into_inner) = decisions;
    }

    fn recorded(&self, question: &CommandQuestion) -> Option<CommandDecided> {
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        let at = recorded.iter().position(|decided| is_about(decided, question))?;
        Some(recorded.remove(at))
    }

    fn refusal(&self, question: &CommandQuestion, was_allowed: bool) -> String {
        let names = words::beginning(&words::all_of(&question.programs), NAMES_SHOWN);
        let (was, is) = if question.programs.len() == 1 { ("was", "is") } else { ("were", "are") };
        let why = match was_allowed {
            true => format!("{was} allowed in the recording, which does not count without a sandbox"),
            false => format!("{is} not allowed"),
        };
        let advice = self.advice.as_deref().unwrap_or(ALLOW_IT);
        format!("{names} {why}, and no approver is available: {advice}")
    }
}

fn is_about(decided: &CommandDecided, question: &CommandQuestion) -> bool {
    let stdin = (!question.stdin.is_empty()).then(|| Digest::of(&question.stdin));
    let is_same = match (&decided.code, &question.command) {
        (None, command) => decided.command == *command,
        // Only the beginning and the digest of code are recorded.
        (Some(code), CommandLine::Args(words)) => {
            let is_code = words.last().is_some_and(|word| Digest::of(word.as_bytes()) == *code);
            is_code && decided.command == beginning(&question.command)
        }
        (Some(_), _) => false,
    };
    is_same && decided.env == question.env && decided.stdin == stdin
}

impl Asker for Answers {
    fn ask(&self, question: CommandQuestion) -> Asking {
        let recorded = self.recorded(&question);
        let was_allowed = recorded.as_ref().is_some_and(|decided| decided.decision == PolicyDecision::Allow);
        let answer = match (recorded, &self.otherwise) {
            (Some(CommandDecided { decision: PolicyDecision::Deny, reason, .. }), _) => ApprovalAnswer::Refuse(reason),
            (Some(_), _) if self.may_allow => ApprovalAnswer::Once,
            (_, Some(asker)) => return asker.ask(question),
            (_, None) => ApprovalAnswer::Refuse(self.refusal(&question, was_allowed)),
        };
        Box::pin(std::future::ready(answer))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bytes::Bytes;

    use super::*;
    use crate::engine::event::DecidedBy;

    fn question(words: &[&str], stdin: &'static str, env: &[(&str, &str)]) -> CommandQuestion {
        CommandQuestion {
            session: "s".to_owned(),
            call: 2,
            agent: String::new(),
            command: CommandLine::Args(words.iter().map(|&word| word.to_owned()).collect()),
            env: env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            stdin: Bytes::from_static(stdin.as_bytes()),
            programs: vec![words[0].to_owned()],
            copies: None,
        }
    }

    fn decided(question: &CommandQuestion, code: Option<&str>, decision: PolicyDecision) -> CommandDecided {
        CommandDecided {
            command: beginning(&question.command),
            env: question.env.clone(),
            stdin: (!question.stdin.is_empty()).then(|| Digest::of(&question.stdin)),
            code: code.map(|code| Digest::of(code.as_bytes())),
            environment: None,
            decision,
            by: DecidedBy::Answer,
            reason: "no".to_owned(),
        }
    }

    fn answer(answers: &Answers, question: CommandQuestion) -> ApprovalAnswer {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(answers.ask(question))
    }

    #[test]
    fn recorded_approval_covers_that_command_only() {
        let long = "x = 1\n".repeat(200);
        let other = format!("{long}y = 2");
        let known = question(&["make", "all"], "in", &[("A", "1")]);
        let evaluated = question(&["python3", "-c", &long], "", &[]);
        let answers = Answers::new(&ShellRules::default(), true);
        let hold = || {
            let allow = PolicyDecision::Allow;
            answers.hold(vec![decided(&known, None, allow), decided(&evaluated, Some(&long), allow)]);
        };
        hold();
        assert_eq!(answer(&answers, evaluated.clone()), ApprovalAnswer::Once);
        assert_eq!(answer(&answers, known.clone()), ApprovalAnswer::Once);
        assert!(matches!(answer(&answers, known.clone()), ApprovalAnswer::Refuse(_)), "it was asked once");
        for changed in [
            question(&["make", "clean"], "in", &[("A", "1")]),
            question(&["make", "all"], "other", &[("A", "1")]),
            question(&["make", "all"], "in", &[]),
            question(&["make", "all"], "in", &[("A", "2")]),
            question(&["python3", "-c", &other], "", &[]),
            CommandQuestion { env: BTreeMap::from([("B".to_owned(), String::new())]), ..evaluated.clone() },
        ] {
            hold();
            let shown = format!("{changed:?}");
            assert!(matches!(answer(&answers, changed), ApprovalAnswer::Refuse(_)), "{shown}");
        }
    }

    #[test]
    fn recorded_refusal_counts_without_sandbox() {
        let known = question(&["make"], "", &[]);
        let answers = Answers::new(&ShellRules::default(), false);
        answers.hold(vec![decided(&known, None, PolicyDecision::Allow)]);
        let ApprovalAnswer::Refuse(why) = answer(&answers, known.clone()) else { panic!("it is not allowed here") };
        assert!(why.contains(ALLOW_IT), "{why}");
        answers.hold(vec![decided(&known, None, PolicyDecision::Deny)]);
        assert_eq!(answer(&answers, known), ApprovalAnswer::Refuse("no".to_owned()));
    }
}
