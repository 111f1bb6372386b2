//! Files, slices and the log as resources.

use serde_json::{Value, json};

use super::{McpClient, write};
use crate::rig::Program;

fn read(client: &mut McpClient, uri: &str) -> Value {
    let answer = client.ask("resources/read", json!({ "uri": uri }));
    assert!(answer.get("error").is_none(), "{uri}: {answer}");
    answer["result"]["contents"][0].clone()
}

fn updated(client: &mut McpClient) -> Value {
    let updated = client.wait_for(|message| message["method"] == "notifications/resources/updated");
    updated["params"]["uri"].clone()
}

#[test]
fn resources_are_read_at_any_seq() {
    let program = Program::with_files();
    std::fs::write(program.files().join("data.bin"), [0, 159, 146, 150]).unwrap();
    let mut client = program.on_host(&["--session", "s"]);
    client.done("write_file", write("notes/a b.md", "one"));
    client.done("edit_file", json!({ "file_path": "notes/a b.md", "old_string": "one", "new_string": "two" }));
    let now = read(&mut client, "foldspace://s/files/notes/a%20b.md");
    assert_eq!((&now["text"], &now["mimeType"]), (&json!("two"), &json!("text/markdown")));
    let head = client.ask("resources/read", json!({ "uri": "foldspace://s/log?limit=1" }));
    let last: Value = serde_json::from_str(head["result"]["contents"][0]["text"].as_str().unwrap().trim()).unwrap();
    assert_eq!(last["kind"], "CallFinished");
    assert_eq!(read(&mut client, "foldspace://s/files/notes/a%20b.md?at=-3")["text"], "one");
    let binary = read(&mut client, "foldspace://s/files/data.bin");
    assert_eq!((&binary["blob"], &binary["mimeType"]), (&json!("AJ+Slg=="), &json!("application/octet-stream")));
    let usage = read(&mut client, "foldspace://s/state/Usage");
    assert_eq!(usage["mimeType"], "application/json");
    let usage: Value = serde_json::from_str(usage["text"].as_str().unwrap()).unwrap();
    assert_eq!(usage["calls"], 2);
    assert!(read(&mut client, "foldspace://s/files/")["text"].as_str().unwrap().contains("data.bin"));
    let log = read(&mut client, "foldspace://s/log?from=1&limit=2")["text"].as_str().unwrap().to_owned();
    assert_eq!(log.lines().count(), 2);
}

#[test]
fn resource_missing_is_an_error() {
    let program = Program::with_files();
    let mut other = program.client(&["--session", "other"]);
    other.done("ls", json!({}));
    other.leave();
    let mut client = program.client(&["--session", "s"]);
    client.done("write_file", write("a.txt", "one"));
    let uris = [
        ("foldspace://s/files/nope", -32002),
        ("foldspace://s/files/a.txt?at=1", -32002),
        ("foldspace://s/files/a.txt?at=9999", -32002),
        ("foldspace://s/state/Nope", -32002),
        ("foldspace://other/log", -32002),
        ("file:///etc/passwd", -32002),
        ("foldspace://s/files/../../etc/passwd", -32002),
        ("foldspace://s/log?junk=5", -32002),
        ("foldspace://s/files/..?At=5", -32002),
    ];
    for (uri, code) in uris {
        for method in ["resources/read", "resources/subscribe"] {
            // What is not there yet can be watched.
            if method == "resources/subscribe" && uri.starts_with("foldspace://s/") && !uri.contains("..") {
                continue;
            }
            let error = client.ask(method, json!({ "uri": uri }))["error"].clone();
            assert_eq!((&error["code"], &error["data"]["uri"]), (&json!(code), &json!(uri)), "{method}");
        }
    }
}

#[test]
fn resource_too_long_is_cut_or_refused() {
    let program = Program::with_files();
    for number in 0..25_000 {
        std::fs::write(program.files().join(format!("{number:060}.txt")), "").unwrap();
    }
    let mut client = program.on_host(&["--session", "s"]);
    client.done("glob", json!({ "pattern": "none" }));
    let refused = |client: &mut McpClient, uri: &str| {
        let error = client.ask("resources/read", json!({ "uri": uri }))["error"].clone();
        assert_eq!(error["code"], -32602, "{uri}: {error}");
        error["message"].as_str().unwrap().to_owned()
    };
    assert!(refused(&mut client, "foldspace://s/files/").contains("the limit is 4194304; the tool ls"));
    assert!(refused(&mut client, "foldspace://s/state/VirtualFileSystem").contains("the limit is 4194304"));
    for uri in ["foldspace://s/log?from=1&limit=1000", "foldspace://s/log?limit=1000"] {
        let log = read(&mut client, uri);
        assert!(log["text"].as_str().unwrap().len() <= 4 << 20, "{uri}");
    }
    let long = format!("foldspace://s/log?limit={}", "0".repeat(20_000));
    let error = client.ask("resources/subscribe", json!({ "uri": long }))["error"].clone();
    assert!(error["message"].as_str().unwrap().contains("the limit is 16384"), "{error}");
}

