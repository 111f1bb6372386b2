//! Processes that models start, read, write to and signal by calls.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::rig::Server;

struct Place(Server);

impl Place {
    async fn on_host() -> Self {
        let server = Server::begin().await;
        let new = json!({ "name": "box", "backend": "host" });
        assert_eq!(server.ask("POST", "/v1/sessions", Some(&new)).await.status, 201);
        Self(server)
    }

    async fn ask(&self, method: &str, path: &str, body: Value) -> Value {
        let body = Some(body).filter(|body| !body.is_null());
        self.0.ask(method, &format!("/v1/sessions/box/{path}"), body.as_ref()).await.json()
    }

    /// The outcome of a call that everything is allowed.
    async fn call(&self, tool: &str, params: Value) -> Value {
        self.ask("POST", "calls", json!({ "tool": tool, "params": params, "auto_confirm": true })).await
    }

    /// The result of a call that succeeds.
    async fn done(&self, tool: &str, params: Value) -> Value {
        let outcome = self.call(tool, params).await;
        assert_eq!(outcome["status"], "ok", "{outcome}");
        outcome["result"].clone()
    }

    /// The error of a call that fails.
    async fn failed(&self, tool: &str, params: Value) -> String {
        let outcome = self.call(tool, params).await;
        assert_eq!(outcome["status"], "error", "{outcome}");
        outcome["text"].as_str().unwrap().to_owned()
    }

    async fn start(&self, params: Value) -> u64 {
        self.done("process_start", params).await["process"].as_u64().unwrap()
    }

    /// The end of a process.
    async fn ended(&self, process: u64) -> Value {
        let read = json!({ "process": process, "wait_seconds": 60, "until_end": true });
        let read = self.done("process_read", read).await;
        assert_eq!(read["process"]["running"], false, "{read}");
        read
    }

