//! Output of calls for clients that are slow, or read none.

use std::sync::mpsc;

use foldspace::http::{CallEvent, CallRequest};
use serde_json::json;

use crate::rig::{Server, WAIT_LIMIT, eventually, eventually_stuck};

/// Bytes that a command prints: more than waits anywhere on the way.
const PRINTED: usize = 24 << 20;

async fn hosted() -> Server {
    let served = Server::begin().await;
    let begun = served.ask("POST", "/v1/sessions", Some(&json!({ "name": "demo", "backend": "host" }))).await;
    assert_eq!(begun.status, 201, "{begun:?}");
    served
}

fn shell(command: &str) -> CallRequest {
    let params = json!({ "command": command }).as_object().unwrap().clone();
    CallRequest {
        tool: "shell_execute".to_owned(),
        params,
        auto_confirm: true,
        all_output: true,
        ..CallRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_output_is_complete_for_slow_client() {
    let served = hosted().await;
    let (mut length, mut missed) = (0, 0);
    let seen = |event| match event {
        CallEvent::Output { bytes, .. } => {
            if length == 0 {
                eventually_stuck(&format!("head -c {PRINTED} /dev/zero"));
            }
            length += bytes.len();
        }
        CallEvent::Missed(bytes) => missed += bytes,
        _ => {}
    };
    let request = shell(&format!("head -c {PRINTED} /dev/zero | tr '\\0' x"));
    let outcome = served.client().call("demo", &request, seen).await.unwrap();
    assert_eq!((outcome.status.word(), length, missed), ("ok", PRINTED, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn output_that_is_not_wanted_is_not_sent() {
    let served = hosted().await;
    let mut pieces = 0;
    let seen = |event| pieces += usize::from(matches!(event, CallEvent::Output { .. }));
    let request = CallRequest { all_output: false, no_output: true, ..shell("echo printed") };
    let outcome = served.client().call("demo", &request, seen).await.unwrap();
    assert_eq!((outcome.result["stdout"].as_str(), pieces), (Some("printed\n"), 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn call_blocked_on_its_client_can_be_cancelled() {
    let served = hosted().await;
    let (client, (tell, told), (go_on, waits)) = (served.client(), mpsc::channel(), mpsc::channel::<()>());
    let call = tokio::spawn(async move {
        let mut first = Some(tell);
        let seen = move |event| {
            if matches!(event, CallEvent::Output { .. })
                && let Some(tell) = first.take()
            {
                tell.send(()).unwrap();
                // Nothing is read any more.
                let _ = waits.recv();
            }
        };
        client.call("demo", &shell("yes"), seen).await
    });
    tokio::task::spawn_blocking(move || told.recv_timeout(WAIT_LIMIT).unwrap()).await.unwrap();
    assert_eq!(served.ask("DELETE", "/v1/sessions/demo/calls/2", None).await.status, 202);
    eventually("the call has ended", || served.face.hub().calls_in_flight() == 0);
    assert_eq!(served.ask("GET", "/v1/sessions/demo/calls/2", None).await.json()["status"], "interrupted");
    drop(go_on);
    call.await.unwrap().unwrap();
}
