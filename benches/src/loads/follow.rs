//! Events from when they are recorded to a client of server-sent events.

use std::collections::HashMap;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use foldspace::{Event, Registry, Sessions};
use serde_json::{Value, json};

use super::Size;
use crate::peers::Blob;
use crate::sample::{micros, quantile};
use crate::served::{Line, Served};
use crate::table::{Table, against, number};

/// Events of a call of `write_file`.
const OF_A_CALL: u64 = 3;

/// Who follows a session, on a thread of its own.
struct Follower {
    seen: mpsc::Receiver<(u64, Instant)>,
}

impl Follower {
    fn of(served: &Served, session: &str) -> Result<Self> {
        let line = served.connect()?;
        let request = line.request("GET", &format!("/v1/sessions/{session}/events/stream"), None);
        let lines = line.stream(&request)?;
        let (tell, seen) = mpsc::channel();
        std::thread::spawn(move || {
            for line in lines {
                let Ok(line) = line else { return };
                let now = Instant::now();
                if let Some(Ok(id)) = line.strip_prefix("id: ").map(str::parse)
                    && tell.send((id, now)).is_err()
                {
                    return;
                }
            }
        });
        Ok(Self { seen })
    }

    /// When each position came, up to that one.
    fn up_to(&self, last: u64) -> Result<HashMap<u64, Instant>> {
        let mut when = HashMap::new();
        let mut next = None;
        loop {
            let (id, at) = self.seen.recv_timeout(Duration::from_secs(20)).context("events are missing")?;
            ensure!(next.is_none_or(|next| next == id), "event {id} came where {next:?} should have");
            next = Some(id + 1);
            when.insert(id, at);
            if id >= last {
                return Ok(when);
            }
        }
    }
}

/// Waits for when the event with that number is due.
fn pace(start: Instant, number: u64, each: Duration) {
    let due = start + each.saturating_mul(u32::try_from(number).unwrap_or(u32::MAX));
    std::thread::sleep(due.saturating_duration_since(Instant::now()));
}

/// Records by calls over HTTP; a time is from before the request is sent to when the client has the call's last event.
fn by_calls(served: &Served, line: &mut Line, calls: u64, each: Duration) -> Result<(f64, Vec<Duration>)> {
    line.ask(&line.request("POST", "/v1/sessions", Some(&json!({ "name": "calls" }))))?;
    let follower = Follower::of(served, "calls")?;
    let (mut begun, start) = (Vec::new(), Instant::now());
    for number in 0..calls {
        pace(start, number, each);
        let params = json!({ "file_path": format!("{number:06}.txt"), "content": "x" });
        let request = line.call("calls", "write_file", params);
        let before = Instant::now();
        let outcome: Value = line.ask(&request)?;
        begun.push((outcome["finished"].as_u64().context("no position")?, before));
    }
    let rate = (calls * OF_A_CALL) as f64 / start.elapsed().as_secs_f64();
    let seen = follower.up_to(begun.last().context("no calls")?.0)?;
    Ok((rate, begun.into_iter().filter_map(|(seq, before)| Some(*seen.get(&seq)? - before)).collect()))
}

/// Records in this process, through the server, which holds the store; a time is from before the event is given away.
fn by_another_process(served: &Served, events: u64, each: Duration) -> Result<(f64, Vec<Duration>)> {
    let sessions = Sessions::open(served.data(), Registry::standard())?;
    let session = sessions.create(foldspace::NewSession::named("appended"))?.as_agent("agent-1");
    let follower = Follower::of(served, "appended")?;
    let (mut begun, start) = (Vec::new(), Instant::now());
    for number in 0..events {
        pace(start, number, each);
        let mut commit = session.commit();
        commit.push_encoded(Blob::KIND, Blob::VERSION, &[7; 200])?;
        let before = Instant::now();
        begun.push((session.submit(commit)?.last(), before));
    }
    let rate = events as f64 / start.elapsed().as_secs_f64();
    let seen = follower.up_to(begun.last().context("no events")?.0)?;
    Ok((rate, begun.into_iter().filter_map(|(seq, before)| Some(*seen.get(&seq)? - before)).collect()))
}

/// Measures 1,000 events a second, recorded in both ways.
///
/// # Errors
/// When something fails, or an event is missed or doubled.
pub fn report(size: Size) -> Result<Vec<Table>> {
    let served = Served::start()?;
    let mut line = served.connect()?;
    let head = ["recorded by", "events/s", "p50 ms", "p99 ms", "max ms"];
    let mut table = Table::new("follow: from append to a client of server-sent events (target: p99 10 ms)", &head);
    let seconds = size.of(3, 20);
    let calls = by_calls(&served, &mut line, seconds * 334, Duration::from_micros(2_994))?;
    let others = by_another_process(&served, seconds * 1_000, Duration::from_millis(1))?;
    for (name, (rate, mut times)) in [("calls over HTTP, the call itself with it", calls), ("another process", others)]
    {
        let mut part = |part| quantile(&mut times, part).map_or(f64::NAN, micros) / 1e3;
        table.row([
            name.to_owned(),
            number(rate),
            number(part(0.5)),
            against(part(0.99), 10.0, false),
            number(part(1.0)),
        ]);
    }
    Ok(vec![table])
}
