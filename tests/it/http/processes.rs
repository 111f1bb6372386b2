//! Commands that run in the background.

use serde_json::{Value, json};

use crate::rig::{Server, WAIT_LIMIT, eventually_async};

async fn ask(server: &Server, method: &str, path: &str, body: Value) -> (u16, Value) {
    let body = Some(body).filter(|body| !body.is_null());
    let answer = server.ask(method, &format!("/v1/sessions/box/{path}"), body.as_ref()).await;
    (answer.status, serde_json::from_slice(&answer.body).unwrap_or_default())
}

async fn begun(server: &Server) {
    let new = json!({ "name": "box", "backend": "host" });
    assert_eq!(server.ask("POST", "/v1/sessions", Some(&new)).await.status, 201);
}

async fn start(server: &Server, mut more: Value, command: &str) -> u64 {
    more["command"] = json!(command);
    more["auto_confirm"] = json!(true);
    let (status, started) = ask(server, "POST", "processes", more).await;
    assert_eq!((status, &started["running"]), (201, &json!(true)), "{started}");
    started["process"].as_u64().unwrap()
}

async fn ended(server: &Server, process: u64) -> Value {
    let (status, process) = ask(server, "POST", &format!("processes/{process}/wait"), json!({})).await;
    assert_eq!((status, &process["running"]), (200, &json!(false)), "{process}");
    process
}

#[tokio::test(flavor = "multi_thread")]
async fn process_runs_while_other_calls_are_made() {
    let server = Server::begin().await;
    begun(&server).await;
    let process =
        start(&server, json!({ "input": true }), "echo one > a.txt; read line; echo $line > b.txt; exit 3").await;
    eventually_async("its file is seen", async || {
        server.ask("GET", "/v1/sessions/box/files/a.txt", None).await.body == "one\n"
    })
    .await;
    let call = json!({ "tool": "shell_execute", "params": { "command": "cat a.txt" }, "auto_confirm": true });
    let (_, ran) = ask(&server, "POST", "calls", call).await;
    assert_eq!(ran["result"]["stdout"], "one\n", "{ran}");
    let (_, all) = ask(&server, "GET", "processes", Value::Null).await;
    assert_eq!((&all[0]["process"], &all[0]["running"]), (&json!(process), &json!(true)), "{all}");
    let input = json!({ "text": "two\n", "end": true });
    assert_eq!(ask(&server, "POST", &format!("processes/{process}/input"), input.clone()).await.0, 204);
    let end = ended(&server, process).await;
    assert_eq!((&end["exit_code"], &end["signal"]), (&json!(3), &Value::Null), "{end}");
    assert_eq!(server.ask("GET", "/v1/sessions/box/files/b.txt", None).await.body, "two\n");
    let call = ask(&server, "GET", &format!("calls/{}", end["call"]), Value::Null).await.1;
    assert_eq!((&call["tool"], &call["result"]["exit_code"]), (&json!("end_process"), &json!(3)), "{call}");
    assert_eq!(ask(&server, "POST", &format!("processes/{process}/input"), input).await.0, 409);
    assert_eq!(ask(&server, "POST", &format!("processes/{process}/signal"), json!({ "signal": 15 })).await.0, 409);
    assert_eq!(ask(&server, "GET", "processes/999", Value::Null).await.0, 404);
    let (_, verified) = ask(&server, "POST", "verify", json!({})).await;
    assert!(verified["problems"].as_array().is_none_or(Vec::is_empty), "{verified}");
}

