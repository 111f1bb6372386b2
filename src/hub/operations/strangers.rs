//! Operations for clients of the unix socket in another sandbox than the server's.
//!
//! Such a client is a stranger: its namespaces, ids, capabilities or filters of system calls are not the server's. It
//! must get no command on the host and no directory of the host. All other operations refuse it.

use super::OperationError;
use crate::backends::HostCaller;

/// Operations that a stranger may ask for. They read what is recorded, or work in a session that exists. Where they run a
/// command, [`ShellRules`](crate::tools::ShellRules) refuse it on the host; where they take a directory, no root allows a
/// stranger any.
const HARMLESS: &[&str] = &[
    // They read the history.
    "align_sessions",
    "blame_file",
    "diff",
    "follow_call",
    "follow_events",
    "follow_process",
    "list_annotations",
    "list_calls",
    "list_changes",
    "list_events",
    "list_files",
    "list_processes",
    "list_sessions",
    "list_tags",
    "list_tools",
    "log",
    "materialise",
    "read_file",
    "read_recorded",
    "section",
    "show_call",
    "show_family",
    "show_process",
    "show_session",
    "show_slice",
    "show_state",
    "show_timeline",
    "stat_entry",
    "terminal_frames",
    "verify",
    "wait_process",
    "watch_files",
    // They concern the server.
    "healthz",
    "metrics",
    "openapi",
    "show_server",
    "sign_in",
    "stop_server",
    // They work in a session.
    "annotate",
    "answer_call",
    "bisect",
    "cancel_call",
    "clone_session",
    "copy_mounts",
    "create_session",
    "fork_session",
    "make_call",
    "make_directory",
    "merge",
    "move_entry",
    "open_terminal",
    "put_file",
    "put_tar",
    "remove_entry",
    "remove_session",
    "remove_tag",
    "rerun",
    "rewind",
    "run_until",
    "send_input",
    "signal_process",
    "start_process",
    "tag_position",
    "undo",
];

/// Refuses an operation that is not for this client.
///
/// # Errors
/// The client is a stranger, and the operation is not one of the harmless ones.
pub(crate) fn admit(operation: &str, client: &HostCaller) -> Result<(), OperationError> {
    match HARMLESS.contains(&operation) {
        true => Ok(()),
        false => check_sandbox(client),
    }
}

/// Refuses a stranger.
pub(crate) fn check_sandbox(client: &HostCaller) -> Result<(), OperationError> {
    client.process().map(drop).map_err(|why| OperationError::refused(&*why))
}
