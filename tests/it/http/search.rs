//! The search through a session's history.

use serde_json::{Value, json};

use crate::rig::Server;

async fn searched(served: &Server, query: &str) -> Value {
    served.ask("GET", &format!("/v1/sessions/demo/search?{query}"), None).await.json()
}

fn places(page: &Value) -> Vec<(String, String)> {
    let word = |hit: &Value, name: &str| hit[name].as_str().unwrap_or_default().to_owned();
    page["hits"].as_array().unwrap().iter().map(|hit| (word(hit, "place"), word(hit, "line"))).collect()
}

async fn served() -> Server {
    let served = Server::begin().await;
    served.session("demo").await;
    let long = format!("{}a needle{}", "x".repeat(1000), "y".repeat(1000));
    for (path, content) in [("a.txt", format!("needle 1\n{long}\n")), ("b.txt", "none\n".to_owned())] {
        let params = json!({ "file_path": path, "content": content, "mode": "overwrite" });
        served.ask("POST", "/v1/sessions/demo/calls", Some(&json!({ "tool": "write_file", "params": params }))).await;
    }
    for content in ["needle 1\nthe needle and the NEEDLE\n", "other\nthe needle and the NEEDLE\n"] {
        let params = json!({ "file_path": "a.txt", "content": content, "mode": "overwrite" });
        let call = json!({ "tool": "write_file", "params": params, "agent": "ada" });
        served.ask("POST", "/v1/sessions/demo/calls", Some(&call)).await;
    }
    let missing = json!({ "tool": "read_file", "params": { "file_path": "/needle" } });
    served.ask("POST", "/v1/sessions/demo/calls", Some(&missing)).await;
    served
}

#[tokio::test(flavor = "multi_thread")]
async fn search_finds_parameters_output_and_new_lines_of_files() {
    let served = served().await;
    let all = searched(&served, "pattern=needle").await;
    assert_eq!((&all["next"], &all["more"], &all["searched"]), (&Value::Null, &json!(false), &all["head"]));
    let files = searched(&served, "pattern=needle&in=file").await;
    let lines: Vec<String> = places(&files).into_iter().map(|(_, line)| line).collect();
    assert_eq!(lines.len(), 3, "a line that stays is found once: {lines:?}");
    assert!(lines[1].starts_with("…xxx") && lines[1].ends_with("yyy…") && lines[1].chars().count() == 402, "{lines:?}");
    let cut = files["hits"][1]["ranges"][0].as_array().unwrap();
    let [start, end] = [0, 1].map(|at| usize::try_from(cut[at].as_u64().unwrap()).unwrap());
    assert_eq!(lines[1].chars().skip(start).take(end - start).collect::<String>(), "needle");
    let hit = &files["hits"][2];
    assert_eq!((&hit["agent"], &hit["path"], &hit["line_number"]), (&json!("ada"), &json!("a.txt"), &json!(2)));
    assert_eq!(hit["call"], served.ask("GET", "/v1/sessions/demo/calls", None).await.json()["calls"][2]["call"]);
    let both = searched(&served, "pattern=needle&in=file&ignore_case=true").await;
    assert_eq!(both["hits"][2]["ranges"], json!([[4, 10], [19, 25]]));
    let output = searched(&served, "pattern=needle&in=output").await;
    assert_eq!(output["hits"][0]["field"], "CallFinished message", "{output}");
    assert_eq!(places(&searched(&served, "pattern=needle&path=b*").await), []);
    assert!(places(&all).len() > places(&files).len() + places(&output).len());
}

#[tokio::test(flavor = "multi_thread")]
async fn search_pages_are_the_whole_search() {
    let served = served().await;
    let all = searched(&served, "pattern=needle").await;
    let (mut found, mut from, mut pages) = (Vec::new(), json!(1), 0);
    while !from.is_null() {
        let page = searched(&served, &format!("pattern=needle&limit=1&from={from}")).await;
        found.extend(page["hits"].as_array().unwrap().clone());
        from = page["next"].clone();
        pages += 1;
    }
    assert_eq!(json!(found), all["hits"]);
    assert!(pages > 3, "{pages} pages");
    for (wrong, told) in [
        ("pattern=(", "pattern: unclosed group"),
        ("pattern=a%0Ab", "pattern: "),
        ("pattern=x&path={", "path: unclosed"),
        ("pattern=x&limit=0", "limit is 0"),
        ("pattern=x&limit=1001", "limit is 1001"),
        ("pattern=x&in=nowhere", "nowhere"),
        ("", "pattern"),
    ] {
        let refused = served.ask("GET", &format!("/v1/sessions/demo/search?{wrong}"), None).await;
        assert!([400, 422].contains(&refused.status), "{wrong}: {refused:?}");
        assert!(refused.json()["detail"].as_str().unwrap().contains(told), "{wrong}: {refused:?}");
    }
}
