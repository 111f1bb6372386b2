//! Files that a program writes, moves and removes itself.

use hyper_util::rt::TokioIo;
use serde_json::{Value, json};

use crate::rig::{Answer, Server, sent, taken};

async fn upload(server: &Server, path: &str, bytes: &[u8]) -> Answer {
    let stream = tokio::net::UnixStream::connect(&server.socket).await.unwrap();
    taken(sent(TokioIo::new(stream), "PUT", path, bytes.to_vec().into(), &[]).await).await
}

async fn get(server: &Server, path: &str) -> Answer {
    server.ask("GET", &format!("/v1/sessions/box/{path}"), None).await
}

async fn done(server: &Server, method: &str, path: &str, body: Option<Value>) -> Value {
    let answer = server.ask(method, &format!("/v1/sessions/box/{path}"), body.as_ref()).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

async fn kind(server: &Server, method: &str, path: &str, body: Option<Value>) -> (u16, String) {
    let answer = server.ask(method, &format!("/v1/sessions/box/{path}"), body.as_ref()).await;
    (answer.status, answer.json()["kind"].as_str().unwrap_or_default().to_owned())
}

async fn begun(backend: &str) -> Server {
    let server = Server::begin().await;
    let new = json!({ "name": "box", "backend": backend });
    assert_eq!(server.ask("POST", "/v1/sessions", Some(&new)).await.status, 201);
    server
}

#[tokio::test(flavor = "multi_thread")]
async fn uploaded_bytes_are_a_recorded_call() {
    for backend in ["memory", "host"] {
        let server = begun(backend).await;
        let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
        let put = upload(&server, "/v1/sessions/box/files/a/logo%20%C3%A9.png?executable=true&agent=me", &bytes).await;
        assert_eq!((put.status, &put.json()["result"]["size"]), (200, &json!(300_000)), "{put:?}");
        assert_eq!(get(&server, "files/a/logo%20%C3%A9.png").await.body, bytes);
        let stat = get(&server, "stat/a/logo%20%C3%A9.png").await.json();
        assert_eq!((&stat["size"], &stat["executable"]), (&json!(300_000), &json!(true)), "{stat}");
        let call = put.json()["call"].as_u64().unwrap();
        let recorded = get(&server, &format!("calls/{call}")).await.json();
        assert_eq!((&recorded["tool"], &recorded["agent"]), (&json!("put_file"), &json!("me")), "{recorded}");
        let again = upload(&server, "/v1/sessions/box/files/a/logo%20%C3%A9.png?create=true", b"x").await;
        assert_eq!((again.status, again.json()["kind"].as_str()), (409, Some("refused")), "{again:?}");
        assert_eq!(upload(&server, "/v1/sessions/box/files/a", b"x").await.status, 409, "a directory is there");
        assert_eq!(upload(&server, "/v1/sessions/box/files/a/../b", b"x").await.status, 422);
        assert_eq!(upload(&server, "/v1/sessions/box/files/a/empty?executable=maybe", b"").await.status, 400);
        let kept = upload(&server, "/v1/sessions/box/files/a/logo%20%C3%A9.png", b"new").await;
        assert_eq!(kept.json()["result"]["version"], 2);
        assert_eq!(get(&server, "stat/a/logo%20%C3%A9.png").await.json()["executable"], true, "it keeps its bit");
        assert_eq!(get(&server, &format!("files/a/logo%20%C3%A9.png?at=@{call}")).await.status, 404);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_are_moved_and_removed() {
    let server = begun("host").await;
    for path in ["d/one", "d/deep/two", "three"] {
        assert_eq!(upload(&server, &format!("/v1/sessions/box/files/{path}"), path.as_bytes()).await.status, 200);
    }
    let moved = done(&server, "POST", "move", Some(json!({ "from": "d", "to": "/workspace/e/f" }))).await;
    assert_eq!(moved["result"], json!({ "from": "/d", "to": "/e/f", "entries": 4 }));
    assert_eq!(get(&server, "files/e/f/deep/two").await.body, "d/deep/two");
    let clash = json!({ "from": "three", "to": "e/f/one" });
    assert_eq!(kind(&server, "POST", "move", Some(clash.clone())).await, (409, "refused".to_owned()));
    assert_eq!(get(&server, "files/three").await.body, "three", "nothing was done");
    let replaced = json!({ "from": "three", "to": "e/f/one", "replace": true });
    done(&server, "POST", "move", Some(replaced)).await;
    assert_eq!(get(&server, "files/e/f/one").await.body, "three");
    assert_eq!(kind(&server, "POST", "move", Some(clash)).await, (404, "not_found".to_owned()));
    assert_eq!(kind(&server, "POST", "move", Some(json!({ "from": "e", "to": "e/f/g" }))).await.0, 409);
    assert_eq!(kind(&server, "DELETE", "files/e", None).await, (409, "refused".to_owned()));
    assert_eq!(done(&server, "DELETE", "files/e?recursive=true", None).await["result"]["removed"], 5);
    assert_eq!(kind(&server, "DELETE", "files/e", None).await, (404, "not_found".to_owned()));
    let made = |path: &str| Some(json!({ "path": path }));
    assert_eq!(done(&server, "POST", "directories", made("x/y")).await["result"]["created"], true);
    assert_eq!(done(&server, "POST", "directories", made("x/y")).await["result"]["created"], false);
    let names = async |query: &str| {
        let listed = get(&server, &format!("files?{query}")).await.json();
        listed.as_array().unwrap().iter().map(|entry| entry["path"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    upload(&server, "/v1/sessions/box/files/x/y/z", b"").await;
    assert_eq!(names("depth=1").await, ["x"]);
    assert_eq!(names("depth=2").await, ["x", "x/y"]);
    assert_eq!(names("below=x&depth=2").await, ["x/y", "x/y/z"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn tar_goes_in_and_out_below_a_directory() {
    let server = begun("host").await;
    let mut archive = tar::Builder::new(Vec::new());
    let mut add = |kind: tar::EntryType, path: &str, link: Option<&str>, bytes: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o755);
        header.set_size(bytes.len() as u64);
        match link {
            Some(link) => archive.append_link(&mut header, path, link).unwrap(),
            None => archive.append_data(&mut header, path, bytes).unwrap(),
        }
    };
    add(tar::EntryType::Directory, "empty", None, b"");
    add(tar::EntryType::Regular, "./bin/run", None, b"#!/bin/sh\n");
    add(tar::EntryType::Symlink, "link", Some("bin/run"), b"");
    add(tar::EntryType::Link, "same", Some("bin/run"), b"");
    let archive = archive.into_inner().unwrap();
    let put = upload(&server, "/v1/sessions/box/tar?below=in", &archive).await;
    assert_eq!(put.json()["result"], json!({ "path": "/in", "entries": 4, "bytes": 20 }), "{put:?}");
    assert_eq!(get(&server, "stat/in/bin/run").await.json()["executable"], true);
    assert_eq!(get(&server, "files/in/same").await.body, "#!/bin/sh\n");
    let before = put.json()["finished"].clone();
    done(&server, "DELETE", "files/in/same", None).await;
    let out = server.ask("POST", "/v1/sessions/box/materialise", Some(&json!({ "below": "in", "at": before }))).await;
    let mut paths: Vec<_> = tar::Archive::new(&out.body[..])
        .entries()
        .unwrap()
        .map(|entry| String::from_utf8_lossy(&entry.unwrap().path_bytes()).into_owned())
        .collect();
    paths.sort();
    assert_eq!(paths, ["bin", "bin/run", "empty", "link", "same"]);
    assert_eq!(
        upload(&server, "/v1/sessions/box/tar", b"no archive at all, but long enough to be read").await.status,
        409
    );
    let mut escaping = archive.clone();
    escaping[..8].copy_from_slice(b"../../up");
    let checksum_is_wrong = upload(&server, "/v1/sessions/box/tar", &escaping).await;
    assert_eq!(checksum_is_wrong.status, 409);
    assert_eq!(kind(&server, "POST", "materialise", Some(json!({ "below": "none" }))).await.0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn file_change_keeps_to_the_limits_of_a_child() {
    let server = begun("memory").await;
    let new = json!({ "name": "kid", "tools": ["read_file"] });
    assert_eq!(server.ask("POST", "/v1/sessions/box/children", Some(&new)).await.status, 201);
    let put = upload(&server, "/v1/sessions/kid/files/a", b"x").await;
    assert_eq!((put.status, put.json()["kind"].as_str()), (409, Some("refused")), "{put:?}");
}
