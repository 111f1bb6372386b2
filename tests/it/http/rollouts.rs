//! Groups of forks, and rollouts.

use std::time::Duration;

use foldspace::http::HttpClient;
use serde_json::{Value, json};

use crate::rig::{Program, Server, eventually};

fn run(command: &str) -> Value {
    json!({ "tool": "shell_execute", "params": { "command": command } })
}

async fn lead(served: &Server, backend: &str) {
    let new = json!({ "name": "lead", "backend": backend });
    assert_eq!(served.ask("POST", "/v1/sessions", Some(&new)).await.status, 201);
    served.write("lead", "base.txt").await;
}

async fn names(served: &Server) -> Vec<String> {
    let sessions = served.ask("GET", "/v1/sessions", None).await.json();
    sessions.as_array().unwrap().iter().map(|session| session["name"].as_str().unwrap().to_owned()).collect()
}

/// The forks of a group have one fork point, a record in the parent, and no files before their first use.
#[tokio::test(flavor = "multi_thread")]
async fn group_of_forks_begins_without_files() {
    let served = Server::begin().await;
    lead(&served, "host").await;
    let made =
        served.ask("POST", "/v1/sessions/lead/forks", Some(&json!({ "count": 300, "name": "try" }))).await.json();
    let children = made["children"].as_array().unwrap();
    assert_eq!((children.len(), &children[299]["name"]), (300, &json!("try-300")));
    assert!(children.iter().all(|child| child["at"] == children[0]["at"]));
    let workspaces = served.directory.path().join("data/workspaces");
    assert_eq!(std::fs::read_dir(&workspaces).unwrap().count(), 1, "the parent's");
    assert!(!served.directory.path().join("data/forking").read_dir().unwrap().any(|_| true));

    let noted = served.ask("GET", "/v1/sessions/lead/events?kind=ChildStarted&limit=1000", None).await.json();
    assert_eq!(noted["events"].as_array().unwrap().len(), 300);
    served.write("try-7", "own.txt").await;
    let read = json!({ "tool": "read_file", "params": { "file_path": "base.txt" } });
    assert_eq!(served.ask("POST", "/v1/sessions/try-7/calls", Some(&read)).await.json()["status"], "ok");
    assert_eq!(std::fs::read_dir(&workspaces).unwrap().count(), 2);

    // If one name is taken, no fork begins.
    let refused = served.ask("POST", "/v1/sessions/lead/forks", Some(&json!({ "count": 301, "name": "try" }))).await;
    assert_eq!((refused.status, names(&served).await.len()), (409, 301));
}

/// Forks share the state at their fork point, even if the parent has moved on.
#[tokio::test(flavor = "multi_thread")]
async fn forks_of_one_position_start_from_one_state() {
    let served = Server::begin().await;
    lead(&served, "memory").await;
    let first = served.ask("POST", "/v1/sessions/lead/forks", Some(&json!({}))).await.json();
    let at = first["children"][0]["at"].clone();
    for number in 0..40 {
        served.write("lead", &format!("later-{number}.txt")).await;
    }
    let mut states = Vec::new();
    for _ in 0..3 {
        let body = json!({ "count": 2, "at": at });
        let made = served.ask("POST", "/v1/sessions/lead/forks", Some(&body)).await.json();
        for child in made["children"].as_array().unwrap() {
            let id = child["session"].as_str().unwrap().parse().unwrap();
            states.push(served.face.hub().sessions().session(id).unwrap().state().unwrap());
        }
    }
    let files = |state: &foldspace::State| std::ptr::from_ref(state.slice::<foldspace::VirtualFileSystem>().unwrap());
    assert_eq!(states[0].slice::<foldspace::VirtualFileSystem>().unwrap().iter().count(), 1);
    assert!(states.iter().all(|state| files(state) == files(&states[0])), "each has files of its own in memory");
}

