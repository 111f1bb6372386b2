//! `evaluate_python` in process and where commands run.

use std::sync::Arc;
use std::time::{Duration, Instant};

use foldspace::backends::{MockOptions, MockRule};
use foldspace::event::{CallStatus, CommandDecided, EvalResult};
use foldspace::tools::{CaptureBudget, CommandPolicy, PythonPlace, PythonRules, ShellRules};
use foldspace::{MemoryWorkspace, NewSession, Registry, Sessions, ToolCall, ToolRunner, Tools, WorkspaceSpec};
use serde_json::{Value, json};

use crate::rig::{Kind, Program, Rig, Step, rounds};

fn rules(python: PythonRules) -> ShellRules {
    let policy = CommandPolicy { auto_confirm: true, ..CommandPolicy::default() };
    ShellRules { policy, python, ..ShellRules::default() }
}

/// A session on the host, whose code runs there.
fn on_host(place: Option<PythonPlace>) -> Rig {
    let mut rig = Rig::new(Kind::Host).unwrap();
    rig.reopen_with(rules(PythonRules { place, ..PythonRules::default() }));
    rig
}

fn evaluate(rig: &Rig, params: Value) -> Step {
    rig.call("evaluate_python", params)
}

fn result(step: &Step) -> Value {
    assert_eq!(step.outcome.status, CallStatus::Ok, "{}", step.outcome.text);
    step.outcome.result.clone()
}

/// The fields are the same wherever code runs.
fn has_all_fields(rig: &Rig, place: &str) {
    rig.ok("echo one > a.txt");
    let code = "import json, math\nwith open('a.txt') as f:\n    text = f.read()\nn += 1\n\
                data = {'list': [1, (2.5, None)], 'ok': True}\nodd = {1}\nbig = 2 ** 70\ninf = math.inf\n\
                keys = {1: 2}\n_hidden = 1\ndef function():\n    return 1\nclass C:\n    pass\n\
                with open('out.txt', 'w') as f:\n    done = f.write(text * 2)\nprint('printed')\n[n, text]";
    let params = json!({
        "code": code,
        "globals": { "n": 1, "t": "x" },
        "reads": ["/a.txt"],
        "writes": [{ "file_path": "d/report.md", "content": "{t} {n} {data} {{}}\n" }],
    });
    let step = evaluate(rig, params);
    let mut given = result(&step);
    // Python's library and the interpreter's differ in what a file is.
    given["omitted"].as_object_mut().unwrap().remove("f");
    let data = json!({ "list": [1, [2.5, null]], "ok": true });
    assert_eq!(given["globals"], json!({ "n": 2, "t": "x", "text": "one\n", "data": data, "done": 8 }));
    assert_eq!((&given["value_repr"], &given["stdout"]), (&json!("[2, 'one\\n']"), &json!("printed\n")));
    let omitted =
        json!({ "odd": "set", "big": "int over 64 bits", "inf": "float inf", "keys": "dict with a key of int" });
    assert_eq!(given["omitted"], omitted);
    assert_eq!((&given["reads"], &given["place"]), (&json!(["/a.txt"]), &json!(place)));
    let writes = json!([
        { "file_path": "/d/report.md", "size": 41, "version": 1 },
        { "file_path": "/out.txt", "size": 8, "version": 1 },
    ]);
    assert_eq!(given["writes"], writes);
    assert_eq!(rig.printed("cat out.txt"), "one\none");
    assert_eq!(rig.printed("cat d/report.md"), "x 2 {\"list\":[1,[2.5,null]],\"ok\":true} {}");
    let recorded = &step.of::<EvalResult>()[0];
    assert_eq!((recorded.place.as_str(), recorded.exit_code), (place, 0));
    rig.verify();
}

