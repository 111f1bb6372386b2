//! E2B's wire API, as its clients would not use it. `tests/clients/e2b_*.py` use it as they do.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use foldspace::WorkspaceSpec;
use foldspace::backends::HostOptions;
use foldspace::http::{E2bApi, E2bOptions, Token};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use sha2::Digest;
use tokio::net::{TcpListener, TcpStream};

use crate::rig::{Answer, Server, TOKEN, eventually_async, sent, taken};

pub(super) struct E2b {
    pub(super) server: Server,
    pub(super) address: std::net::SocketAddr,
}

impl E2b {
    pub(super) async fn begin(workspace: WorkspaceSpec, remove_ended: bool, debug: bool) -> Self {
        let server = Server::begin().await;
        let names = vec!["box.example".to_owned()];
        let options = E2bOptions { token: Token::new(TOKEN).unwrap(), names, workspace, remove_ended, debug };
        let router = E2bApi::open(&server.face, options).await.unwrap().router();
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = tcp.local_addr().unwrap();
        let serving = server.server.clone();
        tokio::spawn(async move { serving.serve_tcp(tcp, router).await });
        Self { server, address }
    }

    pub(super) async fn raw(
        &self,
        method: &str,
        path: &str,
        body: impl Into<Bytes>,
        headers: &[(&str, &str)],
    ) -> Answer {
        let stream = TcpStream::connect(self.address).await.unwrap();
        taken(sent(TokioIo::new(stream), method, path, body.into(), headers).await).await
    }

    pub(super) async fn control(&self, method: &str, path: &str, body: Value) -> Answer {
        let headers = [("host", "localhost"), ("x-api-key", TOKEN), ("content-type", "application/json")];
        self.raw(method, path, body.to_string(), &headers).await
    }

    pub(super) async fn create(&self) -> (String, String) {
        let made = self.control("POST", "/sandboxes", json!({ "templateID": "base", "timeout": 600 })).await;
        assert_eq!(made.status, 201, "{made:?}");
        let text = |name: &str| made.json()[name].as_str().unwrap().to_owned();
        (text("sandboxID"), text("envdAccessToken"))
    }

    pub(super) async fn envd(
        &self,
        (id, token): &(String, String),
        path: &str,
        media: &str,
        body: impl Into<Bytes>,
    ) -> Answer {
        let headers =
            [("host", "localhost"), ("e2b-sandbox-id", id), ("x-access-token", token), ("content-type", media)];
        self.raw("POST", path, body, &headers).await
    }

    pub(super) async fn call(&self, sandbox: &(String, String), path: &str, body: Value) -> Answer {
        self.envd(sandbox, path, "application/json", body.to_string()).await
    }
}

/// The signature of a URL for a file, as the SDKs make it.
pub(super) fn signature(path: &str, operation: &str, user: &str, (_, token): &(String, String)) -> String {
    let digest = sha2::Sha256::digest(format!("{path}:{operation}:{user}:{token}"));
    let text = format!("v1_{}", STANDARD_NO_PAD.encode(digest));
    text.replace('+', "%2B").replace('/', "%2F")
}

/// A part of a form with a file of this name; the name is its contents, too.
pub(super) fn part(name: &str) -> String {
    format!("--x\r\ncontent-disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\n{name}\r\n")
}

pub(super) fn enveloped(message: &str) -> Vec<u8> {
    [&[0][..], &u32::try_from(message.len()).unwrap().to_be_bytes(), message.as_bytes()].concat()
}

/// The messages of a stream, with the flags of each.
pub(super) fn messages(mut bytes: &[u8]) -> Vec<(u8, Value)> {
    let mut messages = Vec::new();
    while let Some((&[flags, a, b, c, d], rest)) = bytes.split_first_chunk::<5>() {
        let (message, rest) = rest.split_at(u32::from_be_bytes([a, b, c, d]) as usize);
        messages.push((flags, serde_json::from_slice(message).unwrap()));
        bytes = rest;
    }
    assert!(bytes.is_empty(), "{bytes:?}");
    messages
}

