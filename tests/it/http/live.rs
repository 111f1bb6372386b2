//! Files on the disk while a command runs.

use std::path::PathBuf;

use foldspace::http::CallRequest;
use serde_json::{Value, json};

use crate::rig::{Answer, Server, eventually_async};

struct Running {
    served: Server,
    call: tokio::task::JoinHandle<()>,
}

/// A session with some files, and a command that changes them and waits for the file `go`.
async fn running(command: &str) -> Running {
    let served = Server::begin().await;
    let begun = served.ask("POST", "/v1/sessions", Some(&json!({ "name": "demo", "backend": "host" }))).await;
    assert_eq!(begun.status, 201, "{begun:?}");
    served.write("demo", "old").await;
    served.write("demo", "kept").await;
    let command = format!("{command}; touch ready; while [ ! -e go ]; do sleep 0.01; done");
    let params = json!({ "command": command }).as_object().unwrap().clone();
    let tool = "shell_execute".to_owned();
    let request = CallRequest { tool, params, auto_confirm: true, ..CallRequest::default() };
    let client = served.client();
    let call = tokio::spawn(async move {
        let outcome = client.call("demo", &request, |_| {}).await.unwrap();
        assert_eq!(outcome.status.word(), "ok", "{}", outcome.text);
    });
    let running = Running { served, call };
    eventually_async("the command has written", async || running.get("stat/ready?live=true").await.status == 200).await;
    running
}

impl Running {
    async fn get(&self, what: &str) -> Answer {
        self.served.ask("GET", &format!("/v1/sessions/demo/{what}"), None).await
    }

    async fn names(&self, what: &str) -> Vec<String> {
        let listed = self.get(what).await.json();
        let listed = listed.as_array().or_else(|| listed["changes"].as_array()).unwrap().clone();
        listed.iter().map(|entry| entry["path"].as_str().unwrap().to_owned()).collect()
    }

    async fn head(&self) -> Value {
        self.get("state").await.json()["seq"].clone()
    }

    fn place(&self, path: &str) -> PathBuf {
        let workspaces = self.served.directory.path().join("data/workspaces");
        std::fs::read_dir(workspaces).unwrap().next().unwrap().unwrap().path().join("files").join(path)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn live_files_are_those_of_the_running_command() {
    let run =
        running("mkdir d; echo one > d/f; rm old; echo more >> kept; ln -s /etc/passwd link; ln -s /etc out").await;
    let head = run.head().await;
    assert_eq!(run.names("files").await, ["kept", "old"]);
    assert_eq!(run.names("files?live=true").await, ["d", "d/f", "kept", "link", "out", "ready"]);
    assert_eq!(run.names("files?live=true&below=d").await, ["d/f"]);
    let file = run.get("files/d/f?live=true").await;
    assert_eq!((&file.body[..], file.header("foldspace-live-at")), (&b"one\n"[..], &*head.to_string()));
    let stat = run.get("stat/kept?live=true").await.json();
    assert_eq!((&stat["size"], &stat["version"], &stat["live_at"]), (&json!(9), &json!(2), &head));
    assert_eq!(run.get("stat/old?live=true").await.status, 404);
    let changes = run.get("changes?live=true").await.json();
    assert_eq!((&changes["from"], &changes["to"], &changes["live_at"]), (&head, &head, &head));
    assert_eq!(run.names("changes?live=true").await, ["d", "d/f", "kept", "link", "old", "out", "ready"]);
    let diff = run.get("diff?live=true&path=kept").await.json();
    assert!(diff["changes"][0]["patch"].as_str().unwrap().ends_with("\n one\n+more\n"), "{diff}");
    assert_eq!(diff["changes"].as_array().unwrap().len(), 1);
    // Links lead nowhere.
    assert_eq!(run.get("files/out/passwd?live=true").await.status, 404);
    assert_eq!(run.get("files/link?live=true").await.status, 409);
    for wrong in ["files?live=true&at=1", "files/kept?live=true&at=1", "changes?live=true&to=1", "diff?live=true&to=1"]
    {
        assert_eq!(run.get(wrong).await.json()["kind"], "unusable", "{wrong}");
    }
    assert_eq!(run.get("files?live=2").await.status, 400);
    assert_eq!(run.head().await, head, "reading records nothing");
    std::fs::write(run.place("go"), "").unwrap();
    let Running { served, call } = run;
    call.await.unwrap();
    let events = served.ask("GET", &format!("/v1/sessions/demo/events?from={head}"), None).await.json();
    let events = events["events"].as_array().unwrap().iter();
    let changed: Vec<&str> = events.filter_map(|event| event["event"]["path"].as_str()).collect();
    assert_eq!(changed, ["old", "d/f", "go", "kept", "link", "out", "ready"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn live_files_stay_visible_while_the_command_ends() {
    for _ in 0..5 {
        let run = running("for i in 1 2 3 4 5 6 7 8; do echo $i > f$i; done; rm old").await;
        std::fs::write(run.place("go"), "").unwrap();
        let mut looks = 0;
        while !run.call.is_finished() || looks < 3 {
            let names = run.names("files?live=true").await;
            assert!(names.contains(&"f8".to_owned()) && !names.contains(&"old".to_owned()), "{names:?}");
            looks += 1;
        }
        assert_eq!(run.names("files").await.len(), 11);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn live_files_without_a_call_leave_drift_to_be_recorded() {
    let run = running("true").await;
    std::fs::write(run.place("go"), "").unwrap();
    let Running { served, call } = run;
    call.await.unwrap();
    let run = Running { served, call: tokio::spawn(async {}) };
    let head = run.head().await;
    std::fs::write(run.place("outside"), "1").unwrap();
    assert_eq!(run.names("changes?live=true").await, ["outside"]);
    assert_eq!(run.head().await, head);
    assert!(run.names("files").await.contains(&"outside".to_owned()));
    assert_eq!(run.names("changes?live=true").await, [""; 0]);
    assert_eq!(run.head().await.as_u64(), head.as_u64().map(|head| head + 2), "drift, and the file");
}
