//! Tools that come with foldspace.

pub(crate) mod evaluate_python;
pub(crate) mod execute_script;
mod exit_note;
pub(crate) mod files;
pub(crate) mod line_search;
pub(crate) mod podman_shell;
pub(crate) mod processes;
mod service_restart;
pub(crate) mod services;
pub(crate) mod shell_execute;
pub(crate) mod shell_facts;
pub(crate) mod shell_run;
pub(crate) mod standard;
pub(crate) mod unrunnable;
