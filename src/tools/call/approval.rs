//! Decisions about commands: by the policy, or by an approver if the policy asks.

use std::sync::atomic::{AtomicU64, Ordering};

use super::approver::{ApprovalAnswer, CommandQuestion};
use crate::engine::event::{DecidedBy, PolicyDecision};
use crate::tools::policy::rules::ShellRules;
use crate::tools::policy::{AllowedBy, Decision};
use crate::tools::words;

static REFUSALS: AtomicU64 = AtomicU64::new(0);

/// Returns the number of commands and calls that a policy or an approver has refused in this process.
#[doc(hidden)]
pub fn policy_refusals() -> u64 {
    REFUSALS.load(Ordering::Relaxed)
}

pub(super) fn note_refusal() {
    REFUSALS.fetch_add(1, Ordering::Relaxed);
}

#[doc(hidden)]
pub struct Decided {
    pub decision: PolicyDecision,
    pub by: DecidedBy,
    pub reason: String,
    /// Programs that are now allowed for the rest of the session.
    pub(crate) programs: Vec<String>,
    /// True if every command is now allowed for the rest of the session.
    pub(crate) everything: bool,
}

impl Decided {
    fn new(decision: PolicyDecision, by: DecidedBy, reason: String) -> Self {
        if decision == PolicyDecision::Deny {
            note_refusal();
        }
        Self { decision, by, reason, programs: Vec::new(), everything: false }
    }

    /// Returns the decision about a command that came with the rules: allowed unless there is a reason to deny it.
    pub(super) fn beforehand(denied: Option<String>) -> Self {
        match denied {
            None => Self::new(PolicyDecision::Allow, DecidedBy::AutoConfirm, String::new()),
            Some(reason) => Self::new(PolicyDecision::Deny, DecidedBy::Policy, reason),
        }
    }

    #[doc(hidden)]
    pub async fn of(
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

/// Advice to a model about a refused command: [`ShellRules::advice`] of a server, as a model can't set its flags.
pub const ASK_THE_PERSON: &str = "ask the person who runs the server to allow it";

/// The advice about a refused command if [`ShellRules::advice`] has none.
pub(crate) const ALLOW_IT: &str = "allow the program beforehand";

/// Maximum number of characters of programs, or of a command, in a refusal.
pub(crate) const NAMES_SHOWN: usize = 100;

/// Returns the reason for a refusal without an approver.
pub fn nobody(programs: &[String], advice: Option<&str>) -> String {
    let advice = advice.unwrap_or(ALLOW_IT);
    format!("{}, and no approver is available; {advice}", unallowed(programs))
}

/// Returns the message that no rule allows these programs, cut after [`NAMES_SHOWN`] characters.
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
