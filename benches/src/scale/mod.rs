//! Placement of sessions on hosts, failures of hosts, and take-over, simulated with measured costs.
//!
//! It reads no clock and no disk: the same inputs give the same tables. `docs/scale.md` shows those of the defaults.

mod costs;
mod inputs;
mod placement;
mod take_over;

pub use inputs::Inputs;

use super::sample::{Noise, quantile};
use super::table::{Table, number};
use placement::Placement;
use take_over::{Orphan, TakeOver, Time, between, micros, part, read_session};

/// Days over which hosts fail one by one.
const DAYS: f64 = 7.0;
/// Hosts that lose their power together.
const RACK: usize = 40;
const SECOND: f64 = 1e6;
const DAY: f64 = 86_400.0 * SECOND;

/// Returns the tables: what runs all the time, what fails, and what a fork costs.
pub fn tables(inputs: &Inputs) -> [Table; 3] {
    let mut noise = Noise::new(inputs.seed);
    let placement = Placement::draw(inputs, &mut noise);
    [steady(inputs, &placement), failures(inputs, &placement, &mut noise), forks(inputs)]
}

fn most(counts: impl IntoIterator<Item = u32>) -> f64 {
    f64::from(counts.into_iter().max().unwrap_or(0))
}

fn steady(inputs: &Inputs, placement: &Placement) -> Table {
    let mut table = Table::new("Steady state", &["what", "figure", "limit", "used"]);
    let mut row = |what: &str, figure: String| table.row([what.to_owned(), figure, String::new(), String::new()]);
    let fullest = most(placement.on_hosts());
    let per_host = inputs.events / inputs.hosts as f64;
    let copies = inputs.nodes_per_stream as f64 / inputs.nodes() as f64;
    let messages = inputs.events / costs::CALL_EVENTS * costs::CALL_COMMITS;
    let bytes = inputs.events * costs::CALL_BYTES / costs::CALL_EVENTS + messages * costs::MESSAGE_BYTES;
    let subjects = inputs.sessions as f64 * copies;
    row("sessions of a host", number(inputs.sessions as f64 / inputs.hosts as f64));
    row("sessions of the fullest host, random placement", number(most(placement.at_random.iter().copied())));
    row("sessions of the fullest host, emptier of two random hosts", number(fullest));
    row("memory of its server", size(fullest * costs::SESSION_MEMORY));
    row("disk of a host's cache", size(per_host * costs::CALL_STORE / costs::CALL_EVENTS));
    row("nodes of the cluster", inputs.nodes().to_string());
    row("memory of a node, at least", size(costs::NODE_MEMORY + subjects * costs::SUBJECT_MEMORY));
    row("disk of a node", size(bytes * copies));
    row("recovery time of a node that lost its disk", duration(messages * copies / costs::STREAM_READS));
    row("commits of all sessions, a second", number(inputs.commits()));
    let mut rate = |what: &str, figure: f64, limit: f64| {
        let used = format!("{} %", number(figure / limit * 100.0));
        table.row([what.to_owned(), number(figure), number(limit), used]);
    };
    let share = most(placement.on_stream.iter().copied()) / inputs.sessions as f64;
    let (hosts, heartbeats) = (inputs.hosts as f64, inputs.heartbeats());
    rate("commits of the fullest stream, a second", inputs.commits() * share, costs::STREAM_COMMITS);
    rate("heartbeats of all hosts, in one bucket, a second", heartbeats, costs::STREAM_COMMITS);
    rate("session heads published for the list, a second", hosts * costs::ENDS_TOLD, costs::STREAM_COMMITS);
    rate("if each session had a lease", heartbeats / hosts * inputs.sessions as f64, costs::STREAM_COMMITS);
    rate("if each host read all heartbeats", heartbeats * hosts, costs::STREAM_READS);
    table
}

