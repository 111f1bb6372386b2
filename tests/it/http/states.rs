//! Sessions, states, files, diffs, children.

use serde_json::{Value, json};

use crate::rig::Server;

#[tokio::test(flavor = "multi_thread")]
async fn session_is_created_listed_and_removed() {
    let served = Server::begin().await;
    let begun = served.ask("POST", "/v1/sessions", Some(&json!({ "name": "demo" }))).await;
    let id = begun.json()["session"].as_str().unwrap().to_owned();
    assert_eq!((begun.status, begun.header("location")), (201, format!("/v1/sessions/{id}").as_str()));
    for name in ["demo", &id, &id[..6]] {
        assert_eq!(served.ask("GET", &format!("/v1/sessions/{name}"), None).await.json()["name"], "demo");
    }
    let again = served.ask("POST", "/v1/sessions", Some(&json!({ "name": "demo" }))).await;
    assert_eq!((again.status, &again.json()["kind"]), (409, &json!("conflict")));
    let list = served.ask("GET", "/v1/sessions", None).await.json();
    assert_eq!(list.as_array().unwrap().len(), 1);
    served.write("demo", "a.txt").await;
    assert_eq!(served.ask("DELETE", "/v1/sessions/demo", None).await.status, 204);
    let gone = served.ask("POST", "/v1/sessions/demo/calls", Some(&json!({ "tool": "ls" }))).await;
    assert_eq!((gone.status, &gone.json()["kind"]), (404, &json!("not_found")));
    served.session("demo").await;
    served.write("demo", "a.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn state_and_files_are_served_at_any_seq() {
    let served = Server::begin().await;
    served.session("demo").await;
    let first = served.write("demo", "a.txt").await["finished"].as_u64().unwrap();
    served.write("demo", "dir/b c.txt").await;
    let get = async |path: String| served.ask("GET", &format!("/v1/sessions/demo{path}"), None).await;
    let paths = |list: Value| -> Vec<String> {
        list.as_array().unwrap().iter().map(|entry| entry["path"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(paths(get("/files".into()).await.json()), ["a.txt", "dir", "dir/b c.txt"]);
    assert_eq!(paths(get("/files?recursive=false".into()).await.json()), ["a.txt", "dir"]);
    assert_eq!(paths(get("/files?below=/dir".into()).await.json()), ["dir/b c.txt"]);
    assert_eq!(paths(get(format!("/files?at={first}")).await.json()), ["a.txt"]);
    assert_eq!(paths(get("/files?at=0".into()).await.json()), [""; 0]);
    let began = get("/events?limit=1".into()).await.json()["events"][0]["time"].as_str().unwrap().to_owned();
    for (at, expected) in [("-3", 1), ("@4", 1), ("-0", 3), ("0s", 3), ("2999-01-01T00:00:00Z", 3)] {
        assert_eq!(paths(get(format!("/files?at={at}")).await.json()).len(), expected, "{at}");
    }
    let since = get(format!("/events?from={began}")).await.json()["events"][0]["seq"].clone();
    assert_eq!((since, &get("/events?from=-1".into()).await.json()["events"][0]["seq"]), (json!(1), &json!(6)));
    for (at, status, words) in [
        ("soon", 400, "so many events ago"),
        ("-99", 404, "99 events ago"),
        ("99", 404, "99"),
        ("1h", 404, "the session began at"),
    ] {
        let refused = get(format!("/files?at={at}")).await;
        let told = refused.json()["detail"].as_str().unwrap().to_owned();
        assert!(refused.status == status && told.contains(words), "{at}: {} {told}", refused.status);
    }
    let file = get("/files/dir/b%20c.txt".into()).await;
    assert_eq!((file.header("content-disposition"), &file.body[..]), ("attachment", &b"one\n"[..]));
    let missing = get(format!("/files/dir/b%20c.txt?at={first}")).await;
    assert_eq!((missing.status, &missing.json()["detail"]), (404, &json!("/dir/b c.txt does not exist there")));
    let directory = get("/files/dir".into()).await;
    assert_eq!((directory.status, &directory.json()["kind"]), (409, &json!("refused")));
    let accept = [("accept", "application/json")];
    let whole = served.ask_with("GET", "/v1/sessions/demo/files/a.txt", None, &accept).await.json();
    assert_eq!((&whole["contents_text"], &whole["node"]), (&json!("one\n"), &json!("file")));
    assert_eq!(get("/state".into()).await.json()["slices"][0]["slice"], "VirtualFileSystem");
    assert_eq!(get("/state/usage".into()).await.json()["calls"], 2);
    assert_eq!(get(format!("/state/Usage?at={first}")).await.json()["calls"], 1);
    assert!(get("/state/nothing".into()).await.json()["hint"].as_str().unwrap().contains("Usage"));
    assert!(get("/state/usag".into()).await.json()["hint"].as_str().unwrap().starts_with("did you mean Usage? "));
    let diff = get(format!("/diff?from={first}")).await.json();
    let changed: Vec<_> = diff["changes"].as_array().unwrap().iter().map(|change| &change["path"]).collect();
    assert_eq!(changed, ["dir", "dir/b c.txt"]);
    let back = get(format!("/diff?from={}&to={first}", first + 3)).await.json();
    let words = back["changes"].as_array().unwrap().iter().map(|change| [&change["path"], &change["change"]]);
    assert_eq!(words.collect::<Vec<_>>(), [["dir", "removed"], ["dir/b c.txt", "removed"]], "what leads back");
    let call = get(format!("/calls/{}", first - 2)).await.json();
    assert_eq!((&call["tool"], &call["result"]["size"]), (&json!("write_file"), &json!(4)));
    assert_eq!(get("/calls/1".into()).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn children_are_created_merged_and_session_rewound() {
    let served = Server::begin().await;
    served.session("demo").await;
    let first = served.write("demo", "a.txt").await["finished"].as_u64().unwrap();
    let post = async |path: &str, body: Value| served.ask("POST", &format!("/v1/sessions/{path}"), Some(&body)).await;
    let child = post("demo/children", json!({ "agent": "worker" })).await;
    assert_eq!((child.status, &child.json()["name"], &child.json()["at"]), (201, &json!("demo-1"), &json!(first)));
    served.write("demo-1", "b.txt").await;
    let dry = post("demo/merge", json!({ "child": "demo-1", "dry_run": true })).await.json();
    assert_eq!((&dry["outcome"], &dry["seq"]), (&json!("merged"), &Value::Null));
    let merged = post("demo/merge", json!({ "child": "demo-1", "agent": "boss" })).await.json();
    assert_eq!((&merged["merged"][0]["path"], &merged["into_name"]), (&json!("b.txt"), &json!("demo")));
    let back = post("demo/rewind", json!({ "to": first })).await.json();
    assert_eq!((&back["changes"][0]["change"], &back["changes"][0]["path"]), (&json!("removed"), &json!("b.txt")));
    let inside = post("demo/rewind", json!({ "to": first - 1, "dry_run": true })).await.json();
    assert_eq!([&inside["to"], &inside["asked"]], [first, first - 1]);
    let moved = post("demo/children", json!({ "at": first - 1 })).await.json();
    assert_eq!([&moved["at"], &moved["asked"]], [first, first - 1]);
    let limited = post("demo/children", json!({ "limits": { "calls": 1 }, "name": "small" })).await;
    assert_eq!(limited.json()["limits"], json!({ "calls": 1 }));
    for (body, status) in [
        (json!({ "isolation": "shared" }), 422),
        (json!({ "isolation": "full", "at": 1 }), 422),
        (json!({ "isolation": "other" }), 422),
        (json!({ "at": 0 }), 404),
        (json!({ "at": 10_000 }), 404),
    ] {
        assert_eq!(post("demo/children", body.clone()).await.status, status, "{body}");
    }
    assert_eq!(post("demo/merge", json!({ "child": "demo" })).await.status, 422);
    assert_eq!(post("demo/rewind", json!({ "to": 10_000 })).await.status, 404);
    let found = post("demo/bisect", json!({ "slice": "VirtualFileSystem./b.txt exists" })).await;
    assert_eq!(found.status, 409, "it is good at the end, too: {found:?}");
    let found = post("demo/bisect", json!({ "slice": "Usage.calls >= 1" })).await.json();
    assert_eq!(found["bad"][0]["call"]["kind"], "CallStarted");
    let verified = served.ask("POST", "/v1/sessions/demo/verify", None).await.json();
    assert_eq!(verified["differences"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn denied_commands_stay_denied_in_children() {
    let served = Server::begin().await;
    served.session("demo").await;
    served.write("demo", "a.txt").await;
    served.write("demo", "b.txt").await;
    let post = async |path: &str, body: Value| served.ask("POST", &format!("/v1/sessions/{path}"), Some(&body)).await;
    assert_eq!(post("demo/children", json!({ "name": "c", "limits": { "deny": ["uname"] } })).await.status, 201);
    let body = json!({ "command": "uname; test ! -e b.txt", "auto_confirm": true });
    let refused = post("c/bisect", body.clone()).await;
    assert_eq!((refused.status, &refused.json()["kind"]), (409, &json!("refused")), "{refused:?}");
    assert_eq!(post("demo/bisect", body).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn host_directory_outside_allowed_roots_is_refused() {
    let served = Server::begin().await;
    let source = served.directory.path().join("source");
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("x.txt"), "x").unwrap();
    let post = async |body: Value| served.ask("POST", "/v1/sessions", Some(&body)).await;
    let mounted = post(json!({ "name": "m", "mounts": [{ "host_path": source, "mount_path": "/in" }] })).await;
    assert_eq!(mounted.status, 201, "{mounted:?}");
    assert_eq!(served.ask("GET", "/v1/sessions/m/files/in/x.txt", None).await.body, "x");
    let outside = post(json!({ "name": "n", "mounts": [{ "host_path": "/usr" }] })).await;
    assert_eq!((outside.status, &outside.json()["kind"]), (403, &json!("forbidden")));
    let hosted = post(json!({ "backend": "host", "options": { "directory": source.join("../../..") } })).await;
    assert_eq!(hosted.status, 403, "{hosted:?}");
    assert_eq!(served.ask("GET", "/v1/sessions/n", None).await.status, 404, "nothing is left of it");
}

#[tokio::test(flavor = "multi_thread")]
async fn host_directory_swapped_for_link_is_refused() {
    let served = Server::begin().await;
    let (root, outside) = (served.directory.path().canonicalize().unwrap(), tempfile::tempdir().unwrap());
    let (inside, link) = (root.join("inside"), root.join("link"));
    std::fs::create_dir(&inside).unwrap();
    std::os::unix::fs::symlink(&inside, &link).unwrap();
    let begin = async |name: &str, directory: &std::path::Path| {
        let new = json!({ "name": name, "backend": "host", "options": { "directory": directory } });
        served.ask("POST", "/v1/sessions", Some(&new)).await
    };
    assert_eq!(begin("linked", &link).await.status, 201);
    while served.face.hub().close_unused(std::time::Duration::ZERO).await == 0 {}
    // Now the link that was allowed leads elsewhere.
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(outside.path(), &link).unwrap();
    served.write("linked", "a.txt").await;
    assert_eq!(std::fs::read(inside.join("a.txt")).unwrap(), b"one\n");
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
    // What is not there yet is made below the root, and not through a link that leads nowhere yet.
    assert_eq!(begin("new", &root.join("new/one")).await.status, 201);
    served.write("new", "b.txt").await;
    assert!(root.join("new/one/b.txt").exists());
    std::os::unix::fs::symlink(outside.path().join("later"), root.join("nowhere")).unwrap();
    for path in [link.join("x"), root.join("nowhere"), root.join("nowhere/x"), root.join("none/../../..")] {
        let refused = begin("n", &path).await;
        assert_eq!((refused.status, &refused.json()["kind"]), (403, &json!("forbidden")), "{}", path.display());
    }
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
}
