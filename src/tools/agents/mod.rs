//! Payloads of the hooks of coding agents, read as reports in one vocabulary.

pub(crate) mod before_look;
mod brief;
mod command_hook;
pub(crate) mod kind;
mod linked_places;
pub(crate) mod observer;
mod plugin_hook;
pub(crate) mod report;
#[cfg(test)]
mod tests;

use serde_json::Value;

use kind::AgentKind;
use report::HookReport;

/// Reads a payload that an agent gave to its hook. `event` is the hook's event where the payload does not name it.
///
/// It takes any payload: an event that is not known is [`HookKind::Other`](report::HookKind::Other), a tool that is not
/// known may write, and missing ids are `None`.
pub(crate) fn read_report(agent: AgentKind, event: Option<&str>, payload: &Value) -> HookReport {
    match agent {
        AgentKind::OpenCode => plugin_hook::read(payload),
        _ => command_hook::read(agent, event, payload),
    }
}
