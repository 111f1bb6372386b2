//! The machine behind a session's workspace.

use serde::{Deserialize, Serialize};

use crate::engine::event::{ContainerStarted, ContainerStopped, DriftFound, SessionStarted, WorkspaceTouched};
use crate::engine::{OnRewind, Recorded, Registry, Slice, Timestamp, ValueError};

/// Container of a session as recorded, and the number of external changes, which are counted without a container too.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodmanWorkspace {
    /// The container that was started last.
    pub container: Option<ContainerStarted>,
    /// True while it runs, as far as recorded.
    pub running: bool,
    /// Reason of the last stop; `None` while it runs.
    pub stopped_because: Option<String>,
    /// Time of its creation; `None` before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    /// Number of created containers.
    pub created: u64,
    /// Number of starts, of new and old containers.
    pub started: u64,
    /// Time of the last call that used it.
    pub touched_at: Option<Timestamp>,
    /// Number of external changes found.
    pub drifts: u64,
    /// Time of the last external change.
    pub drifted_at: Option<Timestamp>,
}

impl Slice for PodmanWorkspace {
    const NAME: &'static str = "PodmanWorkspace";
    const ON_REWIND: OnRewind = OnRewind::Keep;
}

/// Resets the slice in a child, which has its own machine.
fn begun(workspace: PodmanWorkspace, recorded: &Recorded<SessionStarted>) -> PodmanWorkspace {
    if recorded.event.begins_child() { PodmanWorkspace::default() } else { workspace }
}

fn started(mut workspace: PodmanWorkspace, recorded: &Recorded<ContainerStarted>) -> PodmanWorkspace {
    if recorded.event.created {
        workspace.created_at = Some(recorded.time);
    }
    workspace.created += u64::from(recorded.event.created);
    workspace.started += 1;
    workspace.running = true;
    workspace.stopped_because = None;
    workspace.container = Some(recorded.event.clone());
    workspace
}

fn stopped(mut workspace: PodmanWorkspace, recorded: &Recorded<ContainerStopped>) -> PodmanWorkspace {
    workspace.running = false;
    workspace.stopped_because = Some(recorded.event.reason.clone());
    workspace
}

fn touched(mut workspace: PodmanWorkspace, recorded: &Recorded<WorkspaceTouched>) -> PodmanWorkspace {
    workspace.touched_at = Some(recorded.time);
    workspace
}

fn drifted(mut workspace: PodmanWorkspace, recorded: &Recorded<DriftFound>) -> PodmanWorkspace {
    workspace.drifts += 1;
    workspace.drifted_at = Some(recorded.time);
    workspace
}

pub(super) fn register(registry: Registry) -> Result<Registry, ValueError> {
    registry
        .event::<ContainerStarted>()?
        .event::<ContainerStopped>()?
        .event::<WorkspaceTouched>()?
        .event::<DriftFound>()?
        .slice::<PodmanWorkspace>()?
        .reducer(begun)?
        .reducer(started)?
        .reducer(stopped)?
        .reducer(touched)?
        .reducer(drifted)
}
