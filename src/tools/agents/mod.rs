//! Parsing the hook payloads of coding agents into a common form.

pub mod before_look;
mod brief;
mod command_hook;
pub(crate) mod kind;
mod linked_places;
pub mod observer;
mod plugin_hook;
pub mod report;
#[cfg(test)]
mod tests;

use serde_json::Value;

use kind::AgentKind;
use report::HookReport;

/// Reads the payload of an agent's hook. `event` is the hook's event if the payload does not name it.
///
/// Accepts any payload: an unknown event becomes [`HookKind::Other`](report::HookKind::Other), an unknown tool may
/// write, and missing ids are `None`.
pub fn read_report(agent: AgentKind, event: Option<&str>, payload: &Value) -> HookReport {
    match agent {
        AgentKind::OpenCode => plugin_hook::read(payload),
        _ => command_hook::read(agent, event, payload),
    }
}
