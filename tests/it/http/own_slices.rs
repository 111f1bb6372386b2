//! Events and slices of a user's own.

use foldspace::Seq;
use serde_json::{Value, json};

use crate::rig::Server;

async fn ask(server: &Server, method: &str, path: &str, body: Value) -> (u16, Value) {
    let body = (!body.is_null()).then_some(body);
    let answer = server.ask(method, &format!("/v1/sessions/{path}"), body.as_ref()).await;
    (answer.status, serde_json::from_slice(&answer.body).unwrap_or_default())
}

async fn emit(server: &Server, session: &str, kind: &str, data: Value) -> Seq {
    let (status, done) = ask(server, "POST", &format!("{session}/events"), json!({ "kind": kind, "data": data })).await;
    assert_eq!(status, 200, "{done}");
    done["last"].as_u64().unwrap()
}

async fn plan(server: &Server, session: &str, at: &str) -> Value {
    ask(server, "GET", &format!("{session}/state/Plan{at}"), Value::Null).await.1
}

fn declaration(merge: &str) -> Value {
    json!({ "rules": [
        { "kinds": ["step"], "fold": "latest_by", "key": "/id", "value": "/status" },
        { "kinds": ["dropped"], "fold": "remove_by", "key": "/id" },
    ], "merge": merge })
}

