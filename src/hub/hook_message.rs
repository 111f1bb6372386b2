//! Messages that carry hook reports to the owner.

use std::collections::VecDeque;
use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;

use super::HubError;
use crate::backends::HostPath;
use crate::tools::agents::observer::Arrival;
use crate::tools::agents::read_report;
use crate::tools::agents::report::HookReport;
use crate::tools::{AgentKind, UnknownAgent};

/// Number of report ids that are remembered.
const RECENT: usize = 1024;

/// A report of an agent's hook, as sent to the owner or spooled. Only for clients on the unix socket.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HookMessage {
    /// Id of the report. The owner records each report once, even if it is both sent and spooled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<ReportId>,
    /// The kind of agent: `claude`, `codex`, `gemini`, `copilot` or `opencode`.
    pub agent: String,
    /// The recorded agent name; by default that of the agent's kind.
    #[serde(default)]
    pub name: Option<String>,
    /// The hook's event, if the payload does not name it.
    #[serde(default)]
    pub event: Option<String>,
    /// The agent's working directory, or its project directory.
    #[schemars(with = "String")]
    pub directory: HostPath,
    /// The agent's process, as found by the hook.
    #[serde(default)]
    pub process: Option<String>,
    /// The hook's payload. Null only makes the owner scan the disk.
    pub payload: Value,
}

/// Id of a report: start time and process of its hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportId {
    /// Start time of the hook, in nanoseconds since 1970.
    pub at: u64,
    /// The hook's process.
    pub process: u32,
}

/// The outcome of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReportOutcome {
    /// Recorded.
    Recorded,
    /// Not recorded yet. The hook spools it in case the owner ends first.
    Later,
    /// The directory is not attached.
    Unattached,
}

impl ReportId {
    /// Creates an id for a hook that starts now.
    pub fn of_now() -> Self {
        let at = now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        Self { at: u64::try_from(at).unwrap_or(u64::MAX), process: std::process::id() }
    }

    pub(super) fn time(self) -> SystemTime {
        UNIX_EPOCH + Duration::from_nanos(self.at)
    }
}

/// Writes the name of the report's spool file, without the extension. Names sort by time.
impl fmt::Display for ReportId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:020}-{}", self.at, self.process)
    }
}

/// Ids of a session's latest recorded reports. A hook that gave up waiting may spool such a report later.
#[derive(Default)]
pub(super) struct RecentReports(VecDeque<ReportId>);

impl RecentReports {
    pub(super) fn has(&self, id: Option<ReportId>) -> bool {
        id.is_some_and(|id| self.0.contains(&id))
    }

    pub(super) fn add(&mut self, id: Option<ReportId>) {
        self.0.extend(id);
        self.0.drain(..self.0.len().saturating_sub(RECENT));
    }
}

#[expect(clippy::disallowed_methods, reason = "hooks and the owner compare times by the clock")]
fn now() -> SystemTime {
    SystemTime::now()
}

impl HookMessage {
    /// Reads the payload.
    pub(super) fn report(&self) -> Result<HookReport, HubError> {
        let kind: AgentKind = self.agent.parse().map_err(|error: UnknownAgent| HubError::unreadable(error))?;
        let mut report = read_report(kind, self.event.as_deref(), &self.payload);
        if let Some(name) = &self.name {
            report.agent.clone_from(name);
        }
        Ok(report)
    }

    /// Returns the report as it is recorded.
    pub(super) fn arrival(&self, report: HookReport, keeps_all: bool, arrived: Instant) -> Arrival {
        let (payload, process) = (self.payload.clone(), self.process.clone().unwrap_or_default());
        Arrival { report, payload, arrived, waited: 0, keeps_all, process, until: None }
    }

    /// Returns the start time of the hook, or now if it is unknown.
    pub(super) fn began(&self) -> Instant {
        let passed = self.id.and_then(|id| now().duration_since(id.time()).ok()).unwrap_or_default();
        Instant::now().checked_sub(passed).unwrap_or_else(Instant::now)
    }

    /// Returns its directory, with symbolic links resolved.
    pub(super) fn place(&self) -> PathBuf {
        self.directory.0.canonicalize().unwrap_or_else(|_| self.directory.0.clone())
    }
}
