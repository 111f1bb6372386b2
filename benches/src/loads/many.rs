//! Costs that must not grow with the number of sessions: finding one, its first call, a page of the list.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use foldspace::session::SnapshotPolicy;
use foldspace::store::Durability;
use serde_json::json;

use super::Size;
use crate::journal;
use crate::served::{Line, Request, Served};
use crate::table::{Table, against, number};

/// Requests of each kind at each size.
const ASKED: usize = 400;

/// Measures the processor time of the server by the number of its sessions.
///
/// # Errors
/// An error of the server or of the store.
pub fn report(size: Size) -> Result<Vec<Table>> {
    let mut served = Served::start()?;
    let mut line = served.connect()?;
    let mut ids: Vec<String> = Vec::new();
    let head = [
        "sessions",
        "create",
        "first call, by name (target <= 0.6)",
        "second call",
        "first call, by id",
        "page of 50",
        "metrics",
        "memory MiB",
    ];
    let title = "many: processor ms of the server for a request, sessions in memory, called over HTTP";
    let mut table = Table::new(title, &head);
    for count in size.of([500, 2_000, 10_000], [1_000, 20_000, 100_000]) {
        let before = (served.processor()?, ids.len());
        while ids.len() < count {
            let new = line.request("POST", "/v1/sessions", Some(&json!({ "name": format!("task-{}", ids.len()) })));
            let made = line.ask(&new)?;
            ids.push(made["session"].as_str().context("no id")?.to_owned());
        }
        let made = (served.processor()? - before.0).as_secs_f64() * 1e3 / (ids.len() - before.1) as f64;
        // Sessions without a call so far.
        let step = (count - before.1) / (2 * ASKED).min(count - before.1);
        let fresh: Vec<usize> = (before.1..count).step_by(step).collect();
        let (named, known) = fresh.split_at(fresh.len() / 2);
        let call =
            |line: &Line, session: &str| line.call(session, "write_file", json!({ "file_path": "a", "content": "b" }));
        let names: Vec<String> = named.iter().map(|at| format!("task-{at}")).collect();
        let by_name: Vec<Request> = names.iter().map(|name| call(&line, name)).collect();
        let by_id: Vec<Request> = known.iter().map(|at| call(&line, &ids[*at])).collect();
        let page = |at: &usize| line.request("GET", &format!("/v1/sessions?limit=50&after={}", ids[at / 2]), None);
        let pages: Vec<Request> = known.iter().map(page).collect();
        let metrics: Vec<Request> = known.iter().map(|_| line.request("GET", "/metrics", None)).collect();
        let mut cost = |requests: &[Request]| cost(&served, &mut line, requests);
        let costs = [cost(&by_name)?, cost(&by_name)?, cost(&by_id)?, cost(&pages)?, cost(&metrics)?];
        let [first, second, by_id, page, metrics] = costs;
        table.row([
            number(count as f64),
            number(made),
            against(first, 0.6, false),
            number(second),
            number(by_id),
            number(page),
            number(metrics),
            number(served.memory()? as f64 / f64::from(1 << 20)),
        ]);
    }
    drop(line);
    served.end()?;
    Ok(vec![table, opened(&served)?])
}

/// Measures the time to open and to verify the store.
fn opened(served: &Served) -> Result<Table> {
    let mut opened =
        Table::new("many: the store of these sessions, in this process", &["open ms", "verify ms", "events"]);
    let start = Instant::now();
    let sessions = journal::open(&served.data(), Durability::Buffered, true, SnapshotPolicy::default())?;
    let open = start.elapsed();
    let report = sessions.verify(None)?;
    ensure!(report.differences.is_empty() && report.events == sessions.totals()?.events, "{report:?}");
    let ms = |time: Duration| number(time.as_secs_f64() * 1e3);
    opened.row([ms(open), ms(start.elapsed() - open), number(report.events as f64)]);
    sessions.close();
    Ok(opened)
}

/// The processor time of the server for one of these requests.
fn cost(served: &Served, line: &mut Line, requests: &[Request]) -> Result<f64> {
    let before = served.processor()?;
    for request in requests {
        let (status, body) = line.exchange(request)?;
        ensure!(status == 200, "{status}: {}", String::from_utf8_lossy(body));
    }
    Ok((served.processor()? - before).as_secs_f64() * 1e3 / requests.len() as f64)
}
