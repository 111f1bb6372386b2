//! Output that was kept beyond a result, and terminals as frames.

use foldspace::WorkspaceSpec;
use foldspace::backends::HostOptions;
use serde_json::{Value, json};

use crate::rig::Server;

async fn hosted() -> Server {
    let served = Server::begin().await;
    drop(served.face.hub().create(Some("work".to_owned()), &WorkspaceSpec::Host(HostOptions::default()), &[]).await);
    served
}

async fn ran(served: &Server, command: &str, tty: bool) -> Value {
    let params = json!({ "command": command, "tty": tty });
    let body = json!({ "tool": "shell_execute", "params": params, "auto_confirm": true });
    let outcome = served.ask("POST", "/v1/sessions/work/calls", Some(&body)).await.json();
    assert_eq!(outcome["status"], "ok", "{outcome}");
    outcome
}

#[tokio::test(flavor = "multi_thread")]
async fn kept_output_is_given_whole() {
    let served = hosted().await;
    let outcome = ran(&served, "head -c 10000000 /dev/zero | tr '\\0' x; echo oops >&2", false).await;
    assert_eq!(outcome["result"]["truncated"], true);
    let place = format!("/v1/sessions/work/calls/{}/recorded", outcome["call"]);
    let whole = served.ask("GET", &format!("{place}/stdout"), None).await;
    assert_eq!((whole.status, whole.header("content-disposition")), (200, "attachment"));
    assert_eq!(whole.header("content-type"), "application/octet-stream");
    assert!(whole.body.len() > 8 << 20 || whole.body.len() == 8 << 20, "{}", whole.body.len());
    let stderr = served.ask("GET", &format!("{place}/stderr"), None).await;
    assert_eq!(&stderr.body[..], b"oops\n");
    for (missing, status) in [("terminal", 404), ("frames", 400), ("", 404)] {
        assert_eq!(served.ask("GET", &format!("{place}/{missing}"), None).await.status, status, "{missing}");
    }
    let frames = served.ask("GET", &format!("/v1/sessions/work/calls/{}/frames", outcome["call"]), None).await;
    assert_eq!(frames.status, 404);
    assert_eq!(served.ask("GET", "/v1/sessions/work/calls/1/recorded/stdout", None).await.status, 404);
}

/// Puts the frames of a whole recording together, page by page; gives the lines and the number of pages.
async fn played(served: &Server, call: &Value) -> (Vec<String>, usize) {
    let (mut lines, mut from, mut pages, mut micros) = (vec![String::new(); 24], json!(0), 0, 0);
    while !from.is_null() {
        let page = served.ask("GET", &format!("/v1/sessions/work/calls/{call}/frames?from={from}"), None).await.json();
        for frame in page["frames"].as_array().unwrap_or_else(|| panic!("{page}")) {
            assert!(frame["micros"].as_u64().unwrap() >= micros);
            micros = frame["micros"].as_u64().unwrap();
            for (number, texts) in frame["rows"].as_object().unwrap() {
                let texts = texts.as_array().unwrap().iter().map(|text| text["text"].as_str().unwrap());
                lines[number.parse::<usize>().unwrap()] = texts.collect();
            }
        }
        (from, pages) = (page["next"].clone(), pages + 1);
    }
    (lines, pages)
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_terminal_is_given_as_frames() {
    let served = hosted().await;
    let script = "printf 'one\\ntwo'; sleep 0.2; printf '\\r\\033[31mTWO\\033[0m'";
    let outcome = ran(&served, script, true).await;
    let place = format!("/v1/sessions/work/calls/{}", outcome["call"]);
    let frames = served.ask("GET", &format!("{place}/frames"), None).await.json();
    let (frames, next) = (frames["frames"].as_array().unwrap(), &frames["next"]);
    let (first, last) = (&frames[0], frames.last().unwrap());
    assert_eq!((&first["size"], next), (&json!({ "rows": 24, "columns": 80 }), &Value::Null), "{frames:?}");
    assert_eq!((&first["rows"]["0"], &last["rows"]["0"]), (&json!([{ "text": "one" }]), &Value::Null));
    assert_eq!(last["rows"]["1"], json!([{ "text": "TWO", "foreground": "red" }]));
    assert!(last["micros"].as_u64().unwrap() >= first["micros"].as_u64().unwrap() + 200_000, "{frames:?}");
    let cast = served.ask("GET", &format!("{place}/recorded/terminal"), None).await;
    assert!(cast.body.starts_with(b"{\"version\":2"), "{cast:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn long_recordings_come_in_pages() {
    let served = hosted().await;
    // Each frame is a whole screen of colours.
    let script = "i=0; while [ $i -lt 90 ]; do printf '\\033[H'; j=0; while [ $j -lt 900 ]; do \
                  printf '\\033[38;5;%dm%d' $(((i + j) % 200 + 20)) $(((i + j) % 10)); j=$((j + 1)); done; \
                  sleep 0.04; i=$((i + 1)); done; printf '\\033[0m\\033[2J\\033[Hend'";
    let outcome = ran(&served, script, true).await;
    let (lines, pages) = played(&served, &outcome["call"]).await;
    assert_eq!((lines[0].as_str(), lines[1].as_str()), ("end", ""));
    assert!(pages > 1, "{pages}");
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_terminal_is_played() {
    let served = hosted().await;
    let outcome = ran(&served, "head -c 1000000 /dev/urandom", true).await;
    let (lines, _) = played(&served, &outcome["call"]).await;
    assert!(lines.iter().flat_map(|line| line.chars()).all(|c| !c.is_control()), "{lines:?}");
}
