//! Reruns over HTTP, and runs to the next event that meets a condition.

use foldspace::event::Event;
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::rig::{Answer, Server, eventually_async, has_begun, is_running, sent, taken};

/// A session on the host, and what its calls are to run. The rerun of a command that counts differs.
async fn counting(served: &Server, command: &str) {
    let begun = served.ask("POST", "/v1/sessions", Some(&json!({ "name": "demo", "backend": "host" }))).await;
    assert_eq!(begun.status, 201, "{begun:?}");
    served.write("demo", "a.txt").await;
    let body = json!({ "tool": "shell_execute", "params": { "command": command }, "auto_confirm": true });
    let ran = served.ask("POST", "/v1/sessions/demo/calls", Some(&body)).await.json();
    assert_eq!(ran["result"]["exit_code"], 0, "{ran}");
}

fn counter(served: &Server) -> String {
    let counter = served.directory.path().join("counter");
    format!("echo x >> {0}; wc -l < {0} > count.txt; cat count.txt", counter.display())
}

async fn rerun(served: &Server, body: Value) -> Answer {
    served.ask("POST", "/v1/sessions/demo/rerun", Some(&body)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn rerun_without_difference_leaves_nothing() {
    let served = Server::begin().await;
    served.session("demo").await;
    for path in ["a.txt", "b.txt"] {
        served.write("demo", path).await;
    }
    let done = rerun(&served, json!({})).await.json();
    assert_eq!((&done["same"], &done["calls"], &done["session"]), (&json!(true), &json!(2), &Value::Null), "{done}");
    let first = rerun(&served, json!({ "until": 3 })).await.json();
    assert_eq!(first["calls"], 1, "{first}");
    // What a client has put there itself is no tool's: it is put there again.
    let stream = tokio::net::UnixStream::connect(&served.socket).await.unwrap();
    let put = sent(TokioIo::new(stream), "PUT", "/v1/sessions/demo/files/c.bin", "bytes".into(), &[]);
    assert_eq!(taken(put.await).await.status, 200);
    let done = rerun(&served, json!({})).await.json();
    assert_eq!((&done["same"], &done["skipped"], &done["calls"]), (&json!(true), &json!(1), &json!(3)), "{done}");
    assert_eq!(done["differing"][0]["reason"], "a client changed the files directly");
    let listed = served.ask("GET", "/v1/sessions", None).await.json();
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["events"]), (1, &json!(10)));
}

#[tokio::test(flavor = "multi_thread")]
async fn rerun_that_is_kept_stands_beside_its_session() {
    let served = Server::begin().await;
    counting(&served, &counter(&served)).await;
    let body = json!({ "auto_confirm": true, "keep": "again" });
    let headers = [("accept", "text/event-stream")];
    let told = served.ask_with("POST", "/v1/sessions/demo/rerun", Some(&body), &headers).await;
    let told = String::from_utf8(told.body.to_vec()).unwrap();
    assert!(told.contains("{\"text\":\"call 2: same, write_file a.txt\"}"), "{told}");
    assert!(told.contains(": DIVERGED, shell_execute echo x"), "{told}");
    let outcome = told.split("event: outcome\ndata: ").nth(1).unwrap().lines().next().unwrap();
    let done: Value = serde_json::from_str(outcome).unwrap();
    assert_eq!((&done["name"], &done["diverged"], &done["same"]), (&json!("again"), &json!(1), &json!(false)));
    let call = &done["differing"][0];
    let differs: Vec<_> = call["divergences"].as_array().unwrap().iter().map(|one| one["differs"].clone()).collect();
    assert_eq!((&call["call"], differs), (&json!(5), vec![json!("result"), json!("file")]), "{done}");
    assert_eq!([&call["divergences"][0]["was"], &call["divergences"][0]["is"]], ["1\n", "2\n"]);
    assert_eq!(done["files"][0]["path"], "count.txt");
    let read = async |name: &str| served.ask("GET", &format!("/v1/sessions/{name}/files/count.txt"), None).await.body;
    assert_eq!([read("demo").await, read("again").await], ["1\n", "2\n"]);
    // The session that was kept goes on like any other, in files of its own.
    let ran = json!({ "tool": "shell_execute", "params": { "command": "cat a.txt count.txt" }, "auto_confirm": true });
    let ran = served.ask("POST", "/v1/sessions/again/calls", Some(&ran)).await.json();
    assert_eq!(ran["result"]["stdout"], "one\n2\n", "{ran}");
    let aligned = served.ask("GET", "/v1/sessions/demo/alignment?other=again", None).await.json();
    assert_eq!((&aligned["rows"][1]["same"], &aligned["rows"][1]["result_differs"]), (&json!(true), &json!(true)));
    assert_eq!(rerun(&served, body).await.status, 409, "the name is taken");
}

