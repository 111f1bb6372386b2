use foldspace::backends::{DoctorReport, Finding};
use foldspace::http::{HostStatus, ReplicationStatus, ServerStatus};
use foldspace::hub::UnrecordedReports;
use foldspace::store::StoreOwner;
use serde::Serialize;

use super::{BAD, Cell, DIM, Failure, Globals, ODD, Out, TextTable, hook_log, open, owner, shared_store, text};

/// Shows the owner of the data: its clients, calls in flight, open workspaces, and unrecorded hook reports
///
/// The owner is `foldspace serve`, or the same in the background: the first command that acts starts it, and it ends
/// when it is unused.
#[derive(Debug, clap::Args)]
pub(super) struct StatusArgs {}

impl StatusArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        let directory = open::existing(globals)?;
        let running = super::block_on(owner::running(&directory))??;
        let status = Status {
            owner: running.map(|(_, status)| status),
            cluster: shared_store::health(&directory)?,
            reports: UnrecordedReports::of(&directory),
        };
        out.show(&status, |out| {
            match &status.owner {
                Some(owner) => show(owner, out)?,
                None => match StoreOwner::of(&directory)? {
                    Some(other) => out.line(format!("{other} has the store, and accepts no clients"))?,
                    None => out.line("no owner is running; the next command that acts starts one")?,
                },
            }
            status.cluster.iter().try_for_each(|finding| show_cluster(finding, out))?;
            show_reports(&status.reports, hook_log::last(&directory), out)
        })
    }
}

/// The owner, if it runs, the state of the store's cluster, and unrecorded hook reports.
#[derive(Serialize)]
struct Status {
    #[serde(flatten)]
    owner: Option<ServerStatus>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cluster: Vec<Finding>,
    reports: UnrecordedReports,
}

fn show_cluster(finding: &Finding, out: &mut Out) -> Result<(), Failure> {
    let line = format!("cluster: {}", text::one_line(&finding.found, 1000));
    out.line(match finding.state {
        DoctorReport::Ok => line,
        DoctorReport::Limited => out.paint(ODD, line),
        DoctorReport::Missing => out.paint(BAD, line),
    })?;
    if finding.advice.is_empty() { Ok(()) } else { out.line(format!("  {}", finding.advice)) }
}

fn show_reports(reports: &UnrecordedReports, fault: Option<String>, out: &mut Out) -> Result<(), Failure> {
    if reports.waiting > 0 {
        let waiting = text::count(reports.waiting as u64, "hook report");
        out.line(out.paint(ODD, format!("{waiting} not recorded yet; the next use of the session retries")))?;
        fault.map_or(Ok(()), |fault| out.line(format!("  {}", text::one_line(&fault, 300))))?;
    }
    let Some(first) = reports.refused.first() else { return Ok(()) };
    let refused = text::count(reports.refused.len() as u64, "hook report");
    let first = text::one_line(&first.0.to_string_lossy(), 300);
    out.line(out.paint(BAD, format!("{refused} can't be recorded, such as {first}: unreadable, or the disk was full")))
}

fn seconds(seconds: u64) -> String {
    if seconds == 0 { "0 s".to_owned() } else { text::duration(seconds.saturating_mul(1_000_000)) }
}

fn show(status: &ServerStatus, out: &mut Out) -> Result<(), Failure> {
    let memory = status.memory_bytes.map(|bytes| format!(", {} of memory", text::size(bytes))).unwrap_or_default();
    let (process, version, age) = (status.process, &status.version, seconds(status.seconds));
    out.line(format!("process {process}, foldspace {version}, for {age}{memory}"))?;
    let none = out.paint(DIM, "none");
    let mut table = |title: &str, rows: Vec<[String; 3]>| -> Result<(), Failure> {
        if rows.is_empty() {
            return out.line(format!("{title}: {none}"));
        }
        out.line(format!("{title}:"))?;
        let mut table = TextTable::default();
        rows.into_iter().for_each(|row| table.row(row.into_iter().map(Cell::left)));
        table.show(out)
    };
    let clients = status
        .clients
        .iter()
        .map(|client| [format!("  {}", client.process), seconds(client.seconds), text::one_line(&client.command, 100)]);
    table("clients", clients.collect())?;
    let calls = status.calls.iter().map(|call| {
        [format!("  {}", text::one_line(&call.name, 80)), format!("call {}", call.call), seconds(call.seconds)]
    });
    table("calls in flight", calls.collect())?;
    let workspaces = status.workspaces.iter().map(|workspace| {
        let used =
            workspace.unused_seconds.map_or("in use".to_owned(), |unused| format!("unused for {}", seconds(unused)));
        [format!("  {}", text::one_line(&workspace.name, 80)), workspace.backend.clone(), used]
    });
    table("open workspaces", workspaces.collect())?;
    status.host.as_ref().map_or(Ok(()), |host| show_host(host, out))?;
    status.replication.as_ref().map_or(Ok(()), |copy| show_copy(copy, out))
}

fn show_host(host: &HostStatus, out: &mut Out) -> Result<(), Failure> {
    let at = host
        .at
        .as_ref()
        .map_or(", which other hosts can't reach".to_owned(), |at| format!(" at {}", text::one_line(at, 200)));
    out.line(format!("host {}{at}, with a lease of {} s", text::one_line(&host.name, 80), host.lease_seconds))?;
    match host.waited_seconds {
        Some(waited) => {
            out.line(out.paint(BAD, format!("  has waited {waited:.1} s for the store's cluster to answer")))
        }
        None => Ok(()),
    }
}

fn show_copy(copy: &ReplicationStatus, out: &mut Out) -> Result<(), Failure> {
    let (to, segment, offset) = (text::one_line(&copy.to, 300), copy.segment, copy.offset);
    let lag = copy.lag_seconds.map_or("nothing yet".to_owned(), |lag| {
        format!("up to byte {offset} of segment {segment}, {lag:.1} s and {} behind", text::size(copy.lag_bytes))
    });
    out.line(format!("copy in {to}: {lag}"))?;
    if !copy.git_repositories.is_empty() {
        let repositories = text::one_line(&copy.git_repositories.join(", "), 300);
        out.line(format!("  without contents that only git stores: {repositories}"))?;
    }
    let end = if copy.stopped { "; not retrying" } else { "; retrying" };
    match &copy.problem {
        Some(problem) => out.line(out.paint(BAD, format!("  {}{end}", text::one_line(problem, 300)))),
        None => Ok(()),
    }
}
