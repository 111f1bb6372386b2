//! What the page in a browser asks for: its files, its token, and documents for long runs.

use bytes::Bytes;
use foldspace::http::{HttpOptions, ServerLimits};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::terminal::by_protocol;
use crate::rig::{Answer, Server, sent, taken};

/// A request to a page's own listener.
async fn ask_page(address: &str, method: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
    let stream = TcpStream::connect(address.trim_start_matches("http://").trim_end_matches('/')).await.unwrap();
    let json = [("content-type", "application/json")];
    let headers: Vec<_> = headers.iter().copied().chain(json).collect();
    taken(sent(TokioIo::new(stream), method, path, Bytes::from(body.to_string()), &headers).await).await
}

/// Signs a page in; gives its address and its header.
async fn signed_in(served: &Server, read_only: bool) -> (String, String) {
    let opened = served.ask("POST", "/v1/ui", Some(&json!({ "read_only": read_only }))).await.json();
    let address = opened["address"].as_str().unwrap().to_owned();
    let given = ask_page(&address, "POST", "/v1/sign-in", &[], &json!({ "code": opened["code"] })).await;
    assert_eq!((given.status, given.header("cache-control")), (200, "no-store"), "{given:?}");
    assert_eq!(given.json()["read_only"], read_only);
    (address, format!("Bearer {}", given.json()["token"].as_str().unwrap()))
}

async fn call(served: &Server, session: &str, tool: &str, params: Value, agent: &str) -> u64 {
    let body = json!({ "tool": tool, "params": params, "agent": agent });
    let answer = served.ask("POST", &format!("/v1/sessions/{session}/calls"), Some(&body)).await;
    answer.json()["call"].as_u64().unwrap_or_else(|| panic!("{answer:?}"))
}

async fn get(served: &Server, path: &str) -> Value {
    let answer = served.ask("GET", &format!("/v1/sessions/{path}"), None).await;
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    answer.json()
}

/// Session `s` with two files, a failure, a hostile name and an edit; a child `s-1` that is merged.
async fn told() -> Server {
    let served = Server::begin().await;
    served.session("s").await;
    call(&served, "s", "write_file", json!({ "file_path": "a.txt", "content": "one\ntwo\n" }), "ada").await;
    call(&served, "s", "read_file", json!({ "file_path": "missing\u{202e}" }), "bob").await;
    let hostile = "<img src=x>\"'.txt";
    call(&served, "s", "write_file", json!({ "file_path": hostile, "content": "x" }), "bob").await;
    call(&served, "s", "ls", json!({}), "").await;
    let begun = served.ask("POST", "/v1/sessions/s/children", Some(&json!({}))).await;
    assert_eq!(begun.status, 201, "{begun:?}");
    let edit = json!({ "file_path": "a.txt", "old_string": "two", "new_string": "zwei" });
    call(&served, "s-1", "edit_file", edit, "kid").await;
    let merged = served.ask("POST", "/v1/sessions/s/merge", Some(&json!({ "child": "s-1" }))).await;
    assert_eq!(merged.json()["outcome"], "merged", "{merged:?}");
    served
}

