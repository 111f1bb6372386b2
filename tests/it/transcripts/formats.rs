//! Transcripts of the agents that hooks and messages are known of: Copilot CLI, OpenCode, Cursor, Cline, Goose, Aider.

use foldspace::event::WriteFile;

use super::*;

const CLINE: &str = "cline/1795852699735_con11.messages.json";
const CLINE_TASK: &str = "cline/1795168800000/api_conversation_history.json";
const CURSOR: &str = "cursor/3f0d6c1e-52a7-4b7e-9c51-0d3c1f2a6b90/3f0d6c1e-52a7-4b7e-9c51-0d3c1f2a6b90.jsonl";

fn open(tool: &str) -> (String, Option<CallStatus>, Option<i64>) {
    (tool.to_owned(), None, None)
}

#[test]
fn copilot_session_has_exit_codes_files_and_its_subagent() {
    let place = Place::new();
    let (imported, session) = place.fixture("copilot.jsonl");
    let bash = |exit| ok("bash", Some(exit));
    assert_eq!(
        calls(&session),
        [ok("create", None), ok("edit", None), bash(0), bash(3), error("edit"), bash(0), bash(0), ok("task", None)]
    );
    assert_eq!(file(&session, "new.py").unwrap(), "import calc\nprint(calc.add(1, 2))\n");
    let unknown: Vec<Vec<String>> =
        typed::<ChangesUnknown>(&session).into_iter().map(|event| event.event.paths).collect();
    assert_eq!(unknown[0], ["/home/ada/shop/calc.py"], "what was edited is in no transcript");
    let ended = typed::<CallFinished>(&session);
    assert_eq!(ended[3].event.result["output"], "oops\n", "without what Copilot adds");
    let began = typed::<CallStarted>(&session);
    assert!(began[6].seq < ended[5].seq, "calls that ran at once overlap");

    let [_, child] = &imported[..] else { panic!("{imported:?}") };
    assert_eq!((&*child.run, child.parent.as_deref()), ("c8bc0c98-1299-4b14-bb51-fd01e8cedbef", Some(session.name())));
    let child = place.sessions.session(child.session).unwrap();
    assert_eq!(child.origin().unwrap().at + 1, began[7].seq, "it begins before the call that made it");
    assert_eq!(calls(&child)[7..], [ok("create", None), bash(0)]);
    assert_eq!(file(&child, "sub.txt").unwrap(), "by the subagent\n");
    assert_eq!(file(&session, "sub.txt"), None);
}

#[test]
fn opencode_export_has_exit_codes_files_and_its_subagent() {
    let place = Place::new();
    // In any order.
    let imported = place.import(&[&fixture("opencode-subagent.json"), &fixture("opencode.json")]);
    let session = place.sessions.session(imported[0].session).unwrap();
    let bash = |exit| ok("bash", Some(exit));
    assert_eq!(
        calls(&session),
        [
            ok("write", None),
            ok("read", None),
            ok("edit", None),
            bash(0),
            bash(3),
            error("edit"),
            bash(0),
            bash(0),
            ok("write", None),
            ok("task", None)
        ]
    );
    assert_eq!(file(&session, "new.py").unwrap(), "import calc\nprint(calc.add(1, 2))\n");
    let began = typed::<CallStarted>(&session);
    assert_eq!(began[0].time.to_string(), "2026-11-28T07:49:52.600Z");
    let ends: Vec<Seq> = typed::<CallFinished>(&session).iter().filter_map(|end| end.call).collect();
    assert_eq!(ends[6..9], [began[8].seq, began[6].seq, began[7].seq], "the last one ended first");
    let child = place.sessions.session(imported[1].session).unwrap();
    assert_eq!(child.origin().unwrap().at + 1, began[9].seq);
    assert_eq!(file(&child, "sub.txt").unwrap(), "by the subagent\n");
}

