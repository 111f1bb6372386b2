use foldspace::Timestamp;
use foldspace::event::{Clock, SystemClock};
use foldspace::store::replication::{RestoreReport, restore};
use foldspace::view::Position;

use super::{Failure, Globals, Out, open, output, text};

/// Makes a data directory from a copy that `replicate` wrote, and checks every byte of it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foldspace restore --from s3://backups/sandboxes --data /var/lib/foldspace
  foldspace restore --from file:///mnt/backup --data ./old --at 2h")]
pub(super) struct RestoreArgs {
    /// The place of the copy: s3://BUCKET/PREFIX, or file:///DIRECTORY
    #[arg(long, value_name = "URL")]
    from: String,
    /// Ends at the last commit not later than TIME: a time (2025-01-31T12:00:00Z) or an age (10m, 2h)
    #[arg(long, value_name = "TIME", value_parser = time)]
    at: Option<Timestamp>,
}

impl RestoreArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        let directory = open::directory(globals)?;
        let report = super::block_on(restore(&directory, &self.from, self.at))??;
        let place = directory.display().to_string();
        if report.only_in_git > 0 {
            output::note(&left_to_git(&report));
        }
        out.show(&report, |out| out.line(format!("{} restored to {}", told(&report), text::one_line(&place, 300))))
    }
}

fn time(given: &str) -> Result<Timestamp, String> {
    match given.parse() {
        Ok(Position::Moment(time)) => Ok(time),
        Ok(Position::Ago(millis)) => Ok(Timestamp(SystemClock::default().now().0.saturating_sub(millis))),
        _ => Err("expected a time, such as 2025-01-31T12:00:00Z, or an age, such as 10m".to_owned()),
    }
}

fn left_to_git(report: &RestoreReport) -> String {
    let contents = text::count(report.only_in_git, "content");
    let places = match report.git_repositories.len() {
        0 => "an unknown repository".to_owned(),
        _ => text::one_line(&report.git_repositories.join(", "), 300),
    };
    let missing = match report.missing {
        0 => "all were found there".to_owned(),
        missing => format!("{missing} of them are missing; `foldspace check` names the files"),
    };
    format!("{contents} were only in git and are not in the copy: {places}; {missing}")
}

fn told(report: &RestoreReport) -> String {
    let counts = [
        text::count(report.sessions, "session"),
        text::count(report.events, "event"),
        text::count(report.segments, "segment"),
    ];
    let last = report.last.map(|last| format!(", up to {}", text::exact_moment(last))).unwrap_or_default();
    let later = match report.later {
        0 => String::new(),
        later => format!(", without {}", text::count(later, "later commit")),
    };
    format!("{}{last}{later}", counts.join(", "))
}
