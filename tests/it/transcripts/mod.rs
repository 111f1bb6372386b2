//! Import of the transcripts that other programs write.

mod again;
mod bombs;
mod conversation;
mod export;
mod formats;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use foldspace::event::{CallFinished, CallObserved, CallStarted, CallStatus, ChangesUnknown, Node, TranscriptRecord};
use foldspace::reducers::AgentRuns;
use foldspace::tools::{
    ImportedRun, TranscriptError, TranscriptFormat, import_transcripts, lower, traces_of, trajectory_of,
};
use foldspace::{EntryPath, Event, Recorded, Registry, Seq, Session, Sessions, VirtualFileSystem};
use proptest::prelude::*;
use serde_json::{Value, json};

const CLAUDE: &str = "claude/e1621bd0-4826-43bc-826f-fc3b6ab04d91.jsonl";

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/transcripts").join(name)
}

struct Place {
    sessions: Sessions,
    _directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { sessions: Sessions::open(directory.path(), Registry::standard()).unwrap(), _directory: directory }
    }

    fn import(&self, paths: &[&Path]) -> Vec<ImportedRun> {
        import_transcripts(&self.sessions, paths, None).unwrap()
    }

    fn fixture(&self, name: &str) -> (Vec<ImportedRun>, Session) {
        let imported = self.import(&[&fixture(name)]);
        let session = self.sessions.session(imported[0].session).unwrap();
        (imported, session)
    }
}

fn typed<E: Event>(session: &Session) -> Vec<Recorded<E>> {
    let events = session.events(1, usize::MAX).unwrap();
    events.iter().filter_map(Recorded::typed).map(Result::unwrap).collect()
}

/// The calls in the order in which they began: tool, status, exit code.
fn calls(session: &Session) -> Vec<(String, Option<CallStatus>, Option<i64>)> {
    let finished: BTreeMap<Seq, CallFinished> =
        typed::<CallFinished>(session).into_iter().map(|end| (end.call.unwrap(), end.event)).collect();
    let call = |began: Recorded<CallStarted>| {
        let end = finished.get(&began.seq);
        (began.event.tool, end.map(|end| end.status), end.and_then(|end| end.result["exit_code"].as_i64()))
    };
    typed::<CallStarted>(session).into_iter().map(call).collect()
}

fn file(session: &Session, path: &str) -> Option<String> {
    let files = VirtualFileSystem::of(&session.state().unwrap());
    let Node::File { content, .. } = files.get(&EntryPath::lookup(path).unwrap())?.node else { panic!("no file") };
    Some(String::from_utf8(session.content(&content).unwrap().to_vec()).unwrap())
}

fn ok(tool: &str, exit: Option<i64>) -> (String, Option<CallStatus>, Option<i64>) {
    (tool.to_owned(), Some(CallStatus::Ok), exit)
}

fn error(tool: &str) -> (String, Option<CallStatus>, Option<i64>) {
    (tool.to_owned(), Some(CallStatus::Error), None)
}

#[test]
fn claude_run_has_calls_files_and_its_subagent() {
    let place = Place::new();
    let (imported, session) = place.fixture(CLAUDE);
    let bash = |exit| ok("Bash", exit);
    assert_eq!(
        calls(&session),
        [
            ok("Write", None),
            ok("Read", None),
            ok("Edit", None),
            bash(None),
            bash(Some(3)),
            error("Edit"),
            bash(None),
            bash(None),
            ok("Write", None),
            bash(None),
            bash(None),
            ok("Agent", None),
            ok("Agent", None)
        ]
    );
    assert_eq!(file(&session, "new.py").unwrap(), "import calc\nprint(calc.add(1, 2))\n");
    assert_eq!(file(&session, "calc.py").unwrap(), "def add(a, b):\n    return a + b\n");
    assert_eq!(file(&session, "p3.txt").unwrap(), "p3\n");
    // Times are those of the transcript, and calls that ran at once overlap.
    let began = typed::<CallStarted>(&session);
    assert_eq!(began[0].time.to_string(), "2026-11-23T00:04:07.107Z");
    let ended = typed::<CallFinished>(&session);
    assert!(began[7].seq < ended.iter().find(|end| end.call == Some(began[6].seq)).unwrap().seq);
    // Which files its commands changed is told to be unknown; what an edit that was refused changed is not.
    let unknown: Vec<Seq> = typed::<ChangesUnknown>(&session).iter().filter_map(|event| event.call).collect();
    assert_eq!(unknown, [3, 4, 6, 7, 9, 10].map(|call: usize| began[call].seq));
    let state = session.state().unwrap();
    let run = &state.slice::<AgentRuns>().unwrap().runs["e1621bd0-4826-43bc-826f-fc3b6ab04d91"];
    assert_eq!((run.calls, run.incomplete, &*run.agent), (13, 6, "claude"));
    assert_eq!(run.facts["model"], "claude-opus-4-8");

    let [_, child] = &imported[..] else { panic!("{imported:?}") };
    assert_eq!((&*child.run, child.parent.as_deref()), ("a207496f0a1cc8436", Some(session.name())));
    let child = place.sessions.session(child.session).unwrap();
    let origin = child.origin().unwrap();
    assert_eq!((origin.parent, origin.at + 1), (session.id(), began[11].seq), "it begins before the call that made it");
    assert_eq!(file(&child, "sub.txt").unwrap(), "by the subagent\n");
    assert_eq!(file(&child, "new.py"), file(&session, "new.py"));
    let writes = typed::<CallStarted>(&child).into_iter().filter(|call| call.seq > origin.at);
    assert_eq!(
        writes.map(|call| call.time.to_string()).next().unwrap(),
        "2026-11-23T00:04:51.779Z",
        "its parent went on till later"
    );
}

