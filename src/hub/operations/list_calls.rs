//! The calls of a session, page by page.

use std::ops::ControlFlow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::log::LogPage;
use super::{Operation, OperationContext, OperationError, OperationRoute, reading};
use crate::engine::id::Seq;
use crate::tools::running_calls;
use crate::view::{Call, CallFilter, CallRows, Position, subject, visit_calls};

/// Limit for the calls of a page.
const LIMIT: usize = 1000;
/// Limit for a page in bytes, unless its only call is larger.
const BYTES: usize = 4 << 20;
/// Limit for the events that are searched for a page.
const EVENTS: u64 = 200_000;
const SUBJECT_MAX: usize = 200;

/// Lists the calls of a session in the order of their starts, page by page, optionally filtered. A page may be short or
/// empty before the end; `next` is where to continue.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct ListCalls {
    /// The start position; 1 by default.
    pub from: Option<Position>,
    /// Limit for the calls of the page, from 1 to 1000.
    #[serde(default = "usual")]
    #[schemars(range(min = 1, max = 1000))]
    pub limit: usize,
    /// The filter.
    #[serde(flatten)]
    pub filter: CallFilter,
}

fn usual() -> usize {
    200
}

/// A page of calls.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct CallsPage {
    /// The position of the session's last event.
    pub head: Seq,
    /// The start of the next page; null at the end.
    pub next: Option<Seq>,
    /// The calls.
    pub calls: Vec<ListedCall>,
}

/// A call in a list.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ListedCall {
    /// The call.
    #[serde(flatten)]
    pub call: Call,
    /// Its command, path or pattern, in one line. Misleading characters are escaped.
    pub summary: String,
}

impl Operation for ListCalls {
    const NAME: &'static str = "list_calls";
    const ROUTE: Option<OperationRoute> = OperationRoute::get("calls", "/v1/sessions/{session}/calls");
    type Output = CallsPage;

    async fn run(self, context: &OperationContext<'_>) -> Result<CallsPage, OperationError> {
        let Self { from, limit, filter } = self;
        if !(1..=LIMIT).contains(&limit) {
            return Err(OperationError::invalid(format!("limit is {limit}; it must be from 1 to {LIMIT}")));
        }
        let session = context.session().await?;
        reading(move || {
            let from = from.map_or(Ok(1), |from| from.first_read(&session))?.max(1);
            let (mut wanted, mut last) = (Vec::new(), 0);
            let rows = CallRows::new(&filter, running_calls(&session))?;
            let mut next = rows.visit(&session, (from, from.saturating_add(EVENTS - 1)), &mut |row| {
                wanted.push(row.call);
                last = last.max(row.finished.unwrap_or(row.call));
                if wanted.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            // Documents are built only for these calls.
            let mut page = LogPage::new((limit, BYTES), false);
            let is_wanted = |call| wanted.binary_search(&call).is_ok();
            visit_calls(&session, (wanted.first().copied().unwrap_or(1), last), &is_wanted, &mut |call| {
                let (begun, summary) = (call.call, subject(&session, &call.params, SUBJECT_MAX));
                if page.take(ListedCall { call, summary }) {
                    return ControlFlow::Continue(());
                }
                next = Some(begun);
                ControlFlow::Break(())
            })?;
            Ok(CallsPage { head: session.head()?, next, calls: page.documents() })
        })
        .await
    }
}
