//! Policies for the tools of a session.

use serde_json::{Value, json};

use crate::rig::Server;

async fn ask(server: &Server, method: &str, path: &str, body: Value) -> (u16, Value) {
    let body = (!body.is_null()).then_some(body);
    let answer = server.ask(method, &format!("/v1/sessions/{path}"), body.as_ref()).await;
    (answer.status, serde_json::from_slice(&answer.body).unwrap_or_default())
}

async fn begin(server: &Server, name: &str, backend: &str, policy: Value) {
    let body = json!({ "name": name, "backend": backend });
    let begun = server.ask("POST", "/v1/sessions", Some(&body)).await;
    assert_eq!(begun.status, 201, "{begun:?}");
    for (path, content) in [("docs/a.md", "a\n"), ("src/lib.rs", "lib\n"), ("secrets/key", "needle\n")] {
        let params = json!({ "file_path": path, "content": content });
        assert_eq!(call(server, name, "write_file", params).await["status"], "ok");
    }
    if !policy.is_null() {
        set(server, name, policy).await;
    }
}

async fn set(server: &Server, session: &str, policy: Value) -> Value {
    let (status, set) = ask(server, "PUT", &format!("{session}/policy"), policy).await;
    assert_eq!(status, 200, "{set}");
    set
}

async fn call(server: &Server, session: &str, tool: &str, params: Value) -> Value {
    let body = json!({ "tool": tool, "params": params, "auto_confirm": true });
    let (status, outcome) = ask(server, "POST", &format!("{session}/calls"), body).await;
    assert_eq!(status, 200, "{outcome}");
    outcome
}

async fn shell(server: &Server, session: &str, command: &str) -> Value {
    call(server, session, "shell_execute", json!({ "command": command })).await
}

async fn write(server: &Server, session: &str, path: &str) -> Value {
    let params = json!({ "file_path": path, "content": "new\n", "mode": "overwrite" });
    call(server, session, "write_file", params).await
}

async fn read(server: &Server, session: &str, path: &str) -> Value {
    call(server, session, "read_file", json!({ "file_path": path })).await
}

fn assert_refused(outcome: &Value, expected: &str) {
    assert_eq!((&outcome["status"], &outcome["reason"]), (&json!("error"), &json!("refused")), "{outcome}");
    assert_eq!(outcome["text"], expected);
}

async fn contents(server: &Server, session: &str, path: &str) -> String {
    let answer = server.ask("GET", &format!("/v1/sessions/{session}/files/{path}"), None).await;
    String::from_utf8_lossy(&answer.body).into_owned()
}

/// Folds the history again: the states must be equal.
async fn verify(server: &Server, session: &str) {
    let (status, verified) = ask(server, "POST", &format!("{session}/verify"), json!({})).await;
    let problems = (&verified["unreadable"], &verified["lost"], &verified["differences"]);
    assert_eq!((status, problems), (200, (&json!(0), &json!(0), &json!([]))), "{verified}");
}

