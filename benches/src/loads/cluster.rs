//! Sessions on a NATS cluster, beside bare publishes to the same one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use async_nats::ServerAddr;
use async_nats::jetstream::Context;
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::Config;
use bytes::Bytes;
use foldspace::event::{Clock, SystemClock};
use foldspace::session::SnapshotPolicy;
use foldspace::store::{NatsStore, NatsStoreOptions};
use foldspace::{Commit, EventStore, Registry, SessionId, Sessions};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use super::Size;
use crate::disk::Scratch;
use crate::journal::{self, Plan, Shape};
use crate::log::Record;
use crate::sample::{median, micros, quantile};
use crate::served::{Served, program};
use crate::table::{Table, against, number};

/// Names the servers, as `nats://HOST:PORT,...`.
pub const SERVERS: &str = "FOLDSPACE_NATS";
/// Bytes of the store's message around an event: kind of message, head of the commit, head of the event.
const AROUND: usize = 1 + 61 + 12;
const LEASE: Duration = Duration::from_secs(2);
const TOKEN: &str = "token-of-both-hosts";
/// Time for another host to go on.
const CLUSTER_WAIT_LIMIT: Duration = Duration::from_secs(60);

/// Measures commits, the opening of a session on a fresh host, and the take-over of one.
///
/// # Errors
/// An error of the cluster, or of a store.
pub fn report(size: Size) -> Result<Vec<Table>> {
    Ok(vec![commits(size)?, openings(size)?, taking_over(size)?])
}

/// Returns the address of a store with a stream of its own.
fn address() -> Result<String> {
    Ok(format!("{}?stream=bench-{}", servers()?, unique()))
}

fn servers() -> Result<String> {
    std::env::var(SERVERS).context("FOLDSPACE_NATS has no servers; tests/nats/ready.sh prints them")
}

fn unique() -> String {
    format!("{}-{}", std::process::id(), SystemClock::default().now().0)
}

fn store(address: &str, scratch: &Scratch, snapshot_every: u64) -> Result<NatsStore> {
    let options = NatsStoreOptions { snapshot_every, ..NatsStoreOptions::default() };
    Ok(NatsStore::open(&address.parse()?, scratch.path().join("data"), options)?)
}

/// Writers' figures of one round.
#[derive(Default)]
struct Round {
    rate: f64,
    latencies: Vec<Duration>,
}

fn commits(size: Size) -> Result<Table> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (servers, scratch) = (servers()?, Scratch::new("cluster")?);
    // Both are connected to the node that leads both streams: where that is another one, a message takes longer.
    let (node, name) = (servers.split(',').next().unwrap_or_default(), format!("bench-{}", unique()));
    let store = Arc::new(store(&format!("{node}?stream={name}"), &scratch, u64::MAX)?);
    let bare = runtime.block_on(bare(node))?;
    runtime.block_on(lead(&bare.0, &[&name, &bare.1]))?;
    let head = ["writers", "bare publishes/s", "commits/s", "ratio", "bare p50 us", "commit p50 us", "ratio"];
    let title = "cluster: 200-byte events on three nodes, each acknowledged before the next, beside bare publishes";
    let mut table = Table::new(title, &head);
    for (writers, is_rate) in [(100, true), (1, false)] {
        let (mut rates, mut middles) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        for round in 0..size.of(3, 9) {
            let time = Duration::from_secs(if round == 0 { 1 } else { size.of(1, 2) });
            for (engine, mut run) in
                [bare_round(&runtime, &bare, writers, time)?, round_of(&runtime, &store, writers, time)?]
                    .into_iter()
                    .enumerate()
            {
                // The first round only warms up.
                if round > 0 {
                    rates[engine].push(run.rate);
                    middles[engine].push(quantile(&mut run.latencies, 0.5).map_or(f64::NAN, micros));
                }
            }
        }
        let ratio =
            |of: &[Vec<f64>; 2]| median(&of[0].iter().zip(&of[1]).map(|(bare, own)| own / bare).collect::<Vec<_>>());
        let (rate, middle) = (ratio(&rates), ratio(&middles));
        let shown = if is_rate {
            [against(rate, 0.8, true), number(middle)]
        } else {
            [number(rate), against(middle, 1.2, false)]
        };
        let [rate, middle] = shown;
        table.row([
            writers.to_string(),
            number(median(&rates[0])),
            number(median(&rates[1])),
            rate,
            number(median(&middles[0])),
            number(median(&middles[1])),
            middle,
        ]);
    }
    Ok(table)
}

