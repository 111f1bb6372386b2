//! One tool call, from its check to its recorded outcome.

pub(crate) mod approval;
pub(crate) mod approver;
pub(crate) mod call_clock;
pub(crate) mod command_hooks;
mod confine;
pub(crate) mod content_params;
pub(crate) mod context;
mod daemon;
pub(crate) mod error;
pub(crate) mod file_work;
pub(crate) mod filesystem;
pub(crate) mod open_call;
pub(crate) mod params;
pub(crate) mod process;
pub(crate) mod record_command;
pub(crate) mod recorded_shell;
pub(crate) mod registrations;
mod repeated;
pub(crate) mod shell;
#[cfg(test)]
mod tests;
pub(crate) mod tool;
pub(crate) mod tool_call;
pub(crate) mod tool_runner;
pub(crate) mod toolset;
pub(crate) mod trace;
pub(crate) mod work_budget;
