//! Engines that are not there, go away, and come back.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use foldspace::WorkspaceSpec;
use foldspace::backends::{EngineKind, PodmanOptions};
use foldspace::event::CallStatus;
use foldspace::tools::CaptureBudget;
use serde_json::json;

use crate::rig::{Rig, engine_cli, report_skip};

fn with(options: PodmanOptions) -> Rig {
    Rig::of(&WorkspaceSpec::Podman(options), CaptureBudget::default())
}

fn nowhere() -> PodmanOptions {
    PodmanOptions { engine: crate::engine::kind(), ..PodmanOptions::default() }
}

/// Returns the words that start the engine of this run.
fn remedy() -> &'static str {
    match crate::engine::kind() {
        EngineKind::Podman => "podman system service",
        EngineKind::Docker => "dockerd --host",
    }
}

/// A command fails with a message that holds these words, and the session is as usable as before.
fn fails_clearly(rig: &Rig, words: &[&str]) {
    let outcome = rig.bare("shell_execute", json!({ "command": "true" }));
    assert_eq!(outcome.status, CallStatus::Error, "{}", outcome.text);
    for word in words {
        assert!(outcome.text.contains(word), "{word} is not in: {}", outcome.text);
    }
    let outcome = rig.bare("evaluate_python", json!({ "code": "1" }));
    assert_eq!(outcome.status, CallStatus::Error, "{}", outcome.text);
    let name = format!("written-{}", outcome.call);
    assert!(rig.bare("write_file", json!({ "file_path": name, "content": "x" })).is_ok());
    assert!(rig.bare("read_file", json!({ "file_path": name })).is_ok());
    rig.verify();
}

#[test]
fn engine_missing_leaves_files_usable() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("unix://{}", directory.path().join("none.sock").display());
    let rig = with(PodmanOptions { connection: Some(url.clone()), ..nowhere() });
    fails_clearly(&rig, &[&url, remedy()]);
}

#[test]
fn engine_that_is_none_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let answers = [
        "",
        "HTTP/1.1 500 no\r\ncontent-length: 2\r\n\r\nno",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
        "\0\0\0",
    ];
    for (number, answer) in answers.into_iter().enumerate() {
        let path = directory.path().join(format!("{number}.sock"));
        let gate = Gate::open(&path, Some(answer.to_owned()));
        let rig = with(PodmanOptions { connection: Some(gate.url()), ..nowhere() });
        fails_clearly(&rig, &["shell"]);
    }
}

#[test]
fn image_missing_is_named_with_hint() {
    let Some(options) = crate::engine::options() else { return };
    let rig = with(PodmanOptions { image: "localhost/there-is-none:1".to_owned(), ..options });
    fails_clearly(&rig, &["localhost/there-is-none:1", &format!("{} pull", crate::engine::kind().name())]);
}

#[test]
fn engine_that_never_answers_times_out() {
    let directory = tempfile::tempdir().unwrap();
    let gate = Gate::open(&directory.path().join("gate.sock"), None);
    gate.mute.store(true, Ordering::Relaxed);
    let rig = with(PodmanOptions { connection: Some(gate.url()), ..nowhere() });
    fails_clearly(&rig, &[&gate.url(), "30 s", remedy()]);
    // Nobody waits for it to say that there is nothing to remove.
    drop(rig);
}

#[test]
fn engine_that_falls_silent_times_out() {
    let Some(options) = crate::engine::options() else { return };
    let directory = tempfile::tempdir().unwrap();
    let gate = Gate::open(&directory.path().join("gate.sock"), None);
    let rig = with(PodmanOptions { connection: Some(gate.url()), ..options });
    rig.ok("echo kept > f");
    gate.mute.store(true, Ordering::Relaxed);
    assert_eq!(rig.ok("cat f").stdout(), "kept", "a container that runs needs no engine");
    engine_cli(&["rm", "--force", &rig.name()]).unwrap();
    fails_clearly(&rig, &["engine", "30 s"]);
    gate.mute.store(false, Ordering::Relaxed);
    assert_eq!(rig.ok("cat f").stdout(), "kept");
    rig.verify();
}

/// A rootless Podman says so of some of the containers that are made at the same time.
#[test]
fn engine_without_ids_is_asked_again() {
    if crate::engine::kind() == EngineKind::Docker {
        return report_skip("Docker looks for no ids");
    }
    let Some(options) = crate::engine::options() else { return };
    let directory = tempfile::tempdir().unwrap();
    let gate = Gate::open(&directory.path().join("gate.sock"), None);
    gate.refusals.store(3, Ordering::Relaxed);
    let rig = with(PodmanOptions { connection: Some(gate.url()), ..options });
    assert_eq!(rig.ok("echo made").stdout(), "made");
    assert_eq!(gate.refusals.load(Ordering::Relaxed), 0);
}

