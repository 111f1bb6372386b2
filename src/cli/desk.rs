//! Where this process takes calls from others, for the sessions whose workspaces it has.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use foldspace::http::{HttpFace, HttpOptions, HttpServer, OverHttp, ServerLimits, bind_unix};
use foldspace::{
    ForwardError, Hub, HubError, HubOptions, MemoryWorkspace, OpenSession, ProgressWatch, Sessions, ShellRules,
    Workspace,
};

use super::exit::{Exit, Failure};
use super::{Globals, open, output};

/// The sockets of processes, in the data directory.
const DESKS: &str = "run";

/// A hub whose sessions other processes can call, too, while this lives.
pub(super) struct Desk {
    hub: Hub,
    socket: Option<PathBuf>,
}

impl Desk {
    /// It must be called within a runtime. Where there can be no socket, others are only told who has a session.
    pub(super) fn open(sessions: &Sessions, options: HubOptions) -> Self {
        let home = options.home.clone();
        let hub = Hub::new(sessions.clone(), HubOptions { forward: Some(Arc::new(OverHttp)), ..options });
        let socket = listen(&home, &hub).inspect_err(|error| tracing::warn!(%error, "no other process can call here"));
        let socket = socket.ok();
        sessions.take_calls_at(socket.clone());
        Self { hub, socket }
    }

    /// The same for a command of a person, with its rules.
    pub(super) fn of_command(globals: &Globals, sessions: &Sessions, rules: ShellRules) -> Result<Self, Failure> {
        let progress: Option<ProgressWatch> = Some(Arc::new(output::progress));
        let home = open::directory(globals)?;
        Ok(Self::open(sessions, HubOptions { rules, progress, ..HubOptions::new(home) }))
    }

    /// The workspace of a session where it is this process's; one of nothing where it is another's.
    pub(super) fn workspace_of(open: &OpenSession) -> Arc<dyn Workspace> {
        match open.dispatcher() {
            Some(dispatcher) => Arc::clone(dispatcher.workspace()),
            None => Arc::new(MemoryWorkspace),
        }
    }

    pub(super) fn hub(&self) -> &Hub {
        &self.hub
    }
}

fn listen(home: &Path, hub: &Hub) -> io::Result<PathBuf> {
    let place = make(home)?;
    let path = place.join(format!("{}.sock", std::process::id()));
    // Of an earlier process with this number.
    remove(&path)?;
    let listener = bind_unix(&path)?;
    let router = HttpFace::new(hub.clone()).router(HttpOptions::default());
    let server = HttpServer::new(ServerLimits::default());
    tokio::spawn(async move { server.serve_unix(listener, router).await });
    Ok(path)
}

#[expect(clippy::disallowed_methods, reason = "a face makes the directory of its sockets")]
fn make(home: &Path) -> io::Result<PathBuf> {
    let place = home.canonicalize()?.join(DESKS);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&place)?;
    Ok(place)
}

#[expect(clippy::disallowed_methods, reason = "a face takes its socket away again")]
fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.hub.sessions().take_calls_at(None);
        if let Some(socket) = &self.socket
            && let Err(error) = remove(socket)
        {
            tracing::debug!(%error, "a socket is left");
        }
    }
}

impl From<HubError> for Failure {
    fn from(error: HubError) -> Self {
        let message = error.to_string();
        match error {
            HubError::Session(error) => error.into(),
            HubError::Dispatch(error) => error.into(),
            HubError::Mount(error) => error.into(),
            HubError::Child(error) => error.into(),
            HubError::Merge(error) => error.into(),
            HubError::Rewind(error) => error.into(),
            HubError::Forward(ForwardError::Refused { hint, .. }) => {
                let failure = Self::new(Exit::Failed, message);
                hint.into_iter().fold(failure, Self::with_hint)
            }
            HubError::Forward(ForwardError::Gone(_) | ForwardError::Lost { .. }) => Self::new(Exit::Failed, message),
            HubError::Busy { .. } | HubError::Ending => Self::new(Exit::Busy, message),
        }
    }
}
