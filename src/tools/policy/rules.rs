//! Rules by which commands run.

use std::sync::Arc;

use super::CommandPolicy;
use crate::tools::call::approver::Asker;
use crate::tools::workspace::capture::CaptureBudget;

/// What a dispatcher goes by where commands run.
#[derive(Clone, Default)]
pub struct ShellRules {
    /// Which commands may run.
    pub policy: CommandPolicy,
    /// Who is asked where the policy does not know; without one such a command is refused.
    pub asker: Option<Arc<dyn Asker>>,
    /// How much is kept of what commands write.
    pub budget: CaptureBudget,
    /// How to allow a command, for who wrote one that nobody could be asked about; the command line's ways when nothing
    /// is said.
    pub advice: Option<Arc<str>>,
}
