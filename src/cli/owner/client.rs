//! The owner of the store as this program uses it: another process, or this one.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use foldspace::backends::ProgressWatch;
use foldspace::http::{Attended, HttpClient, HttpFace, HttpOptions};
use foldspace::hub::HubOptions;
use foldspace::hub::operations::ChildDocument;
use foldspace::store::Durability;
use foldspace::tools::{PodmanShellTool, ShellRules};
use foldspace::{Hub, SessionId, Tools};
use serde_json::Value;

use super::reach::attend;
use crate::cli::shared_store::HostArgs;
use crate::cli::stop::take_turn;
use crate::cli::{Failure, Globals, OpenedStore, open, output};

/// A connection to the owner, which keeps the owner running.
pub(in crate::cli) struct OwnerClient {
    pub(in crate::cli) client: HttpClient,
    pub(in crate::cli) directory: PathBuf,
    place: OwnerPlace,
}

enum OwnerPlace {
    /// Another process, which stays up until this is dropped.
    Elsewhere {
        _attended: Attended,
    },
    Here {
        hub: Hub,
        opened: OpenedStore,
    },
}

impl OwnerClient {
    /// Finds the owner of the data, or starts it; with `--in-process`, becomes the owner. Needs a runtime.
    pub(in crate::cli) async fn of(globals: &Globals, durability: Durability) -> Result<Self, Failure> {
        Self::at(open::directory(globals)?, globals, durability).await
    }

    /// Does the same for a store that must exist.
    pub(in crate::cli) async fn of_existing(globals: &Globals) -> Result<Self, Failure> {
        Self::at(open::existing(globals)?, globals, Durability::default()).await
    }

    async fn at(directory: PathBuf, globals: &Globals, durability: Durability) -> Result<Self, Failure> {
        if is_in_process(globals) {
            take_turn(&directory).await?;
            return Self::here(directory, durability);
        }
        let (client, attended) = attend(&directory).await?;
        Ok(Self { client, directory, place: OwnerPlace::Elsewhere { _attended: attended } })
    }

    fn here(directory: PathBuf, durability: Durability) -> Result<Self, Failure> {
        let opened = OpenedStore::own(&directory, durability, open::STORE_LOCK_WAIT, &HostArgs::default())?;
        let progress: Option<ProgressWatch> = Some(Arc::new(output::progress));
        let options = HubOptions { progress, tools: all_tools()?.into(), ..open::hub_options(&directory)? };
        let hub = Hub::new(opened.sessions.clone(), options);
        hub.watch_hosts();
        // The caller's rules come with each call.
        let face = HttpFace::with_rules(hub.clone(), ShellRules::default());
        #[cfg(feature = "mcp")]
        let others = crate::cli::mcp::attach_route(&face);
        #[cfg(not(feature = "mcp"))]
        let others = axum::Router::new();
        let client = HttpClient::within(face.router_with(HttpOptions::default(), others));
        Ok(Self { client, directory, place: OwnerPlace::Here { hub, opened } })
    }

    /// Returns true if this process is the owner.
    pub(in crate::cli) fn is_here(&self) -> bool {
        matches!(self.place, OwnerPlace::Here { .. })
    }

    /// Returns the sessions, read-only.
    pub(in crate::cli) fn sessions(&self) -> Result<OpenedStore, Failure> {
        match &self.place {
            OwnerPlace::Here { opened, .. } => Ok(opened.again()),
            OwnerPlace::Elsewhere { .. } => open::reading_at(&self.directory),
        }
    }

    /// Begins a child of a session, with the parameters of the API.
    pub(in crate::cli) async fn begin_child(&self, parent: SessionId, asked: &Value) -> Result<ChildDocument, Failure> {
        Ok(self.client.work(&format!("/v1/sessions/{parent}/children"), asked, output::progress).await?)
    }

    /// Closes everything that this process has open, for a forced exit: containers would stay otherwise.
    pub(in crate::cli) fn closing(&self) -> impl Future<Output = ()> + Send + 'static {
        let hub = match &self.place {
            OwnerPlace::Here { hub, .. } => Some(hub.clone()),
            OwnerPlace::Elsewhere { .. } => None,
        };
        async move {
            if let Some(hub) = hub {
                hub.close().await;
            }
        }
    }

    /// Closes everything that this process has open.
    pub(in crate::cli) async fn end(self) {
        if let OwnerPlace::Here { hub, .. } = &self.place {
            hub.end();
            end_calls(hub).await;
        }
        self.closing().await;
    }
}

/// Returns the tools of all sessions.
pub(in crate::cli) fn all_tools() -> Result<Tools, Failure> {
    Tools::standard().with(PodmanShellTool).map_err(|error| Failure::failed(error.to_string()))
}

/// The time limit for cancelled calls to end.
const KILLING: Duration = Duration::from_secs(15);

/// Cancels calls in flight, and waits for their end.
pub(in crate::cli) async fn end_calls(hub: &Hub) {
    hub.cancel_calls();
    if tokio::time::timeout(KILLING, hub.calls_ended()).await.is_err() {
        tracing::warn!(calls = hub.calls_in_flight(), "cancelled calls have not ended");
    }
}

fn is_in_process(globals: &Globals) -> bool {
    let set = std::env::var_os("FOLDSPACE_IN_PROCESS");
    // A program without `serve` can't start an owner in the background.
    cfg!(not(feature = "mcp")) || globals.in_process || set.is_some_and(|value| !value.is_empty() && value != "0")
}
