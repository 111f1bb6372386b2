//! Groups of runs over HTTP: forks and independent sessions, aligned as a tree.

use serde_json::{Value, json};

use crate::rig::{Answer, Server};

async fn call(served: &Server, session: &str, tool: &str, params: Value) -> Value {
    let body = json!({ "tool": tool, "params": params, "auto_confirm": true });
    served.ask("POST", &format!("/v1/sessions/{session}/calls"), Some(&body)).await.json()
}

async fn write(served: &Server, session: &str, path: &str, text: &str) {
    let wrote = call(served, session, "write_file", json!({ "file_path": path, "content": text })).await;
    assert_eq!(wrote["status"], "ok", "{wrote}");
}

async fn compared(served: &Server, sessions: &str) -> Value {
    let answer = served.ask("GET", &format!("/v1/compare?sessions={sessions}"), None).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

/// Returns each branch: its parent, first call, calls, runs, and the runs that end with it.
fn branches(tree: &Value) -> Vec<String> {
    let branch = |branch: &Value| {
        let first = branch["first"].as_object().map(|call| format!("{} {}", call["tool"], call["summary"]));
        let ended = branch["ended"].as_array().unwrap().iter().map(|run| run["name"].as_str().unwrap().to_owned());
        let ended = ended.collect::<Vec<_>>().join(" ");
        let first = first.unwrap_or_default().replace('"', "");
        format!("{} [{first}] {} calls {} runs: {ended}", branch["parent"], branch["calls"], branch["runs"])
    };
    tree["branches"].as_array().unwrap().iter().map(branch).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn compare_parts_forks_at_their_first_other_call() {
    let served = Server::begin().await;
    served.session("lead").await;
    write(&served, "lead", "a.txt", "1").await;
    write(&served, "lead", "b.txt", "2").await;
    let score = json!({ "name": "reward", "score": 9 });
    served.ask("POST", "/v1/sessions/lead/annotations", Some(&score)).await;
    let forks = json!({ "count": 3, "name": "try" });
    assert_eq!(served.ask("POST", "/v1/sessions/lead/forks", Some(&forks)).await.status, 200);
    for (fork, path, score) in [("try-1", "x.txt", 1.0), ("try-2", "x.txt", 0.5), ("try-3", "y.txt", 0.0)] {
        write(&served, fork, path, "3").await;
        let body = json!({ "name": "reward", "score": score, "note": "by the judge" });
        served.ask("POST", &format!("/v1/sessions/{fork}/annotations"), Some(&body)).await;
    }
    let missed = call(&served, "try-2", "read_file", json!({ "file_path": "none" })).await;
    assert_eq!(missed["status"], "error");
    let tree = compared(&served, "try-*,lead").await;
    let wanted = [
        "null [write_file a.txt] 2 calls 4 runs: lead",
        "0 [write_file x.txt] 1 calls 2 runs: try-1",
        "1 [read_file none] 1 calls 1 runs: try-2",
        "0 [write_file y.txt] 1 calls 1 runs: try-3",
    ];
    assert_eq!(branches(&tree), wanted, "{tree}");
    let range = json!({ "reward": { "runs": 2, "mean": 0.75, "min": 0.5, "max": 1.0 } });
    assert_eq!((&tree["runs"], &tree["branches"][1]["scores"]), (&json!(4), &range));
    let missed = &tree["branches"][2]["ended"][0];
    assert_eq!(
        (&missed["calls"], &missed["failed"], &missed["last"]["status"]),
        (&json!(4), &json!(1), &json!("error"))
    );
    let scores = &missed["scores"];
    assert_eq!((&scores["reward"]["score"], &scores["reward"]["note"]), (&json!(0.5), &json!("by the judge")));
    assert_eq!(tree["branches"][0]["ended"][0]["scores"]["reward"]["score"], 9.0, "the forks do not inherit it");
    assert_eq!(tree["branches"][0]["scores"]["reward"]["runs"], 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn compare_aligns_independent_sessions_by_what_was_asked() {
    let served = Server::begin().await;
    for name in ["one", "two", "far"] {
        let new = json!({ "name": name, "backend": "host" });
        assert_eq!(served.ask("POST", "/v1/sessions", Some(&new)).await.status, 201);
    }
    // The directory of each session is in the parameters and in the result.
    let directory = async |name: &str| {
        let ran = call(&served, name, "shell_execute", json!({ "command": "pwd" })).await;
        ran["result"]["stdout"].as_str().unwrap().trim().to_owned()
    };
    for name in ["one", "two"] {
        let directory = directory(name).await;
        call(&served, name, "shell_execute", json!({ "command": format!("ls {directory}; echo {directory}") })).await;
        call(&served, name, "shell_execute", json!({ "command": "echo $PPID$$; date +%N", "cwd": "" })).await;
    }
    call(&served, "far", "ls", json!({})).await;
    let tree = compared(&served, "one,two").await;
    assert_eq!(branches(&tree), ["null [shell_execute pwd] 3 calls 2 runs: one two"], "{tree}");
    assert_eq!(tree["branches"][0]["differing"], 1, "{tree}");
    let tree = compared(&served, "one,far,two,one").await;
    let wanted =
        ["null [] 0 calls 3 runs: ", "0 [shell_execute pwd] 3 calls 2 runs: one two", "0 [ls ] 1 calls 1 runs: far"];
    assert_eq!(branches(&tree), wanted, "{tree}");
}

#[tokio::test(flavor = "multi_thread")]
async fn compare_of_wrong_sessions_is_refused() {
    let served = Server::begin().await;
    served.session("one").await;
    served.session("two").await;
    let refused = async |sessions: &str| {
        let answer: Answer = served.ask("GET", &format!("/v1/compare?sessions={sessions}"), None).await;
        (answer.status, answer.json()["detail"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(refused("one").await, (422, "a comparison needs at least two sessions".to_owned()));
    assert_eq!(refused("").await.0, 422);
    assert_eq!(refused("one,%20one").await.0, 422, "the same session twice");
    assert_eq!(refused("one,tow").await.0, 404);
    assert_eq!(refused("one,x*").await, (404, "no session has a name like \"x*\"".to_owned()));
    assert_eq!(refused("one,%5Bx").await.0, 422);
    assert_eq!(served.ask("GET", "/v1/compare", None).await.status, 400);
    assert_eq!(branches(&compared(&served, "*").await), ["null [] 0 calls 2 runs: one two"]);
    for number in 0..2 {
        let forks = json!({ "count": 500, "name": format!("many{number}") });
        assert_eq!(served.ask("POST", "/v1/sessions/one/forks", Some(&forks)).await.status, 200);
    }
    let (status, detail) = refused("*").await;
    assert_eq!((status, &*detail), (422, "1002 sessions are too many to compare; the limit is 1000"));
    assert_eq!(compared(&served, "many*").await["runs"], 1000);
}
