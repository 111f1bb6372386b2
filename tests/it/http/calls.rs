//! Tool calls: their output as it comes, questions, being taken back.

use std::sync::{Arc, Mutex};

use foldspace::event::CallStatus;
use foldspace::http::{CallEvent, CallRequest, ClientError};
use serde_json::{Value, json};

use crate::rig::{Server, WAIT_LIMIT, eventually_async};

fn shell(command: &str) -> CallRequest {
    let params = json!({ "command": command }).as_object().unwrap().clone();
    CallRequest { tool: "shell_execute".to_owned(), params, ..CallRequest::default() }
}

async fn hosted(served: &Server) {
    let begun = served.ask("POST", "/v1/sessions", Some(&json!({ "name": "demo", "backend": "host" }))).await;
    assert_eq!(begun.status, 201, "{begun:?}");
}

/// What came of a call, until it has ended.
async fn events(served: &Server, mut request: CallRequest, allowed: bool) -> (Vec<CallEvent>, Value) {
    request.auto_confirm = allowed;
    let mut seen = Vec::new();
    let outcome = served.client().call("demo", &request, |event| seen.push(event)).await.unwrap();
    (seen, serde_json::to_value(outcome).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn call_stream_sends_output_before_outcome() {
    let served = Server::begin().await;
    hosted(&served).await;
    let (seen, outcome) = events(&served, shell("printf 'one\\n'; printf '\\377' >&2; echo two > f"), true).await;
    assert!(matches!(seen[0], CallEvent::Begun(2)), "{seen:?}");
    let mut printed = [Vec::new(), Vec::new()];
    for event in &seen {
        if let CallEvent::Output { stream, bytes } = event {
            printed[*stream as usize].extend_from_slice(bytes);
        }
    }
    assert_eq!(printed, [b"one\n".to_vec(), b"\xff".to_vec()]);
    assert_eq!((&outcome["status"], &outcome["result"]["exit_code"]), (&json!("ok"), &json!(0)));
    assert_eq!(served.ask("GET", "/v1/sessions/demo/files/f", None).await.body, "two\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn call_has_rules_of_its_own() {
    let served = Server::begin().await;
    hosted(&served).await;
    let denied = CallRequest { deny: vec!["git push".to_owned()], ..shell("git push origin") };
    let (_, outcome) = events(&served, denied, true).await;
    assert!(outcome["text"].as_str().unwrap().contains("the policy denies commands like this"), "{outcome}");
    let mut long = shell("true");
    long.params.insert("timeout_seconds".to_owned(), json!(7200));
    let (_, outcome) = events(&served, long.clone(), true).await;
    assert!(outcome["text"].as_str().unwrap().contains("it must be from 1 to 600"), "{outcome}");
    long.max_timeout_seconds = Some(7200.0);
    assert_eq!(events(&served, long, true).await.1["status"], "ok");
    let short = CallRequest { max_timeout_seconds: Some(1.0), ..shell("sleep 2; echo over") };
    let free = CallRequest { no_time_limit: true, ..short.clone() };
    assert_eq!(events(&served, short, true).await.1["result"]["timed_out"], true);
    assert_eq!(events(&served, free, true).await.1["result"]["stdout"], "over\n");
    for (field, value) in
        [("max_timeout_seconds", json!(0)), ("max_timeout_seconds", json!(86_401)), ("deny", json!([""]))]
    {
        let mut body = json!({ "tool": "ls" });
        body[field] = value;
        assert_eq!(served.ask("POST", "/v1/sessions/demo/calls", Some(&body)).await.status, 422, "{body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn call_question_is_streamed_and_anyone_answers() {
    let served = Server::begin().await;
    hosted(&served).await;
    let path = "/v1/sessions/demo/calls";
    let early = served.ask("POST", &format!("{path}/2/answer"), Some(&json!({ "answer": "once" }))).await;
    assert_eq!(early.status, 404);
    for (answer, status, allowed) in
        [("refuse", "error", json!([])), ("once", "ok", json!([])), ("session", "ok", json!(["uname"]))]
    {
        let (asked, question) = tokio::sync::oneshot::channel();
        let asked = Arc::new(Mutex::new(Some(asked)));
        let client = served.client();
        let call = tokio::spawn(async move {
            let seen = move |event| {
                if let CallEvent::Question(question) = event {
                    asked.lock().unwrap().take().unwrap().send(question).unwrap();
                }
            };
            client.call("demo", &shell("uname"), seen).await
        });
        let question = tokio::time::timeout(WAIT_LIMIT, question).await.unwrap().unwrap();
        assert_eq!((&question["command"], &question["programs"]), (&json!("uname"), &json!(["uname"])));
        let open = served.ask("GET", "/v1/server", None).await.json();
        assert_eq!(open["calls"][0]["question"], question, "who did not make the call sees it too");
        let place = format!("{path}/{}/answer", question["call"]);
        let wrong = served.ask("POST", &place, Some(&json!({ "answer": "yes" }))).await;
        assert_eq!(wrong.status, 422);
        let body = json!({ "answer": answer, "reason": "not today" });
        assert_eq!(served.ask("POST", &place, Some(&body)).await.status, 204);
        let outcome = call.await.unwrap().unwrap();
        assert_eq!(outcome.status.word(), status, "{outcome:?}");
        assert_eq!(outcome.text.contains("not today"), answer == "refuse", "{outcome:?}");
        assert_eq!(served.ask("GET", "/v1/sessions/demo/state/Allowances", None).await.json(), allowed);
    }
    let (seen, _) = events(&served, shell("uname"), false).await;
    assert!(!seen.iter().any(|event| matches!(event, CallEvent::Question(_))), "it is allowed now: {seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn call_question_of_any_length_takes_an_answer_of_its_length() {
    let served = Server::begin().await;
    hosted(&served).await;
    for length in [1, 700, 870, 1_000, 4_096, 16 << 10, 64 << 10] {
        let command = format!("echo $(frobnicate) {}", "a".repeat(length));
        let client = served.client();
        let mut stream = client.begin_call("demo", &shell(&command)).await.unwrap();
        let outcome = loop {
            match stream.next().await.unwrap() {
                CallEvent::Question(question) => {
                    let call = question["call"].as_u64().unwrap();
                    assert_eq!(question["command"], json!(command));
                    client.answer("demo", call, "refuse", Some(&command)).await.unwrap();
                    let again = client.answer("demo", call, "once", None).await.unwrap_err();
                    assert!(again.is_late(), "{again}");
                }
                CallEvent::Ended(outcome) => break outcome,
                _ => {}
            }
        };
        assert_eq!(outcome.status, CallStatus::Error);
        assert!(outcome.text.contains("echo $(frobnicate) a") && outcome.text.len() < 1_100, "{}", outcome.text);
        // Where nobody can be asked, the refusal is as short.
        let plain = served.ask("POST", "/v1/sessions/demo/calls", Some(&json!(shell(&command)))).await.json();
        assert!(plain["text"].as_str().unwrap().len() < 300, "{plain}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn call_takes_what_linux_takes_unless_it_asks_for_less() {
    let served = Server::begin().await;
    hosted(&served).await;
    let command = |length: usize| format!(": {}", "a".repeat(length - 2));
    let outcome = async |request| events(&served, request, true).await.1;
    assert_eq!(outcome(shell(&command(131_071))).await["result"]["exit_code"], 0);
    let long = outcome(shell(&command(131_072))).await;
    assert!(long["text"].as_str().unwrap().contains("Linux takes at most 131071"), "{long}");
    let bounded = CallRequest { command_chars: Some(4_096), ..shell(&command(4_097)) };
    let long = outcome(bounded).await;
    assert!(long["text"].as_str().unwrap().contains("use execute_script"), "{long}");
    let body = json!({ "command": command(131_071), "auto_confirm": true });
    let process = served.ask("POST", "/v1/sessions/demo/processes", Some(&body)).await;
    assert_eq!(process.status, 201, "{process:?}");
    let body = json!({ "command": command(131_072), "auto_confirm": true });
    let process = served.ask("POST", "/v1/sessions/demo/processes", Some(&body)).await;
    assert!(process.json()["detail"].as_str().unwrap().contains("Linux takes at most 131071"), "{process:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn call_in_flight_is_followed_by_others() {
    let served = Server::begin().await;
    hosted(&served).await;
    let request = CallRequest { auto_confirm: true, ..shell("while [ ! -e go ]; do sleep 0.05; done; echo gone") };
    let client = served.client();
    let call = tokio::spawn(async move { client.call("demo", &request, |_| {}).await });
    eventually_async("it has begun", async || {
        !served.ask("GET", "/v1/server", None).await.json()["calls"][0].is_null()
    })
    .await;
    let open = served.ask("GET", "/v1/server", None).await.json();
    assert_eq!(open["calls"][0]["question"], Value::Null);
    let mut output = served.follow(&format!("/v1/sessions/demo/calls/{}/output", open["calls"][0]["call"]), &[]).await;
    let workspace = served.directory.path().join("data/workspaces");
    let files = std::fs::read_dir(workspace).unwrap().next().unwrap().unwrap().path().join("files");
    std::fs::write(files.join("go"), "").unwrap();
    let (_, name, printed) = output.next().await.unwrap();
    assert_eq!((name.as_str(), printed), ("output", json!({ "stream": "stdout", "text": "gone\n" })));
    assert_eq!(output.next().await.map(|(_, name, _)| name).as_deref(), Some("ended"));
    assert!(output.next().await.is_none());
    assert_eq!(call.await.unwrap().unwrap().status.word(), "ok");
    assert_eq!(served.ask("GET", "/v1/sessions/demo/calls/2/output", None).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn call_question_without_stream_is_refused_with_hint() {
    let served = Server::begin().await;
    hosted(&served).await;
    let call = json!({ "tool": "shell_execute", "params": { "command": "uname" } });
    let refused = served.ask("POST", "/v1/sessions/demo/calls", Some(&call)).await.json();
    assert_eq!(refused["status"], "error");
    let text = refused["text"].as_str().unwrap();
    assert!(text.contains("uname") && text.contains("ask the person who runs the server"), "{text}");
    let mut allowed = call.clone();
    allowed["allow"] = json!(["uname"]);
    assert_eq!(served.ask("POST", "/v1/sessions/demo/calls", Some(&allowed)).await.json()["status"], "ok");
}

#[tokio::test(flavor = "multi_thread")]
async fn call_reports_capture_budget() {
    let served = Server::begin().await;
    hosted(&served).await;
    let write = |file: &str| shell(&format!("printf %1000d 7 > {file}"));
    for (file, file_bytes, step_bytes, is_kept) in [
        ("a", None, None, true),
        ("b", Some(999), None, false),
        ("c", None, Some(999), false),
        ("d", Some(1000), Some(1000), true),
    ] {
        let request = CallRequest { keep_file_bytes: file_bytes, keep_step_bytes: step_bytes, ..write(file) };
        assert_eq!(events(&served, request, true).await.1["status"], "ok");
        let kept = served.ask("GET", &format!("/v1/sessions/demo/files/{file}"), None).await;
        assert_eq!(kept.status == 200, is_kept, "{file}: {kept:?}");
        assert!(is_kept || String::from_utf8_lossy(&kept.body).contains("without stored contents"), "{kept:?}");
    }
    let body = json!({ "tool": "shell_execute", "params": { "command": "true" }, "keep_step_bytes": 5_u64 << 30 });
    let refused = served.ask("POST", "/v1/sessions/demo/calls", Some(&body)).await;
    assert_eq!(refused.status, 422);
    let detail = refused.json()["detail"].as_str().unwrap().to_owned();
    assert_eq!(detail, "keep_step_bytes is 5368709120; at most 4294967296 are allowed");
    let request = CallRequest { text_chars: Some((32 << 20) + 1), ..write("f") };
    let refused = served.ask("POST", "/v1/sessions/demo/calls", Some(&serde_json::to_value(request).unwrap())).await;
    assert_eq!(refused.json()["detail"], "text_chars is 33554433; at most 33554432 are allowed");
}

async fn is_interrupted(served: &Server, call: u64) {
    let path = format!("/v1/sessions/demo/calls/{call}");
    let mut status = Value::Null;
    eventually_async("the call has finished", async || {
        let told = served.ask("GET", &path, None).await;
        let has_finished = told.status == 200 && told.json()["finished"].is_u64();
        if has_finished {
            status = told.json()["status"].clone();
        }
        has_finished
    })
    .await;
    assert_eq!(status, "interrupted");
}

#[tokio::test(flavor = "multi_thread")]
async fn call_of_gone_client_is_cancelled() {
    let served = Server::begin().await;
    hosted(&served).await;
    let sleep = CallRequest { auto_confirm: true, ..shell("echo here; sleep 600") };
    let (client, printed) = (served.client(), Arc::new(tokio::sync::Notify::new()));
    let told = Arc::clone(&printed);
    let call = tokio::spawn(async move {
        client
            .call("demo", &sleep, |event| _ = matches!(event, CallEvent::Output { .. }).then(|| told.notify_one()))
            .await
    });
    tokio::time::timeout(WAIT_LIMIT, printed.notified()).await.unwrap();
    call.abort();
    is_interrupted(&served, 2).await;
    // The same of one that only waits for an answer.
    let served = Arc::new(served);
    let waits = Arc::clone(&served);
    let plain = tokio::spawn(async move {
        let call = json!({ "tool": "shell_execute", "params": { "command": "sleep 600" }, "auto_confirm": true });
        waits.ask("POST", "/v1/sessions/demo/calls", Some(&call)).await
    });
    let mut calls = Vec::new();
    eventually_async("the second call has begun", async || {
        let begun = served.ask("GET", "/v1/sessions/demo/state/ToolCalls", None).await.json();
        calls = begun["calls"].as_array().cloned().unwrap_or_default();
        // The first one was taken back above.
        calls.len() > 1 && served.face.hub().calls_in_flight() == 1
    })
    .await;
    plain.abort();
    is_interrupted(&served, calls.last().unwrap()["call"].as_u64().unwrap()).await;
    served.face.hub().calls_ended().await;
    let figures = served.face.hub().call_figures();
    let counted: Vec<_> = figures.iter().map(|one| (one.tool.as_str(), one.status, one.durations.count)).collect();
    assert_eq!(counted, [("shell_execute", CallStatus::Interrupted, 2)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn call_is_cancelled_by_any_client() {
    let served = Server::begin().await;
    hosted(&served).await;
    assert_eq!(served.ask("DELETE", "/v1/sessions/demo/calls/2", None).await.status, 404);
    let sleep = CallRequest { auto_confirm: true, ..shell("sleep 600") };
    let (client, begun) = (served.client(), Arc::new(tokio::sync::Notify::new()));
    let told = Arc::clone(&begun);
    let call = tokio::spawn(async move {
        client.call("demo", &sleep, |event| _ = matches!(event, CallEvent::Begun(_)).then(|| told.notify_one())).await
    });
    tokio::time::timeout(WAIT_LIMIT, begun.notified()).await.unwrap();
    assert_eq!(served.ask("DELETE", "/v1/sessions/demo/calls/2", None).await.status, 202);
    assert_eq!(call.await.unwrap().unwrap().status.word(), "interrupted");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_calls_of_agents_share_a_session() {
    let served = Arc::new(Server::begin().await);
    served.session("demo").await;
    let calls: Vec<_> = (0..16)
        .map(|number| {
            let served = Arc::clone(&served);
            tokio::spawn(async move {
                let params = json!({ "file_path": format!("{number}.txt"), "content": "x" });
                let call = json!({ "tool": "write_file", "params": params, "agent": format!("agent-{number}") });
                served.ask("POST", "/v1/sessions/demo/calls", Some(&call)).await.json()
            })
        })
        .collect();
    for call in calls {
        assert_eq!(call.await.unwrap()["status"], "ok");
    }
    let log = served.ask("GET", "/v1/sessions/demo/events?limit=1000", None).await.json();
    let agents = log["events"].as_array().unwrap().iter().filter(|event| event["kind"] == "CallStarted");
    let agents: std::collections::BTreeSet<_> = agents.map(|event| event["agent"].to_string()).collect();
    assert_eq!(agents.len(), 16);
}

#[tokio::test(flavor = "multi_thread")]
async fn server_shutting_down_refuses_calls() {
    let served = Server::begin().await;
    served.session("demo").await;
    let mut events = served.follow("/v1/sessions/demo/events/stream", &[]).await;
    assert_eq!(events.next().await.unwrap().0, Some(1));
    served.face.end();
    assert!(events.next().await.is_none(), "the stream ends");
    let call = served.client().call("demo", &shell("true"), |_| ()).await;
    let Err(ClientError::Refused(problem)) = call else { panic!("{call:?}") };
    assert_eq!((problem.status, problem.kind.as_str()), (503, "ending"));
    served.server.stop(WAIT_LIMIT).await;
    let call = served.client().call("demo", &shell("true"), |_| ()).await;
    // Its listener may be there for a moment more.
    assert!(matches!(call, Err(ClientError::Unreachable { .. } | ClientError::Broken(_))), "{call:?}");
}