#[tokio::test(flavor = "multi_thread")]
async fn e2b_wants_the_key_and_the_token_of_the_sandbox() {
    let e2b = E2b::begin(WorkspaceSpec::Memory, false, false).await;
    let sandbox = e2b.create().await;
    let other = e2b.create().await;
    let local = ("host", "localhost");
    for headers in [
        vec![local],
        vec![local, ("x-api-key", "wrong")],
        vec![local, ("authorization", "Basic dXNlcjo=")],
        vec![local, ("e2b-sandbox-id", &sandbox.0), ("x-access-token", &sandbox.1)],
    ] {
        let refused = e2b.raw("GET", "/v2/sandboxes", "", &headers).await;
        assert_eq!((refused.status, &refused.json()["code"]), (401, &json!(401)), "{headers:?}");
    }
    let prefixed = format!("e2b_{TOKEN}");
    let bearer = format!("Bearer {TOKEN}");
    for key in [("x-api-key", TOKEN), ("x-api-key", &prefixed), ("authorization", &bearer)] {
        assert_eq!(e2b.raw("GET", "/v2/sandboxes", "", &[local, key]).await.status, 200, "{key:?}");
    }
    // The key opens no sandbox, nor does another's token.
    let stat = "/filesystem.Filesystem/Stat";
    for wrong in ["", TOKEN, &other.1, "zz"] {
        let refused = e2b.call(&(sandbox.0.clone(), wrong.to_owned()), stat, json!({ "path": "" })).await;
        assert_eq!((refused.status, &refused.json()["code"]), (401, &json!("unauthenticated")), "{wrong}");
    }
    assert_eq!(e2b.call(&sandbox, stat, json!({ "path": "" })).await.status, 200);
    let debug = ("debug_sandbox_id".to_owned(), String::new());
    assert_eq!(e2b.call(&debug, stat, json!({ "path": "" })).await.status, 401);
    // Pages of other sites, and names that others chose, get nothing.
    let key = ("x-api-key", TOKEN);
    for headers in [[("host", "evil.example"), key, key], [local, ("origin", "http://evil.example"), key]] {
        assert_eq!(e2b.raw("GET", "/v2/sandboxes", "", &headers[..2]).await.status, 403, "{headers:?}");
    }
    assert_eq!(e2b.raw("GET", "/v2/sandboxes", "", &[("host", "box.example"), key]).await.status, 200);
    let files = format!("/files?path=x&signature=v1_{}", "A".repeat(43));
    assert_eq!(e2b.raw("GET", &files, "", &[local]).await.status, 401);
    // The sessions of others are not sandboxes.
    e2b.server.session("own").await;
    assert_eq!(e2b.control("GET", "/sandboxes/own", json!({})).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn e2b_debug_opens_one_sandbox_without_a_token() {
    let e2b = E2b::begin(WorkspaceSpec::Memory, false, true).await;
    let debug = ("debug_sandbox_id".to_owned(), String::new());
    assert_eq!(e2b.call(&debug, "/filesystem.Filesystem/MakeDir", json!({ "path": "a" })).await.status, 200);
    let sandbox = e2b.create().await;
    let without = (sandbox.0, String::new());
    assert_eq!(e2b.call(&without, "/filesystem.Filesystem/Stat", json!({ "path": "" })).await.status, 401);
    assert_eq!(e2b.raw("GET", "/v2/sandboxes", "", &[("host", "localhost")]).await.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn e2b_tells_what_is_missing_and_what_is_wrong() {
    let e2b = E2b::begin(WorkspaceSpec::Memory, false, false).await;
    for (method, path) in [
        ("GET", "/templates"),
        ("POST", "/v3/templates"),
        ("GET", "/sandboxes/x/logs"),
        ("PATCH", "/sandboxes"),
        ("GET", "/volumes"),
    ] {
        let missing = e2b.control(method, path, json!({})).await;
        assert_eq!(missing.status, 501, "{method} {path}");
        assert!(missing.json()["message"].as_str().unwrap().contains("docs/e2b.md"), "{missing:?}");
    }
    for (body, status) in [
        (json!([]), 400),
        (json!({ "templateID": 1 }), 400),
        (json!({ "timeout": -1 }), 400),
        (json!({ "timeout": 1e300 }), 400),
        (json!({ "timeout": 99_999_999_999_u64 }), 400),
        (json!({ "metadata": { "a": 1 } }), 400),
        (json!({ "templateID": "python:3.12" }), 404),
        (json!({ "iam": { "x": {} } }), 501),
        (json!({ "volumeMounts": [], "network": { "denyOut": [] } }), 501),
    ] {
        assert_eq!(e2b.control("POST", "/v2/sandboxes", body.clone()).await.status, status, "{body}");
    }
    let sandbox = e2b.create().await;
    let of = |rest: &str| format!("/sandboxes/{}/{rest}", sandbox.0);
    for (path, body, status) in [
        (of("fork"), json!({ "count": 0 }), 400),
        (of("fork"), json!({ "count": 101 }), 400),
        (of("timeout"), json!({ "timeout": "x" }), 400),
        (of("snapshots"), json!({ "name": "x".repeat(300) }), 400),
        ("/sandboxes/none/fork".to_owned(), json!({}), 404),
        ("/sandboxes/%FF/pause".to_owned(), json!({}), 400),
    ] {
        assert_eq!(e2b.control("POST", &path, body.clone()).await.status, status, "{path} {body}");
    }
    for query in ["limit=0", "limit=x", "nextToken=none", "startedAfter=x"] {
        assert_eq!(e2b.control("GET", &format!("/v2/sandboxes?{query}"), json!({})).await.status, 400, "{query}");
    }
    // Nothing of it is left behind.
    assert_eq!(e2b.control("GET", "/v2/sandboxes", json!({})).await.json().as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn envd_refuses_messages_that_are_wrong() {
    let e2b = E2b::begin(WorkspaceSpec::Host(HostOptions::default()), false, false).await;
    let sandbox = e2b.create().await;
    let (json_media, stream) = ("application/json", "application/connect+json");
    for (path, media, body, status, code) in [
        ("/filesystem.Filesystem/Stat", json_media, "[", 400, "invalid_argument"),
        ("/filesystem.Filesystem/Stat", json_media, r#"{"path":1}"#, 400, "invalid_argument"),
        ("/filesystem.Filesystem/Stat", json_media, r#"{"path":"a\u0000b"}"#, 400, "invalid_argument"),
        ("/filesystem.Filesystem/Stat", json_media, r#"{"path":"/etc/passwd"}"#, 400, "invalid_argument"),
        ("/filesystem.Filesystem/Stat", json_media, r#"{"path":"none"}"#, 404, "not_found"),
        ("/filesystem.Filesystem/Stat", "application/proto", "", 415, "invalid_argument"),
        ("/filesystem.Filesystem/Remove", json_media, r#"{"path":"../.."}"#, 400, "invalid_argument"),
        ("/filesystem.Filesystem/Unheard", json_media, "{}", 501, "unimplemented"),
        ("/filesystem.Filesystem/GetWatcherEvents", json_media, r#"{"watcherId":"x"}"#, 404, "not_found"),
        ("/process.Process/Unheard", json_media, "{}", 501, "unimplemented"),
        ("/process.Process/SendInput", json_media, r#"{"process":{"pid":1},"input":{"stdin":"!"}}"#, 404, "not_found"),
        ("/process.Process/SendInput", json_media, r#"{"process":{"tag":"x"}}"#, 501, "unimplemented"),
        ("/process.Process/SendSignal", json_media, r#"{"process":{"pid":-1}}"#, 400, "invalid_argument"),
        ("/process.Process/Update", json_media, r#"{"process":{"pid":1e99}}"#, 400, "invalid_argument"),
    ] {
        let answer = e2b.envd(&sandbox, path, media, body).await;
        assert_eq!((answer.status, &answer.json()["code"]), (status, &json!(code)), "{path} {body}");
    }
    for (path, body, code) in [
        ("/process.Process/Start", b"\x00\x00".to_vec(), "invalid_argument"),
        ("/process.Process/Start", b"\x00\xff\xff\xff\xff".to_vec(), "resource_exhausted"),
        ("/process.Process/Start", b"\x01\x00\x00\x00\x02{}".to_vec(), "invalid_argument"),
        ("/process.Process/Start", enveloped("{}"), "invalid_argument"),
        ("/process.Process/Start", enveloped(r#"{"process":{"cmd":"ls","cwd":"none"}}"#), "invalid_argument"),
        (
            "/process.Process/Start",
            enveloped(r#"{"process":{"cmd":"a"},"pty":{"size":{"cols":70000}}}"#),
            "invalid_argument",
        ),
        ("/process.Process/Connect", enveloped(r#"{"process":{"pid":7}}"#), "not_found"),
        ("/process.Process/StreamInput", enveloped(r#"{"data":{"input":{"stdin":"YQ=="}}}"#), "invalid_argument"),
        ("/filesystem.Filesystem/WatchDir", enveloped(r#"{"path":"none"}"#), "not_found"),
    ] {
        let answer = e2b.envd(&sandbox, path, stream, body.clone()).await;
        let told = messages(&answer.body);
        let (flags, end) = told.last().unwrap();
        assert_eq!((answer.status, *flags, &end["error"]["code"]), (200, 2, &json!(code)), "{path} {body:?} {told:?}");
    }
    for (media, body, status) in [
        ("multipart/form-data; boundary=x", "--y\r\n", 400),
        (
            "multipart/form-data; boundary=x",
            "--x\r\ncontent-disposition: form-data; filename=\"../..\"\r\n\r\n\r\n--x--",
            400,
        ),
        ("text/plain", "", 415),
    ] {
        assert_eq!(e2b.envd(&sandbox, "/files", media, body).await.status, status, "{media} {body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn envd_writes_all_files_of_an_upload_though_its_client_leaves() {
    let e2b = E2b::begin(WorkspaceSpec::Memory, false, false).await;
    let sandbox = e2b.create().await;
    let media = "multipart/form-data; boundary=x";
    let wrong = format!("{}{}--x--", part("first"), part("../.."));
    assert_eq!(e2b.envd(&sandbox, "/files", media, wrong).await.status, 400);
    let is_there = async |name: &str| {
        let path = format!("/home/user/{name}");
        e2b.call(&sandbox, "/filesystem.Filesystem/Stat", json!({ "path": path })).await.status == 200
    };
    assert!(!is_there("first").await, "a wrong name among several writes nothing");
    let directory = format!("{}{}--x--", part("d/inside"), part("other"));
    assert_eq!(e2b.envd(&sandbox, "/files", media, directory).await.status, 200);
    let over_directory = format!("{}{}--x--", part("first"), part("d"));
    assert_ne!(e2b.envd(&sandbox, "/files", media, over_directory).await.status, 200);
    assert!(!is_there("first").await && is_there("d/inside").await, "a file that can't be written stops the others");
    let files = (0..60).map(|number| part(&format!("f{number}"))).collect::<String>() + "--x--";
    let mut client = std::net::TcpStream::connect(e2b.address).unwrap();
    let (id, token) = &sandbox;
    let head = format!("POST /files HTTP/1.1\r\nhost: localhost\r\ne2b-sandbox-id: {id}\r\nx-access-token: {token}");
    write!(client, "{head}\r\ncontent-type: {media}\r\ncontent-length: {}\r\n\r\n{files}", files.len()).unwrap();
    eventually_async("the first file is there", async || is_there("f0").await).await;
    drop(client);
    eventually_async("the last one is, too", async || is_there("f59").await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn envd_streams_what_a_command_prints_and_its_end() {
    let e2b = E2b::begin(WorkspaceSpec::Host(HostOptions::default()), false, false).await;
    let sandbox = e2b.create().await;
    let start = r#"{"process":{"cmd":"/bin/sh","args":["-c","pwd >&2; exit 3"],"cwd":"/"},"stdin":false}"#;
    let answer = e2b.envd(&sandbox, "/process.Process/Start", "application/connect+json", enveloped(start)).await;
    assert_eq!(answer.header("content-type"), "application/connect+json");
    let told = messages(&answer.body);
    assert!(told[0].1["event"]["start"]["pid"].as_u64().is_some(), "{told:?}");
    assert_eq!(told[1].1["event"]["data"], json!({ "stderr": "Lwo=" }), "{told:?}");
    let end = json!({ "exitCode": 3, "exited": true, "status": "exit status 3", "error": "exit status 3" });
    assert_eq!(told[2].1["event"]["end"], end, "{told:?}");
    assert_eq!(told[3], (2, json!({})), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn envd_command_may_be_as_long_as_linux_takes() {
    let e2b = E2b::begin(WorkspaceSpec::Host(HostOptions::default()), false, false).await;
    let sandbox = e2b.create().await;
    for (length, is_taken) in
        [(1, true), (700, true), (4_097, true), (64 << 10, true), (131_071, true), (131_072, false)]
    {
        let text = format!("{}\n", ":".repeat(length - 1));
        let start =
            json!({ "process": { "cmd": "/bin/true", "args": ["-l", "-c", text] }, "stdin": false }).to_string();
        let answer = e2b.envd(&sandbox, "/process.Process/Start", "application/connect+json", enveloped(&start)).await;
        let told = messages(&answer.body);
        let (_, end) = told.last().unwrap();
        assert_eq!(end["error"].is_null(), is_taken, "{length}: {end}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sandboxes_are_there_after_a_restart_and_end_in_time() {
    let e2b = E2b::begin(WorkspaceSpec::Memory, true, false).await;
    let (short, long) = (e2b.create().await, e2b.create().await);
    let paused = e2b.create().await;
    let of = |id: &str, rest: &str| format!("/sandboxes/{id}/{rest}");
    assert_eq!(e2b.control("POST", &of(&paused.0, "pause"), json!({})).await.status, 204);
    assert_eq!(e2b.control("POST", &of(&paused.0, "pause"), json!({})).await.status, 409);
    assert_eq!(e2b.control("POST", &of(&short.0, "timeout"), json!({ "timeout": 0 })).await.status, 204);
    eventually_async("it is over, and its session with it", async || {
        e2b.server.ask("GET", &format!("/v1/sessions/{}", short.0), None).await.status == 404
    })
    .await;
    let gone = e2b.call(&short, "/filesystem.Filesystem/Stat", json!({ "path": "" })).await;
    assert_eq!((gone.status, &gone.json()["code"]), (502, &json!("unavailable")));
    // Another that reads the store finds what the first one recorded.
    let options = E2bOptions {
        token: Token::new(TOKEN).unwrap(),
        names: Vec::new(),
        workspace: WorkspaceSpec::Memory,
        remove_ended: false,
        debug: false,
    };
    let router = E2bApi::open(&e2b.server.face, options).await.unwrap().router();
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let again = E2b { address: tcp.local_addr().unwrap(), server: e2b.server };
    let serving = again.server.server.clone();
    tokio::spawn(async move { serving.serve_tcp(tcp, router).await });
    let listed = again.control("GET", "/v2/sandboxes?order=asc", json!({})).await.json();
    let told: Vec<_> = listed.as_array().unwrap().iter().map(|one| (&one["sandboxID"], &one["state"])).collect();
    let (long, paused) = (json!(long.0), json!(paused.0));
    assert_eq!(told, [(&long, &json!("running")), (&paused, &json!("paused"))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn upload_to_a_signed_url_writes_the_signed_file_only() {
    let e2b = E2b::begin(WorkspaceSpec::Memory, false, false).await;
    let sandbox = e2b.create().await;
    let query = format!("path=a.txt&username=user&signature={}", signature("a.txt", "write", "user", &sandbox));
    let send = async |media: &'static str, body: String| {
        let headers = [("host", "localhost"), ("content-type", media)];
        e2b.raw("POST", &format!("/files?{query}"), body, &headers).await
    };
    let form = "multipart/form-data; boundary=x";
    let several = send(form, format!("{}{}--x--", part("b1"), part("b2"))).await;
    assert_eq!(several.status, 400, "{several:?}");
    for (media, body) in [(form, format!("{}--x--", part("../b3"))), ("application/octet-stream", "whole".to_owned())] {
        let written = send(media, body).await;
        assert_eq!((written.status, &written.json()[0]["path"]), (200, &json!("/home/user/a.txt")), "{written:?}");
    }
    let listed = e2b.call(&sandbox, "/filesystem.Filesystem/ListDir", json!({ "path": "" })).await.json();
    let names: Vec<_> = listed["entries"].as_array().unwrap().iter().map(|entry| &entry["name"]).collect();
    assert_eq!(names, ["a.txt"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn signature_for_one_file_fits_no_other_use() {
    let e2b = E2b::begin(WorkspaceSpec::Memory, false, false).await;
    let sandbox = e2b.create().await;
    let headers = [("host", "localhost"), ("content-type", "application/octet-stream")];
    let signed = signature("x:write:y", "read", "", &sandbox);
    let read = format!("/files?path=x:write:y&signature={signed}");
    assert_eq!(e2b.raw("GET", &read, "", &headers).await.status, 404, "the URL is good, and the file is not there");
    let write = format!("/files?path=x&username=y:read:&signature={signed}");
    assert_eq!(e2b.raw("POST", &write, "D", &headers).await.status, 401);
    let query = format!("path=x&signature={}", signature("x", "write", "", &sandbox));
    let call = format!("/filesystem.Filesystem/MakeDir?{query}");
    let json = [("host", "localhost"), ("content-type", "application/json")];
    assert_eq!(e2b.raw("POST", &call, r#"{"path":"y"}"#, &json).await.status, 401);
    // At the host of the sandbox, and of another one.
    let other = e2b.create().await;
    for (id, status) in [(&sandbox.0, 200), (&other.0, 401)] {
        let host = format!("49983-{id}.localhost");
        let headers = [("host", host.as_str()), ("content-type", "application/octet-stream")];
        assert_eq!(e2b.raw("POST", &format!("/files?{query}"), "D", &headers).await.status, status);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sandbox_uses_up_no_watchers_of_others() {
    let e2b = E2b::begin(WorkspaceSpec::Memory, false, false).await;
    let (greedy, other) = (e2b.create().await, e2b.create().await);
    let watch = async |sandbox: &(String, String)| {
        e2b.call(sandbox, "/filesystem.Filesystem/CreateWatcher", json!({ "path": "" })).await
    };
    let mut made = Vec::new();
    let refused = loop {
        let answer = watch(&greedy).await;
        if answer.status != 200 {
            break answer;
        }
        made.push(answer.json()["watcherId"].clone());
        assert!(made.len() < 1_000, "one sandbox has all watchers of the server");
    };
    assert_eq!((refused.status, &refused.json()["code"]), (429, &json!("resource_exhausted")), "{refused:?}");
    assert_eq!(watch(&other).await.status, 200);
    let stop = json!({ "watcherId": made[0] });
    assert_eq!(e2b.call(&greedy, "/filesystem.Filesystem/RemoveWatcher", stop).await.status, 200);
    assert_eq!(watch(&greedy).await.status, 200);
}