#[test]
fn messages_have_calls_and_files_whatever_program_keeps_them() {
    let place = Place::new();
    let commands = |exit| ok("run_commands", exit);
    let (imported, cline) = place.fixture(CLINE);
    assert_eq!(
        calls(&cline),
        [
            commands(Some(3)),
            ok("editor", None),
            ok("editor", None),
            error("editor"),
            ok("read_files", None),
            commands(None)
        ]
    );
    assert_eq!(file(&cline, "new.py").unwrap(), "import calc\n", "below the directory that stands beside it");
    assert_eq!((&*imported[0].run, imported[0].incomplete), ("1795852699735_con11", 3));

    let (imported, task) = place.fixture(CLINE_TASK);
    let execute = |exit| ok("execute_command", exit);
    assert_eq!(
        calls(&task),
        [
            ok("read_file", None),
            ok("write_to_file", None),
            ok("replace_in_file", None),
            execute(Some(1)),
            execute(None)
        ]
    );
    let written = typed::<WriteFile>(&task);
    assert_eq!((written.len(), file(&task, "new.py").unwrap()), (2, "print(2)\n".to_owned()));
    assert_eq!(imported[0].run, "1795168800000", "the directory is the id");

    let (imported, goose) = place.fixture("goose.json");
    let tool = |name: &str| format!("developer__{name}");
    assert_eq!(
        calls(&goose),
        [ok(&tool("shell"), Some(1)), error(&tool("edit")), ok(&tool("write"), None), ok(&tool("edit"), None)]
    );
    assert_eq!(file(&goose, "new.py").unwrap(), "print(2)\n");
    let ends = typed::<CallFinished>(&goose);
    assert_eq!(ends[0].event.result["content"], "FAILED (failures=1)\n");
    assert_eq!(ends[1].event.message, "-32602: no such file: new.py");
    assert_eq!(imported[0].run, "20261120_3");

    let (imported, cursor) = place.fixture(CURSOR);
    assert_eq!(
        calls(&cursor),
        [open("Read"), open("StrReplace"), open("Shell"), open("Write")],
        "no outcome is stated"
    );
    assert_eq!((&*imported[0].run, imported[0].records), ("3f0d6c1e-52a7-4b7e-9c51-0d3c1f2a6b90", 7));

    let (_, inspect) = place.fixture("inspect-messages.json");
    assert_eq!(calls(&inspect), [ok("bash", None), error("bash")]);
}

#[test]
fn aider_history_has_a_run_for_each_start() {
    let place = Place::new();
    let (imported, first) = place.fixture("aider.chat.history.md");
    let runs: Vec<&str> = imported.iter().map(|run| &*run.run).collect();
    assert_eq!(runs, ["20261128T075804", "20261128T075809"]);
    assert_eq!(calls(&first), [ok("edit", None), ok("edit", None)]);
    assert_eq!(file(&first, "new.py").unwrap(), "import calc\nprint(calc.add(1, 2))\n");
    assert_eq!(typed::<ChangesUnknown>(&first)[0].event.paths, ["calc.py"]);
    let second = place.sessions.session(imported[1].session).unwrap();
    assert_eq!(calls(&second), [ok("shell", None)], "an edit that failed is no call");
    let said: Vec<Value> = typed::<TranscriptRecord>(&first).into_iter().map(|event| event.event.record).collect();
    assert!(said.contains(&json!({ "role": "user", "content": "RUN-MAIN please" })), "{said:#?}");
}

/// The beginnings of a transcript, as they are while the run goes on.
fn beginnings(name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(fixture(name)).unwrap();
    let messages = match name {
        "goose.json" => "/conversation",
        "opencode.json" | CLINE => "/messages",
        CLINE_TASK => "",
        _ => {
            let ends = text.match_indices('\n').map(|(at, _)| at + 1).filter(|at| *at > 60);
            return ends.step_by(5).chain([text.len()]).map(|end| text[..end].to_owned()).collect();
        }
    };
    let whole: Value = serde_json::from_str(&text).unwrap();
    let count = whole.pointer(messages).unwrap().as_array().unwrap().len();
    let cut = |count| {
        let mut document = whole.clone();
        document.pointer_mut(messages).unwrap().as_array_mut().unwrap().truncate(count);
        document.to_string()
    };
    (1..=count).map(cut).collect()
}

