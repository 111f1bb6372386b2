//! Workspace of a session: opened, populated, compared and recorded.

mod attribution;
pub(crate) mod borrowed;
pub(crate) mod capture;
pub(crate) mod hard_links;
pub(crate) mod held_looks;
pub(crate) mod http_record;
pub(crate) mod intent;
pub(crate) mod keeping;
pub(crate) mod limits;
pub(crate) mod live_files;
pub(crate) mod managed;
pub(crate) mod materialise;
pub(crate) mod output_stream;
pub(crate) mod plan;
pub(crate) mod populate;
pub mod process_output;
pub mod processes;
pub(crate) mod project;
pub(crate) mod recording;
pub(crate) mod recovery;
pub(crate) mod runtime;
pub(crate) mod section;
