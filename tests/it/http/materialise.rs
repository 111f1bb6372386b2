//! The files of a session as a tar stream.

use std::io::Read;

use serde_json::{Value, json};

use crate::rig::{Answer, Server, WAIT_LIMIT, sent};

/// An entry of an archive: its path, kind, mode, link target and contents.
type Packed = (String, u8, u32, String, Vec<u8>);

fn unpacked(archive: &[u8]) -> Vec<Packed> {
    let mut archive = tar::Archive::new(archive);
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let mut contents = Vec::new();
        entry.read_to_end(&mut contents).unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let link = entry.link_name_bytes().map_or_else(String::new, |link| text(&link));
        let header = entry.header();
        (text(&entry.path_bytes()), header.entry_type().as_byte(), header.mode().unwrap(), link, contents)
    });
    entries.collect()
}

async fn archive(server: &Server, session: &str, body: Option<Value>) -> Answer {
    server.ask("POST", &format!("/v1/sessions/{session}/materialise"), body.as_ref()).await
}

/// A session on the host with a script, a link and a file in a directory.
async fn with_files(server: &Server) -> u64 {
    let new = json!({ "name": "demo", "backend": "host" });
    assert_eq!(server.ask("POST", "/v1/sessions", Some(&new)).await.status, 201);
    let first = server.write("demo", "deep/a.txt").await["finished"].as_u64().unwrap();
    let long = "x/".repeat(60);
    let command = format!("printf '#!/bin/sh\\n' > run && chmod +x run && ln -s deep/a.txt link && ln -s {long} far");
    let call = json!({ "tool": "shell_execute", "params": { "command": command }, "auto_confirm": true });
    let made = server.ask("POST", "/v1/sessions/demo/calls", Some(&call)).await;
    assert_eq!(made.json()["status"], "ok", "{made:?}");
    first
}

#[tokio::test(flavor = "multi_thread")]
async fn materialise_any_position_keeps_modes_and_links() {
    let server = Server::begin().await;
    let first = with_files(&server).await;
    let now = archive(&server, "demo", None).await;
    assert_eq!((now.status, now.header("content-type")), (200, "application/x-tar"), "{now:?}");
    let entry = |path: &str, kind: u8, mode, link: &str, contents: &str| {
        (path.to_owned(), kind, mode, link.to_owned(), contents.as_bytes().to_vec())
    };
    let directory = entry("deep/", b'5', 0o755, "", "");
    let file = entry("deep/a.txt", b'0', 0o644, "", "one\n");
    let mut found = unpacked(&now.body);
    found.iter_mut().filter(|entry| entry.1 == b'5').for_each(|entry| entry.0 = "deep/".to_owned());
    let link = entry("link", b'2', 0o777, "deep/a.txt", "");
    let far = entry("far", b'2', 0o777, &"x/".repeat(60), "");
    let script = entry("run", b'0', 0o755, "", "#!/bin/sh\n");
    assert_eq!(found, [directory.clone(), file.clone(), far, link, script]);
    assert_eq!(archive(&server, "demo", Some(json!({}))).await.body, now.body, "the same bytes each time");
    let then = archive(&server, "demo", Some(json!({ "at": first }))).await;
    assert_eq!(unpacked(&then.body).len(), 2);
    assert!(unpacked(&archive(&server, "demo", Some(json!({ "at": 0 }))).await.body).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn materialise_wrong_input_is_refused() {
    let server = Server::begin().await;
    server.session("demo").await;
    let refused = [
        ("none", None, 404),
        ("demo", Some(json!({ "at": 99 })), 404),
        ("demo", Some(json!({ "at": -99 })), 404),
        ("demo", Some(json!({ "at": "soon" })), 422),
        ("demo", Some(json!({ "to": 1 })), 422),
        ("demo", Some(json!([])), 400),
    ];
    for (session, body, status) in refused {
        let answer = archive(&server, session, body.clone()).await;
        assert_eq!((answer.status, answer.header("content-type")), (status, "application/problem+json"), "{body:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn materialise_client_that_goes_ends_the_stream() {
    use http_body_util::BodyExt;
    let server = Server::begin().await;
    server.session("demo").await;
    let content = "0123456789abcdef".repeat(2_500);
    for number in 0..100 {
        let params = json!({ "file_path": format!("{number}.txt"), "content": format!("{number}{content}") });
        let call = json!({ "tool": "write_file", "params": params });
        assert_eq!(server.ask("POST", "/v1/sessions/demo/calls", Some(&call)).await.json()["status"], "ok");
    }
    let stream = tokio::net::UnixStream::connect(&server.socket).await.unwrap();
    let io = hyper_util::rt::TokioIo::new(stream);
    let response = sent(io, "POST", "/v1/sessions/demo/materialise", bytes::Bytes::new(), &[]).await;
    let mut body = response.into_body();
    assert!(body.frame().await.unwrap().is_ok(), "it has begun");
    drop(body);
    // The workspace can be closed, and the next one gets all of it.
    let whole = tokio::time::timeout(WAIT_LIMIT, archive(&server, "demo", None)).await.unwrap();
    assert_eq!(unpacked(&whole.body).len(), 100);
    assert_eq!(server.ask("DELETE", "/v1/sessions/demo", None).await.status, 204);
}
