//! Engines that are not there, go away, and come back.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use foldspace::{CallStatus, CaptureBudget, PodmanOptions, WorkspaceSpec};
use podman_api::opts::ContainerDeleteOpts;
use serde_json::json;

use crate::rig::{Rig, podman};

fn with(options: PodmanOptions) -> Rig {
    Rig::of(&WorkspaceSpec::Podman(options), CaptureBudget::default())
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
fn without_an_engine_there_are_files_and_clear_words() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("unix://{}", directory.path().join("none.sock").display());
    let rig = with(PodmanOptions { connection: Some(url.clone()), ..PodmanOptions::default() });
    fails_clearly(&rig, &[&url, "podman system service"]);
}

#[test]
fn what_is_no_engine_is_no_engine() {
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
        let rig = with(PodmanOptions { connection: Some(gate.url()), ..PodmanOptions::default() });
        fails_clearly(&rig, &["shell"]);
    }
}

#[test]
fn a_missing_image_is_named_with_how_to_get_it() {
    let Some(options) = crate::engine::options() else { return };
    let rig = with(PodmanOptions { image: "localhost/there-is-none:1".to_owned(), ..options });
    fails_clearly(&rig, &["localhost/there-is-none:1", "podman pull"]);
}

#[test]
fn an_engine_that_accepts_and_never_answers() {
    let directory = tempfile::tempdir().unwrap();
    let gate = Gate::open(&directory.path().join("gate.sock"), None);
    gate.mute.store(true, Ordering::Relaxed);
    let rig = with(PodmanOptions { connection: Some(gate.url()), ..PodmanOptions::default() });
    fails_clearly(&rig, &[&gate.url(), "10 s", "podman system service"]);
    // Nobody waits for it to say that there is nothing to remove.
    drop(rig);
}

#[test]
fn an_engine_that_falls_silent() {
    let Some(options) = crate::engine::options() else { return };
    let directory = tempfile::tempdir().unwrap();
    let gate = Gate::open(&directory.path().join("gate.sock"), None);
    let rig = with(PodmanOptions { connection: Some(gate.url()), ..options });
    rig.ok("echo kept > f");
    gate.mute.store(true, Ordering::Relaxed);
    assert_eq!(rig.ok("cat f").stdout(), "kept", "a container that runs needs no engine");
    let delete = ContainerDeleteOpts::builder().force(true).timeout(0).build();
    podman(async |podman| podman.containers().get(rig.name()).delete(&delete).await).unwrap();
    fails_clearly(&rig, &["engine", "10 s"]);
    gate.mute.store(false, Ordering::Relaxed);
    assert_eq!(rig.ok("cat f").stdout(), "kept");
    rig.verify();
}

/// A socket before the engine's, which can be closed, or go mute.
struct Gate {
    path: PathBuf,
    /// Who connects is hung up on.
    shut: Arc<AtomicBool>,
    /// Who connects is not answered.
    mute: Arc<AtomicBool>,
}

impl Gate {
    /// Answers each request so; by the engine where nothing is said.
    fn open(path: &Path, answer: Option<String>) -> Self {
        let listener = UnixListener::bind(path).unwrap();
        let shut = Arc::new(AtomicBool::new(false));
        let is_shut = Arc::clone(&shut);
        let mute = Arc::new(AtomicBool::new(false));
        let is_mute = Arc::clone(&mute);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if is_shut.load(Ordering::Relaxed) {
                    continue;
                }
                match answer.clone() {
                    // It is held for as long as the test runs.
                    _ if is_mute.load(Ordering::Relaxed) => std::mem::forget(stream),
                    None => drop(std::thread::spawn(move || relayed(stream))),
                    Some(answer) => drop(std::thread::spawn(move || answered(stream, &answer))),
                }
            }
        });
        Self { path: path.to_owned(), shut, mute }
    }

    fn url(&self) -> String {
        format!("unix://{}", self.path.display())
    }
}

fn answered(mut stream: UnixStream, answer: &str) {
    drop(stream.read(&mut [0; 4096]));
    drop(stream.write_all(answer.as_bytes()));
}

fn relayed(stream: UnixStream) {
    let url = std::env::var("CONTAINER_HOST").unwrap();
    let engine = UnixStream::connect(url.strip_prefix("unix://").unwrap()).unwrap();
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
fn an_engine_that_goes_and_comes_back() {
    let Some(options) = crate::engine::options() else { return };
    let directory = tempfile::tempdir().unwrap();
    let gate = Gate::open(&directory.path().join("gate.sock"), None);
    let rig = with(PodmanOptions { connection: Some(gate.url()), ..options });
    rig.ok("echo kept > f");
    gate.shut.store(true, Ordering::Relaxed);
    // A container that runs needs no engine.
    assert_eq!(rig.ok("cat f").stdout(), "kept");
    let delete = ContainerDeleteOpts::builder().force(true).timeout(0).build();
    podman(async |podman| podman.containers().get(rig.name()).delete(&delete).await).unwrap();
    fails_clearly(&rig, &["engine"]);
    fails_clearly(&rig, &["engine", &gate.url()]);
    gate.shut.store(false, Ordering::Relaxed);
    assert_eq!(rig.ok("cat f").stdout(), "kept");
    rig.verify();
}
