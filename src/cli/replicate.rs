use std::time::Duration;

use foldspace::store::replication::{CopiedTo, ReplicationProgress, Replicator, ReplicatorOptions};
use serde_json::{Value, json};

use super::{Failure, Globals, Out, Signals, open, output, text};

/// Copies the journal to object storage every second, next to the owner of the data or without one
///
/// It ends on Ctrl-C or SIGTERM. `foldspace serve --replicate-to URL` does the same within the owner. AWS_ENDPOINT,
/// AWS_REGION, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY configure S3.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foldspace replicate --to s3://backups/sandboxes
  foldspace replicate --to file:///mnt/backup/sandboxes --once")]
pub(super) struct ReplicateArgs {
    /// The place of the copy: s3://BUCKET/PREFIX, or file:///DIRECTORY
    #[arg(long, value_name = "URL")]
    to: String,
    /// Ends when all is copied
    #[arg(long)]
    once: bool,
    /// Replaces the copy that another process writes from a copy of this data directory; that process then stops
    #[arg(long)]
    take_over: bool,
}

const LOOK: Duration = Duration::from_millis(200);
/// The time limit for the last pass.
const LAST: Duration = Duration::from_secs(2);

impl ReplicateArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        let directory = open::existing(globals)?;
        let mut replicator = Replicator::open(&directory, &self.to, ReplicatorOptions { take_over: self.take_over })?;
        let progress = replicator.progress();
        if self.once {
            super::block_on(replicator.copy_all())??;
        } else {
            let shown = directory.display().to_string();
            output::note(&format!("copying {} to {}", text::one_line(&shown, 300), text::one_line(&self.to, 300)));
            super::block_on(run_until_signal(&mut replicator, &progress))??;
        }
        let copied = progress.now();
        if !copied.git_repositories.is_empty() {
            let repositories = text::one_line(&copied.git_repositories.join(", "), 300);
            output::note(&format!("contents that only git has are not copied: {repositories}"));
        }
        let (segment, offset) = (copied.segment, copied.offset);
        out.show(&document(&self.to, &copied), |out| {
            out.line(format!("copied up to byte {offset} of segment {segment} to {}", text::one_line(&self.to, 300)))
        })
    }
}

async fn run_until_signal(replicator: &mut Replicator, progress: &ReplicationProgress) -> Result<(), Failure> {
    let mut signals = Signals::listen();
    tokio::select! {
        failed = replicator.run() => return Err(failed.into()),
        _ = signals.next() => {}
        () = tell(progress) => {}
    }
    match tokio::time::timeout(LAST, replicator.pass()).await {
        Ok(copied) => copied.map(drop).map_err(Into::into),
        Err(_) => {
            output::note("the latest changes are not copied yet; the next process copies them");
            Ok(())
        }
    }
}

/// Prints a note when the copy fails, and when it recovers.
async fn tell(progress: &ReplicationProgress) {
    let mut told = None;
    loop {
        tokio::time::sleep(LOOK).await;
        let problem = progress.now().problem;
        match &problem {
            Some(problem) if told.as_ref() != Some(problem) => {
                output::note(&format!("{}; retrying", text::one_line(problem, 300)));
            }
            None if told.is_some() => output::note("copying again"),
            _ => {}
        }
        told = problem;
    }
}

fn document(to: &str, copied: &CopiedTo) -> Value {
    let CopiedTo { segment, offset, until, git_repositories, .. } = copied;
    json!({ "to": to, "segment": segment, "offset": offset, "until": until, "git_repositories": git_repositories })
}
