//! Requests that wait in a slow store, and other requests that the server still answers.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

use bytes::Bytes;
use foldspace::event::{Digest, SystemClock};
use foldspace::http::{HttpOptions, ServerLimits};
use foldspace::session::SnapshotPolicy;
use foldspace::store::{Bus, EventBatch, MemoryStore, Pending, SessionEntry, Snapshot};
use foldspace::{Commit, EventStore, Registry, Seq, SessionId, Sessions, StoreError};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::rig::{Answer, Server, WAIT_LIMIT, eventually_async};

/// A store in memory. One of its operations waits until it is released.
struct SlowStore {
    inner: MemoryStore,
    gate: Mutex<Gate>,
    released: Condvar,
    waits: UnboundedSender<()>,
}

/// The operation that waits.
enum Gate {
    Open,
    /// After this many others.
    After(u64),
    Closed,
}

impl SlowStore {
    fn new() -> (Arc<Self>, UnboundedReceiver<()>) {
        let (waits, waiting) = unbounded_channel();
        let (inner, gate) = (MemoryStore::default(), Mutex::new(Gate::Open));
        (Arc::new(Self { inner, gate, released: Condvar::new(), waits }), waiting)
    }

    /// Sets the operation that waits, or releases it.
    fn set(&self, gate: Gate) {
        *self.gate.lock().unwrap() = gate;
        self.released.notify_all();
    }

    fn pass(&self) -> &MemoryStore {
        let mut gate = self.gate.lock().unwrap();
        match &mut *gate {
            Gate::After(0) => {
                *gate = Gate::Closed;
                // The test may have ended.
                let _ = self.waits.send(());
            }
            Gate::After(left) => *left -= 1,
            Gate::Open | Gate::Closed => {}
        }
        drop(self.released.wait_while(gate, |gate| matches!(gate, Gate::Closed)).unwrap());
        &self.inner
    }
}

impl EventStore for SlowStore {
    fn submit(&self, commit: Commit) -> Result<Pending, StoreError> {
        self.pass().submit(commit)
    }

    fn head(&self, session: SessionId) -> Result<Seq, StoreError> {
        self.pass().head(session)
    }

    fn entry(&self, session: SessionId) -> Result<Option<SessionEntry>, StoreError> {
        self.pass().entry(session)
    }

    fn entries(&self) -> Result<Vec<SessionEntry>, StoreError> {
        self.pass().entries()
    }

    fn read(&self, session: SessionId, from: Seq, until: Seq, bytes: usize) -> Result<EventBatch, StoreError> {
        self.pass().read(session, from, until, bytes)
    }

    fn content(&self, digest: &Digest) -> Result<Bytes, StoreError> {
        self.pass().content(digest)
    }

    fn has_content(&self, digest: &Digest) -> Result<bool, StoreError> {
        self.pass().has_content(digest)
    }

    fn borrow_from(&self, git_directory: &Path) -> Result<bool, StoreError> {
        self.pass().borrow_from(git_directory)
    }

    fn snapshot(&self, session: SessionId, seq: Seq) -> Result<Option<Snapshot>, StoreError> {
        self.pass().snapshot(session, seq)
    }

    fn snapshots(&self, session: SessionId) -> Result<Vec<Seq>, StoreError> {
        self.pass().snapshots(session)
    }

    fn put_snapshot(&self, snapshot: &Snapshot) -> Result<u64, StoreError> {
        self.pass().put_snapshot(snapshot)
    }

    fn drop_snapshot(&self, session: SessionId, seq: Seq) -> Result<(), StoreError> {
        self.pass().drop_snapshot(session, seq)
    }

    fn remove(&self, session: SessionId) -> Result<(), StoreError> {
        self.pass().remove(session)
    }

    fn check_own(&self) -> Result<(), StoreError> {
        self.pass().check_own()
    }

    fn bus(&self) -> &Arc<Bus> {
        self.inner.bus()
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.pass().sync()
    }
}

/// A session on a server whose store waits.
struct SlowServer {
    store: Arc<SlowStore>,
    waiting: UnboundedReceiver<()>,
    server: Server,
}

