//! Files of E2B's sandboxes: their names, metadata and events, and those outside of the workspace.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use foldspace::WorkspaceSpec;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::e2b::{E2b, enveloped, messages};
use crate::rig::Answer;

type Sandbox = (String, String);

const STREAM: &str = "application/connect+json";
const OCTETS: &str = "application/octet-stream";

impl E2b {
    async fn upload(
        &self,
        (id, token): &Sandbox,
        path: &str,
        body: impl Into<Vec<u8>>,
        more: &[(&str, &str)],
    ) -> Answer {
        let headers =
            [("host", "localhost"), ("e2b-sandbox-id", id), ("x-access-token", token), ("content-type", OCTETS)];
        let headers: Vec<_> = headers.into_iter().chain(more.iter().copied()).collect();
        self.raw("POST", &format!("/files?path={path}"), body.into(), &headers).await
    }

    async fn download(&self, (id, token): &Sandbox, path: &str) -> Answer {
        let headers = [("host", "localhost"), ("e2b-sandbox-id", id), ("x-access-token", token)];
        self.raw("GET", &format!("/files?path={path}"), "", &headers).await
    }

    async fn files(&self, sandbox: &Sandbox, method: &str, message: Value) -> Value {
        self.call(sandbox, &format!("/filesystem.Filesystem/{method}"), message).await.json()
    }

    async fn entry(&self, sandbox: &Sandbox, path: &str) -> Value {
        self.files(sandbox, "Stat", json!({ "path": path })).await["entry"].clone()
    }

