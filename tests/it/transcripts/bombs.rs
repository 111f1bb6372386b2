//! Transcripts that are small, and would take much memory: bombs of values, of depth, of runs, calls and contents.

use std::io::Write;

use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::*;

/// Imports files that are refused for a limit, and returns the reason. Nothing may be left of them.
fn refused(paths: &[&Path]) -> String {
    let place = Place::new();
    let error = import_transcripts(&place.sessions, paths, None).unwrap_err();
    let TranscriptError::Limit { reason, .. } = &error else { panic!("{paths:?}: {error}") };
    assert!(place.sessions.list().unwrap().is_empty(), "{paths:?}");
    reason.clone()
}

fn values() -> String {
    format!("[{}0]", "[],".repeat(1 << 20))
}

/// Returns a file with the fixture of a format, in which a document has a field more.
fn with_field(directory: &Path, name: &str, field: &str) -> PathBuf {
    let text = std::fs::read_to_string(fixture(name)).unwrap();
    let (start, rest) = text.split_once('{').unwrap();
    let path = directory.join(name.replace('/', "-"));
    std::fs::write(&path, format!("{start}{{\"bomb\":{field},{rest}")).unwrap();
    path
}

const DOCUMENTS: [&str; 10] = [
    "atif.json",
    "inspect.json",
    "inspect-messages.json",
    "opencode.json",
    "goose.json",
    "swe-agent.traj",
    "mini-swe-agent-1.traj.json",
    "mini-swe-agent-2.traj.json",
    "cline/1795852699735_con11.messages.json",
    "cline/1795168800000/api_conversation_history.json",
];
const LINES: [&str; 5] = [
    CLAUDE,
    "codex.jsonl",
    "copilot.jsonl",
    "gemini.jsonl",
    "cursor/3f0d6c1e-52a7-4b7e-9c51-0d3c1f2a6b90/3f0d6c1e-52a7-4b7e-9c51-0d3c1f2a6b90.jsonl",
];

#[test]
fn import_of_a_value_bomb_is_refused_in_each_format() {
    let directory = tempfile::tempdir().unwrap();
    for name in DOCUMENTS.into_iter().chain(LINES) {
        let reason = refused(&[&with_field(directory.path(), name, &values())]);
        assert!(reason.contains("MiB of memory") && reason.ends_with("; split it"), "{name}: {reason}");
    }
    for name in LINES {
        // Beyond the lines that are searched for the format.
        let path = directory.path().join("late.jsonl");
        let text = std::fs::read_to_string(fixture(name)).unwrap();
        std::fs::write(&path, format!("{text}{}{{\"bomb\":{}}}\n", "{}\n".repeat(300), values())).unwrap();
        assert!(refused(&[&path]).starts_with("the values in a line"), "{name}");
    }
    let events = directory.path().join("events");
    std::fs::create_dir(&events).unwrap();
    for name in ["event-00000-e0.json", "event-00001-e1.json"] {
        let bomb = with_field(directory.path(), &format!("openhands/events/{name}"), &values());
        std::fs::rename(bomb, events.join(name)).unwrap();
        assert!(refused(&[directory.path()]).contains("MiB of memory"));
        std::fs::copy(fixture(&format!("openhands/events/{name}")), events.join(name)).unwrap();
    }
}

#[test]
fn import_of_a_deep_document_is_an_error_in_each_format() {
    let directory = tempfile::tempdir().unwrap();
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for name in DOCUMENTS.into_iter().chain(LINES) {
        let place = Place::new();
        let path = with_field(directory.path(), name, &deep);
        let imported = import_transcripts(&place.sessions, &[&path], None);
        // A line that can't be read is counted, unless it is the first.
        assert!(imported.map_or(true, |runs| runs[0].unreadable > 0), "{name}");
    }
}

fn archive(path: &Path, samples: impl Iterator<Item = String>) {
    let mut archive = ZipWriter::new(std::fs::File::create(path).unwrap());
    for (number, sample) in samples.enumerate() {
        archive.start_file(format!("samples/{number}_epoch_1.json"), SimpleFileOptions::default()).unwrap();
        archive.write_all(sample.as_bytes()).unwrap();
    }
    archive.finish().unwrap();
}

