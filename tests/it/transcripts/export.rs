//! Exports for other programs. `python/tests/test_export.py` has Harbor and OpenTelemetry read them.

use serde_json::Value;

use crate::rig::Program;

fn document(program: &Program, arguments: &[&str]) -> Value {
    serde_json::from_str(&program.printed(arguments)).unwrap()
}

#[test]
fn trajectory_and_traces_of_a_fork_have_its_past() {
    let program = Program::with_story();
    program.printed(&["clone", "story", "--name", "child"]);
    let trajectory = document(&program, &["export", "story", "--atif"]);
    assert_eq!(trajectory["schema_version"], "ATIF-v1.8");
    let steps = trajectory["steps"].as_array().unwrap();
    let ids: Vec<u64> = steps.iter().map(|step| step["step_id"].as_u64().unwrap()).collect();
    assert_eq!(ids, (1..=steps.len() as u64).collect::<Vec<_>>());
    let child = &trajectory["subagent_trajectories"][0];
    assert_eq!(child["steps"].as_array().unwrap().len(), 1, "it has made no call of its own: {child}");
    let alone = document(&program, &["export", "child", "--atif"]);
    let copied = alone["steps"].as_array().unwrap().iter().filter(|step| step["is_copied_context"] == true);
    assert_eq!(copied.count(), steps.len());

    let traces = document(&program, &["export", "story", "--otlp"]);
    let spans = traces["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
    let roots: Vec<&Value> = spans.iter().filter(|span| span["parentSpanId"] == "").collect();
    assert_eq!((roots.len(), roots[0]["traceId"].as_str().unwrap().len()), (1, 32));
    let file = program.path("traces.json").to_string_lossy().into_owned();
    program.printed(&["export", "story", "--otlp", "--output", &file]);
    assert_eq!(serde_json::from_slice::<Value>(&std::fs::read(file).unwrap()).unwrap(), traces);
    for wrong in [&["export", "story"][..], &["export", "story", "--atif", "--otlp"], &["export", "none", "--atif"]] {
        assert!(!program.output(wrong).status.success(), "{wrong:?}");
    }
}

#[test]
fn own_events_are_in_trajectory_and_traces() {
    let program = Program::with_story();
    let call = 2;
    program.printed(&["emit", "story", "plan.step", r#"{"id": 1}"#]);
    program.printed(&["emit", "story", "score", "0.5", "--call", "2"]);
    let trajectory = document(&program, &["export", "story", "--atif"]);
    let steps = trajectory["steps"].as_array().unwrap();
    let last = &steps[steps.len() - 1];
    let expected = serde_json::json!({ "kind": "plan.step", "data": { "id": 1 } });
    assert_eq!((&last["source"], &last["extra"]["event"]), (&"system".into(), &expected));
    let mut results = steps.iter().flat_map(|step| step["observation"]["results"].as_array().into_iter().flatten());
    let scored = results.find(|result| !result["extra"]["events"].is_null()).unwrap();
    assert_eq!(scored["source_call_id"], format!("call-{call}"));
    assert_eq!(scored["extra"]["events"], serde_json::json!([{ "kind": "score", "data": 0.5 }]));

    let traces = document(&program, &["export", "story", "--otlp"]);
    let spans = traces["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
    let named = |span: &Value| span["events"].as_array().map(|events| events[0]["name"].clone());
    let with: Vec<_> = spans.iter().filter_map(|span| Some((span["parentSpanId"] == "", named(span)?))).collect();
    assert_eq!(with, [(true, "plan.step".into()), (false, "score".into())]);
    let event = &spans[0]["events"][0];
    assert_eq!(event["attributes"][0]["value"]["stringValue"], r#"{"id":1}"#);
    assert!(event["timeUnixNano"].as_str().unwrap().parse::<u64>().unwrap() > 0);
}

/// Secrets of each kind, all with a mark.
fn secrets() -> String {
    let key = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rMARK\n-----END OPENSSH PRIVATE KEY-----";
    format!(
        "Authorization: Bearer MARKabcdefghijklmnop\nAKIAMARKMARKMARKMARK\nghp_MARK56789012345678901234567890123456\n\
         sk-ant-MARK-0123456789abcdef\nxoxb-MARK-1234567890\nDB_PASSWORD=MARK1234\nhttps://u:MARKpass@host/\n{key}\nzebra-MARK"
    )
}

/// A program with a session that has secrets in files, commands, environments, input, outputs and variables.
fn with_secrets() -> Program {
    let (program, secrets) = (Program::new(), secrets());
    let echo = format!("cat; printf '%s' '{secrets}'");
    let calls = [
        serde_json::json!({ "tool": "write_file", "params": { "file_path": ".env", "content": secrets } }),
        serde_json::json!({ "tool": "write_file", "params": { "file_path": "id_rsa", "content": "only MARK" } }),
        serde_json::json!({ "tool": "write_file", "params": { "file_path": "b.txt", "content": format!("x\n{secrets}") } }),
        serde_json::json!({ "tool": "execute_script", "params":
            { "script": echo, "stdin": secrets, "env": { "GITHUB_TOKEN": "MARKenv" } } }),
    ];
    let script: String = calls.iter().map(|call| format!("{call}\n")).collect();
    let ran =
        program.run(&["run", &program.file("secrets.jsonl", script), "--session", "s", "--backend", "host", "--yes"]);
    assert!(ran.ends_with("[exit 0]"), "{ran}");
    program
}

const ZEBRA: &str = "zebra-[A-Z]+|only MARK";

#[test]
fn exports_for_others_have_no_secret() {
    let program = with_secrets();
    for form in ["--atif", "--otlp"] {
        let document = program.printed(&["export", "s", form, "--mask", ZEBRA]);
        assert!(!document.contains("MARK"), "{document}");
    }
    let told = program.run(&["export", "s", "--atif", "--mask", ZEBRA, "--output", "a.json"]);
    for kind in ["authorization header", "AWS key", "private key", "password", "match", "--no-mask leaves"] {
        assert!(told.contains(kind), "{told}");
    }
    let open = program.printed(&["export", "s", "--atif", "--no-mask"]);
    for secret in ["Bearer MARK", "MARKenv", "AKIAMARK", "MARKpass"] {
        assert!(open.contains(secret), "{secret} is not in {open}");
    }
    let own = program.printed(&["export", "s", "--atif", "--no-mask", "--mask", "AKIA(?P<s>[A-Z]+)"]);
    assert!(own.contains("AKIA[masked]") && own.contains("MARKenv"), "{own}");
}

#[test]
fn exported_page_has_no_secret() {
    let program = with_secrets();
    let told = program.run(&["ui", "s", "--export", "run.html", "--mask", ZEBRA]);
    assert!(told.contains("note: masked ") && told.contains("left out, 9 B: id_rsa"), "{told}");
    let data = crate::cli::ui::data_of(&std::fs::read_to_string(program.path("run.html")).unwrap());
    let text = data.to_string();
    assert!(!text.contains("MARK") && text.contains("[masked]"), "{text}");
    let encoded: Vec<String> = texts(&data).iter().filter_map(|text| decoded(text)).collect();
    assert!(encoded.iter().all(|text| !text.contains("MARK")), "{encoded:?}");
    program.printed(&["ui", "s", "--export", "open.html", "--no-mask"]);
    let open = crate::cli::ui::data_of(&std::fs::read_to_string(program.path("open.html")).unwrap()).to_string();
    assert!(open.contains("only MARK") && open.contains("MARKenv"), "{open}");
}

fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        Value::Object(fields) => fields.values().flat_map(texts).collect(),
        _ => Vec::new(),
    }
}

fn decoded(text: &str) -> Option<String> {
    use base64::Engine;
    Some(String::from_utf8_lossy(&base64::prelude::BASE64_STANDARD.decode(text).ok()?).into_owned())
}

#[test]
fn exact_export_tells_of_secrets_and_masks_none() {
    let program = with_secrets();
    let told = program.run(&["export", "s", "s.fold"]);
    assert!(told.contains("likely secrets, unmasked") && told.contains("AWS key"), "{told}");
    let refused = program.run(&["export", "s", "masked.fold", "--mask", "x"]);
    assert!(refused.contains("a file for `import` is exact") && refused.ends_with("[exit 2]"), "{refused}");
    assert!(!program.path("masked.fold").exists());
    // What the notes advise.
    for advised in [&["export", "s", "--atif"][..], &["export", "s", "--otlp"], &["ui", "s", "--export", "FILE"]] {
        program.printed(advised);
    }
    for wrong in [&["export", "s", "--atif", "--mask", "("][..], &["export", "s", "--atif", "--mask", "a*"]] {
        assert!(program.run(wrong).ends_with("[exit 2]"), "{wrong:?}");
    }
    let other = Program::new();
    let file = program.path("s.fold");
    other.printed(&["import", file.to_str().unwrap(), "--trust-workspace"]);
    assert_eq!(other.printed(&["cat", "s", "id_rsa"]), "only MARK");
}