#[test]
fn codex_rollout_has_exit_codes_and_patches() {
    let place = Place::new();
    let (imported, session) = place.fixture("codex.jsonl");
    let exec = |exit| ok("exec_command", exit);
    assert_eq!(
        calls(&session)[..6],
        [
            ok("apply_patch", Some(0)),
            error("exec_command"),
            exec(Some(3)),
            error("apply_patch"),
            exec(Some(0)),
            exec(Some(0))
        ]
    );
    assert_eq!(file(&session, "new.py").unwrap(), "import calc\nprint(calc.add(1, 2))\n");
    // What the patch was applied to is in no transcript.
    assert_eq!(file(&session, "calc.py"), None);
    let patched = &typed::<ChangesUnknown>(&session)[0].event;
    assert_eq!(patched.paths, ["/home/ada/shop/calc.py"]);
    assert_eq!((imported[0].format, imported[0].calls), (TranscriptFormat::Codex, 12));
}

#[test]
fn gemini_chat_gives_each_call_once() {
    let place = Place::new();
    let (_, session) = place.fixture("gemini.jsonl");
    let shell = |exit| ok("run_shell_command", exit);
    assert_eq!(
        calls(&session)[..6],
        [
            ok("write_file", None),
            ok("read_file", None),
            ok("replace", None),
            shell(None),
            shell(Some(3)),
            error("replace")
        ]
    );
    assert_eq!(calls(&session).len(), 12);
    assert_eq!(file(&session, "home/ada/shop/calc.py").unwrap(), "def add(a, b):\n    return a + b\n");
}

#[test]
fn other_formats_have_their_calls() {
    let place = Place::new();
    let bash = |exit| ok("bash", exit);
    let (_, one) = place.fixture("mini-swe-agent-1.traj.json");
    assert_eq!(calls(&one), [bash(Some(0)), bash(Some(1))]);
    let (_, two) = place.fixture("mini-swe-agent-2.traj.json");
    assert_eq!(calls(&two)[..3], [bash(Some(0)), bash(Some(0)), bash(Some(3))]);
    assert_eq!(calls(&two)[5], error("bash"), "it was not executed");

    let (_, swe) = place.fixture("swe-agent.traj");
    assert_eq!(calls(&swe), [bash(None), bash(None)]);
    assert_eq!(typed::<CallFinished>(&swe)[1].event.micros, 1_500_000);

    let (imported, atif) = place.fixture("atif.json");
    assert_eq!(calls(&atif), [ok("bash_command", Some(0)), ok("delegate", None), error("bash_command")]);
    let child = place.sessions.session(imported[1].session).unwrap();
    assert_eq!(child.origin().unwrap().parent, atif.id());
    assert_eq!(calls(&child).last().unwrap(), &ok("bash_command", Some(2)));

    let (_, openhands) = place.fixture("openhands");
    assert_eq!(calls(&openhands), [ok("terminal", Some(1)), ok("file_editor", None), error("nothing")]);
    assert_eq!(file(&openhands, "workspace/greet.py").unwrap(), "print('hello')\n");

    let (imported, inspect) = place.fixture("inspect.json");
    assert_eq!(calls(&inspect), [bash(None), error("bash")]);
    let ends: Vec<Seq> = typed::<CallFinished>(&inspect).iter().filter_map(|end| end.call).collect();
    let begins: Vec<Seq> = typed::<CallStarted>(&inspect).iter().map(|begin| begin.seq).collect();
    assert_eq!(ends, [begins[1], begins[0]], "the later one ended first");
    let (again, _) = place.fixture("inspect.eval");
    assert_eq!((again[0].session, again[0].added), (imported[0].session, 0));
}

#[test]
fn transcript_that_has_grown_is_imported_again() {
    let (place, whole) = (Place::new(), Place::new());
    let text = std::fs::read_to_string(fixture("codex.jsonl")).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rollout.jsonl");
    let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at + 1).collect();
    let mut added = 0;
    // In the middle of a line, too: what is not whole yet is left for later.
    for end in [ends[3], ends[9] - 20, ends[9], ends[ends.len() - 3], text.len()] {
        std::fs::write(&path, &text[..end]).unwrap();
        added += place.import(&[&path])[0].added;
    }
    let (imported, session) = whole.fixture("codex.jsonl");
    assert_eq!(added, imported[0].events);
    let piecewise = place.sessions.session(session.id()).unwrap();
    assert_eq!(piecewise.events(1, 1000).unwrap(), session.events(1, 1000).unwrap());

    // A session that has gone on otherwise is left alone.
    let mut commit = piecewise.commit();
    commit.push(&ChangesUnknown { run: "x".to_owned(), paths: Vec::new() }).unwrap();
    piecewise.record(commit).unwrap();
    std::fs::write(&path, format!("{text}{}", text.lines().nth(4).unwrap())).unwrap();
    let refused = import_transcripts(&place.sessions, &[&path], None).unwrap_err();
    assert!(matches!(refused, TranscriptError::History(_)), "{refused}");
}

