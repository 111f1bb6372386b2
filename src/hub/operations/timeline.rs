//! A summary of a session's calls over time.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Operation, OperationContext, OperationError, OperationRoute, reading};
use crate::engine::clock::Timestamp;
use crate::engine::id::Seq;
use crate::tools::running_calls;
use crate::view::{CallFilter, CallRow, CallRows};

const BUCKETS: usize = 2000;

/// Counts a session's calls, optionally filtered, in buckets of equal size. A client can draw a list of all calls from
/// the counts and fetch any page of it with `list_calls`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct ShowTimeline {
    /// The number of buckets, from 1 to 2000; at most the number of calls.
    #[serde(default = "usual")]
    #[schemars(range(min = 1, max = 2000))]
    pub buckets: usize,
    /// The filter.
    #[serde(flatten)]
    pub filter: CallFilter,
}

fn usual() -> usize {
    400
}

/// A summary of a session's calls.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "Timeline")]
pub struct TimelineDocument {
    /// The position of the session's last event.
    pub head: Seq,
    /// The number of calls.
    pub calls: usize,
    /// The start of the first call, in UTC; null without calls.
    #[schemars(with = "Option<String>")]
    pub started_at: Option<Timestamp>,
    /// The end of the last call, or its start if it has not ended.
    #[schemars(with = "Option<String>")]
    pub ended_at: Option<Timestamp>,
    /// Calls by tool.
    #[schemars(with = "BTreeMap<String, u64>")]
    pub tools: BTreeMap<Arc<str>, u64>,
    /// Calls by agent.
    #[schemars(with = "BTreeMap<String, u64>")]
    pub agents: BTreeMap<Arc<str>, u64>,
    /// The buckets, in order.
    pub buckets: Vec<TimelineBucket>,
}

/// A run of consecutive calls.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct TimelineBucket {
    /// The position of the first call.
    pub from: Seq,
    /// The start of the first call, in UTC.
    #[schemars(with = "String")]
    pub at: Timestamp,
    /// The latest end of a call, or its start if it has not ended.
    #[schemars(with = "String")]
    pub ended_at: Timestamp,
    /// The total duration of the calls in microseconds.
    pub micros: u64,
    /// The number of calls.
    pub calls: usize,
    /// The number of calls that failed or had a failing command.
    pub failed: usize,
    /// The number of their file changes.
    pub changed: u64,
}

/// A call's data for the buckets.
struct CallPoint {
    call: Seq,
    at: Timestamp,
    ended_at: Timestamp,
    micros: u64,
    failed: bool,
    changed: u64,
}

impl Operation for ShowTimeline {
    const NAME: &'static str = "show_timeline";
    const ROUTE: Option<OperationRoute> = OperationRoute::get("calls", "/v1/sessions/{session}/timeline");
    type Output = TimelineDocument;

    async fn run(self, context: &OperationContext<'_>) -> Result<TimelineDocument, OperationError> {
        let Self { buckets, filter } = self;
        if !(1..=BUCKETS).contains(&buckets) {
            return Err(OperationError::invalid(format!("buckets is {buckets}; it must be from 1 to {BUCKETS}")));
        }
        let session = context.session().await?;
        reading(move || {
            let head = session.head()?;
            let (mut points, mut ended_at) = (Vec::new(), None);
            let (mut tools, mut agents) = (BTreeMap::new(), BTreeMap::new());
            let rows = CallRows::new(&filter, running_calls(&session))?;
            rows.visit(&session, (1, head), &mut |row: CallRow| {
                let millis = i64::try_from(row.micros / 1000).unwrap_or(i64::MAX);
                let end = Timestamp(row.started_at.0.saturating_add(millis));
                ended_at = ended_at.max(Some(end));
                *tools.entry(row.tool).or_default() += 1;
                *agents.entry(row.agent).or_default() += 1;
                let CallRow { call, started_at: at, micros, failed, changed, .. } = row;
                points.push(CallPoint { call, at, ended_at: end, micros, failed, changed });
                ControlFlow::Continue(())
            })?;
            let started_at = points.first().map(|first: &CallPoint| first.at);
            Ok(TimelineDocument {
                head,
                calls: points.len(),
                started_at,
                ended_at,
                tools,
                agents,
                buckets: in_buckets(&points, buckets),
            })
        })
        .await
    }
}

fn in_buckets(points: &[CallPoint], buckets: usize) -> Vec<TimelineBucket> {
    let count = buckets.min(points.len());
    let bound = |bucket: usize| bucket * points.len() / count.max(1);
    let bucket = |bucket: usize| {
        let points = &points[bound(bucket)..bound(bucket + 1)];
        points.first().map(|first| TimelineBucket {
            from: first.call,
            at: first.at,
            ended_at: points.iter().map(|point| point.ended_at).max().unwrap_or(first.at),
            micros: points.iter().map(|point| point.micros).fold(0, u64::saturating_add),
            calls: points.len(),
            failed: points.iter().filter(|point| point.failed).count(),
            changed: points.iter().map(|point| point.changed).sum(),
        })
    };
    (0..count).filter_map(bucket).collect()
}
