//! E2B's wire API over a hub: the control plane, and `envd` in its sandboxes, on one address. Sandboxes are sessions.

mod connect;
mod control;
mod entries;
mod files;
mod filesystem;
mod guard;
mod metadata;
mod metrics;
mod outside;
mod place;
mod ports;
mod process;
mod query;
mod sandbox;
mod sandboxes;
mod signature;
mod snapshots;
mod upload;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use tokio::sync::Mutex as AsyncMutex;
use tokio_util::sync::CancellationToken;

use super::watch::FileWatch;
use super::{HttpFace, Token};
use crate::backends::WorkspaceSpec;
use crate::hub::HubError;
use crate::hub::operations::OperationContext;

use connect::Wrong;
use sandbox::Sandbox;
use sandboxes::Table;

/// The version of `envd` whose features are here.
const ENVD_VERSION: &str = "0.6.4";
/// The sandbox of clients with `E2B_DEBUG`.
const DEBUG_SANDBOX: &str = "debug_sandbox_id";

/// The options of E2B's wire API.
#[derive(Debug, Clone)]
pub struct E2bOptions {
    /// The token that clients send as their API key, with or without the prefix `e2b_`.
    pub token: Token,
    /// Names of this machine that clients may use, besides `localhost` and its addresses.
    pub names: Vec<String>,
    /// The workspace of a sandbox. A template other than `base` replaces its image.
    pub workspace: WorkspaceSpec,
    /// True to remove a sandbox's session at its end; by default its history stays.
    pub remove_ended: bool,
    /// True to let clients with `E2B_DEBUG`, which send no token to `envd`, share one sandbox.
    pub debug: bool,
}

/// E2B's wire API, as far as the public SDKs of E2B need it to work with sessions.
///
/// ```
/// # use foldspace_http as foldspace;
/// # let directory = tempfile::tempdir()?;
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// # runtime.block_on(async {
/// use foldspace::http::{E2bApi, E2bOptions, HttpFace, Token};
/// use foldspace::{Hub, Registry, Sessions, WorkspaceSpec, hub::HubOptions};
/// let hub = Hub::new(Sessions::open(directory.path(), Registry::standard())?, HubOptions::new(directory.path()));
/// let (token, workspace) = (Token::new("0123456789abcdef")?, WorkspaceSpec::Memory);
/// let options = E2bOptions { token, names: Vec::new(), workspace, remove_ended: false, debug: false };
/// let _router = E2bApi::open(&HttpFace::new(hub), options).await?.router();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct E2bApi {
    face: HttpFace,
    options: Arc<E2bOptions>,
    table: Arc<Table>,
    watchers: Arc<Mutex<BTreeMap<String, DirectoryWatcher>>>,
}

/// A directory that a client watches by polling.
struct DirectoryWatcher {
    sandbox: String,
    place: place::SandboxPlace,
    /// True to send the entries of changes.
    include_entry: bool,
    watch: Arc<AsyncMutex<Option<FileWatch>>>,
}

impl E2bApi {
    /// Opens the API with the existing sandboxes, and ends them in time from now on. It needs a runtime.
    ///
    /// # Errors
    /// [`HubError`] if the sessions can't be read.
    pub async fn open(face: &HttpFace, options: E2bOptions) -> Result<Self, HubError> {
        let table = Arc::new(Table::read(face.hub()).await?);
        let api = Self { face: face.clone(), options: Arc::new(options), table, watchers: Arc::default() };
        let clocked = api.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = clocked.end_in_time() => {}
                () = clocked.face.shared.ending.cancelled() => {}
            }
        });
        Ok(api)
    }

    /// Returns the routes, behind E2B's own guard.
    pub fn router(&self) -> Router {
        let control = Router::new()
            .route("/sandboxes", post(control::create))
            .route("/v2/sandboxes", get(control::list).post(control::create))
            .route("/sandboxes/{id}", get(control::show).delete(control::kill))
            .route("/sandboxes/{id}/connect", post(control::connect))
            .route("/v2/sandboxes/{id}/connect", post(control::connect))
            .route("/sandboxes/{id}/resume", post(control::connect))
            .route("/sandboxes/{id}/timeout", post(control::set_timeout))
            .route("/sandboxes/{id}/refreshes", post(control::refresh))
            .route("/sandboxes/{id}/pause", post(control::pause))
            .route("/sandboxes/{id}/fork", post(control::fork))
            .route("/sandboxes/{id}/snapshots", post(control::create_snapshot))
            .route("/sandboxes/{id}/network", axum::routing::put(control::update_network))
            .route("/sandboxes/{id}/metrics", get(metrics::show))
            .route("/sandboxes/metrics", get(metrics::list))
            .route("/snapshots", get(control::list_snapshots))
            .route("/templates/{id}", axum::routing::delete(control::delete_snapshot));
        let envd = Router::new()
            .route("/health", get(guard::health))
            .route("/files", get(files::download).post(files::upload))
            .route("/process.Process/{method}", post(process::serve))
            .route("/filesystem.Filesystem/{method}", post(filesystem::serve));
        let unknown = async |request: Request| guard::unknown(request.uri().path());
        control
            .merge(envd)
            .fallback(unknown)
            .method_not_allowed_fallback(unknown)
            .with_state(self.clone())
            .layer(axum::middleware::from_fn_with_state(self.clone(), guard::pass))
    }

    fn context<'a>(&'a self, sandbox: &str) -> OperationContext<'a> {
        OperationContext {
            hub: self.face.hub(),
            session: Some(sandbox.to_owned()),
            caller: &self.face,
            cancel: CancellationToken::new(),
            progress: None,
            results: None,
            bytes_max: usize::MAX,
        }
    }

    fn sandbox(&self, name: &str) -> Result<Sandbox, Wrong> {
        self.table.get(name).ok_or_else(|| Wrong::not_found(format!("the sandbox {name:.100} was not found")))
    }
}

crate::engine::debug_by!(E2bApi, |api| options: api.options);

/// The state of all handlers.
type Api = State<E2bApi>;
/// The sandbox of a request to `envd`, which the guard has found.
type Within = Extension<Sandbox>;
type E2bAnswer = Result<Response, Wrong>;
