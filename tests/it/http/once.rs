//! Requests that are repeated with the same `call_id`.

use serde_json::{Value, json};

use crate::rig::{Server, eventually_async};

async fn ask(server: &Server, path: &str, body: Value) -> (u16, Value) {
    let answer = server.ask("POST", &format!("/v1/sessions/{path}"), Some(&body)).await;
    (answer.status, serde_json::from_slice(&answer.body).unwrap_or_default())
}

async fn head(server: &Server) -> Value {
    server.ask("GET", "/v1/sessions/box", None).await.json()["events"].clone()
}

/// Sends a request twice. The second answer must be the first one with `repeated`, without new events.
async fn twice(server: &Server, path: &str, body: Value) -> Value {
    let (status, first) = ask(server, path, body.clone()).await;
    assert_eq!((status, first.get("repeated")), (200, None), "{first}");
    let recorded = head(server).await;
    let (status, mut again) = ask(server, path, body).await;
    let repeated = again.as_object_mut().unwrap().remove("repeated");
    assert_eq!((status, repeated), (200, Some(json!(true))), "{again}");
    assert_eq!(head(server).await, recorded, "the repetition records nothing");
    for text in [&mut again, &mut first.clone()] {
        text.as_object_mut().unwrap().remove("text");
    }
    let mut expected = first.clone();
    expected.as_object_mut().unwrap().remove("text");
    assert_eq!(again, expected);
    first
}

/// Checks that a request is refused because the request at `position` has its `call_id`.
async fn refused(server: &Server, path: &str, body: Value, position: &Value) {
    let (status, problem) = ask(server, path, body).await;
    assert_eq!((status, &problem["kind"]), (409, &json!("conflict")), "{problem}");
    assert_eq!(&problem["position"], position, "{problem}");
}

#[tokio::test(flavor = "multi_thread")]
async fn call_that_is_repeated_is_made_once() {
    let server = Server::begin().await;
    server.session("box").await;
    let long = "x".repeat(2000);
    let write = |id: &str, text: &str| json!({ "tool": "write_file", "params": { "file_path": "a.txt", "content": text }, "call_id": id });
    let first = twice(&server, "box/calls", write("one", &long)).await;
    let read = json!({ "tool": "read_file", "params": { "file_path": "a.txt" }, "call_id": "reads" });
    twice(&server, "box/calls", read.clone()).await;
    ask(&server, "box/calls", write("two", "new")).await;
    let (_, again) = ask(&server, "box/calls", read.clone()).await;
    assert!(again["result"].to_string().contains(&long), "the recorded result, with its long text: {again}");
    refused(&server, "box/calls", write("one", "other"), &first["call"]).await;
    let other_agent = json!({ "agent": "a", "call_id": "reads", "tool": "read_file", "params": read["params"] });
    refused(&server, "box/calls", other_agent, &again["call"]).await;
    refused(&server, "box/rewind", json!({ "to": first["finished"], "call_id": "one" }), &first["call"]).await;
    let failing = json!({ "tool": "read_file", "params": { "file_path": "none" }, "call_id": "fails" });
    let failed = twice(&server, "box/calls", failing).await;
    let (_, again) = ask(
        &server,
        "box/calls",
        json!({ "tool": "read_file", "params": { "file_path": "none" }, "call_id": "fails" }),
    )
    .await;
    assert_eq!((&failed["status"], &failed["text"]), (&json!("error"), &again["text"]));
    for wrong in [String::new(), "x".repeat(201)] {
        assert_eq!(ask(&server, "box/calls", write(&wrong, "new")).await.0, 422);
    }
    let forked = ask(&server, "box/forks", json!({ "name": "kid" })).await;
    assert_eq!(forked.0, 200);
    let (_, in_fork) = ask(&server, "kid-1/calls", write("one", &long)).await;
    assert_eq!(in_fork.get("repeated"), None, "a fork has its own ids: {in_fork}");
}

#[tokio::test(flavor = "multi_thread")]
async fn repetition_waits_for_the_call_in_flight() {
    let server = Server::begin().await;
    server.ask("POST", "/v1/sessions", Some(&json!({ "name": "box", "backend": "host" }))).await;
    let command = "echo begun >> ran; echo out; while ! [ -e go ]; do sleep 0.05; done";
    let call =
        json!({ "tool": "shell_execute", "params": { "command": command }, "call_id": "slow", "auto_confirm": true });
    let all = async { tokio::join!(ask(&server, "box/calls", call.clone()), ask(&server, "box/calls", call.clone())) };
    let free = async {
        let workspaces = server.directory.path().join("data/workspaces");
        let files = std::fs::read_dir(workspaces).unwrap().next().unwrap().unwrap().path().join("files");
        eventually_async("the command runs", async || files.join("ran").exists()).await;
        std::fs::write(files.join("go"), "").unwrap();
    };
    let ((one, other), ()) = tokio::join!(all, free);
    assert_eq!((one.0, other.0), (200, 200), "{one:?} {other:?}");
    assert_eq!((&one.1["call"], &one.1["result"]), (&other.1["call"], &other.1["result"]));
    let repeated = [&one.1, &other.1].iter().filter(|answer| answer["repeated"] == true).count();
    assert_eq!(repeated, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn rewind_merge_note_and_events_that_are_repeated_happen_once() {
    let server = Server::begin().await;
    server.session("box").await;
    let first = server.write("box", "a.txt").await["finished"].clone();
    assert_eq!(ask(&server, "box/forks", json!({ "name": "kid" })).await.0, 200);
    server.write("kid-1", "kid.txt").await;
    let merged = twice(&server, "box/merge", json!({ "child": "kid-1", "call_id": "merge" })).await;
    assert_eq!(merged["outcome"], "merged");
    let rewind = json!({ "to": first, "call_id": "back" });
    let rewound = twice(&server, "box/rewind", rewind.clone()).await;
    assert_eq!(rewound["changes"].as_array().unwrap().len(), 1, "{rewound}");
    server.write("box", "later.txt").await;
    ask(&server, "box/rewind", rewind).await;
    let files = server.ask("GET", "/v1/sessions/box/files", None).await.json();
    assert_eq!(files.as_array().unwrap().len(), 2, "a late repetition takes nothing back: {files}");
    refused(&server, "box/rewind", json!({ "to": 1, "call_id": "back" }), &rewound["recorded"]["first"]).await;
    server.write("box", "last.txt").await;
    twice(&server, "box/rewind", json!({ "to": "-2", "call_id": "relative" })).await;
    let noted = twice(&server, "box/annotations", json!({ "name": "n", "score": 1, "call_id": "note" })).await;
    refused(&server, "box/annotations", json!({ "name": "n", "score": 2, "call_id": "note" }), &noted["seq"]).await;
    let events = json!({ "kind": "step", "data": { "n": 1 }, "call_id": "events" });
    let recorded = twice(&server, "box/events", events).await;
    refused(&server, "box/events", json!({ "kind": "step", "call_id": "events" }), &recorded["first"]).await;
    let conflict = json!({ "kind": "a", "data": 1 });
    assert_eq!(ask(&server, "box/events", conflict).await.1.get("repeated"), None);
    let missing = server.ask("GET", "/v1/sessions/box/files?at=99999", None).await.json();
    assert_eq!((&missing["position"], &missing["head"]), (&json!(99_999), &head(&server).await), "{missing}");
}