#[test]
fn resources_are_listed_in_pages() {
    let program = Program::with_files();
    for number in 0..450 {
        std::fs::write(program.files().join(format!("{number:03}.txt")), "x").unwrap();
    }
    let mut client = program.on_host(&["--session", "s"]);
    assert_eq!(client.ask("resources/list", json!({}))["result"]["resources"], json!([]), "there is no session yet");
    client.done("ls", json!({}));
    let (mut files, mut cursor, mut pages) = (Vec::new(), json!(null), 0);
    loop {
        let page = client.ask("resources/list", json!({ "cursor": cursor }))["result"].clone();
        let resources = page["resources"].as_array().unwrap().clone();
        assert!(resources.len() <= 200);
        pages += 1;
        files.extend(resources.into_iter().filter(|one| one["uri"].as_str().unwrap().contains("/files/")));
        cursor = page["nextCursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!((files.len(), pages), (450, 3));
    assert_eq!((&files[7]["name"], &files[7]["size"]), (&json!("007.txt"), &json!(1)));
    assert_eq!(client.ask("resources/list", json!({ "cursor": "x" }))["error"]["code"], -32602);
}

#[test]
fn resource_subscription_reports_changes() {
    let program = Program::with_files();
    let mut client = program.on_host(&["--session", "s", "--allow", "mkdir"]);
    client.ask("resources/list", json!({}));
    client.done("write_file", write("a.txt", "one"));
    client.wait_for(|message| message["method"] == "notifications/resources/list_changed");
    let subscribe = |client: &mut McpClient, uri: &str| {
        let answer = client.ask("resources/subscribe", json!({ "uri": uri }));
        assert!(answer.get("error").is_none(), "{answer}");
    };
    subscribe(&mut client, "foldspace://s/files/a.txt");
    client.done("write_file", write("b.txt", "one"));
    client.done("edit_file", json!({ "file_path": "a.txt", "old_string": "one", "new_string": "two" }));
    assert_eq!(updated(&mut client), "foldspace://s/files/a.txt");
    subscribe(&mut client, "foldspace://s/state/VirtualFileSystem");
    client.ask("resources/unsubscribe", json!({ "uri": "foldspace://s/files/a.txt" }));
    client.done("rm", json!({ "path": "a.txt" }));
    assert_eq!(updated(&mut client), "foldspace://s/state/VirtualFileSystem");
    client.ask("resources/unsubscribe", json!({ "uri": "foldspace://s/state/VirtualFileSystem" }));
    subscribe(&mut client, "foldspace://s/log");
    client.done("ls", json!({}));
    assert_eq!(updated(&mut client), "foldspace://s/log");
}

#[test]
fn resource_templates_complete_arguments() {
    let program = Program::with_files();
    let mut client = program.client(&["--session", "s"]);
    client.done("write_file", write("src/main.rs", "x"));
    let templates = client.ask("resources/templates/list", json!({}))["result"]["resourceTemplates"].clone();
    let template = templates[0]["uriTemplate"].as_str().unwrap().to_owned();
    assert_eq!(template, "foldspace://{session}/files/{+path}{?at}");
    let mut complete = |uri: &str, name: &str, value: &str| {
        let reference = json!({ "type": "ref/resource", "uri": uri });
        let params = json!({ "ref": reference, "argument": { "name": name, "value": value } });
        client.ask("completion/complete", params)["result"]["completion"]["values"].clone()
    };
    assert_eq!(complete(&template, "session", ""), json!(["s"]));
    assert_eq!(complete(&template, "path", "src/"), json!(["src/main.rs"]));
    assert_eq!(complete("foldspace://{session}/state/{slice}{?at}", "slice", "Us"), json!(["Usage"]));
    assert_eq!(complete("something", "else", ""), json!([]));
}
