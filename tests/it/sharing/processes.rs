//! Processes in a container, beside calls and forks.

use serde_json::{Value, json};

use crate::rig::{Server, eventually_async};

async fn ask(server: &Server, method: &str, path: &str, body: Value) -> Value {
    let body = Some(body).filter(|body| !body.is_null());
    let whole = format!("/v1/sessions/{path}");
    let answer = server.ask(method, whole.trim_end_matches('/'), body.as_ref()).await;
    assert!((200..300).contains(&answer.status), "{path}: {answer:?}");
    serde_json::from_slice(&answer.body).unwrap_or_default()
}

async fn text(server: &Server, path: &str) -> String {
    let file = server.ask("GET", &format!("/v1/sessions/{path}"), None).await;
    String::from_utf8_lossy(&file.body).into_owned()
}

/// A process appends to a file while calls are made, files are put, and the session is forked. Each has what it must, and
/// the record is the disk at the end.
#[tokio::test(flavor = "multi_thread")]
async fn process_in_container_goes_on_beside_calls_and_forks() {
    let Some(options) = crate::engine::options() else { return };
    let server = Server::begin().await;
    let options = json!({ "image": options.image, "connection": options.connection });
    let new = json!({ "name": "box", "backend": crate::engine::kind().name(), "options": options });
    ask(&server, "POST", "", new).await;
    let command =
        "echo early > a.txt; mkdir d; i=0; while [ ! -e stop ]; do i=$((i+1)); echo $i >> d/count; sleep 0.02; done";
    let process = ask(&server, "POST", "box/processes", json!({ "command": command, "auto_confirm": true })).await;
    eventually_async("it writes", async || text(&server, "box/files/d/count").await.contains("\n3\n")).await;
    let cat = json!({ "tool": "shell_execute", "params": { "command": "cat a.txt; rm a.txt" }, "auto_confirm": true });
    assert_eq!(ask(&server, "POST", "box/calls", cat).await["result"]["stdout"], "early\n");
    let forks = ask(&server, "POST", "box/forks", json!({ "count": 2, "name": "kid" })).await;
    assert_eq!(forks["children"].as_array().unwrap().len(), 2);
    let in_fork =
        json!({ "tool": "shell_execute", "params": { "command": "sort -n d/count | tail -1" }, "auto_confirm": true });
    let counted = ask(&server, "POST", "kid-1/calls", in_fork.clone()).await["result"]["stdout"].clone();
    assert_eq!(ask(&server, "POST", "kid-1/calls", in_fork).await["result"]["stdout"], counted, "nobody writes there");
    let number = process["process"].as_u64().unwrap();
    let written = json!({ "tool": "write_file", "params": { "file_path": "stop", "content": "" } });
    ask(&server, "POST", "box/calls", written).await;
    let end = ask(&server, "POST", &format!("box/processes/{number}/wait"), json!({})).await;
    assert_eq!((&end["exit_code"], &end["problem"]), (&json!(0), &Value::Null), "{end}");
    let recorded = text(&server, "box/files/d/count").await;
    let cat = json!({ "tool": "shell_execute", "params": { "command": "cat d/count; ls" }, "auto_confirm": true });
    let on_disk = ask(&server, "POST", "box/calls", cat).await["result"]["stdout"].clone();
    assert_eq!(on_disk, format!("{recorded}d\nstop\n"), "the record has the last of it");
    ask(&server, "POST", "box/verify", json!({})).await;
    for name in ["kid-1", "kid-2", "box"] {
        ask(&server, "DELETE", name, Value::Null).await;
    }
}