/// The helpers need no import, and are no global variables.
fn has_helpers(rig: &Rig) {
    rig.ok("echo one > a.txt; rm -rf h");
    let code = "write_text('h/b.txt', read_text('a.txt'))\nwrite_text('h/b.txt', 'two\\n', mode='append')\n\
                write_text('a.txt', 'x', 'overwrite')\nread_text('h/b.txt')";
    let step = evaluate(rig, json!({ "code": code, "reads": ["a.txt"] }));
    let given = result(&step);
    assert_eq!((&given["value_repr"], &given["globals"]), (&json!("'one\\ntwo\\n'"), &json!({})), "{given}");
    assert_eq!((rig.printed("cat h/b.txt"), rig.printed("cat a.txt")), ("one\ntwo".to_owned(), "x".to_owned()));
    let step = evaluate(rig, json!({ "code": "write_text('a.txt', 'y')", "reads": ["a.txt"] }));
    let stderr = result(&step)["stderr"].as_str().unwrap().to_owned();
    assert!(stderr.contains("FileExistsError"), "{stderr}");
}

#[test]
fn python_has_the_same_helpers_in_each_place() {
    has_helpers(&on_host(None));
    has_helpers(&on_host(Some(PythonPlace::Container)));
}

#[test]
fn python_in_process_has_all_fields() {
    has_all_fields(&on_host(None), "in-process");
}

#[test]
fn python_on_host_by_choice_has_all_fields() {
    has_all_fields(&on_host(Some(PythonPlace::Container)), "host");
}

#[test]
fn python_in_container_has_all_fields() {
    let Some(mut rig) = Rig::new(Kind::Plain) else { return };
    rig.reopen_with(rules(PythonRules::default()));
    has_all_fields(&rig, "podman");
    rig.reopen_with(rules(PythonRules { place: Some(PythonPlace::InProcess), ..PythonRules::default() }));
    let outcome = rig.bare("evaluate_python", json!({ "code": "1 + 1" }));
    assert_eq!((&outcome.result["place"], &outcome.result["value_repr"]), (&json!("in-process"), &json!("2")));
}

#[test]
fn python_in_shell_leaves_nothing_of_the_script() {
    let rig = on_host(Some(PythonPlace::Container));
    let seen = result(&evaluate(&rig, json!({ "code": "import sys\n(sys.argv, __name__, sorted(globals()))" })));
    assert_eq!(
        seen["value_repr"],
        "(['-c'], '__main__', ['__builtins__', '__doc__', '__loader__', '__name__', \
                                     '__package__', '__spec__', 'read_text', 'sys', 'write_text'])"
    );
    let failed = result(&evaluate(&rig, json!({ "code": "def f():\n    raise ValueError('no')\nf()" })));
    let stderr = failed["stderr"].as_str().unwrap();
    assert!(!stderr.contains("exec(") && stderr.contains("\"<code>\", line 2, in f"), "{stderr}");
    assert_eq!((&failed["exit_code"], &failed["value_repr"]), (&json!(1), &Value::Null));
    let exit = result(&evaluate(&rig, json!({ "code": "import os\nos._exit(3)" })));
    assert_eq!((&exit["exit_code"], &exit["globals"]), (&json!(3), &json!({})));
    let decided = &evaluate(&rig, json!({ "code": "1" })).of::<CommandDecided>()[0];
    assert_eq!(decided.command.to_string(), "python3 -c 1", "the code is decided on, not the script beside it");
}

#[test]
fn python_in_process_needs_no_approval_and_reaches_nothing() {
    let mut rig = on_host(None);
    let policy = CommandPolicy::default();
    rig.reopen_with(ShellRules { policy, ..rules(PythonRules::default()) });
    let step = evaluate(&rig, json!({ "code": "2 ** 10" }));
    assert_eq!((step.of::<CommandDecided>().len(), &result(&step)["value_repr"]), (0, &json!("1024")));
    for (code, error) in [
        ("import os\nos.system('touch x')", "has no attribute 'system'"),
        ("import subprocess", "No module named 'subprocess'"),
        ("open('../x', 'w').write('1')", "leads out of the workspace"),
        ("open('/etc/passwd').read()", "No such file"),
        ("import os\nos.listdir('/')", "not supported"),
        ("().__class__.__bases__[0].__subclasses__()", "Error"),
        ("__import__('os').fork()", "Error"),
        ("def (", "SyntaxError"),
    ] {
        let failed = result(&evaluate(&rig, json!({ "code": code })));
        let stderr = failed["stderr"].as_str().unwrap();
        assert!(failed["exit_code"] == 1 && stderr.contains(error), "{code}: {failed}");
    }
    assert_eq!(rig.known().len(), 0);
}