fn failures(inputs: &Inputs, placement: &Placement, noise: &mut Noise) -> Table {
    let head = ["failure", "sessions", "half continue after", "99 of 100", "all"];
    let mut table = Table::new("Failures and recovery", &head);
    let all_lead = vec![0; inputs.streams];
    let single = one_by_one(inputs, placement, noise);
    let a_day = number(inputs.hosts as f64 / inputs.mtbf_days);
    let mut row = |what: String, count: f64, orphans: &[Orphan], noise: &mut Noise| {
        let mut took = TakeOver::new(inputs, placement, orphans).run(noise);
        let mut at = |part| duration(quantile(&mut took, part).unwrap_or(0) as f64 / SECOND);
        table.row([what, number(count), at(0.5), at(0.99), at(1.0)]);
    };
    row(format!("a host ({a_day} a day)"), inputs.sessions as f64 / inputs.hosts as f64, &single, noise);
    let rack = RACK.min(inputs.hosts / 2);
    let orphans = placement.fail(0..rack, 0, &all_lead, noise);
    row(format!("{rack} of one rack"), orphans.len() as f64, &orphans, noise);
    let leader_at: Vec<Time> = (0..inputs.streams)
        .map(|stream| if stream % 3 == 0 { micros(between(costs::ELECTION, noise)) } else { 0 })
        .collect();
    let orphans = placement.fail(0..inputs.hosts.div_ceil(3).min(inputs.hosts - 1), 0, &leader_at, noise);
    row("a third of all hosts and leaders".to_owned(), orphans.len() as f64, &orphans, noise);
    let [least, longest] = costs::ELECTION.map(|milliseconds| duration(milliseconds / 1e3));
    let sessions = inputs.sessions as f64;
    for (what, count) in [("a stream's leader", sessions / inputs.streams as f64), ("the heartbeats' leader", sessions)]
    {
        let waits = format!("{least} to {longest} without commits");
        table.row([what.to_owned(), number(count), waits, String::new(), longest.clone()]);
    }
    table
}

/// Returns the sessions of hosts that fail one by one.
fn one_by_one(inputs: &Inputs, placement: &Placement, noise: &mut Noise) -> Vec<Orphan> {
    let gap = inputs.mtbf_days * DAY / inputs.hosts as f64;
    let all_lead = vec![0; inputs.streams];
    let (mut orphans, mut now) = (Vec::new(), 0.0);
    loop {
        now -= (1.0 - part(noise)).ln() * gap;
        if now > DAYS * DAY {
            return orphans;
        }
        let host = noise.below(inputs.hosts as u64) as usize;
        orphans.extend(placement.fail(host..host + 1, now as Time, &all_lead, noise));
    }
}

fn forks(inputs: &Inputs) -> Table {
    let mut table = Table::new("The cost of a fork", &["fork", "ms", "MB from the cluster"]);
    let mut row = |what: &str, milliseconds: f64, bytes: f64| {
        table.row([what.to_owned(), number(milliseconds), number(bytes / 1e6)]);
    };
    row("on the same host", costs::LOCAL_FORK + costs::LONE_COMMIT, 0.0);
    row("the same in a warm container, 10,000 files", costs::WARM_FORK + costs::LONE_COMMIT, 0.0);
    let cases = [
        ("on another host, in memory", 10_000.0, 0.0, 0.0),
        ("on another host, 1,000 files on disk, one in ten missing there", 1_000.0, costs::MISSING, costs::POPULATE),
        ("the same, 10,000 files", 10_000.0, costs::MISSING, costs::POPULATE),
        ("the same, all missing", 10_000.0, 1.0, costs::POPULATE),
    ];
    for (what, files, missing, populate) in cases {
        let session = read_session(inputs.history(), files);
        let read = costs::KEY_READ + session.busy + costs::STATE + files * missing * costs::CONTENT_READ;
        let milliseconds = costs::LONE_COMMIT + read + files * populate;
        row(what, milliseconds, session.bytes + files * missing * costs::FILE_BYTES);
    }
    table
}

fn size(bytes: f64) -> String {
    match bytes {
        1e12.. => format!("{} TB", number(bytes / 1e12)),
        1e9.. => format!("{} GB", number(bytes / 1e9)),
        _ => format!("{} MB", number(bytes / 1e6)),
    }
}

fn duration(seconds: f64) -> String {
    match seconds {
        7_200.0.. => format!("{} h", number(seconds / 3_600.0)),
        120.0.. => format!("{} min", number(seconds / 60.0)),
        _ => format!("{} s", number(seconds)),
    }
}