#[tokio::test(flavor = "multi_thread")]
async fn process_output_is_followed_from_any_byte() {
    let server = Server::begin().await;
    begun(&server).await;
    let process =
        start(&server, json!({}), "printf 'one '; printf err >&2; sleep 0.2; printf two; printf '\\377'").await;
    let path = format!("/v1/sessions/box/processes/{process}/output");
    let read = async |path: &str, headers: &[(&str, &str)]| {
        let (mut stream, mut shown) = (server.follow(path, headers).await, Vec::new());
        while let Ok(Some((id, name, value))) = tokio::time::timeout(WAIT_LIMIT, stream.next()).await {
            shown.push((id, name.clone(), value));
            if name == "ended" {
                break;
            }
        }
        shown
    };
    let shown = read(&path, &[]).await;
    let text = |stream: &str| {
        let of = shown.iter().filter(|(_, _, value)| value["stream"] == stream);
        of.map(|(_, _, value)| value["text"].as_str().unwrap_or("?").to_owned()).collect::<String>()
    };
    assert!(text("stdout").starts_with("one ") && text("stderr") == "err", "{shown:?}");
    assert_eq!(shown.last().unwrap().2["stdout_bytes"], 8);
    let seen = shown[shown.len() - 2].0.unwrap();
    assert_eq!(seen, 11, "both streams count");
    let rest = read(&path, &[("last-event-id", "7")]).await;
    assert!(rest[0].2["stream"] == "stdout" && rest[0].0.unwrap() > 7, "{rest:?}");
    assert_eq!(read(&format!("{path}?from=11"), &[]).await.len(), 1, "only its end");
}

