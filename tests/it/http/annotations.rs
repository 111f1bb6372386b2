//! Scores, notes, names of positions, and requests that are made twice.

use std::io::Write;
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use crate::rig::{Server, eventually_async};

async fn ask(server: &Server, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
    let path = format!("/v1/sessions/{path}");
    let answer = server.ask(method, path.trim_end_matches('/'), body.as_ref()).await;
    (answer.status, serde_json::from_slice(&answer.body).unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn scores_and_tags_are_events_that_rewinds_keep() {
    let server = Server::begin().await;
    server.session("box").await;
    let first = server.write("box", "a.txt").await["finished"].clone();
    server.write("box", "b.txt").await;
    let score = json!({ "name": "reward", "at": first, "score": 0.5, "agent": "judge" });
    let (status, recorded) = ask(&server, "POST", "box/annotations", Some(score)).await;
    assert_eq!((status, recorded["seq"].is_u64()), (200, true), "{recorded}");
    let (_, tagged) = ask(&server, "POST", "box/tags", Some(json!({ "name": "good", "at": first }))).await;
    assert!(tagged["seq"].is_u64(), "{tagged}");
    let (_, noted) = ask(&server, "POST", "box/annotations", Some(json!({ "name": "review", "note": "fine" }))).await;
    assert!(noted["seq"].is_u64());
    assert_eq!(ask(&server, "GET", "box/files?at=tag:good", None).await.1.as_array().unwrap().len(), 1);
    let (status, rewound) = ask(&server, "POST", "box/rewind", Some(json!({ "to": "tag:good" }))).await;
    assert_eq!(status, 200, "{rewound}");
    let (_, all) = ask(&server, "GET", "box/annotations", None).await;
    assert_eq!(all.as_array().unwrap().len(), 2, "{all}");
    let (_, rewards) = ask(&server, "GET", "box/annotations?name=reward", None).await;
    assert_eq!((&rewards[0]["score"], &rewards[0]["agent"], &rewards[0]["at"]), (&json!(0.5), &json!("judge"), &first));
    assert_eq!(ask(&server, "GET", "box/tags", None).await.1, json!({ "good": first }));
    let (status, missing) = ask(&server, "GET", "box/files?at=tag:bad", None).await;
    assert_eq!((status, missing["detail"].as_str().unwrap().contains("its tags are good")), (404, true), "{missing}");
    assert_eq!(ask(&server, "DELETE", "box/tags/good", None).await.0, 204);
    assert_eq!(ask(&server, "DELETE", "box/tags/good", None).await.0, 404);
    for wrong in [
        json!({ "name": "x" }),
        json!({ "name": "a b", "score": 1 }),
        json!({ "name": "x", "note": "n".repeat(70_000) }),
    ] {
        assert_eq!(ask(&server, "POST", "box/annotations", Some(wrong)).await.0, 422);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn create_that_is_asked_for_twice_begins_once() {
    let server = Server::begin().await;
    let new = json!({ "create_id": "episode 7", "backend": "memory" });
    let (first, again) =
        tokio::join!(ask(&server, "POST", "", Some(new.clone())), ask(&server, "POST", "", Some(new.clone())));
    assert_eq!((first.0, again.0), (201, 201), "{first:?} {again:?}");
    assert_eq!(first.1["session"], again.1["session"]);
    let other = ask(&server, "POST", "", Some(json!({ "create_id": "episode 8" }))).await;
    assert_ne!(other.1["session"], first.1["session"]);
    assert_eq!(ask(&server, "POST", "", Some(json!({ "create_id": "" }))).await.0, 422);
    let parent = first.1["name"].as_str().unwrap();
    let forks = json!({ "count": 5, "name": "try", "create_id": "batch" });
    let (status, begun) = ask(&server, "POST", &format!("{parent}/forks"), Some(forks.clone())).await;
    assert_eq!(status, 200, "{begun}");
    let names: Vec<_> = begun["children"].as_array().unwrap().iter().map(|child| child["name"].clone()).collect();
    assert_eq!(names, ["try-1", "try-2", "try-3", "try-4", "try-5"]);
    let at: Vec<_> = begun["children"].as_array().unwrap().iter().map(|child| child["at"].clone()).collect();
    assert!(at.iter().all(|one| *one == at[0]), "{at:?}");
    assert_eq!(ask(&server, "POST", &format!("{parent}/forks"), Some(forks)).await.1, begun);
    let (_, sessions) = ask(&server, "GET", "", None).await;
    assert_eq!(sessions.as_array().unwrap().len(), 7);
    // The third name is taken: none of the others stays.
    ask(&server, "POST", "", Some(json!({ "name": "more-3" }))).await;
    let (status, refused) =
        ask(&server, "POST", &format!("{parent}/forks"), Some(json!({ "count": 4, "name": "more" }))).await;
    assert_eq!((status, refused["kind"].as_str()), (409, Some("conflict")), "{refused}");
    assert_eq!(ask(&server, "GET", "", None).await.1.as_array().unwrap().len(), 8);
    // A longer repetition that fails leaves what the first request has begun.
    ask(&server, "POST", "", Some(json!({ "name": "try-7" }))).await;
    let longer = json!({ "count": 7, "name": "try", "create_id": "batch" });
    assert_eq!(ask(&server, "POST", &format!("{parent}/forks"), Some(longer)).await.0, 409);
    let (_, left) = ask(&server, "GET", "", None).await;
    let left: Vec<_> = left.as_array().unwrap().iter().filter_map(|session| session["name"].as_str()).collect();
    assert!(["try-1", "try-5", "try-7"].iter().all(|name| left.contains(name)) && !left.contains(&"try-6"), "{left:?}");
    assert_eq!(ask(&server, "POST", &format!("{parent}/forks"), Some(json!({ "count": 0 }))).await.0, 422);
}

#[tokio::test(flavor = "multi_thread")]
async fn forks_are_all_made_though_their_client_leaves() {
    let server = Server::begin().await;
    server.session("box").await;
    server.write("box", "a.txt").await;
    let count = || async { server.ask("GET", "/v1/sessions", None).await.json().as_array().unwrap().len() };
    let body = json!({ "count": 60 }).to_string();
    let head = "POST /v1/sessions/box/forks HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n";
    let mut client = UnixStream::connect(&server.socket).unwrap();
    write!(client, "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
    eventually_async("the first fork has begun", async || count().await > 1).await;
    drop(client);
    eventually_async("the last one has, too", async || count().await == 61).await;
}