#[tokio::test(flavor = "multi_thread")]
async fn new_sessions_begin_with_the_defaults() {
    let server = Server::begin().await;
    for session in ["before", "defaults"] {
        server.session(session).await;
    }
    let (status, made) = ask(&server, "PUT", "defaults/reducers/Plan", declaration("ours")).await;
    assert_eq!(status, 200, "{made}");
    emit(&server, "defaults", "step", json!({ "id": 1, "status": "open" })).await;
    server.session("after").await;
    let (status, _) = ask(&server, "POST", "after/children", json!({ "name": "child" })).await;
    assert_eq!(status, 201);
    for session in ["after", "child"] {
        assert_eq!(plan(&server, session, "").await, json!({}), "no values are copied");
        emit(&server, session, "step", json!({ "id": 2, "status": "done" })).await;
        assert_eq!(plan(&server, session, "").await, json!({ "2": "done" }));
    }
    assert_eq!(ask(&server, "GET", "before/state/Plan", Value::Null).await.0, 404);
    let (status, _) = ask(&server, "DELETE", "defaults/reducers/Plan", Value::Null).await;
    assert_eq!(status, 204);
    server.session("later").await;
    assert_eq!(ask(&server, "GET", "later/state/Plan", Value::Null).await.0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn declared_later_equals_declared_first() {
    let server = Server::begin().await;
    let steps = [("step", 1, "open"), ("step", 2, "open"), ("dropped", 1, ""), ("step", 2, "done")];
    let mut values = Vec::new();
    for (session, at) in [("first", 0), ("middle", 2), ("last", 4)] {
        server.session(session).await;
        for (number, (kind, id, status)) in steps.iter().enumerate() {
            if number == at {
                let (status, made) =
                    ask(&server, "PUT", &format!("{session}/reducers/Plan"), declaration("ours")).await;
                assert_eq!((status, &made["version"]), (200, &json!(1)), "{made}");
            }
            emit(&server, session, kind, json!({ "id": id, "status": status })).await;
            // A rewind takes the last step back, and a second one takes the first rewind back.
            if number == 2 {
                let (_, rewound) = ask(&server, "POST", &format!("{session}/rewind"), json!({ "to": "-1" })).await;
                let (status, again) =
                    ask(&server, "POST", &format!("{session}/rewind"), json!({ "to": rewound["from"] })).await;
                assert_eq!(status, if at < 4 { 200 } else { status }, "{again}");
            }
        }
        if at == 4 {
            ask(&server, "PUT", &format!("{session}/reducers/Plan"), declaration("ours")).await;
        }
        values.push(plan(&server, session, "").await);
    }
    assert_eq!(values, [json!({ "2": "done" }), json!({ "2": "done" }), json!({ "2": "done" })]);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_a_rewind_undid_do_not_count() {
    let server = Server::begin().await;
    server.session("box").await;
    let first = emit(&server, "box", "step", json!({ "id": 1, "status": "open" })).await;
    emit(&server, "box", "step", json!({ "id": 2, "status": "gone" })).await;
    for _ in 0..2 {
        assert_eq!(ask(&server, "POST", "box/rewind", json!({ "to": first })).await.0, 200);
    }
    let (_, made) = ask(&server, "PUT", "box/reducers/Plan", declaration("ours")).await;
    assert_eq!(made["value"], json!({ "1": "open" }), "{made}");
    let (_, page) = ask(&server, "GET", "box/events?kind=SessionRewound", Value::Null).await;
    assert_eq!(page["events"].as_array().unwrap().len(), 1, "the second rewind has nothing to do");
}

#[tokio::test(flavor = "multi_thread")]
async fn new_declaration_is_a_new_version_and_the_past_keeps_the_old() {
    let server = Server::begin().await;
    server.session("box").await;
    ask(&server, "PUT", "box/reducers/Plan", declaration("ours")).await;
    let step = emit(&server, "box", "step", json!({ "id": "a", "status": "open" })).await;
    let counts = json!({ "rules": [{ "kinds": ["step"], "fold": "count_by", "key": "/status" }] });
    let (_, second) = ask(&server, "PUT", "box/reducers/Plan", counts.clone()).await;
    assert_eq!((&second["version"], &second["value"]), (&json!(2), &json!({ "open": 1 })));
    let (_, same) = ask(&server, "PUT", "box/reducers/Plan", counts).await;
    assert_eq!(same["since"], second["since"], "the same declaration records nothing");
    assert_eq!(plan(&server, "box", &format!("?at={step}")).await, json!({ "a": "open" }));
    let (_, rewound) = ask(&server, "POST", "box/rewind", json!({ "to": step })).await;
    assert!(rewound["recorded"].is_array() || rewound["from"].is_u64(), "{rewound}");
    assert_eq!(plan(&server, "box", "").await, json!({ "open": 1 }), "a rewind keeps the declaration");
    assert_eq!(ask(&server, "DELETE", "box/reducers/Plan", Value::Null).await.0, 204);
    assert_eq!(ask(&server, "DELETE", "box/reducers/Plan", Value::Null).await.0, 404);
    assert_eq!(ask(&server, "GET", "box/state/Plan", Value::Null).await.0, 404);
    assert_eq!(plan(&server, "box", &format!("?at={step}")).await, json!({ "a": "open" }));
}

#[tokio::test(flavor = "multi_thread")]
async fn forks_merges_and_predicates_have_declared_slices() {
    let server = Server::begin().await;
    server.session("box").await;
    ask(&server, "PUT", "box/reducers/Plan", declaration("union")).await;
    emit(&server, "box", "step", json!({ "id": 1, "status": "open" })).await;
    let (status, _) = ask(&server, "POST", "box/forks", json!({ "name": "kid" })).await;
    assert_eq!(status, 200);
    let kids = ask(&server, "GET", "box/family", Value::Null).await.1;
    let kid = kids["sessions"].as_array().unwrap().iter().find(|one| one["name"] != "box").unwrap()["name"].clone();
    let kid = kid.as_str().unwrap();
    emit(&server, kid, "step", json!({ "id": 1, "status": "done" })).await;
    emit(&server, "box", "step", json!({ "id": 2, "status": "open" })).await;
    let (_, merged) = ask(&server, "POST", "box/merge", json!({ "child": kid })).await;
    assert_eq!((&merged["outcome"], &merged["slices"]), (&json!("merged"), &json!(["Plan"])), "{merged}");
    assert_eq!(plan(&server, "box", "").await, json!({ "1": "done", "2": "open" }));
    let (_, stop) = ask(&server, "GET", "box/until?conditions=Plan./1%20%3D%3D%20%22done%22", Value::Null).await;
    assert!(stop["seq"].is_u64() && stop["because"].as_str().unwrap().contains("Plan"), "{stop}");
    let (status, found) = ask(&server, "POST", "box/bisect", json!({ "slice": "Plan./2 exists" })).await;
    assert_eq!(status, 200, "{found}");
    let (_, wrong) = ask(&server, "POST", "box/bisect", json!({ "slice": "Plans./2 exists" })).await;
    assert!(wrong["detail"].as_str().unwrap().contains("did you mean Plan?"), "{wrong}");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_events_and_declarations_record_nothing() {
    let server = Server::begin().await;
    server.session("box").await;
    let call = server.write("box", "a.txt").await["call"].as_u64().unwrap();
    let many: Vec<Value> = (0..10_001).map(|_| json!({ "kind": "a" })).collect();
    let head = ask(&server, "GET", "box", Value::Null).await.1["events"].clone();
    for (body, status, what) in [
        (json!({ "kind": "WriteFile", "data": {} }), 422, "lower-case letter"),
        (json!({ "kind": "a".repeat(101) }), 422, "invalid kind"),
        (json!({ "kind": "a", "events": [{ "kind": "b" }] }), 422, "either"),
        (json!({}), 422, "0 events"),
        (json!({ "events": many }), 422, "10001 events"),
        (json!({ "kind": "a", "data": vec![1; 600_000] }), 422, "limit of 1048576"),
        (json!({ "events": [{ "kind": "good" }, { "kind": "Bad" }] }), 422, "invalid kind"),
        (json!({ "kind": "a", "call": 1 }), 404, "not the beginning of a call"),
        (json!({ "kind": "a", "call": 999 }), 404, "not the beginning of a call"),
        (json!({ "kind": "a", "call_id": "" }), 422, "1 to 200"),
    ] {
        let (got, answer) = ask(&server, "POST", "box/events", body).await;
        assert_eq!(got, status, "{answer}");
        assert!(answer["detail"].as_str().unwrap().contains(what), "{what}: {answer}");
    }
    for (name, body) in [
        ("Usage", declaration("ours")),
        ("Plan", json!({ "rules": [] })),
        ("Plan", json!({ "rules": [{ "kinds": ["a"], "fold": "evaluate" }] })),
        ("Plan", json!({ "rules": [{ "kinds": ["a"], "fold": "latest", "where": "data.x ==" }] })),
    ] {
        assert_eq!(ask(&server, "PUT", &format!("box/reducers/{name}"), body).await.0, 422);
    }
    assert_eq!(ask(&server, "GET", "box", Value::Null).await.1["events"], head);
    let (_, done) = ask(&server, "POST", "box/events", json!({ "kind": "note", "data": 1, "call": call })).await;
    let (_, event) = ask(&server, "GET", &format!("box/events?from={}", done["last"]), Value::Null).await;
    assert_eq!((&event["events"][0]["call"], &event["events"][0]["event"]), (&json!(call), &json!(1)), "{event}");
}

#[tokio::test(flavor = "multi_thread")]
async fn builtin_events_are_folded_and_long_texts_are_contents() {
    let server = Server::begin().await;
    server.session("box").await;
    server.write("box", "a.txt").await;
    let rules = json!({ "rules": [{ "kinds": ["CallFinished"], "fold": "count_by", "key": "/status" }] });
    let (_, made) = ask(&server, "PUT", "box/reducers/Outcomes", rules).await;
    assert_eq!(made["value"], json!({ "ok": 1 }), "{made}");
    let files = json!({ "rules": [{ "kinds": ["WriteFile"], "fold": "count_by", "key": "/path" }] });
    let (_, made) = ask(&server, "PUT", "box/reducers/Writes", files).await;
    assert_eq!(made["value"].as_object().unwrap().len(), 1, "{made}");
    let long = "x".repeat(2 << 20);
    let seq = emit(&server, "box", "report", json!({ "text": long })).await;
    let (_, page) = ask(&server, "GET", &format!("box/events?from={seq}"), Value::Null).await;
    assert_eq!(page["events"][0]["event"]["text"]["bytes"], json!(2 << 20), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_selected_by_kind_agent_tool_and_path() {
    let server = Server::begin().await;
    server.session("box").await;
    server.write("box", "a.txt").await;
    server.write("box", "b.txt").await;
    emit(&server, "box", "note", json!(1)).await;
    let body = json!({ "kind": "note", "data": 2, "agent": "ada" });
    ask(&server, "POST", "box/events", body).await;
    for (query, kinds) in [
        ("kind=note", &["note", "note"][..]),
        ("kind=NOTE,CallStarted", &["CallStarted", "CallStarted", "note", "note"]),
        ("agent=ada", &["note"]),
        ("kind=note&agent=nobody", &[]),
        ("path=b*", &["WriteFile"]),
        ("tool=write_file&kind=callfinished", &["CallFinished", "CallFinished"]),
        ("tool=rm", &[]),
    ] {
        let (status, page) = ask(&server, "GET", &format!("box/events?{query}"), Value::Null).await;
        let found: Vec<&str> = page["events"].as_array().unwrap().iter().map(|e| e["kind"].as_str().unwrap()).collect();
        assert_eq!((status, &found[..], page["next"].is_null()), (200, kinds, true), "{query}: {page}");
    }
    let (_, page) = ask(&server, "GET", "box/events?kind=note&limit=1", Value::Null).await;
    let next = page["next"].as_u64().unwrap();
    let (_, rest) = ask(&server, "GET", &format!("box/events?kind=note&limit=1&from={next}"), Value::Null).await;
    assert_eq!((&rest["events"][0]["event"], &rest["next"]), (&json!(2), &Value::Null));
    assert_eq!(ask(&server, "GET", "box/events?path=%5Bz", Value::Null).await.0, 422);
}