/// A socket before the engine's, which can be closed, or go mute.
pub(crate) struct Gate {
    path: PathBuf,
    /// How many more containers it does not let be made.
    refusals: Arc<AtomicUsize>,
    /// Who connects is hung up on.
    shut: Arc<AtomicBool>,
    /// Who connects is not answered.
    mute: Arc<AtomicBool>,
}

impl Gate {
    /// Answers each request so; by the engine where nothing is said.
    pub(crate) fn open(path: &Path, answer: Option<String>) -> Self {
        let listener = UnixListener::bind(path).unwrap();
        let shut = Arc::new(AtomicBool::new(false));
        let is_shut = Arc::clone(&shut);
        let mute = Arc::new(AtomicBool::new(false));
        let is_mute = Arc::clone(&mute);
        let refusals = Arc::new(AtomicUsize::new(0));
        let refused = Arc::clone(&refusals);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if is_shut.load(Ordering::Relaxed) {
                    continue;
                }
                match answer.clone() {
                    // It is held for as long as the test runs.
                    _ if is_mute.load(Ordering::Relaxed) => std::mem::forget(stream),
                    None => {
                        let refused = Arc::clone(&refused);
                        drop(std::thread::spawn(move || relayed(stream, &refused)));
                    }
                    Some(answer) => drop(std::thread::spawn(move || answered(stream, &answer))),
                }
            }
        });
        Self { path: path.to_owned(), refusals, shut, mute }
    }

    pub(crate) fn url(&self) -> String {
        format!("unix://{}", self.path.display())
    }
}

fn answered(mut stream: UnixStream, answer: &str) {
    drop(stream.read(&mut [0; 4096]));
    drop(stream.write_all(answer.as_bytes()));
}

fn relayed(mut stream: UnixStream, refusals: &AtomicUsize) {
    let mut head = [0; 4096];
    let length = stream.read(&mut head).unwrap_or(0);
    let head = &head[..length];
    let creates = head.windows(18).any(|window| window == b"/containers/create");
    let takes = |left: usize| left.checked_sub(1);
    if creates && refusals.fetch_update(Ordering::Relaxed, Ordering::Relaxed, takes).is_ok() {
        let said = "keep-id requires additional UIDs or GIDs defined in /etc/subuid and /etc/subgid";
        let body = json!({ "cause": said, "message": said, "response": 500 }).to_string();
        let length = body.len();
        let head = "HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\nContent-Length: ";
        // The rest of the request, if it was not all: else the answer may be lost with what was not read.
        stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        drop(stream.read(&mut [0; 65536]));
        drop(write!(stream, "{head}{length}\r\n\r\n{body}"));
        return;
    }
    let url = crate::engine::url().unwrap();
    let mut engine = UnixStream::connect(url.strip_prefix("unix://").unwrap()).unwrap();
    engine.write_all(head).unwrap();
    let copy = |mut from: UnixStream, mut to: UnixStream| {
        drop(std::io::copy(&mut from, &mut to));
        drop(to.shutdown(std::net::Shutdown::Both));
        drop(from.shutdown(std::net::Shutdown::Both));
    };
    let (back, forth) = (engine.try_clone().unwrap(), stream.try_clone().unwrap());
    std::thread::spawn(move || copy(back, forth));
    copy(stream, engine);
}

#[test]
fn engine_restarted_is_used_again() {
    let Some(options) = crate::engine::options() else { return };
    let directory = tempfile::tempdir().unwrap();
    let gate = Gate::open(&directory.path().join("gate.sock"), None);
    let rig = with(PodmanOptions { connection: Some(gate.url()), ..options });
    rig.ok("echo kept > f");
    gate.shut.store(true, Ordering::Relaxed);
    // A container that runs needs no engine.
    assert_eq!(rig.ok("cat f").stdout(), "kept");
    engine_cli(&["rm", "--force", &rig.name()]).unwrap();
    fails_clearly(&rig, &["engine"]);
    fails_clearly(&rig, &["engine", &gate.url()]);
    gate.shut.store(false, Ordering::Relaxed);
    assert_eq!(rig.ok("cat f").stdout(), "kept");
    rig.verify();
}