#[test]
fn records_stay_as_they_are() {
    let place = Place::new();
    let (_, session) = place.fixture("codex.jsonl");
    let mut read = |digest: &_| session.content(digest).ok().map(|bytes| bytes.to_vec());
    let kept: Vec<Value> =
        typed::<TranscriptRecord>(&session).into_iter().map(|event| lower(event.event.record, &mut read)).collect();
    let text = std::fs::read_to_string(fixture("codex.jsonl")).unwrap();
    let wanted = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let is_call = |line: &Value| {
        let kind = line["payload"]["type"].as_str().unwrap_or_default();
        kind.contains("_call")
    };
    assert_eq!(kept, wanted.filter(|line| !is_call(line)).collect::<Vec<_>>());
    let ids: Vec<String> = typed::<CallObserved>(&session).into_iter().map(|event| event.event.id).collect();
    assert_eq!(ids[0], "call_af517cb5e5ce4dc8b65f");
}

#[test]
fn file_of_no_known_format_is_refused_with_reason() {
    let (place, directory) = (Place::new(), tempfile::tempdir().unwrap());
    let path = directory.path().join("x");
    for contents in
        [&b""[..], b"\n\n", b"no JSON", b"{\"a\": 1}", b"[]", b"[1, 2]", b"null", b"PK\x03\x04junk", b"\xff\xfe"]
    {
        std::fs::write(&path, contents).unwrap();
        let refused = import_transcripts(&place.sessions, &[&path], None).unwrap_err();
        assert!(matches!(refused, TranscriptError::Unknown { .. } | TranscriptError::Read { .. }), "{refused}");
    }
    assert!(place.sessions.list().unwrap().is_empty());
}

#[test]
fn run_whose_name_is_taken_gets_a_longer_one() {
    let place = Place::new();
    place.sessions.create(foldspace::NewSession::named("codex-01a205ba-83f5-70")).unwrap();
    let (imported, _) = place.fixture("codex.jsonl");
    assert!(imported[0].name.starts_with("codex-01a205ba-83f5-70-"), "{}", imported[0].name);
}

/// Replaces a value somewhere in a document.
fn mutate(value: &mut Value, path: &[usize], with: &Value) {
    let Some((first, rest)) = path.split_first() else {
        *value = with.clone();
        return;
    };
    match value {
        Value::Array(items) if !items.is_empty() => {
            let at = first % items.len();
            mutate(&mut items[at], rest, with);
        }
        Value::Object(fields) if !fields.is_empty() => {
            let at = first % fields.len();
            mutate(fields.values_mut().nth(at).unwrap(), rest, with);
        }
        other => *other = with.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn odd_transcripts_do_no_harm(
        name in prop::sample::select(vec![CLAUDE, "codex.jsonl", "gemini.jsonl", "mini-swe-agent-1.traj.json", "mini-swe-agent-2.traj.json", "swe-agent.traj", "atif.json", "inspect.json", "inspect-messages.json", "copilot.jsonl", "opencode.json", "goose.json", "cline/1795168800000/api_conversation_history.json"]),
        changes in prop::collection::vec((any::<usize>(), prop::collection::vec(any::<usize>(), 0..8), 0_usize..9), 1..12),
    ) {
        let odd = [json!(null), json!(-1.5e300), json!(u64::MAX), json!("../../etc"), json!([]), json!({}), json!([{}]), json!({ "$content": "x" }), json!("9999-99-99T99:99:99Z")];
        let text = std::fs::read_to_string(fixture(name)).unwrap();
        let is_lines = name.ends_with(".jsonl");
        let mut documents: Vec<Value> = match is_lines {
            true => text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
            false => vec![serde_json::from_str(&text.replace("NaN", "null")).unwrap()],
        };
        for (line, path, with) in &changes {
            let at = line % documents.len();
            mutate(&mut documents[at], path, &odd[*with]);
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x");
        let text: String = documents.iter().map(|document| format!("{document}\n")).collect();
        std::fs::write(&path, text).unwrap();
        let place = Place::new();
        if let Ok(imported) = import_transcripts(&place.sessions, &[&path], None) {
            let again = import_transcripts(&place.sessions, &[&path], None).unwrap();
            prop_assert!(again.iter().all(|run| run.added == 0));
            prop_assert_eq!(imported.len(), again.len());
            for run in imported {
                let session = place.sessions.session(run.session).unwrap();
                let trajectory = trajectory_of(&session, &place.sessions).unwrap();
                prop_assert!(!trajectory["steps"].as_array().unwrap().is_empty());
                traces_of(&session, &place.sessions).unwrap();
            }
        }
    }
}
