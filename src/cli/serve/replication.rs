//! Copies of the journal in object storage, written by the server.

use std::path::Path;

use foldspace::event::{Clock, SystemClock};
use foldspace::http::{HttpFace, ReplicationStatus};
use foldspace::store::replication::Replication;

use crate::cli::Failure;

#[derive(Debug, clap::Args)]
pub(super) struct ReplicateToArgs {
    /// Copies the journal to s3://BUCKET/PREFIX or file:///DIRECTORY, every second; see `foldspace replicate`
    #[arg(long = "replicate-to", value_name = "URL")]
    url: Option<String>,
}

impl ReplicateToArgs {
    /// Starts copying, and adds the progress to the server's status.
    pub(super) fn start(&self, directory: &Path, face: &HttpFace) -> Result<Option<Replication>, Failure> {
        let Some(url) = &self.url else { return Ok(None) };
        let replication = Replication::start(directory, url)?;
        let (progress, to, clock) = (replication.progress(), url.clone(), SystemClock::default());
        face.tell_replication(move || {
            let copied = progress.now();
            let behind = |until: foldspace::Timestamp| clock.now().0.saturating_sub(until.0).max(0) as f64 / 1000.0;
            ReplicationStatus {
                to: to.clone(),
                segment: copied.segment,
                offset: copied.offset,
                until: copied.until.map(|until| until.to_string()),
                lag_seconds: copied.until.map(behind),
                lag_bytes: copied.behind,
                git_repositories: copied.git_repositories,
                problem: copied.problem,
                stopped: copied.is_stopped,
            }
        });
        Ok(Some(replication))
    }
}
