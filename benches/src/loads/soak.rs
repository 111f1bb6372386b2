//! Many sessions and clients for long: nothing fails, nothing is lost, memory stays.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use foldspace::event::CallFinished;
use foldspace::{Event, Registry, Sessions};
use serde_json::{Value, json};

use super::Size;
use crate::sample::Noise;
use crate::served::{Line, Request, Served};
use crate::table::{Table, number};

const SESSIONS: u64 = 200;
const CLIENTS: u64 = 8;
/// Files that each session has at most.
const FILES: u64 = 40;
/// What part of the time warms up.
const WARM: f64 = 0.2;

/// The outcomes that a client was told of: session and position.
type Told = BTreeSet<(u64, u64)>;

fn name(session: u64) -> String {
    format!("soak-{session:03}")
}

/// What a client asks next; whether it is a call.
fn next(line: &Line, noise: &mut Noise, session: u64) -> (Request, bool) {
    let (name, file) = (name(session), format!("src/{:02}.rs", noise.below(FILES)));
    let get = |path: &str| line.request("GET", &format!("/v1/sessions/{name}{path}"), None);
    let call = |tool: &str, params: Value| line.call(&name, tool, params);
    match noise.below(100) {
        0..22 => (call("write_file", json!({ "file_path": file, "content": noise.text(1_500) })), true),
        22..52 => (call("read_file", json!({ "file_path": file })), true),
        52..62 => (call("ls", json!({ "path": "/" })), true),
        62..70 => (call("glob", json!({ "pattern": "src/*1.rs" })), true),
        70..76 => (call("grep", json!({ "pattern": "session", "path": "/" })), true),
        76..80 => (
            call(
                "edit_file",
                json!({ "file_path": file, "old_string": "let", "new_string": "var", "replace_all": true }),
            ),
            true,
        ),
        80..90 => (call("rm", json!({ "path": file })), true),
        90..93 => (get("/files"), false),
        93..96 => (get("/events?from=1&limit=20"), false),
        96..98 => (get("/state/ToolCalls"), false),
        _ => (get("/diff?from=1"), false),
    }
}

fn client(served: &Served, number: u64, until: Instant, count: &AtomicU64) -> Result<Told> {
    let (mut line, mut noise, mut told) = (served.connect()?, Noise::new(number), Told::new());
    while Instant::now() < until {
        let session = noise.below(SESSIONS);
        let (request, is_call) = next(&line, &mut noise, session);
        // A call that fails, for want of the file, is one that is recorded.
        let answer = line.ask(&request)?;
        if is_call {
            told.insert((session, answer["finished"].as_u64().context("no position")?));
        }
        count.fetch_add(1, Ordering::Relaxed);
    }
    Ok(told)
}

/// What the store has of what the clients were told; and reads everything again.
fn check(served: &Served, told: &Told) -> Result<u64> {
    let sessions = Sessions::open(served.data(), Registry::standard())?;
    let mut found = Told::new();
    for number in 0..SESSIONS {
        let session = sessions.session(sessions.find(&name(number))?.id)?;
        session.visit(1, &mut |event| {
            if event.kind == CallFinished::KIND {
                found.insert((number, event.seq));
            }
            ControlFlow::Continue(())
        })?;
    }
    let report = sessions.verify(None)?;
    ensure!(report.differences.is_empty(), "{:?}", report.differences);
    ensure!(told.is_subset(&found), "{} outcomes are lost", told.difference(&found).count());
    Ok(found.len() as u64)
}

/// Lets eight clients work in two hundred sessions for ten minutes.
///
/// # Errors
/// When a request fails, or something is lost.
pub fn report(size: Size) -> Result<Vec<Table>> {
    let mut served = Served::start()?;
    let mut line = served.connect()?;
    for session in 0..SESSIONS {
        line.ask(&line.request("POST", "/v1/sessions", Some(&json!({ "name": name(session) }))))?;
    }
    let all = Duration::from_secs(size.of(15, 600));
    let (start, count) = (Instant::now(), AtomicU64::new(0));
    let (warm, mut memory) = (all.mul_f64(WARM), Vec::new());
    let told = std::thread::scope(|scope| -> Result<Told> {
        let (served, count) = (&served, &count);
        let clients: Vec<_> =
            (0..CLIENTS).map(|number| scope.spawn(move || client(served, number, start + all, count))).collect();
        while start.elapsed() < all && clients.iter().all(|client| !client.is_finished()) {
            std::thread::sleep(all / 100);
            memory.push((start.elapsed(), served.memory()?));
        }
        let mut told = Told::new();
        for client in clients {
            told.extend(client.join().ok().context("a client panicked")??);
        }
        Ok(told)
    })?;
    let took = start.elapsed();
    served.end()?;
    let found = check(&served, &told)?;
    let mib = |bytes: u64| number(bytes as f64 / f64::from(1 << 20));
    let at = |when: Duration| memory.iter().find(|(at, _)| *at >= when).map_or(0, |(_, bytes)| *bytes);
    let title = format!(
        "soak: {SESSIONS} sessions, {CLIENTS} clients, {} s of mixed requests; one that fails, or an outcome that is \
         lost, would have ended it",
        all.as_secs()
    );
    let head = ["requests", "a second", "outcomes told, in the log", "MiB warm", "half-way", "at the end"];
    let mut table = Table::new(title, &head);
    let asked = count.load(Ordering::Relaxed);
    table.row([
        asked.to_string(),
        number(asked as f64 / took.as_secs_f64()),
        format!("{}, {found}", told.len()),
        mib(at(warm)),
        mib(at(all / 2)),
        mib(memory.last().map_or(0, |(_, bytes)| *bytes)),
    ]);
    Ok(vec![table])
}