#[tokio::test(flavor = "multi_thread")]
async fn rerun_on_the_host_runs_what_is_allowed() {
    let served = Server::begin().await;
    counting(&served, "ls; uname > kind.txt").await;
    let refused = rerun(&served, json!({})).await;
    assert_eq!(refused.status, 422, "nothing was run");
    let why = refused.json().to_string();
    assert!(why.contains("no approver is available; name the program in `allow`"), "{why}");
    assert_eq!(rerun(&served, json!({ "allow": ["ls", "uname"] })).await.json()["same"], true);
    let elsewhere = rerun(&served, json!({ "backend": "memory" })).await;
    let why = elsewhere.json().to_string();
    assert!(elsewhere.status == 422 && why.contains("the memory workspace has none"), "{why}");
    let rules = json!({ "auto_confirm": true, "rules": { "ignore_paths": ["kind.txt"], "ignore_fields": ["stdout"] } });
    assert_eq!(rerun(&served, rules).await.json()["same"], true);
    // What runs on in the background is no call of a tool: its files come as they were recorded.
    let started = json!({ "command": "echo late > late.txt", "auto_confirm": true });
    let started = served.ask("POST", "/v1/sessions/demo/processes", Some(&started)).await.json();
    let wait = format!("/v1/sessions/demo/processes/{}/wait", started["process"]);
    assert_eq!(served.ask("POST", &wait, Some(&json!({}))).await.json()["exit_code"], 0);
    let done = rerun(&served, json!({ "auto_confirm": true })).await.json();
    assert_eq!((&done["same"], &done["differing"][0]["reason"]), (&json!(true), &json!("it ran in the background")));
}