#[test]
fn import_of_an_archive_bomb_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bomb.eval");
    let bomb = format!(r#"{{"id":1,"epoch":1,"events":{},"messages":[]}}"#, values());
    archive(&path, [r#"{"id":0,"epoch":1,"events":[]}"#.to_owned(), bomb].into_iter());
    assert!(path.metadata().unwrap().len() < 1 << 17);
    let reason = refused(&[&path]);
    assert!(reason.starts_with("samples/1_epoch_1.json: the values in a document"), "{reason}");
    let zeros = format!(r#"{{"id":1,"epoch":1,"events":["{}"]}}"#, "0".repeat(129 << 20));
    archive(&path, [zeros].into_iter());
    assert!(refused(&[&path]).ends_with("a document has more than 128 MiB of text; split it"));
}

#[test]
fn import_of_too_many_runs_or_too_long_ids_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs");
    std::fs::write(&path, "# aider chat started at 2026-01-01 00:00:00\n".repeat(50_001)).unwrap();
    assert_eq!(refused(&[&path]), "more than 50000 runs; import fewer at once");
    let long = format!(r#"{{"type":"session_meta","payload":{{"id":"{}"}}}}"#, "x".repeat(5000));
    std::fs::write(&path, long + "\n").unwrap();
    assert_eq!(refused(&[&path]), "a name, an id or a directory of a run has more than 4096 bytes; shorten it");
    let call = |id: usize| {
        format!(r#"{{"type":"response_item","payload":{{"type":"function_call","call_id":"{id:04000}","name":"x"}}}}"#)
    };
    let calls: Vec<String> = (0..3000).map(call).collect();
    let head = r#"{"type":"session_meta","payload":{"id":"x"}}"#;
    std::fs::write(&path, format!("{head}\n{}\n", calls.join("\n"))).unwrap();
    let reason = refused(&[&path]);
    assert!(reason.contains("more calls than an import takes (2"), "{reason}");
}

/// A line of Claude Code.
fn message(role: &str, content: Value, stated: Value) -> Value {
    json!({
        "type": role, "uuid": "u", "parentUuid": null, "sessionId": "s", "timestamp": "2026-01-01T00:00:00Z",
        "version": "1", "isSidechain": false, "cwd": "/x", "message": { "role": role, "content": content },
        "toolUseResult": stated,
    })
}

fn claude_calls(path: &Path, calls: &[(&str, Value, Value)]) {
    let mut lines = String::new();
    for (number, (tool, input, stated)) in calls.iter().enumerate() {
        let begun = json!([{ "type": "tool_use", "id": number.to_string(), "name": tool, "input": input }]);
        let ended = json!([{ "type": "tool_result", "tool_use_id": number.to_string(), "content": "ok" }]);
        lines += &format!("{}\n", message("assistant", begun, Value::Null));
        lines += &format!("{}\n", message("user", ended, stated.clone()));
    }
    std::fs::write(path, lines).unwrap();
}

#[test]
fn import_of_edits_that_grow_keeps_one_content_each_call() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("edits.jsonl");
    let whole = "a".repeat(1 << 20);
    let edits = vec![json!({ "old_string": "a", "new_string": "b" }); 50];
    let grow = json!({ "file_path": "/x/f", "old_string": "a", "new_string": whole, "replace_all": true });
    claude_calls(
        &path,
        &[
            ("Write", json!({ "file_path": "/x/f", "content": whole }), Value::Null),
            ("MultiEdit", json!({ "file_path": "/x/f", "edits": edits }), Value::Null),
            ("Edit", grow, Value::Null),
        ],
    );
    let place = Place::new();
    let imported = place.import(&[&path]);
    assert_eq!((imported[0].calls, imported[0].incomplete), (3, 1), "the last would make a terabyte");
    let session = place.sessions.session(imported[0].session).unwrap();
    assert_eq!(typed::<foldspace::event::WriteFile>(&session).len(), 2, "50 edits are one change");
    assert!(file(&session, "f").is_none_or(|text| text.starts_with(&"b".repeat(50))));
}

#[test]
fn import_of_a_packed_bomb_keeps_the_text() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("packed.jsonl");
    let packed = format!("{{\"a\":{}}}", values());
    let line = |payload: Value| format!("{}\n", json!({ "type": "response_item", "payload": payload }));
    let text = [
        format!("{}\n", json!({ "type": "session_meta", "payload": { "id": "x" } })),
        line(json!({ "type": "function_call", "call_id": "1", "name": "x", "arguments": packed })),
        line(json!({ "type": "function_call_output", "call_id": "1", "output": packed })),
    ];
    std::fs::write(&path, text.concat()).unwrap();
    let place = Place::new();
    let imported = place.import(&[&path]);
    let session = place.sessions.session(imported[0].session).unwrap();
    let began = &typed::<CallStarted>(&session)[0].event.params;
    let mut read = |digest: &_| session.content(digest).ok().map(|bytes| bytes.to_vec());
    assert_eq!(lower(began.clone(), &mut read)["input"], packed);
}

#[test]
fn materialise_leaves_a_name_that_no_disk_has_and_writes_the_rest() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("names.jsonl");
    let long = "n".repeat(5000);
    let deep = vec!["d".repeat(200); 30].join("/");
    let write = |name: &str| ("Write", json!({ "file_path": format!("/x/{name}"), "content": "text" }), Value::Null);
    claude_calls(&path, &[write("a.txt"), write(&long), write(&deep), write(&format!("{long}/below"))]);
    let program = crate::rig::Program::new();
    program.printed(&["import", path.to_str().unwrap(), "--name", "names"]);
    let told = program.run(&["materialise", "names", "out"]);
    assert!(told.ends_with("[exit 1]") && told.len() < 1000, "{told}");
    assert!(told.contains("left     nnnn") && told.contains("...\n"), "{told}");
    assert_eq!(std::fs::read_to_string(program.path("out/a.txt")).unwrap(), "text");
    let written = program.json(&["ls", "names"]);
    assert!(written.to_string().contains("dddd"));
    let mut top = program.path("out");
    for _ in 0..2 {
        top.push("d".repeat(200));
    }
    assert!(top.is_dir());
}
