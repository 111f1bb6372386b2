//! Custom events and slices: recorded over HTTP beside annotations, and the state with five declared slices.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use foldspace::session::SnapshotPolicy;
use foldspace::store::Durability;
use foldspace::tools::{OwnEvent, declare_slice, record_own};
use foldspace::{NewSession, Sessions};
use serde_json::{Value, json};

use super::Size;
use super::state_at::Past;
use crate::disk::Scratch;
use crate::journal;
use crate::sample::{micros, quantile};
use crate::served::{Line, Served};
use crate::table::{Table, against, number};

/// Events of a commit, as an orchestrator would send them.
const BATCH: u64 = 100;

fn asked(line: &mut Line, path: &str, body: &Value) -> Result<Duration> {
    let request = line.request("POST", path, Some(body));
    let start = Instant::now();
    let (status, answer) = line.exchange(&request)?;
    ensure!(status < 300, "{status}: {}", String::from_utf8_lossy(answer));
    Ok(start.elapsed())
}

/// Times of own events and of annotations in turn, over one connection.
///
/// # Errors
/// A request fails.
pub fn over_http(count: u64) -> Result<(Vec<Duration>, Vec<Duration>)> {
    let served = Served::start()?;
    let mut line = served.connect()?;
    line.ask(&line.request("POST", "/v1/sessions", Some(&json!({ "name": "own" }))))?;
    let (mut events, mut annotations) = (Vec::new(), Vec::new());
    for id in 0..count {
        let body = json!({ "kind": "plan.step", "data": { "id": id, "status": "open" } });
        events.push(asked(&mut line, "/v1/sessions/own/events", &body)?);
        let body = json!({ "name": "plan.step", "value": { "id": id, "status": "open" } });
        annotations.push(asked(&mut line, "/v1/sessions/own/annotations", &body)?);
    }
    Ok((events, annotations))
}

/// Writes a session of own events that five slices fold.
///
/// # Errors
/// Errors of the store.
fn written(sessions: &Sessions, events: u64) -> Result<()> {
    let session = sessions.create(NewSession::named("long"))?;
    let folds = [
        json!({ "fold": "latest_by", "key": "/id" }),
        json!({ "fold": "count_by", "key": "/status" }),
        json!({ "fold": "sum_by", "key": "/status", "value": "/cost" }),
        json!({ "fold": "append", "max": 100 }),
        json!({ "fold": "merge_patch" }),
    ];
    for (number, mut rule) in folds.into_iter().enumerate() {
        rule["kinds"] = json!(["plan.step"]);
        declare_slice(&session, serde_json::from_value(json!({ "name": format!("Own{number}"), "rules": [rule] }))?)?;
    }
    for first in (0..events).step_by(BATCH as usize) {
        let step = |id: u64| json!({ "id": id % 1000, "status": format!("status {}", id % 7), "cost": id });
        let batch = (first..first + BATCH).map(|id| OwnEvent { kind: "plan.step".to_owned(), data: step(id) });
        record_own(&session, batch.collect(), None, None)?;
    }
    Ok(())
}

/// Measures both.
///
/// # Errors
/// A request fails, or the store does.
pub fn report(size: Size) -> Result<Vec<Table>> {
    let count = size.of(200, 2_000);
    let (mut events, mut annotations) = over_http(count)?;
    let head = ["request", "p50 µs", "ratio (target <= 1.2)"];
    let mut http = Table::new(format!("over HTTP, {count} of each in turn"), &head);
    let [event, annotation] =
        [&mut events, &mut annotations].map(|times| quantile(times, 0.5).map_or(f64::NAN, micros));
    http.row(["own event".to_owned(), number(event), against(event / annotation, 1.2, false)]);
    http.row(["annotation".to_owned(), number(annotation), String::new()]);

    let events = size.of(20_000, 100_000);
    let scratch = Scratch::new("own")?;
    let policy = SnapshotPolicy::default();
    let sessions = journal::open(scratch.path(), Durability::Buffered, true, policy)?;
    written(&sessions, events)?;
    sessions.close();
    let mut past = Past::open(scratch, "long")?;
    let mut all = (0..size.of(100, 1_000)).map(|_| past.look()).collect::<Result<Vec<_>>>()?;
    let mut at = |part| quantile(&mut all, part).map_or(f64::NAN, micros) / 1e3;
    let head = ["session", "snapshots", "p50 ms", "p99 ms (target <= 5)", "max ms"];
    let mut table = Table::new(format!("state_at: random positions of {events} own events, caches cold"), &head);
    let (middle, high, most) = (number(at(0.5)), against(at(0.99), 5.0, false), number(at(1.0)));
    table.row(["5 declared slices".to_owned(), past.snapshots()?.to_string(), middle, high, most]);
    Ok(vec![http, table])
}
