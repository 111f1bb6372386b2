//! The values that several verbs and faces share: positions, events, calls, entries, patches, text for people.

mod authorship;
mod authorship_format;
mod blame;
mod call;
mod call_row;
mod claim;
mod conversation;
mod entry;
mod event;
mod event_selection;
mod observed;
mod patch;
mod position;
mod question;
mod rerun;
mod run_tree;
mod slice;
mod subject;
mod text;
mod unkept;
mod until;

pub use crate::engine::backward::backward_spans;
pub use authorship::{AttributedFile, Authorship, AuthorshipError};
pub use authorship_format::{agent_trace, git_ai_note};
pub use blame::{BlameDocument, BlamedLine, ObservedChange, blamed};
pub use call::{
    Call, CallChanges, CallPathChange, CallViews, SharedPaths, call_at, has_failed, path_of, visit_calls, whole,
};
pub use call_row::{CallFilter, CallRow, CallRows};
pub use claim::{ClaimEvidence, claim_in};
pub use conversation::{Conversation, RunMessage, messages, other_record, prompts};
pub use entry::{EntryDocument, EntryShape, entry};
pub use event::{EventDocument, event};
pub use event_selection::EventSelection;
pub use observed::{ObservedCalls, RunMention, RunSpan};
pub use patch::{ChangeDocument, ChangeShape, Patch, change, change_between, change_with, changes_to};
pub use patch::{file_changes, patches, patches_between};
pub use position::{Position, first_read};
pub use question::{allowed_by_session, question};
pub use rerun::{DivergenceDocument, RerunCall, divergence, rerun_call};
pub use run_tree::{RunBranch, RunPlace, RunStep, RunTree};
pub use slice::slice;
pub use subject::{one_line, subject};
pub use text::{misleads, visible, visible_lines};
pub use until::{ConditionError, EventTest, HistoryRun, SearchQuery, Sought, StopCondition, touches};
