//! Services of a session.

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Operation, OperationContext, OperationError, OperationRoute, reading};
use crate::engine::event::ServiceStopped;
use crate::engine::id::Seq;
use crate::engine::session::error::SessionError;
use crate::reducers::{Service, Services};
use crate::tools::processes::{Process, kill};

const TERM: u8 = 15;
/// The time for a service to end after TERM, before it is killed; and after that.
const PATIENCE: Duration = Duration::from_secs(10);

/// A service: a process with a name.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Service")]
pub struct ServiceDocument {
    /// Its name.
    pub name: String,
    /// The number of its last process.
    pub process: Seq,
    /// True if that process runs.
    pub running: bool,
    /// The port that it listens at.
    pub port: Option<u16>,
    /// The services that had to run before it started.
    pub after: Vec<String>,
    /// True to start it again after a rewind, in a fork, and when the workspace is opened again. If such a service does
    /// not run, the next command or connection starts it, unless it ended by itself.
    pub restart: bool,
    /// The agent that started it.
    pub agent: String,
}

/// Lists the services that were started and not stopped, in the order of their starts.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListServices {}

impl Operation for ListServices {
    const NAME: &'static str = "list_services";
    const ROUTE: Option<OperationRoute> = OperationRoute::get("processes", "/v1/sessions/{session}/services");
    type Output = Vec<ServiceDocument>;

    async fn run(self, context: &OperationContext<'_>) -> Result<Vec<ServiceDocument>, OperationError> {
        let session = context.session().await?;
        let id = session.id();
        let known = reading(move || Ok(session.state()?.slice::<Services>().cloned().unwrap_or_default())).await?;
        let document = |(name, service): (String, Service)| ServiceDocument {
            name,
            process: service.process,
            running: context.hub.process(id, service.process).is_some_and(|process| process.is_running()),
            port: service.port,
            after: service.after,
            restart: service.restart,
            agent: service.agent,
        };
        let mut all: Vec<_> = known.by_name.into_iter().map(document).collect();
        all.sort_by_key(|service| service.process);
        Ok(all)
    }
}

/// Stops a service: its process gets TERM, and KILL after 10 seconds. It is not started again.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StopService {
    /// Its name.
    pub name: String,
}

impl Operation for StopService {
    const NAME: &'static str = "stop_service";
    const ROUTE: Option<OperationRoute> =
        OperationRoute::delete("processes", "/v1/sessions/{session}/services/{name}", 204);
    type Output = ();

    async fn run(self, context: &OperationContext<'_>) -> Result<(), OperationError> {
        let session = context.session().await?;
        context.check_commands().await?;
        let named =
            |process: &Arc<Process>| process.is_running() && process.document().service.as_ref() == Some(&self.name);
        if let Some(process) = context.hub.processes(session.id()).into_iter().find(named) {
            // Its recorded end stops the service.
            process.signal(TERM);
            if tokio::time::timeout(PATIENCE, process.ended()).await.is_err() {
                kill(&[process], PATIENCE).await;
            }
            return Ok(());
        }
        reading(move || {
            let state = session.state()?;
            if !state.slice::<Services>().is_some_and(|services| services.by_name.contains_key(&self.name)) {
                let what = format!("session {} has no service {:.64}", session.name(), self.name);
                return Err(OperationError::not_found(what));
            }
            session.check_own()?;
            let mut commit = session.commit();
            commit.push(&ServiceStopped { name: self.name }).map_err(SessionError::from)?;
            Ok(session.record(commit).map(drop)?)
        })
        .await
    }
}
