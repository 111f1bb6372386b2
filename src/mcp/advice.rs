//! The text of advice for a model: names tools.

use crate::engine::advice::Advice;

/// Returns advice for a model. `None` if only the person who runs the server can follow it.
pub(super) fn for_model(advice: &Advice) -> Option<String> {
    Some(match advice {
        Advice::ListPositions => "session_log shows the positions".to_owned(),
        Advice::ListCalls => "session_log shows the calls".to_owned(),
        Advice::ListRuns => "session_state shows them in the slice AgentRuns".to_owned(),
        Advice::ShowLineage => "session_state shows the children in the slice Children".to_owned(),
        Advice::ReadLog => "check with session_log before you retry".to_owned(),
        Advice::SelectUndo { outside } => {
            let rest = outside.map_or_else(String::new, |seq| {
                format!("; with `external` it reverts changes from outside of calls, the last at {seq}")
            });
            format!("session_undo with `call` undoes what that call left{rest}")
        }
        Advice::ForceRewind => {
            "with `force`, session_rewind first records external changes, and leaves files without stored contents"
                .to_owned()
        }
        Advice::RemoveEarlier => "only the person can remove them".to_owned(),
        Advice::Text { .. }
        | Advice::ListSessions { nearest: Some(_) }
        | Advice::ShowHistory
        | Advice::ShowAuthors
        | Advice::NameDirectory
        | Advice::WriteAllFiles
        | Advice::RemoveChild { .. }
        | Advice::ImportUnderOtherName
        | Advice::UseHost { .. } => advice.to_string(),
        Advice::ListSessions { nearest: None }
        | Advice::RaiseFileBudget
        | Advice::AllowDirectory
        | Advice::ReplaceSession
        | Advice::CheckMachine
        | Advice::UseWritableStore
        | Advice::WaitForOwner
        | Advice::StopOwner
        | Advice::FindOwner
        | Advice::CheckStore
        | Advice::RepairStore
        | Advice::AcceptLoss
        | Advice::TakeOverCopy
        | Advice::RestoreFromCopy
        | Advice::ReplaceCopy
        | Advice::UseOtherDirectory => return None,
    })
}
