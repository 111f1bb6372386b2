//! Access control for clients on the unix socket that are in a different sandbox than the server.
//!
//! Such a client is a stranger: its namespaces, ids, capabilities or system call filters differ from the server's. It
//! must not run commands on the host or access host directories. Operations that are not listed here refuse it.

use super::OperationError;
use crate::backends::HostCaller;

/// Operations that a stranger may use. They read recorded data or work in sessions. Commands on the host are refused by
/// [`ShellRules`](crate::tools::ShellRules), and directories by the stranger's empty set of roots.
const HARMLESS: &[&str] = &[
    // Read the history.
    "align_sessions",
    "blame_file",
    "compare_sessions",
    "diff",
    "follow_call",
    "follow_events",
    "follow_process",
    "list_annotations",
    "list_calls",
    "list_changes",
    "list_effects",
    "list_events",
    "list_files",
    "list_messages",
    "list_processes",
    "list_reducers",
    "list_services",
    "list_sessions",
    "list_tags",
    "list_tools",
    "log",
    "materialise",
    "read_file",
    "read_recorded",
    "search_session",
    "section",
    "show_call",
    "show_family",
    "show_policy",
    "show_process",
    "show_session",
    "show_slice",
    "show_state",
    "show_timeline",
    "sql",
    "stat_entry",
    "terminal_frames",
    "verify",
    "wait_process",
    "watch_files",
    // Concern the server.
    "healthz",
    "metrics",
    "openapi",
    "readyz",
    "show_server",
    "sign_in",
    "stop_server",
    // Work in a session.
    "annotate",
    "answer_call",
    "bisect",
    "cancel_call",
    "clone_session",
    "copy_mounts",
    "create_session",
    "declare_slice",
    "dispatch_subagents",
    "fork_session",
    "make_call",
    "make_directory",
    "merge",
    "move_entry",
    "open_terminal",
    "put_file",
    "put_tar",
    "record_effect",
    "record_events",
    "remove_entry",
    "remove_reducer",
    "remove_session",
    "remove_tag",
    "rerun",
    "rewind",
    "rollouts",
    "run_until",
    "send_input",
    "signal_process",
    "start_process",
    "stop_service",
    "tag_position",
    "undo",
];

/// Checks that a client may use an operation.
///
/// # Errors
/// The client is a stranger, and the operation is not harmless.
pub fn admit(operation: &str, client: &HostCaller) -> Result<(), OperationError> {
    match HARMLESS.contains(&operation) {
        true => Ok(()),
        false => check_sandbox(client),
    }
}

/// Refuses a stranger.
pub fn check_sandbox(client: &HostCaller) -> Result<(), OperationError> {
    client.process().map(drop).map_err(|why| OperationError::refused(&*why))
}