    async fn file(&self, path: &str) -> Value {
        let answer = self.0.ask("GET", &format!("/v1/sessions/box/files/{path}"), None).await;
        if answer.status == 200 { String::from_utf8_lossy(&answer.body).into() } else { Value::Null }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn process_is_started_written_to_read_and_signalled_by_calls() {
    let place = Place::on_host().await;
    let script = "echo ready; while read line; do echo \"got $line\" | tee -a log.txt; done; echo over >&2; exit 3";
    let process = place.start(json!({ "command": script, "input": true })).await;
    let read = place.done("process_read", json!({ "process": process, "wait_seconds": 60 })).await;
    assert_eq!(
        (&read["stdout"], &read["next"], &read["process"]["running"]),
        (&json!("ready\n"), &json!(6), &json!(true))
    );
    let beside = place.done("shell_execute", json!({ "command": "echo beside" })).await;
    assert_eq!(beside["stdout"], "beside\n");
    place.done("process_write", json!({ "process": process, "text": "a\n" })).await;
    let read = place.done("process_read", json!({ "process": process, "from": 6, "wait_seconds": 60 })).await;
    assert_eq!((&read["stdout"], &read["next"]), (&json!("got a\n"), &json!(12)));
    place.done("process_write", json!({ "process": process, "text": "b\n", "close": true })).await;
    let end = place.ended(process).await;
    assert_eq!((&end["process"]["exit_code"], &end["stderr"]), (&json!(3), &json!("over\n")), "{end}");
    assert_eq!(place.file("log.txt").await, "got a\ngot b\n");
    // Each is a call: the start with its decision, the input, and the end with its changes.
    let calls = place.ask("GET", "calls?limit=50", Value::Null).await;
    let tools: Vec<_> = calls["calls"].as_array().unwrap().iter().map(|call| call["tool"].as_str().unwrap()).collect();
    let all = ["process_start", "process_write", "process_write", "end_process"];
    assert_eq!(tools.iter().filter(|tool| all.contains(tool)).count(), 4, "{tools:?}");
    let end_call = place.ask("GET", &format!("calls/{}", end["process"]["call"]), Value::Null).await;
    assert_eq!(end_call["result"]["exit_code"], 3, "{end_call}");
    let start_call = place.ask("GET", &format!("calls/{process}"), Value::Null).await;
    assert!(start_call.to_string().contains("CommandDecided"), "{start_call}");
    let verified = place.ask("POST", "verify", json!({})).await;
    assert!(verified["problems"].as_array().is_none_or(Vec::is_empty), "{verified}");

    let trap = json!({ "command": "trap 'echo bye; exit 7' TERM; echo set; while :; do sleep 0.05; done" });
    let process = place.start(trap).await;
    place.done("process_read", json!({ "process": process, "wait_seconds": 60 })).await;
    place.done("process_signal", json!({ "process": process, "signal": "TERM" })).await;
    assert_eq!(place.ended(process).await["process"]["exit_code"], 7);
    let list = place.done("process_list", json!({})).await;
    assert_eq!(list["processes"].as_array().unwrap().len(), 2, "{list}");
}

#[tokio::test(flavor = "multi_thread")]
async fn process_tools_refuse_wrong_parameters() {
    let place = Place::on_host().await;
    let none = place.failed("process_read", json!({ "process": 99 })).await;
    assert_eq!(none, "process 99 not found; running: none");
    let process = place.start(json!({ "command": "printf abc; exec sleep 1000" })).await;
    place.done("process_read", json!({ "process": process, "wait_seconds": 60 })).await;
    assert_eq!(
        place.failed("process_write", json!({ "process": 99, "text": "x" })).await,
        format!("process 99 not found; running: {process}")
    );
    for (tool, params, words) in [
        ("process_read", json!({ "from": 4 }), "from is 4; the process has written 3 bytes"),
        ("process_read", json!({ "wait_seconds": 301 }), "wait_seconds is 301; it must be from 0 to 300"),
        ("process_read", json!({ "wait_seconds": -1 }), "wait_seconds is -1"),
        ("process_signal", json!({ "signal": "NOPE" }), "signal must be HUP, INT"),
        ("process_signal", json!({ "signal": 65 }), "or a number from 1 to 64"),
        ("process_write", json!({ "text": "x" }), "accepts no more input"),
        ("process_write", json!({ "text": "x".repeat(48_001) }), "at most 48000"),
    ] {
        let mut params = params;
        params["process"] = json!(process);
        let error = place.failed(tool, params.clone()).await;
        assert!(error.contains(words), "{tool} {params}: {error}");
    }
    place.done("process_signal", json!({ "process": process, "signal": 9 })).await;
    assert_eq!(place.ended(process).await["process"]["signal"], 9);
    for tool in ["process_write", "process_signal"] {
        let mut params = json!({ "process": process });
        params[if tool == "process_write" { "text" } else { "signal" }] = json!("TERM");
        assert!(place.failed(tool, params).await.contains("has ended"));
    }
    for (params, words) in [
        (json!({ "command": "true", "timeout_seconds": 0 }), "it must be from 1 to 86400"),
        (json!({ "command": 5 }), "command"),
        (json!({ "command": "true", "cwd": "../x" }), "../x"),
    ] {
        let error = place.failed("process_start", params.clone()).await;
        assert!(error.contains(words), "{params}: {error}");
    }
    let refused = json!({ "tool": "process_start", "params": { "command": "sudo rm -rf /" } });
    assert_eq!(place.ask("POST", "calls", refused).await["status"], "error");
    let new = json!({ "name": "files", "backend": "memory" });
    place.0.ask("POST", "/v1/sessions", Some(&new)).await;
    for params in [
        json!({ "tool": "process_start", "params": { "command": "true" } }),
        json!({ "tool": "shell_execute", "params": { "command": "true", "background_after_seconds": 1 } }),
    ] {
        let outcome = place.0.ask("POST", "/v1/sessions/files/calls", Some(&params)).await.json();
        assert!(
            outcome["text"].as_str().unwrap().contains("needs a shell, and the memory workspace has none"),
            "{outcome}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn command_that_outlives_its_time_becomes_a_process() {
    let place = Place::on_host().await;
    let script = "echo first; echo 1 > a.txt; sleep 2; echo second; echo 2 > b.txt; exit 5";
    let began = Instant::now();
    let left = place.call("shell_execute", json!({ "command": script, "background_after_seconds": 0.7 })).await;
    let result = left["result"].clone();
    let process = left["call"].as_u64().unwrap();
    assert_eq!((&result["process"], &result["exit_code"]), (&json!(process), &Value::Null), "{left}");
    assert_eq!((&result["stdout"], &result["next"]), (&json!("first\n"), &json!(6)), "{left}");
    assert!(left["text"].as_str().unwrap().contains(&format!("s as process {process}; process_read reads on from 6]")));
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    let changes = place.ask("GET", &format!("calls/{process}"), Value::Null).await;
    assert!(changes.to_string().contains("a.txt") && !changes.to_string().contains("\"b.txt\""), "{changes}");
    let end = place.ended(process).await;
    assert_eq!((&end["process"]["exit_code"], &end["stdout"]), (&json!(5), &json!("first\nsecond\n")), "{end}");
    assert_eq!((place.file("a.txt").await, place.file("b.txt").await), (json!("1\n"), json!("2\n")));
    let quick = json!({ "command": "echo quick > c.txt; exit 4", "background_after_seconds": 30 });
    let quick = place.done("shell_execute", quick).await;
    assert_eq!((&quick["exit_code"], &quick["process"]), (&json!(4), &Value::Null), "{quick}");
    assert_eq!(place.file("c.txt").await, "quick\n");
    let list = place.done("process_list", json!({})).await;
    assert_eq!(list["processes"].as_array().unwrap().len(), 1, "only the first became a process: {list}");
    let script = json!({ "script": "echo out\nsleep 1000\n", "background_after_seconds": 0.5, "timeout_seconds": 2 });
    let process = place.done("execute_script", script).await["process"].as_u64().unwrap();
    let end = place.ended(process).await;
    assert_eq!((&end["process"]["timed_out"], &end["process"]["exit_code"]), (&json!(true), &json!(124)), "{end}");
    for seconds in [json!(-1), json!(601)] {
        let params = json!({ "command": "true", "background_after_seconds": seconds });
        assert!(place.failed("shell_execute", params).await.contains("it must be from 0 to 600"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn command_that_may_become_a_process_ends_with_its_cancelled_call() {
    let place = Place::on_host().await;
    let params = json!({ "command": "echo $$ > pid; exec sleep 1000", "background_after_seconds": 60 });
    // Its time runs out before it becomes a process.
    let call = json!({ "tool": "shell_execute", "params": params, "auto_confirm": true, "timeout_seconds": 2 });
    let late = place.ask("POST", "calls", call).await;
    assert_eq!((&late["status"], &late["reason"]), (&json!("error"), &json!("timed_out")), "{late}");
    let pid = place.file("pid").await.as_str().unwrap().trim().to_owned();
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "it was killed");
    assert_eq!(place.done("process_list", json!({})).await["processes"], json!([]));
    let params = json!({ "command": "exec sleep 1000", "background_after_seconds": 0 });
    let process = place.done("shell_execute", params).await["process"].as_u64().unwrap();
    assert_eq!(place.0.ask("DELETE", &format!("/v1/sessions/box/calls/{process}"), None).await.status, 202);
    assert_eq!(place.ended(process).await["process"]["cancelled"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn process_output_of_a_model_is_bounded() {
    let place = Place::on_host().await;
    let process = place.start(json!({ "command": "head -c 300000000 /dev/zero | tr '\\0' x; echo end" })).await;
    let end = place.ended(process).await;
    assert_eq!(end["process"]["stdout_bytes"], 300_000_004);
    let (missed, next) = (end["missed"].as_u64().unwrap(), end["next"].as_u64().unwrap());
    assert!(missed >= 300_000_004 - (1 << 20) && next == missed + (32 << 10), "{missed} {next}");
    let last = place.done("process_read", json!({ "process": process, "from": 300_000_000 })).await;
    assert_eq!((&last["stdout"], &last["left"]), (&json!("end\n"), &json!(0)));
    let stalled = place.start(json!({ "command": "exec sleep 1000", "input": true })).await;
    let error = loop {
        let outcome = place.call("process_write", json!({ "process": stalled, "text": "x".repeat(48_000) })).await;
        if outcome["status"] != "ok" {
            break outcome["text"].as_str().unwrap().to_owned();
        }
    };
    assert!(error.contains("does not read its input: it was passed") && error.contains("of 48000 bytes"), "{error}");
    place.done("process_signal", json!({ "process": stalled, "signal": "KILL" })).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rewind_kills_the_processes_that_were_started_after_it() {
    let place = Place::on_host().await;
    let early = place.start(json!({ "command": "exec sleep 1000" })).await;
    place.done("write_file", json!({ "file_path": "kept.txt", "content": "kept" })).await;
    let to =
        place.ask("GET", "events?limit=1000", Value::Null).await["events"].as_array().unwrap().last().unwrap()["seq"]
            .clone();
    let script = "while :; do date +%N > now.txt; sleep 0.02; done";
    let late = place.start(json!({ "command": script })).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let dry = place.ask("POST", "rewind", json!({ "to": to, "force": true, "dry_run": true })).await;
    assert_eq!(dry["dry_run"], true, "{dry}");
    let state = async |process: u64| place.ask("GET", &format!("processes/{process}"), Value::Null).await;
    assert_eq!(state(late).await["running"], true, "a dry run ends nothing");
    let rewound = place.ask("POST", "rewind", json!({ "to": to })).await;
    assert_eq!(rewound["to"], to, "{rewound}");
    assert_eq!((&state(late).await["running"], &state(late).await["signal"]), (&json!(false), &json!(9)));
    assert_eq!(state(early).await["running"], true);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let files = place.done("shell_execute", json!({ "command": "ls" })).await;
    assert_eq!(files["stdout"], "kept.txt\n");
    let verified = place.ask("POST", "verify", json!({})).await;
    assert!(verified["problems"].as_array().is_none_or(Vec::is_empty), "{verified}");
    place.done("process_signal", json!({ "process": early, "signal": "KILL" })).await;
}
