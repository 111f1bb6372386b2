//! Outcomes of calls that an earlier request made.

use std::time::Duration;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::content_params::lower;
use super::tool_call::ToolOutcome;
use crate::engine::event::{CallFinished, CallStatus};
use crate::engine::id::Seq;
use crate::engine::recorded::Recorded;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::engine::subscription::Filter;
use crate::tools::off_thread::with_store;

/// Interval of looks for events that are not announced.
const LOOK: Duration = Duration::from_secs(1);

/// Waits for the recorded outcome of a call.
///
/// # Errors
/// [`SessionError::Stopped`] if `cancel` is cancelled before, and errors of the store.
pub(super) async fn outcome_of(
    session: &Session,
    call: Seq,
    cancel: &CancellationToken,
) -> Result<ToolOutcome, SessionError> {
    let mut ends = session.subscribe(call + 1, Filter::of::<CallFinished>().of_call(call));
    loop {
        let of = session.clone();
        let look = move || match ends.next_within(Duration::ZERO)? {
            Some(end) => Ok(Ok(outcome(&of, call, &end))),
            None => Ok::<_, SessionError>(Err(ends)),
        };
        ends = match with_store(session, look).await?? {
            Ok(outcome) => return outcome,
            Err(ends) => ends,
        };
        tokio::select! {
            () = ends.announced(LOOK) => {}
            () = cancel.cancelled() => return Err(SessionError::Stopped),
        }
    }
}

fn outcome(session: &Session, call: Seq, end: &Recorded) -> Result<ToolOutcome, SessionError> {
    let Some(CallFinished { status, result, message, micros, reason }) = end.view().decoded() else {
        return Err(SessionError::Unreadable { name: session.name().to_owned() });
    };
    let result = lower(result, &mut |digest| session.content(digest).ok().map(|bytes| bytes.to_vec()));
    let (result, text) = match status {
        CallStatus::Ok => (result.clone(), serde_json::to_string_pretty(&result).unwrap_or_default()),
        _ => (Value::Null, message),
    };
    let (finished, ran, limit) = (end.seq, None, None);
    Ok(ToolOutcome { call, finished, status, result, text, micros, reason, ran, limit, repeated: true })
}
