//! The spool: files of reports that could not be recorded on arrival. Each file is removed once its report is recorded.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::attached::{AttachedDirectory, all_attached, attached_at, worktree_at};
use super::hook_message::{HookMessage, RecentReports, ReportId};
use super::spool_files::{ATTACHED, UNFIT, file_of, files};
use super::{Hub, HubError, blocking, joined};
use crate::backends::agent_process::process_ended;
use crate::backends::{BackendError, HostPath};
use crate::engine::clock::Timestamp;
use crate::engine::error::{Diagnostic, ErrorKind};
use crate::engine::id::SessionId;
use crate::reducers::AgentRuns;
use crate::tools::agents::before_look::{ends, only_begins, prepare_look};
use crate::tools::agents::observer::Arrival;
use crate::tools::agents::report::HookReport;

/// A report in the spool.
struct KeptReport {
    file: PathBuf,
    /// Start time of its hook, or else the modification time of the file.
    at: SystemTime,
    message: HookMessage,
    report: HookReport,
}

/// Returns the directories of spooled reports that are still attached.
pub fn kept_reports(home: &Path) -> Vec<HostPath> {
    let is_attached = |at: &HostPath| attached_at(home, &at.0).is_some() || worktree_at(home, &at.0).is_some();
    files(home).iter().filter_map(|file| Some(read(file).ok()?.directory)).filter(is_attached).collect()
}

#[expect(clippy::disallowed_methods, reason = "spooled reports are the hub's")]
fn read(file: &Path) -> io::Result<HookMessage> {
    Ok(serde_json::from_slice(&fs::read(file)?)?)
}

/// Renames a report that no owner can record.
#[expect(clippy::disallowed_methods, reason = "spooled reports are the hub's")]
fn put_aside(file: &Path, error: &dyn std::fmt::Display) {
    tracing::warn!(%error, file = %file.display(), "a hook report can't be recorded");
    drop(fs::rename(file, file.with_extension(UNFIT)));
}

#[expect(clippy::disallowed_methods, reason = "spooled reports are the hub's")]
fn remove(file: &Path) -> Result<(), HubError> {
    let reason = |error: io::Error| format!("can't remove the recorded report {}: {error}", file.display());
    fs::remove_file(file).map_err(|error| BackendError { backend: "host", reason: reason(error) }.into())
}

impl KeptReport {
    /// Reads the reports of one session. Removes reports of directories that are no longer attached.
    fn of_session(home: &Path, session: SessionId) -> Vec<Self> {
        let mut kept = Vec::new();
        for file in files(home) {
            let read = read(&file).map_err(HubError::unreadable).and_then(|message| {
                let report = message.report()?;
                Ok((message, report))
            });
            match read {
                Ok((message, report)) => {
                    let directory = message.place();
                    match attached_at(home, &directory) {
                        Some(attached) if attached.session == session && worktree_at(home, &directory).is_none() => {
                            let written = || file.metadata().and_then(|stat| stat.modified()).unwrap_or(UNIX_EPOCH);
                            let at = message.id.map_or_else(written, ReportId::time);
                            kept.push(Self { file, at, message, report });
                        }
                        None if worktree_at(home, &directory).is_none() => drop(remove(&file)),
                        _ => {}
                    }
                }
                Err(error) => put_aside(&file, &error),
            }
        }
        kept
    }

    fn arrival(&self, all: &[Self], attached: &AttachedDirectory) -> Arrival {
        let until = all.iter().find(|later| later.at >= self.at && ends(&later.report, &self.report));
        let millis = |at: SystemTime| at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let until = until.map(|until| Timestamp(i64::try_from(millis(until.at)).unwrap_or(i64::MAX)));
        let waited = self.at.elapsed().unwrap_or_default().as_micros();
        let waited = u64::try_from(waited).unwrap_or(u64::MAX).max(1);
        let arrival = self.message.arrival(self.report.clone(), attached.transcripts, Instant::now());
        Arrival { waited, until, ..arrival }
    }
}