#[tokio::test(flavor = "multi_thread")]
async fn process_is_signalled_cancelled_and_ended_in_time() {
    let server = Server::begin().await;
    begun(&server).await;
    let asked =
        start(&server, json!({}), "trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.05; done").await;
    let path = format!("/v1/sessions/box/processes/{asked}/output");
    let mut stream = server.follow(&path, &[]).await;
    assert_eq!(stream.next().await.unwrap().2["text"], "ready\n");
    assert_eq!(ask(&server, "POST", &format!("processes/{asked}/signal"), json!({ "signal": "SIGTERM" })).await.0, 204);
    assert_eq!(ended(&server, asked).await["exit_code"], 7);
    let killed = start(&server, json!({}), "sleep 1000 & wait").await;
    assert_eq!(ask(&server, "POST", &format!("processes/{killed}/signal"), json!({ "signal": 9 })).await.0, 204);
    assert_eq!(ended(&server, killed).await["signal"], 9);
    let cancelled = start(&server, json!({}), "sleep 1000").await;
    assert_eq!(server.ask("DELETE", &format!("/v1/sessions/box/calls/{cancelled}"), None).await.status, 202);
    assert_eq!(ended(&server, cancelled).await["cancelled"], true);
    let late = start(&server, json!({ "timeout_seconds": 1 }), "sleep 1000").await;
    let end = ended(&server, late).await;
    assert_eq!((&end["timed_out"], &end["exit_code"]), (&json!(true), &json!(124)), "{end}");
    for wrong in [json!({ "signal": "SIGNOPE" }), json!({ "signal": 0 }), json!({ "signal": 65 })] {
        assert_eq!(ask(&server, "POST", &format!("processes/{late}/signal"), wrong).await.0, 422);
    }
    let (status, refused) = ask(&server, "POST", "processes", json!({ "command": "sudo rm -rf /" })).await;
    assert_eq!((status, refused["kind"].as_str()), (409, Some("refused")), "{refused}");
    for (wrong, status) in [
        (json!({ "command": "" }), 422),
        (json!({ "command": "true", "timeout_seconds": 0 }), 422),
        (json!({ "command": "true", "auto_confirm": true, "cwd": "../x" }), 422),
        (json!({ "command": 5 }), 422),
    ] {
        assert_eq!(ask(&server, "POST", "processes", wrong.clone()).await.0, status, "{wrong}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn process_with_a_terminal_is_typed_to() {
    let server = Server::begin().await;
    begun(&server).await;
    let window = json!({ "window": { "rows": 30, "columns": 100 } });
    let process = start(&server, window, "stty size; read line; echo got $line").await;
    let mut stream = server.follow(&format!("/v1/sessions/box/processes/{process}/output"), &[]).await;
    assert_eq!(stream.next().await.unwrap().2["text"], "30 100\r\n");
    ask(&server, "POST", &format!("processes/{process}/input"), json!({ "base64": "aGkK" })).await;
    assert_eq!(ended(&server, process).await["exit_code"], 0);
    let (_, log) = ask(&server, "GET", "events", Value::Null).await;
    assert!(log.to_string().contains("TerminalRecorded"));
}

#[tokio::test(flavor = "multi_thread")]
async fn fork_beside_a_process_has_its_files_from_the_history() {
    let server = Server::begin().await;
    begun(&server).await;
    let process =
        start(&server, json!({}), "echo early > a.txt; while :; do date +%N > now.txt; sleep 0.01; done").await;
    eventually_async("it writes", async || {
        server.ask("GET", "/v1/sessions/box/files/now.txt", None).await.status == 200
    })
    .await;
    let (status, forks) = ask(&server, "POST", "forks", json!({ "count": 2, "name": "kid" })).await;
    assert_eq!(status, 200, "{forks}");
    for kid in ["kid-1", "kid-2"] {
        assert_eq!(server.ask("GET", &format!("/v1/sessions/{kid}/files/a.txt"), None).await.body, "early\n");
        assert_eq!(server.ask("GET", &format!("/v1/sessions/{kid}/processes"), None).await.json(), json!([]));
    }
    assert_eq!(server.ask("DELETE", "/v1/sessions/box", None).await.status, 409, "it is in use");
    ask(&server, "POST", &format!("processes/{process}/signal"), json!({ "signal": "KILL" })).await;
    ended(&server, process).await;
    let now = server.ask("GET", "/v1/sessions/box/files/now.txt", None).await.body;
    let call = json!({ "tool": "shell_execute", "params": { "command": "cat now.txt" }, "auto_confirm": true });
    let (_, ran) = ask(&server, "POST", "calls", call).await;
    assert_eq!(ran["result"]["stdout"].as_str().unwrap().as_bytes(), &now[..], "the record has the last of it");
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_tells_of_changes_below_a_directory() {
    let server = Server::begin().await;
    begun(&server).await;
    let mut near = server.follow("/v1/sessions/box/watch?below=src&recursive=false", &[]).await;
    let mut all = server.follow("/v1/sessions/box/watch", &[]).await;
    // At once: a directory without a file in it would be a change of its own.
    let script = "mkdir -p new/deep; echo 1 > new/deep/far; mv new src; \
                  sleep 1.2; echo 1 > src/near; sleep 1.2; rm src/near; sleep 9";
    let process = start(&server, json!({}), script).await;
    let (_, name, value) = near.next().await.unwrap();
    assert_eq!((name.as_str(), &value["kind"], &value["path"]), ("change", &json!("create"), &json!("src/near")));
    let (id, _, value) = near.next().await.unwrap();
    assert_eq!((&value["kind"], id), (&json!("remove"), value["seq"].as_u64()));
    let far = loop {
        let (id, _, value) = all.next().await.unwrap();
        if value["path"] == "src/deep/far" {
            break id.unwrap();
        }
    };
    let again = far.to_string();
    let mut resumed = server.follow("/v1/sessions/box/watch", &[("last-event-id", &again)]).await;
    assert_eq!(resumed.next().await.unwrap().2["path"], "src/near");
    ask(&server, "POST", &format!("processes/{process}/signal"), json!({ "signal": "KILL" })).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_of_a_session_are_limited() {
    let server = Server::begin().await;
    begun(&server).await;
    for _ in 0..48 {
        start(&server, json!({}), "exec sleep 1000").await;
    }
    let more = json!({ "command": "true", "auto_confirm": true });
    let (status, refused) = ask(&server, "POST", "processes", more.clone()).await;
    assert_eq!((status, refused["detail"].as_str().unwrap().contains("48 processes")), (409, true), "{refused}");
    let call = json!({ "tool": "shell_execute", "params": { "command": "echo beside" }, "auto_confirm": true });
    assert_eq!(ask(&server, "POST", "calls", call).await.1["result"]["stdout"], "beside\n");
    let (_, all) = ask(&server, "GET", "processes", Value::Null).await;
    let first = all[0]["process"].as_u64().unwrap();
    ask(&server, "POST", &format!("processes/{first}/signal"), json!({ "signal": "KILL" })).await;
    ended(&server, first).await;
    assert_eq!(ask(&server, "POST", "processes", more).await.0, 201);
    for process in all.as_array().unwrap() {
        ask(&server, "POST", &format!("processes/{}/signal", process["process"]), json!({ "signal": "KILL" })).await;
    }
}