#[tokio::test(flavor = "multi_thread")]
async fn group_of_forks_is_whole_or_absent_after_a_kill() {
    for millis in [0, 1, 2, 4, 8, 16, 32, 64] {
        let program = Program::new().through_owner();
        program.printed(&["new", "lead", "--backend", "memory"]);
        let client = HttpClient::at(program.data().join("http.sock"));
        let asked = tokio::spawn(async move {
            let body = json!({ "count": 200, "name": "try" });
            client.work::<Value>("/v1/sessions/lead/forks", &body, |_| ()).await.is_ok()
        });
        tokio::time::sleep(Duration::from_millis(millis)).await;
        for owner in program.owners() {
            let owner = rustix::process::Pid::from_raw(i32::try_from(owner).unwrap()).unwrap();
            rustix::process::kill_process(owner, rustix::process::Signal::KILL).unwrap();
        }
        eventually("the owner is gone", || program.owners().is_empty());
        let was_answered = asked.await.unwrap();
        let sessions = program.json(&["sessions"]);
        let forks = sessions.as_array().unwrap().len() - 1;
        assert!(forks == 200 || (forks == 0 && !was_answered), "{forks} forks, answered: {was_answered}, {millis} ms");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rollouts_keep_the_best() {
    let served = Server::begin().await;
    lead(&served, "host").await;
    let each: Vec<Value> =
        (1..=6).map(|number| json!([run(&format!("echo {number} > score; echo {number}"))])).collect();
    let body = json!({ "run": each, "score": run("echo scored; cat score"), "keep": 2, "parallel": 3, "name": "try",
        "auto_confirm": true });
    let done = served.ask("POST", "/v1/sessions/lead/rollouts", Some(&body)).await;
    assert_eq!(done.status, 200, "{done:?}");
    let done = done.json();
    let of =
        |field: &str| done["rollouts"].as_array().unwrap().iter().map(|one| one[field].clone()).collect::<Vec<_>>();
    assert_eq!(of("score"), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "{done}");
    assert_eq!(of("kept"), [false, false, false, false, true, true]);
    assert_eq!(of("changed")[5], json!(["score"]));
    assert_eq!(names(&served).await, ["lead", "try-5", "try-6"]);
    let noted = served.ask("GET", "/v1/sessions/try-6/annotations", None).await.json();
    assert_eq!((&noted[0]["name"], &noted[0]["score"]), (&json!("score"), &json!(6.0)));
    // Only the lead's workspace is open: a rollout closes its own.
    assert_eq!(served.face.hub().open_count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn rollouts_report_failures_and_stream_results() {
    let served = Server::begin().await;
    lead(&served, "host").await;
    let body = json!({ "run": [[run("test -e base.txt"), run("exit 3"), run("touch never")]], "count": 2,
        "auto_confirm": true });
    let done = served.ask("POST", "/v1/sessions/lead/rollouts", Some(&body)).await.json();
    let one = &done["rollouts"][1];
    assert_eq!((&one["status"], &one["score"], &one["kept"]), (&json!("failed"), &json!(0.0), &json!(true)), "{done}");
    assert_eq!(
        (&one["reason"], one["calls"].as_array().unwrap().len()),
        (&json!("call 2 (shell_execute) failed: exit 3"), 2)
    );

    let body = json!({ "run": [[]], "count": 3, "score": run("echo high"), "auto_confirm": true, "keep": 0 });
    let path = "/v1/sessions/lead/rollouts";
    let streamed = served.ask_with("POST", path, Some(&body), &[("accept", "text/event-stream")]).await;
    let text = String::from_utf8_lossy(&streamed.body).into_owned();
    assert_eq!(text.matches("event: result\n").count(), 3, "{text}");
    assert!(text.contains("no number: high"), "{text}");
    assert_eq!(text.matches("event: outcome\n").count(), 1, "{text}");
    assert_eq!(names(&served).await.len(), 3, "those of the first request stay");

    let wrong = [
        (json!({ "run": [] }), "0 lists"),
        (json!({ "run": [[], []], "count": 3 }), "needs 1 or 3"),
        (json!({ "run": [[]], "parallel": 0 }), "from 1 to 64"),
        (json!({ "run": [[]], "count": 1001 }), "from 1 to 1000"),
        (json!({ "run": [vec![run("true"); 101]], "count": 100 }), "the limit is 10000"),
        (json!({ "run": [[]], "at": 10_000 }), "10000"),
    ];
    for (body, said) in wrong {
        let refused = served.ask("POST", path, Some(&body)).await;
        let detail = String::from_utf8_lossy(&refused.body).into_owned();
        assert!(refused.status >= 400 && detail.contains(said), "{body}: {detail}");
    }
    assert_eq!(names(&served).await.len(), 3);
}
