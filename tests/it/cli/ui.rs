//! The debugger in a browser: its address, and its file.

use std::io::Read;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use crate::rig::Program;

/// Returns the data of an exported page.
pub(crate) fn data_of(page: &str) -> Value {
    let data = page.split("type=\"application/json\">").nth(1).unwrap().split("</script>").next().unwrap();
    let mut text = String::new();
    let packed = BASE64_STANDARD.decode(data).unwrap();
    flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut text).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn ui_prints_an_address_that_holds_no_token() {
    let program = Program::with_story().through_owner();
    let printed = program.printed(&["ui", "story", "--no-open"]);
    let (address, fragment) = printed.trim().split_once('#').unwrap();
    assert!(address.starts_with("http://127.0.0.1:") && address.ends_with('/'), "{printed}");
    let (code, session) = fragment.split_once("&s=").unwrap();
    assert_eq!((code.len(), session), ("code=".len() + 64, "story"), "{printed}");
    let again = program.json(&["ui", "--no-open", "--read-only"]);
    let again = again["address"].as_str().unwrap();
    assert!(!again.contains("&s=") && !again.starts_with(address), "it has a port of its own: {again}");
    assert_eq!(program.owners().len(), 1);
    let missing = program.run(&["ui", "nobody", "--no-open"]);
    assert!(missing.contains("no session is called"), "{missing}");
    program.printed(&["stop"]);
}

#[test]
fn export_holds_the_run_and_lets_nothing_out() {
    let program = Program::new();
    let hostile = "</script><script>alert(1)</script>";
    let large = "\u{20ac}".repeat(40_000);
    let calls = [
        serde_json::json!({ "tool": "write_file", "params": { "file_path": "a.txt", "content": hostile } }),
        serde_json::json!({ "tool": "write_file", "params": { "file_path": "large.txt", "content": large } }),
        serde_json::json!({ "tool": "rm", "params": { "path": "a.txt" } }),
    ];
    let script: String = calls.iter().map(|call| format!("{call}\n")).collect();
    program.printed(&["run", &program.file("hostile.jsonl", script), "--session", "run"]);
    let session = program.json(&["sessions"])[0]["session"].as_str().unwrap().to_owned();
    let told = program.run(&["ui", &session, "--export", "run.html"]);
    assert!(told.contains("left out, 117.2 KiB: large.txt") && told.ends_with("[exit 0]"), "{told}");
    let page = std::fs::read_to_string(program.path("run.html")).unwrap();
    assert!(!page.contains("alert(1)") && !page.contains("=\"/assets/"), "{page}");
    assert!(page.contains("script-src 'nonce-") && !page.contains("unsafe-inline"), "{page}");
    assert_eq!(page.matches("</script>").count(), 2, "{page}");
    let data = data_of(&page);
    let of = |rest: &str| &data["answers"][format!("GET /v1/sessions/{session}{rest}")];
    assert_eq!((&data["session"], of("")["name"].as_str()), (&Value::from(&*session), Some("run")));
    let listed = of("/calls")["calls"].as_array().unwrap();
    assert_eq!((listed.len(), &of("/timeline")["calls"]), (3, &Value::from(3)));
    for call in listed {
        let number = &call["call"];
        let is_large = call["paths"][0] == "large.txt";
        assert_eq!(of(&format!("/calls/{number}"))["call"] == *number, !is_large, "{number}");
        assert_eq!(of(&format!("/changes/{number}"))["changes"][0]["path"], call["paths"][0]);
    }
    assert_eq!(of("/files").as_array().unwrap().len(), 0, "before the first call");
    let written = of(&format!("/changes/{}", listed[0]["call"]))["changes"][0]["after"]["content"].as_str().unwrap();
    assert_eq!(data["blobs"][written]["text"], hostile);
    let left_out = data["left_out"].as_array().unwrap();
    assert!(left_out.iter().any(|one| one["path"] == "large.txt" && one["size"] == 120_000), "{left_out:?}");
    let large = format!("calls/{}", listed[1]["call"]);
    assert!(left_out.iter().any(|one| one["path"] == *large), "{left_out:?}");
    let refused = program.run(&["ui", &session, "--export", "run.html"]);
    assert!(refused.contains("run.html exists") && refused.contains("--force"), "{refused}");
    let last = listed[2]["call"].to_string();
    let part = program.json(&["ui", &session, "--export", "run.html", "--force", "--from", &last]);
    assert_eq!(part["calls"], 1);
    let data = data_of(&std::fs::read_to_string(program.path("run.html")).unwrap());
    let before = &data["answers"][format!("GET /v1/sessions/{session}/files")];
    assert_eq!(before.as_array().unwrap().len(), 2, "as they were before that call");
}