#[tokio::test(flavor = "multi_thread")]
async fn rerun_refuses_what_it_can_not_do() {
    let served = Server::begin().await;
    served.session("demo").await;
    served.write("demo", "a.txt").await;
    let directory = served.directory.path().to_str().unwrap();
    for (body, status, word) in [
        (json!({ "backend": "host", "options": { "directory": directory } }), 422, "omit `directory`"),
        (json!({ "options": { "network": true } }), 422, "options need a backend"),
        (json!({ "backend": "cloud" }), 422, "cloud"),
        (json!({ "rules": { "texts": [{ "pattern": "(", "replace": "" }] } }), 422, "pattern"),
        (json!({ "until": 1000 }), 404, "1000"),
        (json!({ "keep": "no name" }), 422, "no name"),
        (json!({ "keep": "demo" }), 409, "demo"),
        (json!({ "at": 3 }), 422, "at"),
    ] {
        let refused = rerun(&served, body.clone()).await;
        let said = refused.json()["detail"].as_str().unwrap().to_owned();
        assert_eq!((refused.status, said.contains(word)), (status, true), "{body}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rerun_ends_when_its_client_goes() {
    let served = Server::begin().await;
    let marks = served.directory.path().join("marks");
    std::fs::write(&marks, "").unwrap();
    let name = "sleep 616.25";
    counting(&served, &format!("if [ -s {0} ]; then echo begun > {0}; {name}; fi", marks.display())).await;
    std::fs::write(&marks, "again").unwrap();
    let body = json!({ "auto_confirm": true, "keep": "again" });
    let asked = rerun(&served, body.clone());
    tokio::select! {
        answer = asked => panic!("{answer:?}"),
        () = eventually_async("the command runs again", async || has_begun(&marks)) => {}
    }
    eventually_async("the command is gone", async || !is_running("616.25")).await;
    assert_eq!(served.ask("GET", "/v1/sessions/again", None).await.status, 404, "nothing of it is kept");
    std::fs::write(&marks, "").unwrap();
    assert_eq!(rerun(&served, body).await.status, 200, "and the name is free");
}

async fn until(served: &Server, query: &str) -> Answer {
    served.ask("GET", &format!("/v1/sessions/demo/until?{query}"), None).await
}

#[tokio::test(flavor = "multi_thread")]
async fn run_stops_at_events_and_states() {
    let served = Server::begin().await;
    served.session("demo").await;
    for path in ["a.txt", "src/b.rs", "c.txt"] {
        served.write("demo", path).await;
    }
    let body = json!({ "tool": "read_file", "params": { "file_path": "none" } });
    served.ask("POST", "/v1/sessions/demo/calls", Some(&body)).await;
    for (query, seq, because, call) in [
        ("conditions=tool%20write_file", 2, "tool write_file", 2),
        ("conditions=tool%20write_file&from=2", 5, "tool write_file", 5),
        ("conditions=path%20*.rs", 6, "path *.rs", 5),
        ("conditions=failed", 12, "failed", 11),
        ("conditions=kind%20writefile&backward=true", 9, "kind writefile", 8),
        ("conditions=kind%20writefile&backward=true&from=9", 6, "kind writefile", 5),
        ("conditions=%2Fsrc.b%2F%0Afailed", 5, "/src.b/", 5),
        ("conditions=Usage.calls%20%3E%3D%202", 5, "Usage.calls >= 2", 5),
        ("conditions=Usage.calls%20%3E%3D%202&backward=true", 5, "Usage.calls >= 2", 5),
        ("conditions=Usage.calls%20%3E%3D%204%0Apath%20c.txt&from=5", 9, "path c.txt", 8),
    ] {
        let found = until(&served, query).await.json();
        let wanted = json!({ "seq": seq, "because": because, "call": call, "next": null });
        assert_eq!(found, wanted, "{query}");
    }
    let nothing = json!({ "seq": null, "because": null, "call": null, "next": null });
    for query in ["conditions=failed&from=12", "conditions=failed&backward=true&from=12", "conditions=path%20z"] {
        assert_eq!(until(&served, query).await.json(), nothing, "{query}");
    }
    for (query, status, word) in [
        ("conditions=fial", 422, "conditions: path GLOB"),
        ("conditions=path%20%5B", 422, "glob"),
        ("conditions=%2F(%2F", 422, "pattern"),
        ("conditions=%20%0A", 422, "0 lines"),
        ("conditions=failed&from=99", 404, "99"),
        ("from=1", 400, "conditions"),
    ] {
        let refused = until(&served, query).await;
        let said = refused.json()["detail"].as_str().unwrap().to_owned();
        assert_eq!((refused.status, said.contains(word)), (status, true), "{query}: {said}");
    }
    let many = format!("conditions={}", "failed%0A".repeat(51));
    assert_eq!(until(&served, &many).await.status, 422);
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Noted {}

impl Event for Noted {
    const KIND: &'static str = "Noted";
}

#[tokio::test(flavor = "multi_thread")]
async fn run_through_many_events_is_asked_for_in_parts() {
    let served = Server::begin().await;
    served.session("demo").await;
    served.write("demo", "first.txt").await;
    let sessions = served.face.hub().sessions();
    let session = sessions.session(sessions.find("demo").unwrap().id).unwrap();
    for _ in 0..23 {
        let mut commit = session.commit();
        for _ in 0..1000 {
            commit.push(&Noted {}).unwrap();
        }
        session.record(commit).unwrap();
    }
    served.write("demo", "last.txt").await;
    for (conditions, begins, backward, parts, seq) in [
        ("path%20last.txt", "0", false, 2, 23_006),
        ("path%20first.txt", "-0", true, 2, 3),
        ("Usage.calls%20%3E%3D%202", "20000", false, 2, 23_005),
    ] {
        let (mut asked, mut from) = (0, begins.to_owned());
        let found = loop {
            let found =
                until(&served, &format!("conditions={conditions}&backward={backward}&from={from}")).await.json();
            asked += 1;
            match found["next"].as_u64() {
                Some(next) => from = next.to_string(),
                None => break found,
            }
        };
        assert_eq!((&found["seq"], asked), (&json!(seq), parts), "{conditions}");
    }
}