#[tokio::test(flavor = "multi_thread")]
async fn page_is_served_without_token_and_confined() {
    let served = Server::begin().await;
    for path in ["/", "/assets/app.js", "/assets/app.css"] {
        let packed = served.ask_tcp(path, &[("accept-encoding", "br, gzip")]).await;
        let plain = served.ask_tcp(path, &[]).await;
        assert_eq!((packed.status, plain.status), (200, 200), "{path}");
        let policy = plain.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'self';") && !policy.contains("unsafe"), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
        for (name, value) in
            [("cache-control", "no-cache"), ("x-content-type-options", "nosniff"), ("referrer-policy", "no-referrer")]
        {
            assert_eq!(plain.header(name), value, "{path}");
        }
        assert_eq!(plain.header("content-encoding"), "");
        if packed.header("content-encoding") == "gzip" {
            assert!(packed.body.len() < plain.body.len() && packed.body.starts_with(&[0x1f, 0x8b]), "{path}");
            assert_ne!(packed.header("etag"), plain.header("etag"));
        }
        let known = served.ask_tcp(path, &[("if-none-match", plain.header("etag"))]).await;
        assert_eq!((known.status, known.body.len(), known.header("etag")), (304, 0, plain.header("etag")));
        assert_eq!(served.ask_tcp(path, &[("host", "evil.example")]).await.status, 403, "{path}");
        assert_eq!(served.ask("GET", path, None).await.body, plain.body, "on the unix socket, too");
    }
    let index = served.ask_tcp("/", &[]).await;
    assert_eq!(index.header("content-type"), "text/html; charset=utf-8");
    assert!(!String::from_utf8_lossy(&index.body).contains(" style="), "the policy allows no such attribute");
    for path in ["/assets/", "/assets/none.js", "/assets/../Cargo.toml", "/assets/%2e%2e/Cargo.toml", "/assets/app.js/"]
    {
        assert_eq!(served.ask_tcp(path, &[]).await.status, 404, "{path}");
    }
    for path in ["/index.html", "/assets", "/v1/sessions"] {
        assert_eq!(served.ask_tcp(path, &[]).await.status, 401, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn page_gets_its_token_once_by_a_code() {
    let served = Server::begin().await;
    served.session("s").await;
    let opened = served.ask("POST", "/v1/ui", Some(&json!({}))).await.json();
    let (address, code) = (opened["address"].as_str().unwrap(), opened["code"].as_str().unwrap());
    assert!(address.starts_with("http://127.0.0.1:"), "{address}");
    let sign_in = async |code: &str, headers: &[(&str, &str)]| {
        ask_page(address, "POST", "/v1/sign-in", headers, &json!({ "code": code })).await
    };
    for wrong in ["", "x", &code[1..]] {
        assert_eq!(sign_in(wrong, &[]).await.status, 401, "{wrong:?}");
    }
    let foreign = sign_in(code, &[("origin", "http://evil.example")]).await;
    assert_eq!(foreign.status, 403, "another page has no use of it");
    let own = address.trim_end_matches('/');
    let host = own.trim_start_matches("http://");
    let given = sign_in(code, &[("origin", own), ("host", host)]).await;
    let token = given.json()["token"].as_str().unwrap().to_owned();
    assert_eq!((given.status, sign_in(code, &[]).await.status), (200, 401), "once");
    let shown = format!("Bearer {token}");
    let shown = [("authorization", shown.as_str())];
    let list = ask_page(address, "GET", "/v1/sessions", &shown, &Value::Null).await;
    assert_eq!(list.json()[0]["name"], "s");
    assert_eq!(ask_page(address, "GET", "/v1/sessions", &[], &Value::Null).await.status, 401);
    assert_eq!(ask_page(address, "POST", "/v1/ui", &shown, &json!({})).await.status, 403, "only on the unix socket");
    assert_eq!(served.ask_tcp("/v1/sessions", &shown).await.status, 401, "another listener has another token");
    let again = served.ask("POST", "/v1/ui", None).await.json();
    assert_eq!(again["address"], address, "it is opened once");
    assert!(!served.face.is_idle(), "a page is open");
}

#[tokio::test(flavor = "multi_thread")]
async fn read_only_page_changes_nothing() {
    let served = told().await;
    let (address, token) = signed_in(&served, true).await;
    let (free, free_token) = signed_in(&served, false).await;
    assert_ne!((&address, &token), (&free, &free_token));
    let shown = [("authorization", token.as_str())];
    let before = get(&served, "s").await;
    let description: Value = serde_json::from_str(&foldspace::http::openapi()).unwrap();
    let mut refused = 0;
    for (path, methods) in description["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys().filter(|method| *method != "get") {
            let place = path.replace("{session}", "s").replace("{call}", "2").replace("{path}", "a.txt");
            let answer = ask_page(&address, &method.to_uppercase(), &place, &shown, &json!({ "code": "" })).await;
            if path != "/v1/sign-in" {
                assert_eq!((answer.status, &answer.json()["kind"]), (403, &json!("forbidden")), "{method} {path}");
                refused += 1;
            }
        }
    }
    assert!(refused > 20, "{refused}");
    let by_protocol = by_protocol(token.trim_start_matches("Bearer "));
    for shown in [shown[0], (by_protocol.0, by_protocol.1.as_str())] {
        for path in ["/v1/sessions/s/section", "/v1/sessions/s/terminal"] {
            let headers = [shown, ("connection", "upgrade"), ("upgrade", "websocket")];
            assert_eq!(ask_page(&address, "GET", path, &headers, &Value::Null).await.status, 403, "{path}");
        }
    }
    for path in ["/v1/sessions/s", "/v1/sessions/s/timeline", "/v1/sessions/s/files/a.txt"] {
        assert_eq!(ask_page(&address, "GET", path, &shown, &Value::Null).await.status, 200, "{path}");
    }
    assert_eq!(ask_page(&address, "GET", "/v1/server", &shown, &Value::Null).await.json()["read_only"], true);
    assert_eq!(get(&served, "s").await, before);
    let options = HttpOptions { read_only: true, ..HttpOptions::default() };
    let only = Server::made(tempfile::tempdir().unwrap(), ServerLimits::default(), options).await;
    assert_eq!(only.ask("POST", "/v1/sessions", Some(&json!({ "name": "n" }))).await.status, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_listed_filtered_and_paged() {
    let served = told().await;
    let all = get(&served, "s/calls").await;
    let names = |list: &Value| -> Vec<String> {
        list["calls"].as_array().unwrap().iter().map(|call| call["tool"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&all), ["write_file", "read_file", "write_file", "ls"]);
    assert_eq!((&all["next"], &all["head"]), (&Value::Null, &get(&served, "s").await["events"]));
    let hostile = &all["calls"][2];
    assert_eq!(hostile["paths"][0], "<img src=x>\"'.txt");
    assert_eq!(hostile["summary"], hostile["paths"][0]);
    assert_eq!(hostile["changed"], json!({ "added": 1, "changed": 0, "removed": 0 }));
    assert_eq!(all["calls"][1]["changed"], json!({ "added": 0, "changed": 0, "removed": 0 }));
    assert_eq!(all["calls"][1]["summary"], "missing\\u{202e}", "what misleads is escaped");
    let mut known = get(&served, &format!("s/calls/{}", hostile["call"])).await;
    assert_eq!(known["call"], hostile["call"]);
    assert_eq!(known["params"].take(), hostile["params"]);
    let (mut seen, mut from) = (Vec::new(), json!(1));
    while from != Value::Null {
        let page = get(&served, &format!("s/calls?limit=1&from={from}")).await;
        seen.extend(names(&page));
        from = page["next"].clone();
    }
    assert_eq!(seen, names(&all), "pages hold each once");
    let filters = [
        ("tool=ls", 1),
        ("agent=ada", 1),
        ("agent=", 1),
        ("failed=true", 1),
        ("failed=false", 4),
        ("changed=true", 2),
        ("path=a.*", 1),
        ("path=**", 2),
        ("text=MISSING", 1),
        ("text=%22'", 2),
        ("text=a.txt&agent=ada", 1),
        ("text=a.txt&agent=bob", 0),
        ("text=.*", 0),
    ];
    for (filter, count) in filters {
        assert_eq!(names(&get(&served, &format!("s/calls?{filter}")).await).len(), count, "{filter}");
        assert_eq!(get(&served, &format!("s/timeline?{filter}")).await["calls"], count, "{filter}");
    }
    for wrong in ["limit=0", "limit=1001", "failed=1", "path=[", "nope=1", "from=soon"] {
        let refused = served.ask("GET", &format!("/v1/sessions/s/calls?{wrong}"), None).await;
        assert!([400, 422].contains(&refused.status), "{wrong}: {refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn timeline_counts_every_call_once() {
    let served = told().await;
    let whole = get(&served, "s/timeline").await;
    assert_eq!(
        (&whole["calls"], &whole["tools"]["write_file"], &whole["agents"]["bob"]),
        (&json!(4), &json!(2), &json!(2))
    );
    let sums = |line: &Value| {
        let of = |name: &str| {
            line["buckets"].as_array().unwrap().iter().map(|bucket| bucket[name].as_u64().unwrap()).sum::<u64>()
        };
        (of("calls"), of("failed"), of("changed"))
    };
    assert_eq!((sums(&whole), whole["buckets"].as_array().unwrap().len()), ((4, 1, 2), 4));
    let ends = |line: &Value| line["buckets"].as_array().unwrap().last().unwrap()["ended_at"].clone();
    assert_eq!(ends(&whole), whole["ended_at"]);
    let micros: u64 =
        whole["buckets"].as_array().unwrap().iter().map(|bucket| bucket["micros"].as_u64().unwrap()).sum();
    let calls = get(&served, "s/calls").await;
    assert_eq!(
        micros,
        calls["calls"].as_array().unwrap().iter().map(|call| call["micros"].as_u64().unwrap()).sum::<u64>()
    );
    let three = get(&served, "s/timeline?buckets=3").await;
    assert_eq!((sums(&three), three["buckets"].as_array().unwrap().len()), ((4, 1, 2), 3));
    let mut first = 0;
    for bucket in three["buckets"].as_array().unwrap() {
        let page = get(&served, &format!("s/calls?from={}&limit=1", bucket["from"])).await;
        assert_eq!((&page["calls"][0]["call"], &page["calls"][0]["started_at"]), (&bucket["from"], &bucket["at"]));
        assert!(bucket["from"].as_u64().unwrap() > first);
        first = bucket["from"].as_u64().unwrap();
    }
    served.session("empty").await;
    let empty = get(&served, "empty/timeline").await;
    assert_eq!((&empty["calls"], &empty["started_at"], &empty["buckets"]), (&json!(0), &Value::Null, &json!([])));
    for wrong in ["buckets=0", "buckets=2001", "buckets=x"] {
        assert!(
            [400, 422].contains(&served.ask("GET", &format!("/v1/sessions/s/timeline?{wrong}"), None).await.status)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_blame_and_family_follow_a_merge() {
    let served = told().await;
    let changes = get(&served, "s/changes?from=1").await;
    let rows: Vec<_> =
        changes["changes"].as_array().unwrap().iter().map(|row| (&row["change"], &row["path"])).collect();
    assert_eq!(rows.len(), 2, "{changes}");
    assert_eq!((rows[1], &changes["more"]), ((&json!("added"), &json!("a.txt")), &json!(false)));
    let last = get(&served, "s/changes?from=-2").await;
    let row = &last["changes"][0];
    assert_eq!((&row["change"], &row["kind"], &row["size"]), (&json!("changed"), &json!("file"), &json!(9)));
    assert_ne!(row["before"]["content"], row["after"]["content"]);
    let blamed = get(&served, "s/blame/a.txt").await;
    let family = get(&served, "s-1/family").await;
    let sessions = family["sessions"].as_array().unwrap();
    let (parent, child) = (&sessions[0], &sessions[1]);
    assert_eq!((&family["root"], sessions.len()), (&parent["session"], 2));
    assert_eq!(
        (&child["parent"], &child["isolation"], &child["name"]),
        (&parent["session"], &json!("fork"), &json!("s-1"))
    );
    let merge = &parent["merges"][0];
    assert_eq!(
        (&merge["child"], &merge["outcome"], &merge["conflicts"]),
        (&child["session"], &json!("merged"), &json!(0))
    );
    let lines = blamed["lines"].as_array().unwrap();
    assert_eq!((&lines[0]["session"], &lines[1]["session"]), (&parent["session"], &child["session"]), "{blamed}");
    assert_eq!(lines[1]["line"], "zwei");
    let old = get(&served, "s/blame/a.txt?at=4").await;
    assert_eq!(old["lines"][1]["session"], parent["session"]);
    assert_eq!(served.ask("GET", "/v1/sessions/s/blame/none", None).await.status, 404);
    let listed = served.ask("GET", "/v1/sessions", None).await.json();
    assert_eq!((&listed[0]["parent"], &listed[1]["parent"]), (&Value::Null, &parent["session"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn alignment_keeps_rows_beside_an_inserted_call() {
    let served = Server::begin().await;
    for session in ["one", "two"] {
        served.session(session).await;
        call(&served, session, "write_file", json!({ "file_path": "a", "content": "x" }), "").await;
        if session == "two" {
            call(&served, session, "write_file", json!({ "content": "y", "file_path": "b" }), "").await;
        }
        call(&served, session, "ls", json!({}), "").await;
        let params = if session == "one" {
            json!({ "file_path": "a", "limit": 1 })
        } else {
            json!({ "limit": 1, "file_path": "a" })
        };
        call(&served, session, "read_file", params, "").await;
    }
    call(&served, "one", "rm", json!({ "path": "a" }), "").await;
    let aligned = get(&served, "one/alignment?other=two").await;
    let rows: Vec<_> = aligned["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            let tool = |side: &str| row[side]["tool"].as_str().unwrap_or("-").to_owned();
            (tool("left"), tool("right"), row["same"].as_bool().unwrap(), row["result_differs"].as_bool().unwrap())
        })
        .collect();
    let row = |left: &str, right: &str, same, differs| (left.to_owned(), right.to_owned(), same, differs);
    let wanted = [
        row("write_file", "write_file", true, false),
        row("-", "write_file", false, false),
        row("ls", "ls", true, true),
        row("read_file", "read_file", true, false),
        row("rm", "-", false, false),
    ];
    assert_eq!(rows, wanted, "{aligned}");
    assert_eq!((&aligned["rows"][1]["right"]["summary"], &aligned["more"]), (&json!("b"), &json!(false)));
    let moments = get(&served, "one/alignment?other=one&other_to=4").await;
    assert_eq!(moments["rows"].as_array().unwrap().iter().filter(|row| row["same"] == true).count(), 1);
    assert_eq!(served.ask("GET", "/v1/sessions/one/alignment?other=none", None).await.status, 404);
    assert_eq!(served.ask("GET", "/v1/sessions/one/alignment", None).await.status, 400);
}