impl Hub {
    /// Records a session's spooled reports, and the ends of calls of ended agents. Runs before every access to a
    /// session.
    ///
    /// # Errors
    /// [`HubError::Unrecorded`]: a report can't be recorded now and stays in the spool.
    pub(super) async fn take_in(&self, id: SessionId) -> Result<(), HubError> {
        let (hub, home) = (self.clone(), self.options().home.clone());
        let due = blocking(move || {
            if !home.join(ATTACHED).is_dir() {
                return Ok(None);
            }
            let state = hub.sessions().session(id)?.state()?;
            let open = || state.slice::<AgentRuns>().into_iter().flat_map(|runs| runs.open.values());
            let is_due = !files(&home).is_empty() || open().any(|call| process_ended(&call.process));
            let mut attached = all_attached(&home).unwrap_or_default().into_iter();
            Ok::<_, HubError>(attached.find(|attached| is_due && attached.session == id))
        });
        let Some(attached) = due.await?? else { return Ok(()) };
        let hub = self.clone();
        let going = self.shared.in_flight.begin(CancellationToken::new())?;
        // Spawned, so that it completes even if the caller stops waiting.
        let taken = tokio::spawn(async move {
            let mut turn = hub.report_order(id).lock_owned().await;
            let taken = hub.record_kept(&attached, &mut turn, true).await;
            drop(going);
            taken
        });
        joined(taken.await)?
    }

    /// Removes reports of directories that are no longer attached.
    pub(super) async fn drop_unattached(&self) -> Result<(), HubError> {
        let home = self.options().home.clone();
        blocking(move || drop(KeptReport::of_session(&home, SessionId::from_bytes([0; 16])))).await
    }

    /// Removes a recorded report from the spool, in case its hook has spooled it.
    pub(super) async fn drop_kept(&self, id: Option<ReportId>) {
        let file = id.map(|id| file_of(&self.options().home, id));
        drop(blocking(move || file.is_none_or(|file| remove(&file).is_ok())).await);
    }

    /// Records a directory's spooled reports, and removes each once it is recorded. The caller holds the lock of its
    /// [report order](Hub::report_order).
    pub(super) async fn record_kept(
        &self,
        attached: &AttachedDirectory,
        recent: &mut RecentReports,
        looks: bool,
    ) -> Result<(), HubError> {
        let (home, session) = (self.options().home.clone(), attached.session);
        let kept = blocking(move || KeptReport::of_session(&home, session)).await?;
        let (known, mut kept): (Vec<_>, Vec<_>) = kept.into_iter().partition(|one| recent.has(one.message.id));
        known.iter().try_for_each(|one| remove(&one.file))?;
        if kept.is_empty() && !looks {
            return Ok(());
        }
        let recorded = self.record_all(attached, recent, &mut kept).await;
        let count = kept.len();
        recorded.map_err(|source| match count {
            0 => source,
            count => HubError::Unrecorded { count, source: Box::new(source) },
        })
    }

    /// Records reports that all arrived before this scan of the disk: first the starts of calls, then the file changes,
    /// which belong to the started calls, then the ends.
    async fn record_all(
        &self,
        attached: &AttachedDirectory,
        recent: &mut RecentReports,
        kept: &mut Vec<KeptReport>,
    ) -> Result<(), HubError> {
        let (session, root) = (self.session(attached.session).await?, attached.directory.0.clone());
        let begun = |kept: &KeptReport| only_begins(&kept.report.kind);
        let arrivals = kept.iter().map(|one| one.arrival(kept, attached)).collect();
        prepare_look(session, root, arrivals).await?;
        let open = self.open_now(attached.session).await?;
        open.tool_runner().find_changes().await?;
        let (begun, ended): (Vec<_>, Vec<_>) = std::mem::take(kept).into_iter().partition(begun);
        *kept = ended;
        begun.iter().for_each(|one| recent.add(one.message.id));
        begun.iter().try_for_each(|one| remove(&one.file))?;
        while let Some(one) = kept.first() {
            let arrival = one.arrival(&[], attached);
            match open.tool_runner().observe(arrival).await.map_err(HubError::from) {
                Ok(()) => {
                    recent.add(one.message.id);
                    remove(&one.file)?;
                }
                // A retry would fail, too.
                Err(error) if error.kind() == ErrorKind::Invalid => put_aside(&one.file, &error),
                Err(error) => return Err(error),
            }
            kept.remove(0);
        }
        Ok(open.tool_runner().close_lost().await?)
    }
}
