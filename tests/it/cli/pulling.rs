//! Images that have to be pulled first: what the engine says of it is shown while it does.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use serde_json::json;

use crate::rig::{Program, told};

const STORY: &str = r#"{"tool": "shell_execute", "params": {"command": "true"}}"#;
const IMAGE: &str = "registry.test/image:1";

/// Answers as an engine without any image does, whose pulls go as `reports` say.
fn engine(socket: &Path, reports: &str) {
    let (listener, reports) = (UnixListener::bind(socket).unwrap(), reports.to_owned());
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let reports = reports.clone();
            std::thread::spawn(move || answer(stream, &reports));
        }
    });
}

fn answer(mut stream: UnixStream, reports: &str) {
    let mut request = String::new();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while reader.read_line(&mut request).is_ok_and(|read| read > 2) {}
    let target = request.split_whitespace().nth(1).unwrap_or_default();
    let rootless = !rustix::process::geteuid().is_root();
    let info = json!({
        "host": { "security": { "rootless": rootless }, "cgroupVersion": "v2" }, "version": { "Version": "0.0.0" }
    });
    let (status, body) = match target {
        _ if target.contains("/info") => ("200 OK", info.to_string()),
        _ if target.contains("/images/pull") && target.contains("registry.test") => ("200 OK", reports.to_owned()),
        _ => ("404 Not Found", json!({ "message": "there is none", "response": 404 }).to_string()),
    };
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n");
    drop(stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes())));
    drop(stream.shutdown(std::net::Shutdown::Write));
    drop(reader.read(&mut [0; 64]));
}

/// Runs a story with an image that has to be pulled, and gives what was printed.
fn pulled(program: &Program, url: &str, image: &str) -> String {
    let story = program.file("story.jsonl", STORY);
    let arguments = ["run", &story, "--backend", "podman", "--pull", "--image", image, "--engine", url, "--yes"];
    let output = program.command(&arguments).env("FOLDSPACE_CACHE", program.path("cache")).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    told(&output)
}

#[test]
fn pull_progress_and_error_are_shown() {
    let program = Program::new();
    let socket = program.path("engine.sock");
    let reports = [
        json!({ "stream": "Trying to pull registry.test/image:1...\n" }),
        json!({ "stream": "Copying blob sha256:0123\n\u{1b}[2Jand more\n" }),
        json!({ "error": "the registry burned down" }),
    ];
    engine(&socket, &reports.map(|report| format!("{report}\n")).concat());
    let told = pulled(&program, &format!("unix://{}", socket.display()), IMAGE);
    let lines: Vec<_> = told.lines().collect();
    let at = |words: &str| {
        let found = lines.iter().position(|line| line.contains(words));
        found.unwrap_or_else(|| panic!("{words} is not in {told}"))
    };
    let order = [
        "pulling registry.test/image:1, which the engine does not have",
        "Trying to pull registry.test/image:1...",
        "Copying blob sha256:0123",
        "and more",
    ]
    .map(at);
    assert!(order.is_sorted(), "{told}");
    assert!(!told.contains('\u{1b}'), "a registry's words are no commands for a terminal: {told:?}");
    at("failed to pull the image: the registry burned down");
}

#[test]
fn pull_with_odd_report_fails() {
    let program = Program::new();
    let socket = program.path("engine.sock");
    engine(&socket, "{\"stream\": \"begun\"}\nno JSON\n");
    let told = pulled(&program, &format!("unix://{}", socket.display()), IMAGE);
    assert!(told.contains("begun") && told.contains("failed to pull the image"), "{told}");
}

#[test]
fn pull_from_missing_registry_names_it() {
    let Some(options) = crate::engine::options() else { return };
    let told = pulled(&Program::new(), &options.connection.unwrap(), "127.0.0.1:1/there-is-none:1");
    assert!(told.contains("Trying to pull 127.0.0.1:1/there-is-none:1"), "{told}");
    assert!(told.contains("failed to pull the image") && told.contains("refused"), "{told}");
}
