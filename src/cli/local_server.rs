//! Accepts calls from other processes for the sessions whose workspaces this process has open.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use foldspace::backends::ProgressWatch;
use foldspace::event::{Clock, SystemClock};
use foldspace::http::{HttpFace, HttpOptions, HttpServer, OverHttp, ServerLimits, bind_unix};
use foldspace::hub::{HubOptions, OpenSession};
use foldspace::tools::ShellRules;
use foldspace::{Hub, MemoryWorkspace, Sessions, Workspace};

use super::{Failure, Globals, Signals, open, output, text};

const DESKS: &str = "run";
const SETTLED: Duration = Duration::from_secs(60);

/// A hub whose sessions other processes can call, until it is dropped.
pub(super) struct LocalServer {
    hub: Hub,
    socket: Option<PathBuf>,
}

impl LocalServer {
    /// Opens a hub and its socket. Without a socket other processes can't call here. Needs a runtime.
    pub(super) fn open(sessions: &Sessions, options: HubOptions) -> Self {
        let home = options.home.clone();
        let hub = Hub::new(sessions.clone(), HubOptions { forward: Some(Arc::new(OverHttp)), ..options });
        let socket = listen(&home, &hub).inspect_err(|error| tracing::warn!(%error, "other processes can't call here"));
        let socket = socket.ok();
        sessions.take_calls_at(socket.clone());
        Self { hub, socket }
    }

    pub(super) fn of_command(globals: &Globals, sessions: &Sessions, rules: ShellRules) -> Result<Self, Failure> {
        let progress: Option<ProgressWatch> = Some(Arc::new(output::progress));
        let home = open::directory(globals)?;
        Ok(Self::open(sessions, HubOptions { rules, progress, ..HubOptions::new(home) }))
    }

    /// Returns the workspace if this process has it open, else an empty one.
    pub(super) fn workspace_of(open: &OpenSession) -> Arc<dyn Workspace> {
        match open.tool_runner() {
            Some(tool_runner) => Arc::clone(tool_runner.workspace()),
            None => Arc::new(MemoryWorkspace),
        }
    }

    pub(super) fn hub(&self) -> &Hub {
        &self.hub
    }

    /// Refuses new calls and cancels those in flight.
    pub(super) async fn take_back(&self) {
        self.hub.end();
        end_calls(&self.hub).await;
    }

    /// Refuses new calls, waits for those of other processes, then closes the workspaces. A signal cancels those
    /// calls.
    pub(super) async fn close(&self) {
        self.hub.end();
        let others = self.hub.calls_in_flight();
        if others > 0 {
            let calls = text::count(others as u64, "call");
            output::note(&format!("{calls} of other processes in flight here; Ctrl-C cancels them"));
            let mut signals = Signals::listen();
            tokio::select! {
                () = self.hub.calls_ended() => {}
                _ = signals.next() => self.take_back().await,
            }
        }
        self.hub.close().await;
    }
}

const KILLING: Duration = Duration::from_secs(15);

pub(super) async fn end_calls(hub: &Hub) {
    hub.cancel_calls();
    if tokio::time::timeout(KILLING, hub.calls_ended()).await.is_err() {
        tracing::warn!(calls = hub.calls_in_flight(), "cancelled calls have not ended");
    }
}

fn listen(home: &Path, hub: &Hub) -> io::Result<PathBuf> {
    let place = make(home)?;
    sweep(&place);
    // Another process may have this one's number, in another container or before.
    let fresh = u128::from_be_bytes(SystemClock::default().fresh_id()) as u32;
    let path = place.join(format!("{}-{fresh:08x}.sock", std::process::id()));
    let listener = bind_unix(&path)?;
    // The rules of who calls come with each call: this process's own may be those of a person who typed its command.
    let router = HttpFace::with_rules(hub.clone(), ShellRules::default()).router(HttpOptions::default());
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

#[expect(clippy::disallowed_methods, reason = "a face makes the directory of its sockets")]
fn sweep(place: &Path) {
    let is_left = |path: &Path| {
        let age = path.symlink_metadata().and_then(|metadata| metadata.modified()).ok();
        // One that was just made may not be listened on yet.
        let is_old = age.and_then(|made| made.elapsed().ok()).is_some_and(|age| age > SETTLED);
        let refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        is_old && std::os::unix::net::UnixStream::connect(path).as_ref().is_err_and(refused)
    };
    let sockets = std::fs::read_dir(place).into_iter().flatten().flatten().map(|entry| entry.path());
    for path in sockets.filter(|path| path.extension().is_some_and(|end| end == "sock") && is_left(path)) {
        if let Err(error) = remove(&path) {
            tracing::debug!(%error, "a socket is left");
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a face takes its socket away again")]
fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

impl Drop for LocalServer {
    fn drop(&mut self) {
        self.hub.sessions().take_calls_at(None);
        if let Some(socket) = &self.socket
            && let Err(error) = remove(socket)
        {
            tracing::debug!(%error, "a socket is left");
        }
    }
}
