//! Batches of children over HTTP: each result in its place.

use std::time::Duration;

use serde_json::{Value, json};

use crate::rig::{Answer, Server, eventually_async};

async fn dispatch(served: &Server, body: Value) -> Answer {
    served.ask("POST", "/v1/sessions/lead/subagents", Some(&body)).await
}

async fn host(served: &Server) {
    let new = json!({ "name": "lead", "backend": "host" });
    assert_eq!(served.ask("POST", "/v1/sessions", Some(&new)).await.status, 201);
    served.write("lead", "base.txt").await;
}

fn write(path: &str, text: &str) -> Value {
    json!({ "tool": "write_file", "params": { "file_path": path, "content": text } })
}

fn run(command: &str) -> Value {
    json!({ "tool": "shell_execute", "params": { "command": command } })
}

fn of(children: &Value, field: &str) -> Vec<Value> {
    children["children"].as_array().unwrap().iter().map(|child| child[field].clone()).collect()
}

async fn files(served: &Server, session: &str) -> Vec<String> {
    let files = served.ask("GET", &format!("/v1/sessions/{session}/files"), None).await.json();
    files.as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn dispatch_merges_what_is_done_and_reports_each_failure() {
    let served = Server::begin().await;
    host(&served).await;
    let body = json!({ "merge": true, "auto_confirm": true, "parallel": 2, "children": [
        { "name": "well", "calls": [write("a.txt", "a"), run("cat base.txt")],
          "annotations": [{ "name": "task", "note": "the first" }] },
        { "name": "stops", "calls": [write("b.txt", "b"), run("exit 3"), write("c.txt", "c")] },
        { "name": "unknown", "calls": [{ "tool": "no_such_tool" }] },
        { "name": "passes", "go_on": true, "calls": [run("exit 4"), write("d.txt", "d")] },
        { "name": "well", "calls": [] },
        { "isolation": "shared", "agent": "helper", "calls": [write("s.txt", "s")] },
        { "isolation": "full", "name": "fresh", "calls": [run("ls"), write("f.txt", "f")] },
        { "name": "limited", "limits": { "calls": 1 }, "calls": [run("true"), write("l.txt", "l")] },
        { "name": "clash", "calls": [write("a.txt", "other")] },
    ] });
    let done = dispatch(&served, body).await;
    assert_eq!(done.status, 200, "{done:?}");
    let done = done.json();
    let statuses = ["done", "failed", "failed", "done", "not_started", "done", "done", "failed", "done"];
    assert_eq!(of(&done, "status"), statuses, "{done}");
    let merges = json!(["merged", null, null, "merged", null, null, "merged", null, "conflicted"]);
    assert_eq!(json!(of(&done, "merge")), merges, "{done}");
    let changed = json!([["a.txt"], ["b.txt"], [], ["d.txt"], [], ["s.txt"], ["f.txt"], [], ["a.txt"]]);
    assert_eq!(json!(of(&done, "changed")), changed, "{done}");
    let child = |at: usize| &done["children"][at];
    assert_eq!(child(1)["reason"], "call 2 (shell_execute) failed: exit 3");
    assert_eq!((child(1)["calls"].as_array().unwrap().len(), &child(1)["calls"][1]["exit_code"]), (2, &json!(3)));
    assert!(child(2)["reason"].as_str().unwrap().contains("no_such_tool"), "{done}");
    assert!(child(4)["reason"].as_str().unwrap().contains("well"), "{done}");
    assert_eq!((&child(4)["session"], &child(5)["name"]), (&Value::Null, &json!("lead")));
    assert_eq!(
        (&child(0)["calls"][1]["text"], &child(8)["conflicts"]),
        (&json!("one\n[exit code 0]"), &json!(["a.txt"]))
    );
    assert_eq!(files(&served, "lead").await, ["a.txt", "base.txt", "d.txt", "f.txt", "s.txt"]);
    let noted = served.ask("GET", "/v1/sessions/well/annotations", None).await.json();
    assert_eq!((&noted[0]["name"], &noted[0]["note"]), (&json!("task"), &json!("the first")));
    let calls = served.ask("GET", "/v1/sessions/lead/calls?agent=helper", None).await.json();
    assert_eq!(calls["calls"].as_array().unwrap().len(), 1);
    // The children's sessions stay, and work on.
    served.write("stops", "later.txt").await;
    assert_eq!(files(&served, "stops").await, ["b.txt", "base.txt", "later.txt"]);
    assert_eq!(served.face.hub().in_flight().calls().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn dispatch_needs_allowed_commands() {
    let served = Server::begin().await;
    host(&served).await;
    let children = json!([{ "name": "one", "calls": [run("touch x")] }]);
    let refused = dispatch(&served, json!({ "children": children })).await.json();
    let reason = refused["children"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("name the program in `allow`"), "{reason}");
    let children = json!([{ "name": "two", "calls": [run("touch x")] }, { "name": "three", "calls": [run("rm x")] }]);
    let body = json!({ "children": children, "allow": ["touch", "rm"], "deny": ["rm"] });
    let done = dispatch(&served, body).await.json();
    assert_eq!(of(&done, "status"), ["done", "failed"], "{done}");
}

#[tokio::test(flavor = "multi_thread")]
async fn dispatch_of_a_client_that_leaves_cancels_every_child() {
    let served = Server::begin().await;
    host(&served).await;
    let children = json!([
        { "name": "one", "calls": [run("sleep 1000")] },
        { "name": "two", "calls": [run("sleep 1000")] },
        { "name": "waits", "calls": [write("never.txt", "x")] },
    ]);
    let body = json!({ "children": children, "parallel": 2, "auto_confirm": true });
    let running = async || served.face.hub().in_flight().calls().len();
    {
        let mut asked = std::pin::pin!(dispatch(&served, body));
        tokio::select! {
            done = &mut asked => panic!("{done:?}"),
            () = eventually_async("two calls run", async || running().await == 2) => {}
        }
        let answer = tokio::time::timeout(Duration::from_millis(50), served.ask("GET", "/v1/sessions/one", None)).await;
        assert!(answer.is_ok(), "the children can be read meanwhile");
    }
    eventually_async("no call runs", async || running().await == 0).await;
    // The first call is inherited.
    let status = async |name: &str| {
        let calls = served.ask("GET", &format!("/v1/sessions/{name}/calls"), None).await.json();
        calls["calls"][1]["status"].clone()
    };
    let both = async || [status("one").await, status("two").await];
    eventually_async("both calls are interrupted", async || both().await == ["interrupted", "interrupted"]).await;
    let calls = served.ask("GET", "/v1/sessions/waits/calls", None).await.json();
    assert_eq!(status("waits").await, Value::Null, "{calls}");
    // Their workspaces are free again.
    served.write("two", "after.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dispatch_of_wrong_batches_does_nothing() {
    let served = Server::begin().await;
    served.session("lead").await;
    let one = json!({ "calls": [] });
    let wrong = [
        (json!({ "children": [] }), "0 children; the limits are 1 and 100"),
        (json!({ "children": vec![one.clone(); 101] }), "101 children; the limits are 1 and 100"),
        (json!({ "children": [one], "parallel": 0 }), "0 children at the same time; the limits are 1 and 16"),
        (json!({ "children": [one], "parallel": 17 }), "17 children at the same time"),
        (json!({ "children": [{ "calls": vec![run("true"); 10_001] }] }), "10001 calls; the limits are 0 and 10000"),
        (json!({ "children": [{ "isolation": "half" }] }), "half"),
        (json!({ "children": [one, { "isolation": "shared" }] }), "children[1]: a shared clone is the same session"),
        (json!({ "children": [{ "isolation": "full", "at": 1 }] }), "only a fork begins in the past"),
        (json!({ "children": [{ "limits": { "tools": ["nope"] } }] }), "tool \"nope\" not found"),
        (json!({ "children": [{ "annotations": [{ "name": "x" }] }] }), "a score, a note or a value is required"),
        (json!({ "children": [{ "calls": [{ "tool": "ls", "timeout_seconds": 0 }] }] }), "timeout_seconds is 0"),
        (json!({ "children": [one], "theirs": ["/"] }), "need `merge`"),
        (json!({ "children": [{ "call": [] }] }), "unknown field `call`"),
    ];
    for (body, reason) in wrong {
        let answer = dispatch(&served, body.clone()).await;
        let detail = answer.json()["detail"].as_str().unwrap_or_default().to_owned();
        assert_eq!((answer.status, detail.contains(reason)), (422, true), "{reason}: {detail}");
    }
    let missing = dispatch(&served, json!({ "children": [{ "at": 99 }] })).await;
    assert_eq!(missing.status, 404, "{missing:?}");
    let listed = served.ask("GET", "/v1/sessions", None).await.json();
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["events"]), (1, &json!(1)));
}