#[tokio::test(flavor = "multi_thread")]
async fn path_rules_hold_for_each_tool() {
    let server = Server::begin().await;
    let policy = json!({ "read": ["**", "!secrets"], "write": ["docs/", "notes/*.md"] });
    begin(&server, "box", "memory", policy).await;
    for path in ["docs/new/b.md", "/workspace/docs/a.md", "notes/x.md"] {
        assert_eq!(write(&server, "box", path).await["status"], "ok");
    }
    let refused = "policy: no write rule allows /src/lib.rs; allowed: docs/, notes/*.md";
    assert_refused(&write(&server, "box", "src/lib.rs").await, refused);
    let edit = json!({ "file_path": "src/lib.rs", "old_string": "lib", "new_string": "x" });
    assert_refused(&call(&server, "box", "edit_file", edit).await, refused);
    assert_refused(&call(&server, "box", "rm", json!({ "path": "src/lib.rs" })).await, refused);
    let whole = call(&server, "box", "rm", json!({ "path": "notes" })).await;
    assert_refused(&whole, "policy: no write rule allows /notes; allowed: docs/, notes/*.md");
    assert_refused(&read(&server, "box", "secrets/key").await, "policy: read rule 2 (!secrets) excludes /secrets/key");
    assert_eq!(read(&server, "box", "src/lib.rs").await["status"], "ok");
    let grep = call(&server, "box", "grep", json!({ "pattern": "needle" })).await;
    assert_eq!((&grep["result"]["matches"], &grep["result"]["skipped_by_policy"]), (&json!([]), &json!(1)));
    let grep = call(&server, "box", "grep", json!({ "pattern": "needle", "path": "secrets/key" })).await;
    assert_refused(&grep, "policy: read rule 2 (!secrets) excludes /secrets/key");
    // Clients' file changes are calls as well.
    let (status, put) = ask(&server, "PUT", "box/files/src/put.rs", json!("x")).await;
    assert!(status >= 400 && put.to_string().contains("no write rule allows /src/put.rs"), "{status} {put}");
    let moved = json!({ "from": "docs/a.md", "to": "src/a.md" });
    let (status, moved) = ask(&server, "POST", "box/move", moved).await;
    assert!(status >= 400, "{moved}");
    assert_eq!(contents(&server, "box", "src/lib.rs").await, "lib\n");
    verify(&server, "box").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn links_lead_to_no_other_path() {
    let server = Server::begin().await;
    begin(&server, "box", "host", Value::Null).await;
    let outcome = shell(&server, "box", "ln -s ../secrets docs/to; ln -s ../src/lib.rs docs/lib").await;
    assert_eq!(outcome["status"], "ok");
    set(&server, "box", json!({ "read": ["docs/"], "write": ["docs/"] })).await;
    let outcome = read(&server, "box", "docs/to/key").await;
    assert_refused(&outcome, "policy: no read rule allows /secrets/key; allowed: docs/");
    let edit = json!({ "file_path": "docs/to/new", "content": "x" });
    let outcome = call(&server, "box", "write_file", edit).await;
    assert_refused(&outcome, "policy: no write rule allows /secrets/new; allowed: docs/");
}

#[tokio::test(flavor = "multi_thread")]
async fn order_and_numbers_hold_and_survive_fork_and_rewind() {
    let server = Server::begin().await;
    let policy = json!({
        "order": [
            { "first": "read_file", "before": "write_file", "same_path": true },
            { "first": "ls", "before": "rm" },
        ],
        "at_most": [{ "tool": "write_file", "n": 2 }],
    });
    begin(&server, "box", "memory", policy).await;
    let outcome = write(&server, "box", "docs/a.md").await;
    let expected = "policy: order rule 1: read_file must succeed with /docs/a.md before write_file changes it";
    assert_refused(&outcome, expected);
    let outcome = call(&server, "box", "rm", json!({ "path": "docs/a.md" })).await;
    assert_refused(&outcome, "policy: order rule 2: ls must succeed before rm");
    let before = read(&server, "box", "docs/a.md").await["finished"].clone();
    assert_eq!(write(&server, "box", "docs/a.md").await["status"], "ok");
    let one = write(&server, "box", "docs/fresh.md").await;
    assert_eq!(one["status"], "ok", "a new file needs no reading: {one}");
    let used_up = "policy: at_most rule 1: write_file has used up its 2 calls";
    assert_refused(&write(&server, "box", "docs/more.md").await, used_up);
    let (_, rules) = ask(&server, "GET", "box/state/ToolRules", Value::Null).await;
    assert_eq!(rules["own"]["calls"], json!({ "write_file": 2 }), "refused calls do not count");

    let fork = json!({ "name": "now" });
    assert_eq!(ask(&server, "POST", "box/children", fork).await.0, 201);
    assert_refused(&write(&server, "now", "docs/more.md").await, used_up);
    let past = json!({ "name": "past", "at": before });
    assert_eq!(ask(&server, "POST", "box/children", past).await.0, 201);
    assert_eq!(write(&server, "past", "docs/a.md").await["status"], "ok", "it was read by then");

    let (status, rewound) = ask(&server, "POST", "box/rewind", json!({ "to": before })).await;
    assert_eq!(status, 200, "{rewound}");
    let (_, rules) = ask(&server, "GET", "box/state/ToolRules", Value::Null).await;
    assert_eq!(rules["own"]["calls"], json!({ "write_file": 0 }));
    assert_eq!(write(&server, "box", "docs/a.md").await["status"], "ok");
    // A rewind to a position before the policy does not remove it.
    assert_eq!(ask(&server, "POST", "box/rewind", json!({ "to": 1 })).await.0, 200);
    let outcome = call(&server, "box", "rm", json!({ "path": "docs/a.md" })).await;
    assert_refused(&outcome, "policy: order rule 2: ls must succeed before rm");
    for session in ["box", "now", "past"] {
        verify(&server, session).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn child_obeys_its_parents_and_its_own() {
    let server = Server::begin().await;
    begin(&server, "box", "memory", Value::Null).await;
    set(&server, "box", json!({ "tools": ["read_file", "write_file"] })).await;
    let narrower = json!({ "write": ["docs/"], "read": ["docs/"] });
    // At a position without the policy, too, and with fresh mounts.
    for body in [
        json!({ "name": "past", "at": 4, "policy": narrower }),
        json!({ "name": "full", "isolation": "full", "policy": narrower }),
        json!({ "name": "now", "policy": narrower }),
    ] {
        let (status, child) = ask(&server, "POST", "box/children", body).await;
        assert_eq!(status, 201, "{child}");
        let child = child["name"].as_str().unwrap().to_owned();
        let (_, shown) = ask(&server, "GET", &format!("{child}/policy"), Value::Null).await;
        assert_eq!((&shown["policy"], shown["inherited"].as_array().unwrap().len()), (&narrower, 1), "{shown}");
        let outcome = call(&server, &child, "ls", json!({})).await;
        assert_refused(&outcome, "policy: tools does not allow ls; allowed: read_file, write_file");
        let outcome = write(&server, &child, "src/x").await;
        assert_refused(&outcome, "policy: no write rule allows /src/x; allowed: docs/");
        assert_eq!(ask(&server, "DELETE", &format!("{child}/policy"), Value::Null).await.0, 204);
        assert_eq!(ask(&server, "DELETE", &format!("{child}/policy"), Value::Null).await.0, 404);
        assert_eq!(write(&server, &child, "src/x").await["status"], "ok");
        let outcome = call(&server, &child, "ls", json!({})).await;
        assert_refused(&outcome, "policy: tools does not allow ls; allowed: read_file, write_file");
        verify(&server, &child).await;
    }
    let forks = json!({ "count": 2, "name": "f", "policy": narrower });
    assert_eq!(ask(&server, "POST", "box/forks", forks).await.0, 200);
    let outcome = write(&server, "f-2", "src/x").await;
    assert_refused(&outcome, "policy: no write rule allows /src/x; allowed: docs/");
    let shared = json!({ "isolation": "shared", "agent": "a", "policy": narrower });
    let (status, shared) = ask(&server, "POST", "box/children", shared).await;
    assert_eq!(status, 422, "{shared}");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_calls_are_undone_in_one_commit() {
    let server = Server::begin().await;
    begin(&server, "box", "host", json!({ "on_failure": "undo" })).await;
    let outcome = shell(&server, "box", "echo x > new; rm docs/a.md; echo y > src/lib.rs; exit 3").await;
    assert_eq!((&outcome["result"]["exit_code"], &outcome["result"]["undone"]), (&json!(3), &json!(3)), "{outcome}");
    assert_eq!(contents(&server, "box", "src/lib.rs").await, "lib\n");
    let slow = json!({ "command": "echo x > new; sleep 20", "timeout_seconds": 1 });
    let outcome = call(&server, "box", "shell_execute", slow).await;
    assert_eq!(outcome["result"]["undone"], 1, "{outcome}");
    let (_, files) = ask(&server, "GET", "box/files", Value::Null).await;
    assert!(!files.to_string().contains("/new"), "{files}");
    let (_, page) = ask(&server, "GET", "box/events?kind=WriteFile", Value::Null).await;
    assert_eq!(page["events"].as_array().unwrap().len(), 3, "only the first files: {page}");
    assert_eq!(shell(&server, "box", "echo x > new").await["status"], "ok");
    // A fork inherits it.
    assert_eq!(ask(&server, "POST", "box/children", json!({ "name": "kid" })).await.0, 201);
    let outcome = shell(&server, "kid", "rm new; exit 1").await;
    assert_eq!(outcome["result"]["undone"], 1, "{outcome}");
    verify(&server, "kid").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_changes_outside_are_undone_or_reported() {
    let server = Server::begin().await;
    begin(&server, "box", "host", json!({ "write": ["docs/", "*.log"] })).await;
    let command = "mkdir -p deep/er docs/sub; echo x > docs/sub/b; echo x > deep/x; echo log > deep/er/a.log; \
                   echo y > src/lib.rs; rm -r secrets; echo z > docs/a.md";
    let outcome = shell(&server, "box", command).await;
    let note = "changes of 4 entries outside of the policy's paths were undone (policy: no write rule allows /deep/x; \
                allowed: docs/, *.log)";
    let paths = ["/deep/x", "/secrets", "/secrets/key", "/src/lib.rs"];
    let outside = json!({ "entries": 4, "paths": paths, "undone": true, "note": note });
    assert_eq!((&outcome["status"], &outcome["result"]["outside"]), (&json!("ok"), &outside), "{outcome}");
    assert!(outcome["text"].as_str().unwrap().contains(note), "{outcome}");
    for (path, expected) in
        [("src/lib.rs", "lib\n"), ("secrets/key", "needle\n"), ("docs/a.md", "z\n"), ("deep/er/a.log", "log\n")]
    {
        assert_eq!(contents(&server, "box", path).await, expected, "{path}");
    }
    let (_, drift) = ask(&server, "GET", "box/events?kind=DriftFound", Value::Null).await;
    assert_eq!(shell(&server, "box", "cat src/lib.rs secrets/key").await["result"]["stdout"], "lib\nneedle\n");
    let (_, later) = ask(&server, "GET", "box/events?kind=DriftFound", Value::Null).await;
    assert_eq!(drift["events"], later["events"], "the slice equals the disk");
    let (_, page) = ask(&server, "GET", "box/events?kind=DeleteEntry", Value::Null).await;
    assert_eq!(page["events"], json!([]), "an undone change is not recorded");

    set(&server, "box", json!({ "write": ["docs/"], "commands_outside": "report", "on_failure": "undo" })).await;
    let outcome = shell(&server, "box", "echo y > src/lib.rs").await;
    assert_eq!(outcome["result"]["outside"]["undone"], false, "{outcome}");
    assert_eq!(contents(&server, "box", "src/lib.rs").await, "y\n");
    // A failed command leaves nothing, inside or outside.
    let outcome = shell(&server, "box", "echo bad > src/lib.rs; echo bad > docs/a.md; exit 1").await;
    assert_eq!((&outcome["result"]["undone"], &outcome["result"]["outside"]), (&json!(2), &Value::Null), "{outcome}");
    assert_eq!(contents(&server, "box", "docs/a.md").await, "z\n");

    let start = json!({ "command": "sleep 1", "auto_confirm": true });
    let (status, process) = ask(&server, "POST", "box/processes", start).await;
    assert!(status >= 400 && process.to_string().contains("background command"), "{status} {process}");
    verify(&server, "box").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_policies_record_nothing() {
    let server = Server::begin().await;
    begin(&server, "box", "memory", json!({ "tools": ["ls"] })).await;
    let (_, before) = ask(&server, "GET", "box", Value::Null).await;
    for (given, status, expected) in [
        (json!({}), 422, "the policy has no rules"),
        (json!({ "reed": ["a"] }), 422, "unknown field `reed`"),
        (json!({ "read": "a" }), 422, "read: expected a list"),
        (json!([1]), 400, ""),
        (json!({ "write": ["a{"] }), 422, "write rule 1 (a{): the glob is invalid"),
        (json!({ "tools": ["write_fle"] }), 422, "unknown tool \\\"write_fle\\\""),
        (json!({ "read": vec!["a"; 101] }), 422, "read has 101 rules; the limit is 100"),
        (json!({ "on_failure": "maybe" }), 422, "unknown variant `maybe`"),
        (json!({ "at_most": [{ "tool": "ls", "n": -1 }] }), 422, "a whole number"),
    ] {
        let (got, error) = ask(&server, "PUT", "box/policy", given.clone()).await;
        assert!(got == status && error.to_string().contains(expected), "{given}: {got} {error}");
        if !given.is_array() {
            let (got, error) = ask(&server, "POST", "box/children", json!({ "policy": given })).await;
            assert!(got == 422, "{given}: {got} {error}");
            let body = json!({ "name": "not-made", "policy": given });
            assert_eq!(server.ask("POST", "/v1/sessions", Some(&body)).await.status, 422, "{given}");
        }
    }
    let (_, after) = ask(&server, "GET", "box", Value::Null).await;
    assert_eq!(before["events"], after["events"]);
    assert_eq!(ask(&server, "GET", "not-made", Value::Null).await.0, 404);
    assert_eq!(ask(&server, "GET", "nowhere/policy", Value::Null).await.0, 404);
    let again = set(&server, "box", json!({ "tools": ["ls"] })).await;
    assert_eq!(ask(&server, "GET", "box", Value::Null).await.1["events"], before["events"], "{again}");
}

#[tokio::test(flavor = "multi_thread")]
async fn new_session_has_its_policy_and_a_retry_keeps_a_later_one() {
    let server = Server::begin().await;
    let body = json!({ "name": "box", "create_id": "one", "policy": { "tools": ["ls"] } });
    for _ in 0..2 {
        assert_eq!(server.ask("POST", "/v1/sessions", Some(&body)).await.status, 201);
        let (_, shown) = ask(&server, "GET", "box/policy", Value::Null).await;
        assert_eq!(shown, json!({ "policy": { "tools": ["ls"] }, "inherited": [] }));
    }
    assert_eq!(ask(&server, "DELETE", "box/policy", Value::Null).await.0, 204);
    assert_eq!(server.ask("POST", "/v1/sessions", Some(&body)).await.status, 201);
    assert_eq!(write(&server, "box", "a").await["status"], "ok");
}

#[tokio::test(flavor = "multi_thread")]
async fn section_text_replaces_the_usual_section() {
    let server = Server::begin().await;
    begin(&server, "box", "memory", Value::Null).await;
    let section = async |name: &str| {
        let (status, section) = ask(&server, "GET", &format!("{name}/section"), Value::Null).await;
        assert_eq!(status, 200, "{section}");
        section["text"].as_str().unwrap().to_owned()
    };
    assert!(section("box").await.starts_with("# Workspace\n\nTools: "));
    let text = "Be brief. {commands}\nTools {tools} below {root}; {\"a\": {}} {Other}{mounts}.\n";
    set(&server, "box", json!({ "section_text": text, "tools": ["ls", "read_file"] })).await;
    let expected = "Be brief. Commands can't be run here; only files are available.\nTools ls, read_file below /; \
                    {\"a\": {}} {Other}.\n";
    assert_eq!(section("box").await, expected);
    let (status, forked) = ask(&server, "POST", "box/forks", json!({ "name": "child" })).await;
    assert_eq!(status, 200, "{forked}");
    assert_eq!(section("child-1").await, expected);
    set(&server, "child-1", json!({ "section_text": "{section}!" })).await;
    let whole = section("child-1").await;
    assert!(
        whole.starts_with("# Workspace\n\nTools: ls, read_file. They") && whole.ends_with("available.\n!"),
        "{whole}"
    );
    for (wrong, expected) in [
        (json!("{toools}"), "section_text: unknown part {toools}; the parts are {section}, {tools}, {root}"),
        (json!(" "), "section_text: it has 1 bytes; give 1 to 16384"),
        (json!("x".repeat(16_385)), "section_text: it has 16385 bytes"),
    ] {
        let (status, problem) = ask(&server, "PUT", "box/policy", json!({ "section_text": wrong })).await;
        assert!(status == 422 && problem["detail"].as_str().unwrap().contains(expected), "{problem}");
    }
    verify(&server, "box").await;
}
