use std::path::Path;

use foldspace::store::{FsckReport, JournalProblem};
use foldspace::{LocalStore, SessionId, StoreError};
use serde_json::json;

use super::stop::make_way;
use super::{BAD, Exit, Failure, GOOD, Globals, ODD, Out, open, output, shared_store, text};

#[derive(Debug, clap::Args)]
pub(super) struct FsckArgs {
    /// Checks every byte of the journal instead; on NATS, also every message of the store's sessions
    #[arg(long)]
    pub(super) bytes: bool,
    /// Checks every byte, moves damaged bytes into files next to the journal, and keeps everything that is intact
    #[arg(long)]
    pub(super) repair: bool,
    /// With --repair: continues without lost acknowledged events, and records the loss in their sessions
    #[arg(long, requires = "repair")]
    accept_loss: bool,
    /// With --repair: drops whole events of this session that contradict its others; may be given several times
    #[arg(long, requires = "repair", conflicts_with = "accept_loss", value_name = "SESSION")]
    drop: Vec<String>,
}

impl FsckArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        let directory = open::existing(globals)?;
        if self.repair {
            super::block_on(make_way(&directory))??;
        }
        let dropped = match self.drop.is_empty() {
            true => Vec::new(),
            false => self.dropped(&LocalStore::fsck(&directory, false)?)?,
        };
        // Without opening the store, which would repair it.
        let report = match (self.accept_loss, self.repair) {
            // A copy of a shared store that is still empty.
            _ if !directory.join("journal").is_dir() => FsckReport::default(),
            (true, _) => LocalStore::accept_loss(&directory)?,
            (false, true) => LocalStore::repair(&directory, &dropped)?,
            (false, false) => checked(&directory)?,
        };
        // Only another check shows whether the repair worked.
        let left = match report.repaired.is_empty() {
            true => report.problems.len(),
            false => LocalStore::fsck(&directory, false)?.problems.len(),
        };
        let mut value = json!(report);
        let stream = shared_store::fsck(&directory, self.repair)?;
        value["problems_left"] = json!(left + stream.left);
        if let Some(problems) = stream.problems {
            value["stream"] = problems;
        }
        out.show(&value, |out| {
            show(&report, left, out)?;
            stream.lines.iter().try_for_each(|line| out.line(line))
        })?;
        Ok(if left + stream.left == 0 && report.gaps.is_empty() { Exit::Ok } else { Exit::Failed })
    }

    /// Finds the sessions of `--drop`.
    fn dropped(&self, report: &FsckReport) -> Result<Vec<SessionId>, Failure> {
        let find = |wanted: &String| {
            let mut known = report.contradictions.iter();
            let found = known.find(|(id, name)| name == wanted || id.to_string() == *wanted);
            let missing =
                || format!("no session {:?} has events that contradict its others", text::one_line(wanted, 80));
            found.map(|(id, _)| *id).ok_or_else(|| Failure::new(Exit::NotFound, missing()))
        };
        self.drop.iter().map(find).collect()
    }
}

/// Checks a journal, also while another process writes it.
fn checked(directory: &Path) -> Result<FsckReport, Failure> {
    match LocalStore::fsck(directory, false) {
        Err(StoreError::Locked { owner, .. }) => {
            output::note(&format!("{owner} has the store: its index is not checked"));
            Ok(LocalStore::fsck_beside(directory)?)
        }
        checked => Ok(checked?),
    }
}

fn show(report: &FsckReport, left: usize, out: &mut Out) -> Result<(), Failure> {
    for JournalProblem { segment, offset, bytes, what, .. } in &report.problems {
        let place = out.paint(BAD, format!("segment {segment} at byte {offset}"));
        let lost = if *bytes > 0 { format!(" ({})", text::count(*bytes, "byte")) } else { String::new() };
        out.line(format!("{place}: {}{lost}", text::one_line(what, 300)))?;
    }
    for line in &report.repaired {
        out.line(out.paint(ODD, format!("repaired: {}", text::one_line(line, 4096))))?;
    }
    let checked = [
        text::count(report.segments, "segment"),
        text::count(report.sessions, "session"),
        text::count(report.commits, "commit"),
        text::count(report.events, "event"),
        text::count(report.contents, "content"),
    ];
    let lost = report.gaps.iter().map(|gap| gap.last - gap.first + 1).sum();
    let outcome = match (report.problems.len(), left) {
        (0, _) => out.paint(GOOD, "no damage"),
        (_, 0) if lost > 0 => out.paint(ODD, format!("repaired, without {}", text::count(lost, "lost event"))),
        (_, 0) => out.paint(GOOD, "repaired"),
        (_, left) => out.paint(BAD, text::count(left as u64, "problem")),
    };
    out.line(format!("{}: {outcome}", checked.join(", ")))?;
    for (id, name) in &report.contradictions {
        let name = if name.is_empty() { id.to_string() } else { text::shell_word(name).into_owned() };
        out.line(format!("`foldspace check --repair --drop {name}` drops the events that contradict others"))?;
    }
    if left > 0 && report.loss.is_some() {
        out.line("the journal is read-only until it is intact: look for a copy of it, with `index` next to it, or")?;
        out.line("continue without the lost events: `foldspace check --repair --accept-loss`")?;
    } else if left > 0 && report.repaired.is_empty() {
        out.line("`foldspace check --repair` removes the damage and keeps everything that is intact")?;
    }
    Ok(())
}