impl SlowServer {
    /// Runs a test against a server with a single thread: what blocks the thread blocks the server.
    fn test(test: impl AsyncFnOnce(Self)) {
        let (store, waiting) = SlowStore::new();
        let shared = Arc::clone(&store) as Arc<dyn EventStore>;
        let clock = Arc::new(SystemClock::default());
        let sessions = Sessions::new(shared, Registry::standard(), clock, SnapshotPolicy::default()).unwrap();
        let serving = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (directory, limits) = (tempfile::tempdir().unwrap(), ServerLimits::default());
        let begun = serving.spawn(Server::over(directory, sessions, limits, HttpOptions::default()));
        let asking = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        asking.block_on(async {
            let server = begun.await.unwrap();
            let new = json!({ "name": "demo", "backend": "host" });
            assert_eq!(server.ask("POST", "/v1/sessions", Some(&new)).await.status, 201);
            server.write("demo", "warm.txt").await;
            test(Self { store, waiting, server }).await;
        });
        serving.shutdown_background();
    }

    /// Makes a request that waits in the store after this many operations. Checks that the server still answers.
    /// Returns false if the request has fewer operations; `is_dropped` disconnects while it waits.
    async fn waits_after(&mut self, operations: u64, request: &SlowRequest, is_dropped: bool) -> bool {
        let (method, path, body) = request;
        self.store.set(Gate::After(operations));
        let mut asked = Box::pin(self.server.ask(method, path, body.as_ref()));
        let early: Option<Answer> = tokio::select! {
            answer = &mut asked => Some(answer),
            _ = self.waiting.recv() => None,
        };
        let waits = early.is_none();
        let answer = match early {
            Some(answer) => answer,
            None => {
                let asked = if is_dropped { None } else { Some(asked) };
                let health = tokio::time::timeout(WAIT_LIMIT, self.server.ask("GET", "/healthz", None)).await;
                let health =
                    health.unwrap_or_else(|_| panic!("{request:?} blocks the server in operation {operations}"));
                assert_eq!(health.json()["status"], "ok");
                self.store.set(Gate::Open);
                let Some(asked) = asked else { return true };
                asked.await
            }
        };
        self.store.set(Gate::Open);
        assert!((200..300).contains(&answer.status), "{request:?}: {answer:?}");
        if path.ends_with("/calls") && *method == "POST" {
            assert_eq!(answer.json()["status"], "ok", "{request:?}: {answer:?}");
        }
        waits
    }
}

type SlowRequest = (&'static str, &'static str, Option<Value>);

fn call(tool: &str, params: Value) -> SlowRequest {
    ("POST", "/v1/sessions/demo/calls", Some(json!({ "tool": tool, "params": params, "auto_confirm": true })))
}

#[test]
fn request_waiting_in_store_blocks_no_other() {
    SlowServer::test(async |mut slow| {
        let requests = [
            call("write_file", json!({ "file_path": "a.txt", "content": "one\n", "mode": "overwrite" })),
            call("write_file", json!({ "file_path": "a.txt", "content": "two\n", "mode": "append" })),
            call("read_file", json!({ "file_path": "a.txt" })),
            call("shell_execute", json!({ "command": "echo more >> a.txt" })),
            ("GET", "/v1/sessions", None),
            ("GET", "/v1/sessions/demo", None),
            ("GET", "/v1/sessions/demo/state", None),
            ("GET", "/v1/sessions/demo/files/a.txt", None),
            ("GET", "/v1/sessions/demo/calls", None),
            ("GET", "/v1/sessions/demo/events", None),
            ("GET", "/metrics", None),
        ];
        for request in &requests {
            let mut operations = 0;
            while slow.waits_after(operations, request, false).await {
                operations += 1;
            }
            assert!(operations > 0, "{request:?}");
        }
    });
}

#[test]
fn call_dropped_while_waiting_in_store_is_recorded() {
    SlowServer::test(async |mut slow| {
        let request = call("write_file", json!({ "file_path": "a.txt", "content": "one\n", "mode": "overwrite" }));
        let mut operations = 0;
        while slow.waits_after(operations, &request, true).await {
            operations += 1;
            eventually_async("no call is open", async || {
                let calls = slow.server.ask("GET", "/v1/sessions/demo/calls", None).await.json();
                calls["calls"].as_array().unwrap().iter().all(|call| !call["finished"].is_null())
            })
            .await;
        }
        assert!(operations > 0);
    });
}
