//! The services of a session.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::engine::event::{Isolation, ServiceStarted, ServiceStopped, SessionStarted};
use crate::engine::{Recorded, Registry, Seq, Slice, ValueError};

/// Services that were started and not stopped, by name. A service stays here when its process exits. A fork inherits its
/// parent's services; the process table says which of them run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Services {
    /// Services by name.
    pub by_name: BTreeMap<String, Service>,
}

/// A service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// The call that started it last, which is the number of its process.
    pub process: Seq,
    /// TCP port that it listens at.
    pub port: Option<u16>,
    /// Services that had to run before it started.
    pub after: Vec<String>,
    /// True to start it again after a rewind, in a fork, and when the workspace is opened again.
    pub restart: bool,
    /// Agent that started it.
    pub agent: String,
}

impl Services {
    /// Returns the services to start again, in the order of their last starts, so that each follows its `after`.
    pub fn to_restart(&self) -> Vec<(&String, &Service)> {
        let mut all: Vec<_> = self.by_name.iter().filter(|(_, service)| service.restart).collect();
        all.sort_by_key(|(_, service)| service.process);
        all
    }
}

impl Slice for Services {
    const NAME: &'static str = "Services";
}

fn begun(services: Services, recorded: &Recorded<SessionStarted>) -> Services {
    // A child without the history has none of its processes.
    match &recorded.event.origin {
        Some(origin) if origin.isolation == Isolation::Full => Services::default(),
        _ => services,
    }
}

fn started(mut services: Services, recorded: &Recorded<ServiceStarted>) -> Services {
    let ServiceStarted { name, port, after, restart } = recorded.event.clone();
    let (process, agent) = (recorded.call.unwrap_or(recorded.seq), recorded.agent.to_string());
    services.by_name.insert(name, Service { process, port, after, restart, agent });
    services
}

fn stopped(mut services: Services, recorded: &Recorded<ServiceStopped>) -> Services {
    services.by_name.remove(&recorded.event.name);
    services
}

pub(super) fn register(registry: Registry) -> Result<Registry, ValueError> {
    let registry = registry.event::<ServiceStarted>()?.event::<ServiceStopped>()?;
    registry.slice::<Services>()?.reducer(begun)?.reducer(started)?.reducer(stopped)
}
