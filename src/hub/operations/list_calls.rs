//! The calls of a session, page by page.

use std::ops::ControlFlow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::log::LogPage;
use super::{Operation, OperationContext, OperationError, OperationRoute, reading};
use crate::engine::event::{CallStarted, Event};
use crate::engine::id::Seq;
use crate::tools::may_be_running;
use crate::view::{CallDocument, CallFilter, CallRows, CallViews, Position, subject};

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
    pub call: CallDocument,
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
            let may_run = may_be_running(&session);
            let (mut wanted, mut last) = (Vec::new(), 0);
            let rows = CallRows::new(&filter, may_run)?;
            let mut next = rows.visit(&session, (from, from.saturating_add(EVENTS - 1)), &mut |row| {
                wanted.push(row.call);
                last = last.max(row.finished.unwrap_or(row.call));
                if wanted.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            // Documents are built only for these calls.
            let mut page = LogPage::new((limit, BYTES), false);
            let mut calls = CallViews::from(&session, wanted.first().copied().unwrap_or(1))?;
            if let Some(&first) = wanted.first() {
                session.visit(first, &mut |event| {
                    if event.kind != CallStarted::KIND || wanted.binary_search(&event.seq).is_ok() {
                        calls.take(event);
                    }
                    if event.seq < last { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                })?;
            }
            while let Some(call) = calls.next_begun() {
                let document = call.document(may_run);
                let summary = subject(&session, &document.params, SUBJECT_MAX);
                if !page.take(ListedCall { call: document, summary }) {
                    next = Some(call.call);
                    break;
                }
            }
            Ok(CallsPage { head: session.head()?, next, calls: page.documents() })
        })
        .await
    }
}