#[test]
fn python_in_process_is_ended_and_replaced() {
    let rig = on_host(None);
    for (code, exit_code) in [
        ("while True: pass", 124),
        // The interpreter's own clock does not see this one.
        ("x = 10 ** 10\nfor i in range(40): x = x * x", 124),
        ("x = []\nwhile True: x.append('x' * 100000)", 134),
        ("x = 'a' * (1 << 34)", 134),
    ]
    .into_iter()
    .take(rounds(4) as usize)
    {
        let began = Instant::now();
        let step = evaluate(&rig, json!({ "code": code, "writes": [{ "file_path": "never", "content": "" }] }));
        assert_eq!(result(&step)["exit_code"], exit_code, "{code}");
        assert!(began.elapsed() < Duration::from_secs(20), "{code}: {:?}", began.elapsed());
        assert_eq!(step.of::<EvalResult>()[0].timed_out, exit_code == 124, "{code}");
        assert_eq!(
            result(&evaluate(&rig, json!({ "code": "1 + 1" })))["value_repr"],
            "2",
            "the next one has a process"
        );
    }
    assert_eq!(rig.known().len(), 0);
}

#[test]
fn python_in_process_is_cancelled() {
    let rig = on_host(None);
    let call = ToolCall::new("evaluate_python", json!({ "code": "while True: pass" }));
    let cancel = call.cancel.clone();
    let began = Instant::now();
    let outcome = rig.runtime.block_on(async {
        let call = rig.tool_runner().call(call);
        let cancelling = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            cancel.cancel();
        };
        tokio::join!(call, cancelling).0
    });
    assert_eq!(outcome.unwrap().status, CallStatus::Interrupted);
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    assert_eq!(result(&evaluate(&rig, json!({ "code": "1 + 1" })))["value_repr"], "2");
}

#[test]
fn python_refuses_what_is_over_its_limits() {
    let mut rig = on_host(None);
    rig.ok("head -c 10 /dev/urandom > bytes");
    let refused = |rig: &Rig, params: Value, why: &str| {
        let step = evaluate(rig, params.clone());
        let shown = params.to_string().chars().take(200).collect::<String>();
        assert_eq!(step.outcome.status, CallStatus::Error, "{shown}");
        assert!(step.outcome.text.contains(why), "{shown}: {}", step.outcome.text);
        assert!(step.paths().0.is_empty(), "{shown}");
    };
    let long = |chars: usize| format!("1{}", " ".repeat(chars - 1));
    refused(&rig, json!({ "code": long(2001) }), "code has 2001 characters; in process at most 2000");
    assert_eq!(result(&evaluate(&rig, json!({ "code": long(2000) })))["value_repr"], "1");
    refused(&rig, json!({ "code": "open('a', 'w').write('x' * 48001)" }), "a: content has 48001 characters");
    let write = |path: &str, content: &str| json!([{ "file_path": path, "content": content }]);
    refused(&rig, json!({ "code": "1", "writes": write("a", &"x".repeat(48_001)) }), "48001 characters");
    refused(&rig, json!({ "code": "x = 'y' * 30000", "writes": write("a", "{x}{x}") }), "60000 characters");
    refused(&rig, json!({ "code": "1", "writes": write("a", "{x}") }), "no global variable x");
    refused(&rig, json!({ "code": "1", "writes": write("../a", "") }), "not allowed");
    refused(&rig, json!({ "code": "1", "writes": write("bytes", "") }), "already exists");
    rig.ok("echo one > d");
    let onto = json!([{ "file_path": "/workspace/d", "content": "", "mode": "append" }]);
    refused(&rig, json!({ "code": "1", "reads": ["d"], "writes": onto }), "/workspace/d is in reads and in writes");
    refused(&rig, json!({ "code": "1", "reads": ["d", "./d"] }), "reads names ./d twice");
    let twice = json!([{ "file_path": "e", "content": "" }, { "file_path": "/e", "content": "" }]);
    refused(&rig, json!({ "code": "1", "writes": twice }), "writes names /e twice");
    refused(&rig, json!({ "code": "write_text('d', 'x')" }), "already exists");
    refused(&rig, json!({ "code": "1", "reads": ["../a"] }), "not allowed");
    refused(&rig, json!({ "code": "1", "reads": ["none"] }), "/none does not exist");
    refused(&rig, json!({ "code": "1", "reads": ["bytes"] }), "binary");
    refused(&rig, json!({ "code": "1", "globals": { "a b": 1 } }), "is not a variable name");
    refused(&rig, json!({ "code": "1", "globals": { "a": "x".repeat(48_001) } }), "globals has");
    rig.reopen_with(rules(PythonRules { code_chars: 48_000, ..PythonRules::default() }));
    assert_eq!(result(&evaluate(&rig, json!({ "code": long(48_000) })))["value_repr"], "1");
}