#[test]
fn transcript_of_each_format_may_grow() {
    for name in ["copilot.jsonl", "opencode.json", CLINE, CLINE_TASK, "goose.json", CURSOR, "aider.chat.history.md"] {
        let (place, whole) = (Place::new(), Place::new());
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(fixture(name).parent().unwrap().file_name().unwrap());
        std::fs::create_dir(&path).unwrap();
        let path = path.join(fixture(name).file_name().unwrap());
        if name == CLINE {
            let beside = fixture("cline/1795852699735_con11.json");
            std::fs::copy(&beside, path.with_file_name(beside.file_name().unwrap())).unwrap();
        }
        for beginning in beginnings(name) {
            std::fs::write(&path, beginning).unwrap();
            place.import(&[&path]);
        }
        for run in whole.fixture(name).0 {
            let [piecewise, once] = [&place, &whole].map(|place| place.sessions.session(run.session).unwrap());
            assert_eq!(piecewise.events(1, 1000).unwrap(), once.events(1, 1000).unwrap(), "{name}");
        }
    }
}

#[test]
fn opencode_call_that_runs_holds_back_what_may_come_before_its_end() {
    let place = Place::new();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.json");
    let part = |id: &str, start: u64, end: Option<u64>| {
        let status = if end.is_some() { "completed" } else { "running" };
        json!({ "type": "tool", "callID": id, "tool": "bash", "state": { "status": status, "input": { "command": "ls" },
            "output": "", "metadata": { "exit": 0 }, "time": { "start": start, "end": end } } })
    };
    let write = |parts: [Value; 2], completed: Option<u64>| {
        let message = json!({ "info": { "id": "msg_1", "role": "assistant", "time": { "created": 1, "completed": completed } }, "parts": parts });
        let document = json!({ "info": { "id": "ses_1", "directory": "/home/ada", "time": { "created": 1 } }, "messages": [message] });
        std::fs::write(&path, document.to_string()).unwrap();
        let imported = place.import(&[&path]);
        calls(&place.sessions.session(imported[0].session).unwrap()).len()
    };
    assert_eq!(write([part("a", 1, None), part("b", 2, Some(3))], None), 1);
    assert_eq!(write([part("a", 1, Some(4)), part("b", 2, Some(3))], Some(5)), 2);
    assert_eq!(write([part("a", 1, Some(4)), part("b", 2, Some(3))], Some(5)), 2);
}

#[test]
fn unknown_format_is_refused_by_name() {
    let (place, directory) = (Place::new(), tempfile::tempdir().unwrap());
    let path = directory.path().join("x");
    let converted = json!({ "sessionId": "s", "type": "user", "uuid": "u", "timestamp": "2026-01-01T00:00:00Z",
        "message": { "role": "user", "content": "hi" } });
    let qwen = json!({ "sessionId": "s", "type": "user", "uuid": "u", "parentUuid": null, "version": "1", "cwd": "/a",
        "isSidechain": false, "timestamp": "2026-01-01T00:00:00Z", "message": { "role": "user", "parts": [] } });
    let twice = |line: &Value| format!("{line}\n{line}\n");
    let unknown = "unknown format; supported formats are Claude Code, Codex CLI,";
    let refused = [
        (twice(&json!({ "a": 1 })), unknown),
        (json!({ "a": 1 }).to_string(), unknown),
        ("{\"a\": 1}\nno JSON\n".to_owned(), unknown),
        ("no JSON\n".to_owned(), "the file is not valid JSON"),
        (twice(&converted), unknown),
        (twice(&qwen), unknown),
        (json!([{ "ts": 1, "type": "say", "say": "text" }]).to_string(), unknown),
        ("SQLite format 3\0 and more".to_owned(), "opencode export"),
    ];
    for (contents, told) in refused {
        std::fs::write(&path, &contents).unwrap();
        let error = import_transcripts(&place.sessions, &[&path], None).unwrap_err().to_string();
        assert!(error.contains(told), "{contents}: {error}");
    }
    assert!(place.sessions.list().unwrap().is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn cut_and_damaged_transcripts_do_no_harm(
        name in prop::sample::select(vec!["copilot.jsonl", "opencode.json", CLINE, CLINE_TASK, "goose.json", CURSOR, "aider.chat.history.md"]),
        end in any::<prop::sample::Index>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut bytes = std::fs::read(fixture(name)).unwrap();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(end.index(bytes.len() + 1));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x");
        std::fs::write(&path, bytes).unwrap();
        let place = Place::new();
        if let Ok(imported) = import_transcripts(&place.sessions, &[&path], None) {
            let again = import_transcripts(&place.sessions, &[&path], None).unwrap();
            prop_assert!(again.iter().all(|run| run.added == 0));
            prop_assert_eq!(imported.len(), again.len());
        }
    }
}
