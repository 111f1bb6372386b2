use foldspace::LocalStore;
use foldspace::store::{FsckReport, JournalProblem};
use serde_json::json;

use super::{BAD, Exit, Failure, GOOD, Globals, ODD, Out, open, owner, text};

/// Checks every byte of the journal, and repairs it
#[derive(Debug, clap::Args)]
pub(super) struct Fsck {
    /// Moves damage into files beside the journal; a session with a gap ends before it
    #[arg(long)]
    repair: bool,
    /// With --repair: continues without lost acknowledged events, and records the loss in their sessions
    #[arg(long, requires = "repair")]
    accept_loss: bool,
}

impl Fsck {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        let directory = open::existing(globals)?;
        super::block_on(owner::make_way(&directory))??;
        // Without opening the store, which would repair it.
        let report = match self.accept_loss {
            true => LocalStore::accept_loss(&directory)?,
            false => LocalStore::fsck(&directory, self.repair)?,
        };
        // Whether a repair helped is known when it has been looked at.
        let left = match report.repaired.is_empty() {
            true => report.problems.len(),
            false => LocalStore::fsck(&directory, false)?.problems.len(),
        };
        let mut value = json!(report);
        value["problems_left"] = json!(left);
        out.show(&value, |out| show(&report, left, out))?;
        Ok(if left == 0 { Exit::Ok } else { Exit::Failed })
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
    let outcome = match (report.problems.len(), left) {
        (0, _) => out.paint(GOOD, "no damage"),
        (_, 0) => out.paint(GOOD, "repaired"),
        (_, left) => out.paint(BAD, text::count(left as u64, "problem")),
    };
    out.line(format!("{}: {outcome}", checked.join(", ")))?;
    if left > 0 && report.loss.is_some() {
        out.line(
            "nothing is added to the journal until it is whole: look for a copy of it, with `index` beside it, or",
        )?;
        out.line("go on without what is lost: `foldspace fsck --repair --accept-loss`")?;
    } else if left > 0 && report.repaired.is_empty() {
        out.line("`foldspace fsck --repair` takes the damage out and keeps the rest")?;
    }
    Ok(())
}
