//! Texts, colours and exit codes that the commands and the debugger share.

mod advice;
pub(crate) mod events;
pub(crate) mod exit;
pub(crate) mod style;
pub(crate) mod text;