/// A stream beside the store's, with the same settings.
async fn bare(node: &str) -> Result<(Context, String)> {
    let node: ServerAddr = node.parse()?;
    let context = async_nats::jetstream::new(async_nats::connect(node).await?);
    let name = format!("bare-{}", unique());
    let config = Config {
        name: name.clone(),
        subjects: vec![format!("{name}.s.*")],
        num_replicas: 3,
        allow_direct: true,
        deny_delete: true,
        ..Config::default()
    };
    context.create_stream(config).await?;
    Ok((context, name))
}

/// Makes the connected node the leader of streams.
async fn lead(context: &Context, streams: &[&str]) -> Result<()> {
    let (node, begun) = (context.client().server_info().server_name, Instant::now());
    for stream in streams {
        while context.get_stream(stream).await?.cached_info().cluster.as_ref().and_then(|of| of.leader.as_ref())
            != Some(&node)
        {
            ensure!(begun.elapsed() < CLUSTER_WAIT_LIMIT, "{node} does not come to lead {stream}");
            let wish = json!({ "placement": { "preferred": node } });
            context.request::<_, _, Value>(format!("STREAM.LEADER.STEPDOWN.{stream}"), &wish).await?;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
    Ok(())
}

fn together(runtime: &Runtime, writers: JoinSet<Result<Vec<Duration>>>) -> Result<Round> {
    let start = Instant::now();
    let latencies = runtime.block_on(writers.join_all()).into_iter().collect::<Result<Vec<_>>>()?.concat();
    Ok(Round { rate: latencies.len() as f64 / start.elapsed().as_secs_f64(), latencies })
}

fn bare_round(runtime: &Runtime, (context, name): &(Context, String), writers: u64, time: Duration) -> Result<Round> {
    let (mut tasks, round) = (JoinSet::new(), unique());
    for writer in 0..writers {
        let (context, name, subject) = (context.clone(), name.clone(), format!("{name}.s.{round}-{writer}"));
        let work = async move {
            let (start, mut latencies, mut last) = (Instant::now(), Vec::new(), 0);
            while start.elapsed() < time {
                let record = Record::new(writer as u32, latencies.len() as u64);
                let payload = Bytes::from([&[0; AROUND][..], &record.bytes].concat());
                let begun = Instant::now();
                // The leader may be behind with the message before, and says so.
                loop {
                    let message = PublishMessage::build().payload(payload.clone());
                    let message = message.expected_last_subject_sequence(last).expected_stream(&name);
                    match context.send_publish(subject.clone(), message).await?.await {
                        Ok(sent) => break last = sent.sequence,
                        Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => return Err(error.into()),
                        Err(error) => ensure!(begun.elapsed() < CLUSTER_WAIT_LIMIT, "not taken: {error}"),
                    }
                }
                latencies.push(begun.elapsed());
            }
            Ok(latencies)
        };
        tasks.spawn_on(work, runtime.handle());
    }
    together(runtime, tasks)
}

fn round_of(runtime: &Runtime, store: &Arc<NatsStore>, writers: u64, time: Duration) -> Result<Round> {
    let mut tasks = JoinSet::new();
    for writer in 0..writers {
        let store = Arc::clone(store);
        let work = async move {
            let clock = SystemClock::default();
            let session = SessionId::from_bytes(clock.fresh_id());
            let (start, mut latencies) = (Instant::now(), Vec::new());
            while start.elapsed() < time {
                let record = Record::new(writer as u32, latencies.len() as u64);
                let mut commit = Commit::new(session, clock.now());
                commit.push_encoded("Blob", 1, &record.bytes)?;
                let begun = Instant::now();
                store.submit(commit)?.durable().await?;
                latencies.push(begun.elapsed());
            }
            Ok(latencies)
        };
        tasks.spawn_on(work, runtime.handle());
    }
    together(runtime, tasks)
}

fn openings(size: Size) -> Result<Table> {
    let head = ["events", "read of them", "store opened s", "session read s", "with its state s (target <= 1)"];
    let mut table = Table::new("cluster: a session opened on a fresh host", &head);
    let usual = NatsStoreOptions::default().snapshot_every;
    for (what, snapshot_every) in [("all", u64::MAX), ("those behind a snapshot", usual)] {
        let (events, [opened, read, all]) = opening(size, snapshot_every)?;
        let all = against(all, 1.0, false);
        table.row([number(events as f64), what.to_owned(), number(opened), number(read), all]);
    }
    Ok(table)
}

/// Returns the events of a session, and the seconds until a fresh host has opened the store, read the session, and has its
/// state.
fn opening(size: Size, snapshot_every: u64) -> Result<(u64, [f64; 3])> {
    let (address, scratch) = (address()?, Scratch::new("cluster")?);
    let open = |scratch: &Scratch| -> Result<Sessions> {
        let store = Arc::new(store(&address, scratch, snapshot_every)?);
        let clock = Arc::new(SystemClock::default());
        Ok(Sessions::new(store, Registry::standard(), clock, SnapshotPolicy::default())?)
    };
    let writer = open(&scratch)?;
    let plan = Plan { shape: Shape::Calls, events: size.of(10_000, 100_000), paths: 1_000 };
    let session = journal::write(&writer, "long", plan)?;
    let (id, events) = (session.id(), session.head()?);
    let mut took = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..size.of(3, 5) {
        let fresh = Scratch::new("cluster")?;
        let start = Instant::now();
        let sessions = open(&fresh)?;
        let opened = start.elapsed();
        let session = sessions.session(id)?;
        ensure!(session.head()? == events, "events are missing");
        let read = start.elapsed();
        ensure!(session.state()?.seq() == events, "the state is old");
        let all = start.elapsed();
        let seconds = [opened, read - opened, all - opened];
        took.iter_mut().zip(seconds).for_each(|(took, time)| took.push(time.as_secs_f64()));
    }
    Ok((events, took.map(|took| median(&took))))
}

fn taking_over(size: Size) -> Result<Table> {
    let head = ["session", "s beyond the lease of 2 s", "target"];
    let mut table = Table::new("cluster: another host goes on after the owner was killed", &head);
    for (backend, files, target) in [("memory", 0, 1.0), ("host", size.of(1_000, 10_000), 3.0)] {
        let name = if files == 0 { "in memory".to_owned() } else { format!("{} files on host", number(files as f64)) };
        // Files are made slowly for some seconds after others were deleted on the same disk (ext4), so none are.
        let mut kept = Vec::new();
        let took = (0..size.of(1, 5)).map(|_| taken_over(backend, files, &mut kept)).collect::<Result<Vec<_>>>()?;
        let most = took.iter().copied().fold(0.0, f64::max);
        let shown = format!("{}; at most {}", against(median(&took), target, false), number(most));
        table.row([name, shown, format!("<= {target}")]);
    }
    Ok(table)
}

/// Kills the owner of a session; gives the seconds beyond the lease until another host has made a call in it. Keeps the
/// hosts and the files.
fn taken_over(backend: &str, files: u64, kept: &mut Vec<(Served, Served, Scratch)>) -> Result<f64> {
    let address = address()?;
    let mut owner = Served::host(&address, "owner", TOKEN)?;
    let other = Served::host(&address, "other", TOKEN)?;
    let tree = Scratch::new("tree")?;
    for file in 0..files {
        let directory = tree.path().join(format!("files/d{}", file / 100));
        std::fs::create_dir_all(&directory)?;
        std::fs::write(directory.join(format!("f{}", file % 100)), format!("file {file}\n").repeat(30))?;
    }
    let script = tree.path().join("script.jsonl");
    std::fs::write(&script, "{\"tool\": \"write_file\", \"params\": {\"file_path\": \"a\", \"content\": \"a\"}}\n")?;
    let mut begin = std::process::Command::new(program()?);
    begin.arg("--data").arg(owner.data()).args(["--store", &address, "run", "--session", "work", "--backend", backend]);
    if files > 0 {
        begin.arg("--mount").arg(tree.path().join("files"));
    }
    let begun = begin.arg(&script).output()?;
    ensure!(begun.status.success(), "{}", String::from_utf8_lossy(&begun.stderr));
    let mut line = other.connect()?;
    let call = line.call("work", "write_file", json!({ "file_path": "b", "content": "b", "mode": "overwrite" }));
    // It is sent on to the owner.
    line.timed(&call)?;
    owner.kill()?;
    let start = Instant::now();
    while let Err(error) = line.timed(&call) {
        ensure!(start.elapsed() < CLUSTER_WAIT_LIMIT, "{error}");
    }
    let took = start.elapsed().saturating_sub(LEASE);
    kept.push((owner, other, tree));
    Ok(took.as_secs_f64())
}