    /// Runs a command, and returns its number and what it printed; `None` if it could not be started.
    pub(super) async fn run(&self, sandbox: &Sandbox, words: &[&str], cwd: &str) -> Result<(u64, String), Value> {
        let process = json!({ "cmd": words[0], "args": words[1..], "cwd": cwd });
        let start = json!({ "process": process, "stdin": false }).to_string();
        let answer = self.envd(sandbox, "/process.Process/Start", STREAM, enveloped(&start)).await;
        let all = messages(&answer.body);
        let Some(pid) = all[0].1["event"]["start"]["pid"].as_u64() else { return Err(all[0].1.clone()) };
        let pieces = all.iter().filter_map(|(_, message)| message["event"]["data"]["stdout"].as_str());
        let bytes: Vec<u8> = pieces.flat_map(|piece| STANDARD.decode(piece).unwrap()).collect();
        Ok((pid, String::from_utf8(bytes).unwrap()))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_of_a_file_lasts_until_it_is_overwritten() {
    let e2b = E2b::begin(WorkspaceSpec::Memory, false, false).await;
    let sandbox = e2b.create().await;
    let author = json!({ "author": "mish" });
    let made = e2b.upload(&sandbox, "dir/a.txt", "one", &[("X-Metadata-Author", "mish")]).await;
    assert_eq!(made.json()[0]["metadata"], author, "{made:?}");
    assert_eq!(e2b.entry(&sandbox, "dir/a.txt").await["metadata"], author);
    let listed = e2b.files(&sandbox, "ListDir", json!({ "path": "dir" })).await;
    assert_eq!(listed["entries"][0]["metadata"], author, "{listed}");

    let moved = json!({ "source": "dir", "destination": "moved" });
    e2b.files(&sandbox, "Move", moved).await;
    assert_eq!(e2b.entry(&sandbox, "moved/a.txt").await["metadata"], author);
    e2b.upload(&sandbox, "dir/a.txt", "another", &[]).await;
    assert_eq!(e2b.entry(&sandbox, "dir/a.txt").await["metadata"], Value::Null, "the entry has moved");

    let overwritten = e2b.upload(&sandbox, "moved/a.txt", "two", &[]).await;
    assert_eq!(overwritten.json()[0]["metadata"], Value::Null, "{overwritten:?}");
    assert_eq!(e2b.entry(&sandbox, "moved/a.txt").await["metadata"], Value::Null);
    for (name, value) in [("X-Metadata-", "x"), ("X-Metadata-a", "\u{e9}"), ("X-Metadata-a", &"x".repeat(20_000))] {
        assert_eq!(e2b.upload(&sandbox, "b.txt", "x", &[(name, value)]).await.status, 400, "{name}");
    }
    assert_eq!(e2b.download(&sandbox, "b.txt").await.status, 404, "nothing was written");
}

#[tokio::test(flavor = "multi_thread")]
async fn upload_may_be_gzip_or_a_field_without_a_file_name() {
    let e2b = E2b::begin(WorkspaceSpec::Memory, false, false).await;
    let sandbox = e2b.create().await;
    let mut zipped = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    zipped.write_all(b"text").unwrap();
    let gzip = [("content-encoding", "gzip")];
    let made = e2b.upload(&sandbox, "a.txt", zipped.finish().unwrap(), &gzip).await;
    assert_eq!(made.json()[0]["path"], "/home/user/a.txt", "{made:?}");
    assert_eq!(&e2b.download(&sandbox, "a.txt").await.body[..], b"text");
    assert_eq!(e2b.upload(&sandbox, "b.txt", "no gzip", &gzip).await.status, 400);
    assert_eq!(e2b.upload(&sandbox, "b.txt", "x", &[("content-encoding", "br")]).await.status, 501);

    let field = |name: &str| format!("--x\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\nin it\r\n--x--");
    let form = "multipart/form-data; boundary=x";
    for (path, name, status) in
        [("/files?path=c.txt", "file", 200), ("/files?path=d", "other", 400), ("/files", "file", 400)]
    {
        assert_eq!(e2b.envd(&sandbox, path, form, field(name)).await.status, status, "{path} {name}");
    }
    assert_eq!(&e2b.download(&sandbox, "c.txt").await.body[..], b"in it");
    let listed = e2b.files(&sandbox, "ListDir", json!({ "path": "" })).await;
    assert_eq!(listed["entries"].as_array().unwrap().len(), 2, "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn watcher_sees_a_new_file_created_and_written() {
    let e2b = E2b::begin(WorkspaceSpec::Memory, false, false).await;
    let sandbox = e2b.create().await;
    let asked = json!({ "path": "", "recursive": true, "includeEntry": true, "allowNetworkMounts": true });
    let watcher = e2b.files(&sandbox, "CreateWatcher", asked).await;
    e2b.upload(&sandbox, "dir/a.txt", "one", &[]).await;
    e2b.upload(&sandbox, "dir/a.txt", "two!", &[]).await;
    e2b.files(&sandbox, "Remove", json!({ "path": "dir" })).await;
    let events = e2b.files(&sandbox, "GetWatcherEvents", watcher.clone()).await["events"].clone();
    let events: Vec<(&str, &str)> = events
        .as_array()
        .unwrap()
        .iter()
        .map(|event| (event["name"].as_str().unwrap(), event["type"].as_str().unwrap()))
        .collect();
    let file = "dir/a.txt";
    let new = [(file, "EVENT_TYPE_CREATE"), (file, "EVENT_TYPE_CHMOD"), (file, "EVENT_TYPE_WRITE")];
    let rest = [(file, "EVENT_TYPE_WRITE"), ("dir", "EVENT_TYPE_REMOVE")];
    assert_eq!(events, [&new[..], &rest].concat());

    e2b.upload(&sandbox, "b.txt", "three", &[]).await;
    let events = e2b.files(&sandbox, "GetWatcherEvents", watcher).await;
    let entry = &events["events"][2]["entry"];
    assert_eq!((&entry["path"], &entry["size"]), (&json!("/home/user/b.txt"), &json!("5")), "{events}");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_outside_of_the_workspace_are_those_of_commands() {
    let Some(options) = crate::engine::options() else { return };
    let e2b = E2b::begin(WorkspaceSpec::Podman(options), false, false).await;
    let sandbox = e2b.create().await;
    let made = e2b.upload(&sandbox, "/tmp/new/a.txt", "outside", &[]).await;
    assert_eq!(made.json()[0]["path"], "/tmp/new/a.txt", "{made:?}");
    assert_eq!(e2b.run(&sandbox, &["cat", "a.txt"], "/tmp/new").await.unwrap().1, "outside");
    e2b.run(
        &sandbox,
        &["sh", "-c", "ln -s a.txt /tmp/new/link; ln -s /tmp/new/a.txt in; >/tmp/closed; chmod 0 /tmp/closed"],
        "",
    )
    .await
    .unwrap();
    for path in ["/tmp/new/a.txt", "/tmp/new/link", "in"] {
        assert_eq!(&e2b.download(&sandbox, path).await.body[..], b"outside", "{path}");
    }
    let listed = e2b.files(&sandbox, "ListDir", json!({ "path": "/tmp/new" })).await;
    let entries: Vec<_> = listed["entries"].as_array().unwrap().iter().collect();
    let facts = |at: usize| (entries[at]["path"].as_str(), entries[at]["type"].as_str(), entries[at]["size"].as_str());
    assert_eq!(facts(0), (Some("/tmp/new/a.txt"), Some("FILE_TYPE_FILE"), Some("7")), "{listed}");
    assert_eq!((facts(1).1, &entries[1]["symlinkTarget"]), (Some("FILE_TYPE_FILE"), &json!("/tmp/new/a.txt")));

    let moved = e2b.files(&sandbox, "Move", json!({ "source": "/tmp/new/a.txt", "destination": "b.txt" })).await;
    assert_eq!(moved["entry"]["path"], "/home/user/b.txt", "{moved}");
    e2b.files(&sandbox, "MakeDir", json!({ "path": "/tmp/dir" })).await;
    e2b.files(&sandbox, "Remove", json!({ "path": "/tmp/new" })).await;
    assert_eq!(e2b.entry(&sandbox, "/tmp/dir").await["type"], "FILE_TYPE_DIRECTORY");
    assert_eq!(e2b.run(&sandbox, &["ls", "/tmp"], "").await.unwrap().1, "closed\ndir\n");

    for (method, message, code) in [
        ("Stat", json!({ "path": "/tmp/none" }), "not_found"),
        ("ListDir", json!({ "path": "/etc/passwd" }), "invalid_argument"),
        ("MakeDir", json!({ "path": "/tmp/dir" }), "already_exists"),
        ("MakeDir", json!({ "path": "/etc/new" }), "permission_denied"),
        ("Move", json!({ "source": "/tmp/none", "destination": "x" }), "not_found"),
        ("CreateWatcher", json!({ "path": "/tmp" }), "invalid_argument"),
    ] {
        assert_eq!(e2b.files(&sandbox, method, message.clone()).await["code"], code, "{method} {message}");
    }
    for (path, status) in [("/tmp/none", 404), ("/tmp", 400), ("/tmp/closed", 403)] {
        assert_eq!(e2b.download(&sandbox, path).await.status, status, "{path}");
    }
    assert_eq!(e2b.upload(&sandbox, "/etc/x", "x", &[]).await.status, 403);
    let sessions = e2b.server.face.hub().sessions();
    let session = sessions.session(sessions.find(&sandbox.0).unwrap().id).unwrap();
    let events = session.events(1, 10_000).unwrap();
    let written = events.iter().find(|event| *event.event.kind == *"outside.write");
    let data: Value = serde_json::from_slice(&written.expect("it is recorded").event.bytes).unwrap();
    let digest = foldspace::event::Digest::of(b"outside").to_string();
    assert_eq!(data, json!({ "path": "/tmp/new/a.txt", "size": 7, "digest": digest }));
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_a_sandbox_are_at_home_and_have_their_numbers() {
    let Some(options) = crate::engine::options() else { return };
    let e2b = E2b::begin(WorkspaceSpec::Podman(options), false, false).await;
    let sandbox = e2b.create().await;
    let (pid, printed) = e2b.run(&sandbox, &["sh", "-c", "echo $$ $PWD $HOME"], "").await.unwrap();
    assert_eq!(printed, format!("{pid} /home/user /home/user\n"));
    assert_eq!(e2b.run(&sandbox, &["pwd"], "/").await.unwrap().1, "/\n");
    for missing in ["/none", "none"] {
        let refused = e2b.run(&sandbox, &["pwd"], missing).await.unwrap_err();
        assert_eq!(refused["error"]["code"], "invalid_argument", "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_sandbox_ends_its_streams_as_a_lost_connection() {
    let e2b = E2b::begin(WorkspaceSpec::Host(foldspace::backends::HostOptions::default()), false, false).await;
    let (id, token) = e2b.create().await;
    let start = enveloped(r#"{"process":{"cmd":"sleep","args":["600"]},"stdin":false}"#);
    let head = format!(
        "POST /process.Process/Start HTTP/1.1\r\nhost: localhost\r\ne2b-sandbox-id: {id}\r\nx-access-token: {token}\r\n\
         content-type: {STREAM}\r\ncontent-length: {}\r\n\r\n",
        start.len()
    );
    let mut line = TcpStream::connect(e2b.address).await.unwrap();
    line.write_all(&[head.as_bytes(), &start].concat()).await.unwrap();
    let mut read = Vec::new();
    while !String::from_utf8_lossy(&read).contains("\"pid\"") {
        assert!(line.read_buf(&mut read).await.unwrap() > 0, "{}", String::from_utf8_lossy(&read));
    }
    assert_eq!(e2b.control("DELETE", &format!("/sandboxes/{id}"), json!({})).await.status, 204);
    let lost = line.read_to_end(&mut read).await.unwrap_err();
    assert_eq!(lost.kind(), std::io::ErrorKind::ConnectionReset);
    let headers = [("host", "localhost"), ("e2b-sandbox-id", id.as_str()), ("x-access-token", &token)];
    assert_eq!(e2b.raw("GET", "/health", "", &headers).await.status, 502);
}