#[test]
fn python_runs_in_memory_sessions_side_by_side() {
    let directory = tempfile::tempdir().unwrap();
    let sessions = Sessions::open(directory.path(), Registry::standard()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let runner = |name: &str| {
        let session = sessions.create(NewSession::named(name)).unwrap();
        let rules = rules(PythonRules::default());
        ToolRunner::with_rules(session, Tools::standard(), Arc::new(MemoryWorkspace), rules).unwrap()
    };
    let runners = ["a", "b", "c", "d"].map(runner);
    runtime.block_on(async {
        let calls = runners.iter().enumerate().map(|(at, runner)| async move {
            let code = format!("n = {at}\nopen('n', 'w').write(str(n))\nn * 2");
            let outcome = runner.call(ToolCall::new("evaluate_python", json!({ "code": code }))).await.unwrap();
            assert_eq!(outcome.result["value_repr"], (at * 2).to_string(), "{}", outcome.text);
            assert_eq!(outcome.result["writes"][0]["file_path"], "/n");
        });
        futures_util::future::join_all(calls).await;
    });
}

#[test]
fn python_of_a_mock_is_answered_by_its_code() {
    let rule = json!({ "command": "python3 -c 'print(1)'", "stdout": "one\n" });
    let rule: MockRule = serde_json::from_value(rule).unwrap();
    let mut rig = Rig::of(
        &WorkspaceSpec::Mock(MockOptions { answers: vec![rule], ..MockOptions::default() }),
        CaptureBudget::default(),
    );
    rig.reopen_with(rules(PythonRules::default()));
    let answered = rig.bare("evaluate_python", json!({ "code": "print(1)" })).result;
    assert_eq!((&answered["stdout"], &answered["place"]), (&json!("one\n"), &json!("mock")));
}

#[test]
fn python_place_is_an_option_of_the_program() {
    let program = Program::new();
    let script = json!({ "tool": "evaluate_python", "params": { "code": "1 + 1" } }).to_string();
    let place = |session: &str, options: &[&str]| {
        let run = [&["run", "-", "--session", session, "--json", "--yes"], options].concat();
        let told = program.fed(&run, script.as_bytes());
        let call: Value = serde_json::from_str(told.lines().next().unwrap()).unwrap();
        (call["result"]["place"].clone(), call["message"].clone())
    };
    assert_eq!(place("m", &[]).0, "in-process");
    assert!(place("m", &["--python", "container"]).1.as_str().unwrap().contains("needs a shell"));
    assert_eq!(place("h", &["--backend", "host"]).0, "in-process");
    assert_eq!(place("h", &["--python", "container"]).0, "host");
    let log = program.printed(&["log", "h"]);
    assert!(log.contains("python (in-process) exit 0") && log.contains("python (host) exit 0"), "{log}");
}
