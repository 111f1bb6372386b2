//! `foldspace verify`: fold it all again and compare.

use foldspace::{Difference, VerifyReport};

use super::Globals;
use super::exit::{Exit, Failure};
use super::output::{BAD, GOOD, Out};
use super::{open, text};

/// Folds sessions again from their events, and compares with everything that is stored
#[derive(Debug, clap::Args)]
pub(super) struct Verify {
    /// The session; without one, all are verified
    session: Option<String>,
}

impl Verify {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        let opened = open::reading(globals)?;
        let wanted = self.session.as_deref().map(|wanted| opened.find(wanted)).transpose()?;
        let report = opened.sessions.verify(wanted.map(|found| found.entry.id))?;
        match out.is_json() {
            true => out.document(&report)?,
            false => show(&report, out)?,
        }
        Ok(if report.differences.is_empty() { Exit::Ok } else { Exit::Failed })
    }
}

fn show(report: &VerifyReport, out: &mut Out) -> Result<(), Failure> {
    for Difference { session, seq, slice, what } in &report.differences {
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
    let outcome = match report.differences.len() as u64 {
        0 => out.paint(GOOD, "all is as the events say"),
        differences => out.paint(BAD, text::count(differences, "difference")),
    };
    out.line(format!("{}: {outcome}", checked.join(", ")))
}
