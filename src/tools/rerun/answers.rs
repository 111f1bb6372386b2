//! Questions about commands, answered as they were when the commands were recorded.

use std::sync::{Arc, Mutex, PoisonError};

use super::super::asking::{Answer, Asker, Asking, CommandQuestion};
use crate::engine::event::{CommandDecided, PolicyDecision};

/// Answers as the recorded call was answered; of what was not recorded another decides.
pub(super) struct Answers {
    recorded: Mutex<Vec<CommandDecided>>,
    otherwise: Option<Arc<dyn Asker>>,
}

impl Answers {
    pub(super) fn new(otherwise: Option<Arc<dyn Asker>>) -> Self {
        Self { recorded: Mutex::default(), otherwise }
    }

    /// From now on these hold.
    pub(super) fn hold(&self, decisions: Vec<CommandDecided>) {
        *self.recorded.lock().unwrap_or_else(PoisonError::into_inner) = decisions;
    }

    fn recorded(&self, question: &CommandQuestion) -> Option<CommandDecided> {
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        // Of code only the beginning is recorded; but then there is one decision only.
        let at = recorded.iter().position(|decided| decided.command == question.command).unwrap_or(0);
        (at < recorded.len()).then(|| recorded.remove(at))
    }
}

impl Asker for Answers {
    fn ask(&self, question: CommandQuestion) -> Asking {
        let answer = match self.recorded(&question) {
            Some(CommandDecided { decision: PolicyDecision::Allow, .. }) => Answer::Once,
            Some(CommandDecided { decision: PolicyDecision::Deny, reason, .. }) => Answer::Refuse(reason),
            None => match &self.otherwise {
                Some(asker) => return asker.ask(question),
                None => Answer::Refuse(format!(
                    "{} is not allowed, and there is nobody to ask; allow it by the policy",
                    question.programs.join(", ")
                )),
            },
        };
        Box::pin(std::future::ready(answer))
    }
}
