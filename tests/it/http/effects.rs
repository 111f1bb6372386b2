//! Effects that programs report.

use serde_json::{Value, json};

use crate::rig::Server;

#[tokio::test(flavor = "multi_thread")]
async fn reported_effect_settles_an_unknown_one() {
    let server = Server::begin().await;
    server.ask("POST", "/v1/sessions", Some(&json!({ "name": "work", "backend": "memory" }))).await;
    let call = json!({ "tool": "write_file", "params": { "file_path": "a", "content": "1" } });
    let call = server.ask("POST", "/v1/sessions/work/calls", Some(&call)).await.json()["call"].clone();
    let report = async |body: Value| server.ask("POST", "/v1/sessions/work/effects", Some(&body)).await;
    let mail =
        |outcome: &str, call: &Value| json!({ "what": "mail", "target": "ada", "outcome": outcome, "call": call });
    for (outcome, call) in [("unknown", &call), ("done", &call), ("unknown", &Value::Null)] {
        let answer = report(mail(outcome, call)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    let known = server.ask("GET", "/v1/sessions/work/effects", None).await.json();
    let known: Vec<_> =
        known.as_array().unwrap().iter().map(|one| (&one["call"], &one["outcome"], &one["by"])).collect();
    assert_eq!(known, [(&call, &json!("done"), &json!("report")), (&Value::Null, &json!("unknown"), &json!("report"))]);
    for wrong in [
        json!({ "what": "", "outcome": "done" }),
        json!({ "what": "x".repeat(201), "outcome": "done" }),
        json!({ "what": "x", "target": "x".repeat(1001), "outcome": "done" }),
        json!({ "what": "x", "outcome": "perhaps" }),
        json!({ "what": "x" }),
        mail("done", &json!(1)),
    ] {
        assert_eq!(report(wrong.clone()).await.status, 422, "{wrong}");
    }
    assert_eq!(report(mail("done", &json!(99))).await.status, 404);
}
