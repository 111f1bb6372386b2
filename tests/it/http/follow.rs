//! Events as server-sent events: from any position, again after a break, for as long as there are any.

use foldspace::EntryPath;
use foldspace::event::DeleteEntry;
use serde_json::{Value, json};

use crate::rig::Server;

const STREAM: &str = "/v1/sessions/demo/events/stream";

#[tokio::test(flavor = "multi_thread")]
async fn event_stream_starts_anywhere_and_goes_live() {
    let served = Server::begin().await;
    served.session("demo").await;
    served.write("demo", "a.txt").await;
    let mut events = served.follow(&format!("{STREAM}?from=3"), &[]).await;
    let (id, name, event) = events.next().await.unwrap();
    assert_eq!((id, name.as_str(), &event["kind"]), (Some(3), "", &json!("WriteFile")));
    assert_eq!(events.next().await.unwrap().0, Some(4));
    served.write("demo", "b.txt").await;
    for seq in 5..8 {
        let (id, _, event) = events.next().await.unwrap();
        assert_eq!((id, &event["seq"]), (Some(seq), &json!(seq)));
    }
    assert_eq!(served.ask("DELETE", "/v1/sessions/demo", None).await.status, 204);
    let (_, name, why) = events.next().await.unwrap();
    assert_eq!((name.as_str(), why), ("end", json!({ "why": "removed" })));
    assert!(events.next().await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn event_stream_resumes_without_gap() {
    let served = std::sync::Arc::new(Server::begin().await);
    served.session("demo").await;
    let writer = {
        let served = std::sync::Arc::clone(&served);
        tokio::spawn(async move {
            for number in 0..100 {
                served.write("demo", &format!("{number}.txt")).await;
            }
        })
    };
    let (mut seen, mut last) = (0, String::new());
    // Each connection is left after a few events, in the midst of the writing.
    while seen < 301 {
        let headers: &[(&str, &str)] = if last.is_empty() { &[] } else { &[("last-event-id", &last)] };
        // What the address says counts only at first.
        let mut events = served.follow(&format!("{STREAM}?from=1"), headers).await;
        for _ in 0..(301 - seen).min(17) {
            let (id, _, event) = events.next().await.unwrap();
            seen += 1;
            assert_eq!((id, &event["seq"]), (Some(seen), &json!(seen)));
        }
        last = seen.to_string();
    }
    writer.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn event_stream_from_wrong_position_is_refused() {
    let served = Server::begin().await;
    served.session("demo").await;
    for (query, header) in [("?from=x", ""), ("?from=--1", ""), ("?form=1", ""), ("", "1.5"), ("", "x")] {
        let headers: &[(&str, &str)] = if header.is_empty() { &[] } else { &[("last-event-id", header)] };
        let refused = served.ask_with("GET", &format!("{STREAM}{query}"), None, headers).await;
        assert_eq!((refused.status, &refused.json()["kind"]), (400, &json!("bad_request")), "{query} {header}");
    }
    // Beyond the end nothing is there yet; what comes below it is not wanted.
    let mut events = served.follow(&format!("{STREAM}?from=4"), &[]).await;
    served.write("demo", "a.txt").await;
    assert_eq!(events.next().await.unwrap().0, Some(4));
    let mut events = served.follow(STREAM, &[("last-event-id", "18446744073709551615")]).await;
    served.face.end();
    assert_eq!(events.next().await, None::<(Option<u64>, String, Value)>);
}

#[tokio::test(flavor = "multi_thread")]
async fn event_pages_fit_together() {
    let served = Server::begin().await;
    served.session("demo").await;
    for number in 0..10 {
        served.write("demo", &format!("{number}.txt")).await;
    }
    let (mut next, mut seen) = (json!(1), Vec::new());
    while !next.is_null() {
        let page = served.ask("GET", &format!("/v1/sessions/demo/events?from={next}&limit=4"), None).await.json();
        assert_eq!(page["head"], 31);
        seen.extend(page["events"].as_array().unwrap().iter().map(|event| event["seq"].as_u64().unwrap()));
        next = page["next"].clone();
    }
    assert_eq!(seen, (1..=31).collect::<Vec<_>>());
    let beyond = served.ask("GET", "/v1/sessions/demo/events?from=99", None).await.json();
    assert_eq!((&beyond["events"], &beyond["next"]), (&json!([]), &Value::Null));
}

#[tokio::test(flavor = "multi_thread")]
async fn event_stream_is_complete_for_slow_reader() {
    const EVENTS: u64 = 2000;
    let served = Server::begin().await;
    served.session("demo").await;
    let mut events = served.follow(STREAM, &[]).await;
    assert_eq!(events.next().await.unwrap().0, Some(1));
    let sessions = served.face.hub().sessions();
    let session = sessions.session(sessions.find("demo").unwrap().id).unwrap();
    let path = EntryPath::for_creation(&format!("{}/x", "directory".repeat(5)).repeat(15)).unwrap();
    let mut recorded = Vec::new();
    for _ in 0..EVENTS {
        let mut commit = session.commit();
        commit.push(&DeleteEntry { path: path.clone() }).unwrap();
        recorded.push(session.submit(commit).unwrap());
    }
    for pending in recorded {
        pending.durable().await.unwrap();
    }
    // The time is the subject: a client that takes nothing for a second is let go, and read for from the journal later.
    tokio::time::sleep(std::time::Duration::from_millis(1300)).await;
    for seq in 2..EVENTS + 2 {
        assert_eq!(events.next().await.unwrap().0, Some(seq));
    }
    served.write("demo", "a.txt").await;
    assert_eq!(events.next().await.unwrap().0, Some(EVENTS + 2));
}
