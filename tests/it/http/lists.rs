//! Lists of sessions, and which session a name means.

use std::sync::Arc;

use foldspace::event::SystemClock;
use foldspace::http::{HttpOptions, ServerLimits};
use foldspace::session::SnapshotPolicy;
use foldspace::store::LocalStoreOptions;
use foldspace::{Commit, LocalStore, NewSession, Registry, SessionId, Sessions, Timestamp};
use serde_json::{Value, json};

use crate::rig::Server;

/// The smallest segments, unpacked.
fn small() -> LocalStoreOptions {
    LocalStoreOptions { segment_bytes: 1 << 20, pack: false, raw_segments: 0, ..LocalStoreOptions::default() }
}

fn note(session: SessionId, payload: &[u8]) -> Commit {
    let mut commit = Commit::new(session, Timestamp(1_000));
    commit.push_encoded("Note", 1, payload).unwrap();
    commit
}

fn names(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|session| session["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn sql_reads_all_sessions_within_limits() {
    let served = Server::begin().await;
    for name in ["a", "b", "c"] {
        served.session(name).await;
    }
    let ask = async |body: Value| served.ask("POST", "/v1/sql", Some(&body)).await;
    let all = ask(json!({ "query": "SELECT session AS name FROM sessions" })).await;
    assert_eq!(all.json(), json!({ "columns": ["name"], "rows": [["a"], ["b"], ["c"]], "truncated": false }));
    let some = ask(json!({ "query": "SELECT session FROM events", "limit": 1 })).await.json();
    assert_eq!((&some["rows"], &some["truncated"]), (&json!([["a"]]), &json!(true)));
    let endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n";
    let refused = [
        (json!({ "query": "DROP TABLE events" }), "refused"),
        (json!({ "query": "SELECT nothing_like_it" }), "unusable"),
        (json!({ "query": "SELECT 1", "limit": 0 }), "unusable"),
        (json!({ "query": endless, "timeout_seconds": 1 }), "refused"),
    ];
    for (body, kind) in refused {
        assert_eq!(ask(body.clone()).await.json()["kind"], kind, "{body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn session_list_is_paged() {
    let served = Server::begin().await;
    for name in ["a", "b", "c", "d", "e"] {
        served.session(name).await;
    }
    let list = async |query: &str| served.ask("GET", &format!("/v1/sessions{query}"), None).await;
    assert_eq!(names(&list("").await.json()), ["a", "b", "c", "d", "e"]);
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page = list(&format!("?limit=2{after}")).await.json();
        let Some(last) = page.as_array().unwrap().last() else { break };
        after = format!("&after={}", last["session"].as_str().unwrap());
        seen.extend(names(&page));
    }
    assert_eq!(seen, ["a", "b", "c", "d", "e"]);
    let gone = list("?limit=1").await.json()[0]["session"].as_str().unwrap().to_owned();
    assert_eq!(served.ask("DELETE", "/v1/sessions/a", None).await.status, 204);
    for (query, status) in [
        (format!("?after={gone}"), 404),
        ("?after=a".to_owned(), 400),
        ("?limit=0".to_owned(), 422),
        ("?limit=1001".to_owned(), 422),
        ("?limit=-1".to_owned(), 400),
        ("?behind=a".to_owned(), 400),
    ] {
        let refused = list(&query).await;
        assert_eq!((refused.status, &refused.json()["status"]), (status, &json!(status)), "{query}");
    }
}

/// A session whose events can't be read any more, beside one that can.
fn damaged() -> tempfile::TempDir {
    const MARK: &[u8] = b"a-text-that-is-nowhere-else";
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(LocalStore::open(directory.path().join("data"), small()).unwrap());
    let clock = Arc::new(SystemClock::default());
    let sessions = Sessions::new(store, Registry::standard(), clock, SnapshotPolicy::default()).unwrap();
    let [bad, good] = ["bad", "good"].map(|name| sessions.create(NewSession::named(name)).unwrap());
    bad.submit(note(bad.id(), MARK)).unwrap().wait().unwrap();
    // What stands in an earlier segment is not read again when the store is opened.
    let segments = || std::fs::read_dir(directory.path().join("data/journal")).unwrap().count();
    while segments() < 3 {
        good.submit(note(good.id(), &[0; 50_000])).unwrap().wait().unwrap();
    }
    drop((bad, good));
    sessions.close();
    let mut found = 0;
    for segment in std::fs::read_dir(directory.path().join("data/journal")).unwrap() {
        let path = segment.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        while let Some(at) = bytes.windows(MARK.len()).position(|text| text == MARK) {
            bytes[at] ^= 1;
            found += 1;
        }
        std::fs::write(&path, bytes).unwrap();
    }
    assert!(found > 0, "the journal has its events as they are");
    directory
}

#[tokio::test(flavor = "multi_thread")]
async fn session_list_survives_unreadable_session() {
    let served = Server::made(damaged(), ServerLimits::default(), HttpOptions::default()).await;
    let list = served.ask("GET", "/v1/sessions", None).await.json();
    assert_eq!(names(&list), ["bad", "good"]);
    assert_eq!((&list[0]["calls"], &list[0]["events"], &list[1]["calls"]), (&json!(0), &json!(2), &json!(0)));
    let one = served.ask("GET", "/v1/sessions/bad", None).await;
    assert_eq!((one.status, &one.json()["kind"]), (500, &json!("broken")), "who asks for it is told");
}

#[tokio::test(flavor = "multi_thread")]
async fn session_name_follows_its_present_owner() {
    let served = Server::begin().await;
    served.session("demo").await;
    let id = async || served.ask("GET", "/v1/sessions/demo", None).await.json()["session"].as_str().unwrap().to_owned();
    let first = id().await;
    // Somebody else follows the session, so a handle of it outlives it.
    let mut follower = served.follow("/v1/sessions/demo/events/stream", &[]).await;
    assert_eq!(follower.next().await.unwrap().0, Some(1));
    let store = Arc::clone(served.face.hub().sessions().store());
    while served.face.hub().close_unused(std::time::Duration::ZERO).await == 0 {}
    // As another process does it: this one's sessions are not told.
    store.remove(first.parse().unwrap()).unwrap();
    assert_eq!(served.ask("GET", "/v1/sessions/demo", None).await.status, 404);
    let clock = Arc::new(SystemClock::default());
    let others = Sessions::new(store, Registry::standard(), clock, SnapshotPolicy::default()).unwrap();
    let second = others.create(NewSession::named("demo")).unwrap().id().to_string();
    assert_eq!(id().await, second);
    let events = served.ask("GET", "/v1/sessions/demo/events", None).await.json();
    assert_eq!(events["events"][0]["session"], json!(second));
    assert_eq!(served.ask("GET", &format!("/v1/sessions/{first}"), None).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_paged_and_filtered() {
    let directory = tempfile::tempdir().unwrap();
    let transcript = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/transcripts/goose.json");
    let sessions = Sessions::open(directory.path(), Registry::standard()).unwrap();
    foldspace::tools::import_transcripts(&sessions, &[&transcript], Some("goose")).unwrap();
    let served = Server::over(directory, sessions, ServerLimits::default(), HttpOptions::default()).await;
    let page = async |query: &str| served.ask("GET", &format!("/v1/sessions/goose/messages{query}"), None).await;
    let texts = |page: &Value| -> Vec<String> {
        page["messages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|message| message["text"].as_str().unwrap().to_owned())
            .collect()
    };
    let all = page("").await.json();
    assert_eq!(
        (texts(&all), &all["next"]),
        (vec!["Mend the sum.".into(), "I run the tests.".into(), "Done.".into()], &Value::Null)
    );
    let (mut found, mut from) = (Vec::new(), json!(1));
    while !from.is_null() {
        let one = page(&format!("?limit=1&from={from}")).await.json();
        found.extend(one["messages"].as_array().unwrap().clone());
        from = one["next"].clone();
    }
    assert_eq!(json!(found), all["messages"], "pages know the commands before them");
    let claims = page("?claims=true&run=20261120_3").await.json();
    assert_eq!((&claims["messages"][0]["text"], texts(&claims).len()), (&json!("Done."), 1));
    assert_eq!(claims["messages"][0]["claim"]["exit_code"], 1, "{claims}");
    assert_eq!(texts(&page("?run=other").await.json()).len(), 0);
    for wrong in ["?limit=0", "?limit=1001", "?claims=1", "?from=soon", "?nope=1"] {
        let refused = page(wrong).await;
        assert!([400, 422].contains(&refused.status), "{wrong}: {refused:?}");
    }
}
