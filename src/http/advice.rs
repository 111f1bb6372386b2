//! The text of advice for clients of the API: names its routes and fields.

use crate::engine::advice::Advice;

/// Returns advice as the hint of a problem.
pub(super) fn hint(advice: &Advice) -> String {
    match advice {
        Advice::ListSessions { nearest: Some(nearest) } => {
            format!("did you mean {nearest}? GET /v1/sessions lists them")
        }
        Advice::ListSessions { nearest: None } => "GET /v1/sessions lists them".to_owned(),
        Advice::ListCalls => "GET /v1/sessions/{session}/calls lists the calls".to_owned(),
        Advice::ListRuns => "GET /v1/sessions/{session}/state/AgentRuns lists them".to_owned(),
        Advice::ShowLineage => "GET /v1/sessions/{session}/family shows parents and children".to_owned(),
        Advice::ReadLog => "check with GET /v1/sessions/{session}/events before you retry".to_owned(),
        Advice::ShowHistory => "`at` selects another position".to_owned(),
        Advice::RaiseFileBudget => "a larger `keep_file_bytes` stores such contents".to_owned(),
        Advice::SelectUndo { outside } => {
            let rest = outside.map_or_else(String::new, |seq| {
                format!("; `\"external\": true` reverts changes from outside of calls, the last at {seq}")
            });
            format!("`call` selects a call, to undo what that call left{rest}")
        }
        Advice::ForceRewind => {
            "`\"force\": true` first records external changes, and leaves files without stored contents".to_owned()
        }
        Advice::RemoveEarlier => "`\"force\": true` without `\"keep_earlier\"` removes them, too".to_owned(),
        Advice::NameDirectory => "name the directory to apply its changes to in `to`".to_owned(),
        Advice::WriteAllFiles => "POST /v1/sessions/{session}/materialise returns all files".to_owned(),
        Advice::AllowDirectory => "the server must allow a directory before it can be used".to_owned(),
        Advice::RemoveChild { name } => format!("DELETE /v1/sessions/{name} removes the child"),
        Advice::UseHost { host, at: Some(at) } => {
            format!("use it on {host} at {at}, or move it: POST /v1/sessions/{{session}}/host")
        }
        Advice::Text { .. }
        | Advice::ListPositions
        | Advice::ShowAuthors
        | Advice::ImportUnderOtherName
        | Advice::ReplaceSession
        | Advice::CheckMachine
        | Advice::UseWritableStore
        | Advice::WaitForOwner
        | Advice::StopOwner
        | Advice::FindOwner
        | Advice::UseHost { at: None, .. }
        | Advice::CheckStore
        | Advice::RepairStore
        | Advice::AcceptLoss
        | Advice::TakeOverCopy
        | Advice::RestoreFromCopy
        | Advice::ReplaceCopy
        | Advice::UseOtherDirectory => advice.to_string(),
    }
}
