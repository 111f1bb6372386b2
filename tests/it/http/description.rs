//! The checked-in description of the API is what the server gives.

use std::path::Path;

use serde_json::Value;

use crate::rig::Server;

const FILE: &str = "docs/openapi.json";

#[tokio::test]
async fn openapi_document_is_checked_in() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    let text = format!("{}\n", foldspace::http::openapi());
    if std::env::var_os("FOLDSPACE_BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == text, "{FILE} is not what the code says; FOLDSPACE_BLESS=1 writes it anew");
    let served = Server::begin().await;
    let given = served.ask("GET", "/openapi.json", None).await;
    assert_eq!(given.json(), serde_json::from_str::<Value>(&text).unwrap());
}

#[tokio::test]
async fn openapi_paths_all_exist() {
    let served = Server::begin().await;
    served.session("demo").await;
    let description: Value = serde_json::from_str(&foldspace::http::openapi()).unwrap();
    let mut operations = 0;
    for (path, methods) in description["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            operations += 1;
            assert!(!operation["summary"].as_str().unwrap_or_default().is_empty(), "{method} {path}");
            let place = path
                .replace("{session}", "none")
                .replace("{call}", "1")
                .replace("{slice}", "s")
                .replace("{stream}", "stdout");
            let place = place.replace("{path}", "p");
            let body = (method == "post")
                .then(|| serde_json::json!({ "tool": "ls", "answer": "once", "child": "c", "to": 1 }));
            let answer = served.ask(&method.to_uppercase(), &place, body.as_ref()).await;
            let kind =
                if answer.status < 300 { String::new() } else { answer.json()["kind"].as_str().unwrap().to_owned() };
            assert!(!["no_route", "method"].contains(&kind.as_str()), "{method} {path}: {answer:?}");
        }
    }
    assert_eq!(operations, 92);
    // A reference that leads nowhere helps nobody.
    let text = description.to_string();
    for reference in text.split("\"$ref\":\"#").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(description.pointer(reference).is_some(), "{reference}");
    }
}

#[tokio::test]
async fn metrics_count_calls() {
    let served = Server::begin().await;
    served.session("demo").await;
    served.write("demo", "a.txt").await;
    let text = String::from_utf8(served.ask("GET", "/metrics", None).await.body.to_vec()).unwrap();
    for line in [
        "foldspace_sessions 1",
        "foldspace_open_workspaces 1",
        "foldspace_events 4",
        "foldspace_http_requests_total{status=\"201\"} 1",
        "foldspace_tool_call_duration_seconds_bucket{tool=\"write_file\",status=\"ok\",le=\"60\"} 1",
        "foldspace_tool_call_duration_seconds_bucket{tool=\"write_file\",status=\"ok\",le=\"+Inf\"} 1",
        "foldspace_tool_call_duration_seconds_count{tool=\"write_file\",status=\"ok\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
}
