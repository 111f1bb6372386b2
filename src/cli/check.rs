use foldspace::SessionId;
use foldspace::event::{Clock, SystemClock};
use foldspace::history::{VerifyDifference, VerifyReport};
use foldspace::store::Loss;

use serde_json::json;

use super::fsck::FsckArgs;
use super::{BAD, Exit, Failure, GOOD, Globals, ODD, OpenedStore, Out, open, output, text};

const AHEAD_MILLIS: i64 = 24 * 60 * 60 * 1000;

/// Folds sessions again and compares with everything stored, or checks every byte and repairs it
#[derive(Debug, clap::Args)]
#[command(alias = "verify")]
pub(super) struct CheckArgs {
    /// The session; without one, all are checked
    #[arg(conflicts_with_all = ["bytes", "repair", "accept_loss", "drop"])]
    session: Option<String>,
    #[command(flatten)]
    fsck: FsckArgs,
    #[cfg(feature = "seal")]
    #[command(flatten)]
    seal: super::check_seal::CheckSealArgs,
}

impl CheckArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        #[cfg(feature = "seal")]
        if let Some(checked) = self.seal.run(globals, out) {
            return checked;
        }
        if self.fsck.bytes || self.fsck.repair {
            return self.fsck.run(globals, out);
        }
        let opened = open::reading(globals)?;
        let wanted = self.session.as_deref().map(|wanted| opened.find(wanted)).transpose()?;
        let mut report = opened.sessions.verify(wanted.as_ref().map(|found| found.entry.id))?;
        if let Some(loss) = &opened.loss {
            add(&mut report, loss, wanted.map(|found| found.entry.id));
        }
        tell_of_times(&opened)?;
        let mut value = json!(report);
        value["loss"] = json!(opened.loss);
        out.show(&value, |out| show(&report, opened.loss.is_some(), out))?;
        let is_whole = report.differences.is_empty() && opened.loss.is_none();
        Ok(if is_whole { Exit::Ok } else { Exit::Failed })
    }
}

fn tell_of_times(opened: &OpenedStore) -> Result<(), Failure> {
    let tomorrow = SystemClock::default().now().0.saturating_add(AHEAD_MILLIS);
    for entry in opened.sessions.list()?.iter().filter(|entry| entry.updated.0 > tomorrow) {
        let (session, updated) = (entry.id.short(), entry.updated);
        output::note(&format!(
            "the last event of session {session} is of {updated}, ahead of this machine's clock; later \
                               events get that time, too"
        ));
    }
    Ok(())
}

fn add(report: &mut VerifyReport, loss: &Loss, wanted: Option<SessionId>) {
    let lost = loss.sessions.iter().filter(|lost| wanted.is_none_or(|wanted| wanted == lost.session));
    report.differences.extend(lost.map(|lost| VerifyDifference {
        session: lost.session,
        seq: lost.first,
        slice: None,
        what: format!("{lost}; the journal ends at byte {} of segment {}", loss.offset, loss.segment),
    }));
}

fn show(report: &VerifyReport, is_cut: bool, out: &mut Out) -> Result<(), Failure> {
    for VerifyDifference { session, seq, slice, what } in &report.differences {
        let slice = slice.as_ref().map_or(String::new(), |slice| format!("{slice}: "));
        let place = out.paint(BAD, format!("session {} at {seq}", session.short()));
        out.line(format!("{place}: {slice}{}", text::one_line(what, 300)))?;
    }
    let checked = [
        text::count(report.sessions, "session"),
        text::count(report.events, "event"),
        text::count(report.snapshots, "snapshot"),
        text::count(report.contents, "content"),
    ];
    if report.lost > 0 {
        out.line(out.paint(ODD, format!("{} lost earlier, and skipped", text::count(report.lost, "event"))))?;
    }
    let outcome = match report.differences.len() as u64 {
        0 if is_cut => out.paint(BAD, "acknowledged events are lost"),
        0 => out.paint(GOOD, "all is as the events say"),
        differences => out.paint(BAD, text::count(differences, "difference")),
    };
    out.line(format!("{}: {outcome}", checked.join(", ")))
}
