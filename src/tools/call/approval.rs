//! Decisions about commands: by the policy, or by an approver where it has none.

use super::approver::{ApprovalAnswer, CommandQuestion};
use crate::engine::event::{DecidedBy, PolicyDecision};
use crate::tools::policy::rules::ShellRules;
use crate::tools::policy::{AllowedBy, Decision};
use crate::tools::words;

pub(crate) struct Decided {
    pub(crate) decision: PolicyDecision,
    pub(crate) by: DecidedBy,
    pub(crate) reason: String,
    /// Allowed for the rest of the session from now on.
    pub(crate) programs: Vec<String>,
    /// So is every other command.
    pub(crate) everything: bool,
}

impl Decided {
    fn new(decision: PolicyDecision, by: DecidedBy, reason: String) -> Self {
        Self { decision, by, reason, programs: Vec::new(), everything: false }
    }

    /// Describes the decision about a command that was given with the rules: it is allowed unless it is denied.
    pub(super) fn beforehand(denied: Option<String>) -> Self {
        match denied {
            None => Self::new(PolicyDecision::Allow, DecidedBy::AutoConfirm, String::new()),
            Some(reason) => Self::new(PolicyDecision::Deny, DecidedBy::Policy, reason),
        }
    }

    pub(crate) async fn of(
        decision: Decision,
        rules: &ShellRules,
        question: impl FnOnce(Vec<String>) -> CommandQuestion + Send,
    ) -> Self {
        let programs = match decision {
            Decision::Allow { because } => return Self::new(PolicyDecision::Allow, by(because), String::new()),
            Decision::Deny { reason } => return Self::new(PolicyDecision::Deny, DecidedBy::Policy, reason),
            Decision::Ask { programs } => programs,
        };
        let Some(asker) = &rules.asker else {
            let reason = nobody(&programs, rules.advice.as_deref());
            return Self::new(PolicyDecision::Deny, DecidedBy::Nobody, reason);
        };
        match asker.ask(question(programs.clone())).await {
            ApprovalAnswer::Once => Self::new(PolicyDecision::Allow, DecidedBy::Answer, String::new()),
            ApprovalAnswer::Session => {
                let reason = "for the session".to_owned();
                Self { programs, ..Self::new(PolicyDecision::Allow, DecidedBy::Answer, reason) }
            }
            ApprovalAnswer::Everything => {
                let reason = "everything for the session".to_owned();
                Self { everything: true, ..Self::new(PolicyDecision::Allow, DecidedBy::Answer, reason) }
            }
            ApprovalAnswer::Refuse(why) => Self::new(PolicyDecision::Deny, DecidedBy::Answer, why),
        }
    }
}

/// Advice to a model for a command that is not allowed: [`ShellRules::advice`] of a server, whose flags are not the model's.
pub const ASK_THE_PERSON: &str = "ask the person who runs the server to allow it";

/// Characters of the programs, or of the command, that a refusal names.
pub(crate) const NAMES_SHOWN: usize = 100;

/// Says why a command is refused where nobody can be asked.
pub fn nobody(programs: &[String], advice: Option<&str>) -> String {
    let advice =
        advice.unwrap_or("allow what is missing (--allow PROGRAM), or have every question answered with yes (--yes)");
    format!("{}, and there is nobody to ask; {advice}", unallowed(programs))
}

/// Says that no rule allows programs. It shows the beginning of a long command.
pub(crate) fn unallowed(programs: &[String]) -> String {
    format!("nothing allows {}", words::beginning(&words::any_of(programs), NAMES_SHOWN))
}

fn by(because: AllowedBy) -> DecidedBy {
    match because {
        AllowedBy::Harmless | AllowedBy::List => DecidedBy::Policy,
        AllowedBy::Session => DecidedBy::Session,
        AllowedBy::AutoConfirm => DecidedBy::AutoConfirm,
    }
}
