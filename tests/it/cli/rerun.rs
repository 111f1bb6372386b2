//! `foldspace rerun`, `foldspace what-if` and `foldspace run --expect`.

use std::fs::DirEntry;

use insta::assert_snapshot;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::rig::{Program, eventually, has_begun};

/// Commands and file tools, one failure among them, and output that differs from run to run.
const PROJECT: &str = r#"
{"tool": "write_file", "params": {"file_path": "src/sum.sh", "content": "echo $(( $(cat in | tr '\\n' '+') 0 ))\n"}}
{"tool": "write_file", "params": {"file_path": "in", "content": "1\n2\n3\n"}}
{"tool": "shell_execute", "params": {"command": "sh src/sum.sh > out; cat out; date; pwd; echo pid $$"}, "agent": "builder"}
{"tool": "read_file", "params": {"file_path": "missing"}, "expect": "error"}
{"tool": "edit_file", "params": {"file_path": "in", "old_string": "3", "new_string": "4"}}
{"tool": "shell_execute", "params": {"command": "sh src/sum.sh >> out; cat out; exit 3"}}
"#;

fn with_project(backend: &str) -> Program {
    let program = Program::new();
    let script = program.file("work.jsonl", PROJECT);
    let ran = program.run(&["run", &script, "--backend", backend, "--session", "work", "--yes"]);
    assert!(ran.ends_with("[exit 0]"), "{ran}");
    program
}

/// What a command prints as JSON, one value a line, and its exit code.
fn lines(program: &Program, arguments: &[&str]) -> (Vec<Value>, i32) {
    let output = program.output(&[&["--json"], arguments].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    let parsed = text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")));
    (parsed.collect(), output.status.code().unwrap())
}

fn verdicts(lines: &[Value]) -> String {
    let verdict = |line: &Value| line["verdict"].as_str().unwrap_or("end").to_owned();
    lines.iter().map(verdict).collect::<Vec<_>>().join(" ")
}

fn head(program: &Program) -> u64 {
    program.json(&["sessions"])[0]["events"].as_u64().unwrap()
}

#[test]
fn rerun_of_same_calls_finds_no_difference() {
    let program = with_project("host");
    let before = head(&program);
    let (told, exit) = lines(&program, &["rerun", "work", "--yes"]);
    assert_eq!((verdicts(&told).as_str(), exit), ("same same same same same same end", 0), "{told:#?}");
    assert_eq!((told[6]["same"].as_bool(), told[6]["diverged"].as_u64()), (Some(true), Some(0)));
    assert_eq!(told[2]["agent"], "builder");
    assert_eq!(head(&program), before, "the session is only read");
    assert_eq!(program.json(&["sessions"]).as_array().unwrap().len(), 1, "and nothing is left of the other");
    assert_snapshot!(program.run(&["rerun", "work", "--until", "5"]), @"
        2     2  same      write_file  src/sum.sh
        5     5  same      write_file  in

    2 calls: none diverged; files the same
    [exit 0]
    ");
}

#[test]
fn rerun_without_rules_reports_times_and_paths() {
    let program = with_project("host");
    let (told, exit) = lines(&program, &["rerun", "work", "--yes", "--no-default-rules"]);
    assert_eq!(exit, 1);
    assert_eq!(told[2]["verdict"], "diverged");
    let places: Vec<_> = told[2]["divergences"].as_array().unwrap().iter().map(|one| one["at"].clone()).collect();
    assert_eq!(places, ["/duration_seconds", "/stdout"]);
    let rules = r#"{"texts": [{"pattern": "(?s)\\n.*", "replace": ""}], "ignore_fields": ["duration_seconds"]}"#;
    let (told, exit) =
        lines(&program, &["rerun", "work", "--yes", "--no-default-rules", "--rules", &program.file("r.json", rules)]);
    assert_eq!((told[2]["verdict"].as_str(), told[5]["verdict"].as_str(), exit), (Some("same"), Some("same"), 0));
}

#[test]
fn rerun_repeats_drift() {
    let program = with_project("host");
    let sessions = program.json(&["sessions"]);
    let files = program.data().join("workspaces").join(sessions[0]["session"].as_str().unwrap()).join("files");
    std::fs::write(files.join("in"), "10\n20\n").unwrap();
    program.printed(&["exec", "work", "--sh", "--", "sh src/sum.sh"]);
    let first = program.json_lines(&["log", "work", "--calls"])[0]["call"].as_u64().unwrap();
    program.printed(&["rewind", "work", "--to", &(first + 2).to_string()]);
    program.printed(&["exec", "work", "--sh", "--", "ls"]);
    let (told, exit) = lines(&program, &["rerun", "work", "--yes"]);
    assert_eq!((told.len(), exit), (9, 0), "{told:#?}");
    assert!(verdicts(&told).starts_with("same same same same same same same same end"));
    // Positions are others in what is kept, so the rewind itself is not repeated.
    program.printed(&["rerun", "work", "--yes", "--keep", "again"]);
    assert!(program.printed(&["log", "work"]).contains("SessionRewound"));
    assert!(!program.printed(&["log", "again"]).contains("SessionRewound"));
}

#[test]
fn rerun_begins_with_the_initial_files() {
    let program = Program::new();
    program.file("mounted/src/a.txt", "mounted\n");
    let mount = program.path("mounted").to_string_lossy().into_owned();
    let script = program.file("work.jsonl", r#"{"tool": "read_file", "params": {"file_path": "src/a.txt"}}"#);
    program.printed(&["run", &script, "--mount", &mount, "--session", "work"]);
    let (told, exit) = lines(&program, &["rerun", "work", "--yes"]);
    assert_eq!((verdicts(&told).as_str(), exit), ("same end", 0), "{told:#?}");
}

#[test]
fn rerun_skips_interrupted_calls_and_repeats_their_changes() {
    let program = with_project("host");
    let slow = r#"{"tool": "shell_execute", "params": {"command": "echo begun > begun; sleep 60"}}"#;
    let slow = program.file("slow.jsonl", slow);
    let mut running = program.spawn(&["run", &slow, "--session", "work", "--yes"]);
    let sessions = program.data().join("workspaces");
    let begun = |session: DirEntry| has_begun(&session.path().join("files/begun"));
    eventually("the command has begun", || std::fs::read_dir(&sessions).unwrap().map(Result::unwrap).any(begun));
    kill_process(Pid::from_child(&running.0), Signal::INT).unwrap();
    assert_eq!(running.0.wait().unwrap().code(), Some(130));
    let ran = program.run(&["exec", "work", "--", "cat", "begun"]);
    assert_eq!(ran, "begun\n[exit 0]");
    let (told, exit) = lines(&program, &["rerun", "work", "--yes"]);
    assert_eq!((verdicts(&told).as_str(), exit), ("same same same same same same skipped same end", 0), "{told:#?}");
    assert_eq!(told[6]["reason"], "it was interrupted");
}

#[test]
fn rerun_kept_workspace_can_be_read() {
    let program = with_project("host");
    let told = program.run(&["rerun", "work", "--yes", "--keep", "again"]);
    assert!(told.contains("kept as session again"), "{told}");
    assert_eq!(program.printed(&["cat", "again", "in"]), "1\n2\n4\n");
    assert_eq!(program.run(&["exec", "again", "--", "cat", "out"]), "6\n7\n[exit 0]");
    assert!(program.run(&["rerun", "work", "--yes", "--keep", "again"]).ends_with("[exit 2]"), "the name is taken");
}

#[test]
fn rerun_kept_records_through_an_owner_that_is_in_use() {
    let program = with_project("host").through_owner();
    let slow = program.file("slow.jsonl", r#"{"tool": "shell_execute", "params": {"command": "sleep 60"}}"#);
    let mut running = program.spawn(&["run", &slow, "--session", "busy", "--backend", "host", "--yes"]);
    eventually("the command runs", || program.printed(&["status"]).contains("busy"));
    let owners = program.owners();
    let told = program.run(&["rerun", "work", "--yes", "--keep", "again"]);
    assert!(told.contains("kept as session again") && told.ends_with("[exit 0]"), "{told}");
    assert_eq!(program.printed(&["cat", "again", "out"]), "6\n7\n");
    assert_eq!(program.run(&["exec", "again", "--", "cat", "out"]), "6\n7\n[exit 0]");
    let script = program.file("other.jsonl", r#"{"tool": "rm", "params": {"path": "src"}}"#);
    let told = program.run(&["what-if", "work", "--yes", "--at", "7", "--script", &script, "--keep", "other"]);
    assert!(told.contains("kept as session other") && told.ends_with("[exit 1]"), "{told}");
    assert_eq!(program.printed(&["ls", "other"]), "in\nout\n");
    assert!(program.run(&["rerun", "work", "--yes", "--keep", "again"]).ends_with("[exit 2]"), "the name is taken");
    assert_eq!(program.owners(), owners, "the same owner serves");
    kill_process(Pid::from_child(&running.0), Signal::INT).unwrap();
    assert_eq!(running.0.wait().unwrap().code(), Some(130));
}

#[test]
fn rerun_wrong_arguments_run_nothing() {
    let program = with_project("host");
    let rules = |text: &str| program.file("rules.json", text);
    for (text, words) in [
        ("", "EOF"),
        ("{\"texts\": 1}", "invalid type"),
        ("{\"text\": []}", "unknown field `text`"),
        ("{\"texts\": [{\"pattern\": \"(\", \"replace\": \"\"}]}", "invalid pattern \"(\""),
        ("{\"ignore_paths\": [\"a{\"]}", "invalid pattern \"a{\""),
    ] {
        let told = program.run(&["rerun", "work", "--rules", &rules(text)]);
        assert!(told.contains(words) && told.ends_with("[exit 2]"), "{text}: {told}");
    }
    for (arguments, exit) in [
        (&["rerun", "work", "--rules", "nowhere.json"][..], 3),
        (&["rerun", "nobody"], 3),
        (&["rerun", "work", "--until", "9999"], 3),
        (&["rerun", "work", "--image", "x"], 2),
        (&["what-if", "work", "--script", "work.jsonl"], 2),
        (&["what-if", "work", "--at", "2", "--script", "nowhere.jsonl"], 3),
        (&["what-if", "work", "--at", "9999", "--script", "work.jsonl"], 3),
        (&["what-if", "work", "--replace", "3", "--script", "work.jsonl", "--yes"], 3),
        (&["what-if", "work", "--replace", "2", "--insert", "--script", "work.jsonl"], 2),
        (&["run", "work.jsonl", "--expect", "nobody"], 3),
        (&["run", "work.jsonl", "--rules", "rules.json"], 2),
        (&["run", "work.jsonl", "--no-default-rules"], 2),
        (&["rerun", "work", "--backend", "host", "--dir", "."], 2),
        (&["what-if", "work", "--at", "2", "--script", "work.jsonl", "--backend", "host", "--dir", "."], 2),
    ] {
        let told = program.run(arguments);
        assert!(told.ends_with(&format!("[exit {exit}]")), "{arguments:?}: {told}");
    }
    assert_eq!(program.json(&["sessions"]).as_array().unwrap().len(), 1);
}

#[test]
fn rerun_that_can_run_no_command_is_refused_before_its_first_call() {
    let program = with_project("host");
    assert_snapshot!(program.run(&["rerun", "work"]), @"
    error: call 8: nothing allows cat, date or sh, and no approver is available; allow the program (--allow PROGRAM), or answer every question with yes (--yes); nothing was run
    [exit 2]
    ");
    assert_snapshot!(program.run(&["rerun", "work", "--backend", "memory", "--keep", "again"]), @"
    error: call 8: shell_execute needs a shell, and the memory workspace has none; nothing was run
    [exit 2]
    ");
    assert_eq!(program.json(&["sessions"]).as_array().unwrap().len(), 1);
    let (told, exit) = lines(&program, &["rerun", "work", "--backend", "memory", "--until", "5"]);
    assert_eq!((verdicts(&told).as_str(), exit), ("same same end", 0), "{told:#?}");
}

#[test]
fn rerun_applies_what_an_undo_and_a_revert_took_back() {
    let program = with_project("host");
    program.printed(&["undo", "work", "--yes"]);
    program.printed(&["revert", "work", "in", "--at", "5", "--yes"]);
    let (told, exit) = lines(&program, &["rerun", "work", "--yes"]);
    assert_eq!((verdicts(&told).as_str(), exit), ("same same same same same same skipped skipped end", 0), "{told:#?}");
    assert_eq!(told[6]["reason"], "it undid other changes");
}

#[test]
fn whatif_without_approver_is_refused_before_its_first_call() {
    let program = with_project("host");
    let call = |command: &str| json!({ "tool": "shell_execute", "params": { "command": command } }).to_string();
    let script = program.file("other.jsonl", format!("{}\n{}", call("true"), call("make all")));
    let wanted = ["what-if", "work", "--at", "2", "--script", &script];
    let told = program.run(&wanted);
    assert!(told.starts_with("error: line 2 of ") && told.contains("nothing allows make"), "{told}");
    assert!(told.ends_with("[exit 2]"), "{told}");
    assert!(program.run(&[&wanted[..], &["--allow", "make"]].concat()).contains("call 8: nothing allows"));
    assert!(program.run(&[&wanted[..], &["--yes"]].concat()).contains("made"));
}

#[test]
fn whatif_with_other_calls_ends_differently() {
    let program = with_project("host");
    let before = head(&program);
    let edit = r#"{"tool": "edit_file", "params": {"file_path": "in", "old_string": "3", "new_string": "40"}}"#;
    let script = program.file("other.jsonl", edit);
    let calls = program.json_lines(&["log", "work", "--calls"]).into_iter();
    let edits = calls.filter(|call| call["tool"] == "edit_file").map(|call| call["call"].to_string());
    let edits: Vec<String> = edits.collect();
    let (told, exit) = lines(&program, &["what-if", "work", "--yes", "--replace", &edits[0], "--script", &script]);
    assert_eq!((verdicts(&told).as_str(), exit), ("made diverged end", 1), "{told:#?}");
    let divergences = told[1]["divergences"].as_array().unwrap();
    assert_eq!((divergences[0]["at"].as_str(), divergences[0]["is"].as_str()), (Some("/stdout"), Some("6\n43\n")));
    let files: Vec<_> = told[2]["files"].as_array().unwrap().iter().map(|change| change["path"].clone()).collect();
    assert_eq!(files, ["in", "out"]);
    // Inserted, nothing is left out: the recorded edit then finds nothing to edit.
    let (told, _) = lines(&program, &["what-if", "work", "--yes", "--at", "7", "--script", &script, "--insert"]);
    assert_eq!(verdicts(&told), "made diverged same diverged diverged end");
    assert_eq!(head(&program), before, "the session is only read");
    // A call of the script that does not end as it should.
    let wrong = program.file("wrong.jsonl", r#"{"tool": "rm", "params": {"path": "nothing"}}"#);
    assert!(program.run(&["what-if", "work", "--at", "7", "--script", &wrong, "--yes"]).ends_with("[exit 1]"));
    let right = program.file("right.jsonl", r#"{"tool": "rm", "params": {"path": "nothing"}, "expect": "error"}"#);
    assert!(program.run(&["what-if", "work", "--at", "7", "--script", &right, "--yes"]).ends_with("[exit 0]"));
}

#[test]
fn run_expect_compares_with_a_session() {
    let program = with_project("host");
    let run = |script: &str, name: &str| {
        program.run(&["run", script, "--backend", "host", "--session", name, "--yes", "--expect", "work"])
    };
    let told = run(&program.file("work.jsonl", PROJECT), "good");
    assert!(told.contains("6 calls: none diverged; files the same") && told.ends_with("[exit 0]"), "{told}");
    let broken = PROJECT.replace("echo $((", "echo 1$((");
    let told = run(&program.file("broken.jsonl", broken), "broken");
    assert!(told.contains("-6\n+16") && told.contains("DIVERGED") && told.ends_with("[exit 1]"), "{told}");
    let shorter: String = PROJECT.lines().take(4).map(|line| format!("{line}\n")).collect();
    let told = run(&program.file("shorter.jsonl", shorter), "shorter");
    assert!(told.contains("+ no call") && told.ends_with("[exit 1]"), "{told}");
    let (told, exit) = lines(
        &program,
        &["run", &program.file("work.jsonl", PROJECT), "--backend", "host", "--yes", "--expect", "work"],
    );
    let kinds: Vec<_> = told.iter().map(|line| line["type"].as_str().unwrap()).collect();
    assert_eq!((kinds[12], kinds[13], kinds.len(), exit), ("expectation", "summary", 14, 0), "{told:#?}");
}

#[test]
fn rerun_on_host_asks_despite_recorded_approval() {
    use foldspace::event::SessionAllow;
    use foldspace::{NewSession, Registry, Sessions};
    let program = Program::new();
    let sessions = Sessions::open(program.data(), Registry::standard()).unwrap();
    let new = NewSession { backend: Some("host".to_owned()), ..NewSession::named("work") };
    let session = sessions.create(new).unwrap();
    let mut commit = session.commit();
    commit.push(&SessionAllow { programs: vec!["sh".to_owned(), "touch".to_owned()], everything: false }).unwrap();
    session.record(commit).unwrap();
    drop(session);
    sessions.close();
    let script = program.file("work.jsonl", r#"{"tool": "shell_execute", "params": {"command": "touch made"}}"#);
    program.printed(&["run", &script, "--session", "work"]);
    // The allowance goes, and comes back as a slice that was restored.
    program.printed(&["rewind", "work", "--to", "1"]);
    let from = head(&program);
    program.printed(&["rewind", "work", "--to", "2"]);
    program.printed(&["run", &script, "--session", "work"]);

    let told = program.run(&["rerun", "work", "--keep", "unasked"]);
    assert!(told.contains("--allow PROGRAM") && told.ends_with("[exit 2]"), "{told}");
    assert!(program.run(&["ls", "unasked"]).ends_with("[exit 3]"), "nothing was run");
    for at in [2, from] {
        let other = program.file("other.jsonl", r#"{"tool": "shell_execute", "params": {"command": "touch other"}}"#);
        let told = program.run(&["what-if", "work", "--at", &at.to_string(), "--script", &other]);
        assert!(told.contains("line 1 of") && told.contains("nothing allows touch"), "{told}");
    }
    let (told, exit) = lines(&program, &["rerun", "work", "--allow", "touch"]);
    assert_eq!((verdicts(&told).as_str(), exit), ("same same end", 0), "{told:#?}");
}

#[test]
fn rerun_skips_calls_refused_by_limits() {
    let program = with_project("host");
    let script = r#"
{"tool": "write_file", "params": {"file_path": "one", "content": "1"}}
{"tool": "write_file", "params": {"file_path": "two", "content": "2"}, "expect": "error"}
"#;
    let script = program.file("writes.jsonl", script);
    program.printed(&["clone", "work", "--name", "few", "--max-calls", "1"]);
    program.printed(&["run", &script, "--session", "few"]);
    let (told, exit) = lines(&program, &["rerun", "few", "--yes"]);
    assert_eq!((verdicts(&told).as_str(), exit), ("same same same same same same same skipped end", 0), "{told:#?}");
    let reader = program.file("two.jsonl", script_line("two"));
    program.printed(&["clone", "work", "--name", "reader", "--tool", "read_file"]);
    program.printed(&["run", &reader, "--session", "reader"]);
    let (told, exit) = lines(&program, &["rerun", "reader", "--yes"]);
    assert_eq!((verdicts(&told).as_str(), exit), ("same same same same same same same end", 0), "{told:#?}");
    let denied = r#"{"tool": "shell_execute", "params": {"command": "touch made"}, "expect": "error"}"#;
    program.printed(&["clone", "work", "--name", "denied", "--deny", "touch"]);
    program.printed(&["run", &program.file("denied.jsonl", denied), "--session", "denied", "--yes"]);
    let (told, exit) = lines(&program, &["rerun", "denied", "--yes"]);
    assert_eq!((verdicts(&told).as_str(), exit), ("same same same same same same same end", 0), "{told:#?}");
}

/// A call that must fail.
fn script_line(path: &str) -> String {
    let params = serde_json::json!({ "file_path": path, "content": "x" });
    serde_json::json!({ "tool": "write_file", "params": params, "expect": "error" }).to_string()
}

#[test]
fn rerun_compares_files_byte_by_byte_without_rules() {
    let program = Program::new();
    let script = |seconds: &str| {
        let params = serde_json::json!({ "file_path": "run.sh", "content": format!("sleep {seconds}s\n") });
        let line = serde_json::json!({ "tool": "write_file", "params": params }).to_string();
        program.file("script.jsonl", line)
    };
    program.printed(&["run", &script("30"), "--session", "work"]);
    let other = ["run", &script("99"), "--expect", "work"];
    let (told, exit) = lines(&program, &other);
    let expectation = told.iter().find(|line| line["type"] == "expectation").unwrap();
    assert_eq!((expectation["files"].as_array().unwrap().len(), exit), (1, 1), "{told:#?}");
    // The call itself asks for something else; the file then is a text by the rules.
    let rules = program.file("rules.json", r#"{"text_files": ["*.sh"]}"#);
    let (told, _) = lines(&program, &[&other[..], &["--rules", &rules]].concat());
    let expectation = told.iter().find(|line| line["type"] == "expectation").unwrap();
    assert_eq!(expectation["files"], serde_json::json!([]), "{told:#?}");
}

#[test]
fn whatif_kept_is_a_fork() {
    let program = with_project("host");
    let script = program.file("other.jsonl", r#"{"tool": "rm", "params": {"path": "src"}}"#);
    let told = program.run(&["what-if", "work", "--yes", "--at", "7", "--script", &script, "--keep", "other"]);
    assert!(told.contains("kept as session other") && told.ends_with("[exit 1]"), "{told}");
    let tree = program.printed(&["tree"]);
    assert!(tree.contains("other") && tree.contains("7"), "{tree}");
    let events = program.json_lines(&["log", "other"]);
    let begun = events.iter().filter(|event| event["kind"] == "SessionStarted").count();
    assert_eq!((begun, events[7]["kind"].as_str()), (2, Some("SessionStarted")), "it has the past of its parent");
    assert_eq!(program.printed(&["ls", "other"]), "in\nout\n");
    assert_eq!(program.printed(&["cat", "work", "src/sum.sh"]).lines().count(), 1);
    assert!(program.run(&["verify"]).ends_with("[exit 0]"));
}

#[test]
fn rerun_in_container_finds_no_difference() {
    let Some(program) = Program::with_container() else { return };
    let script = program.file("project.jsonl", PROJECT);
    let ran = program.run(&["run", &script, "--session", "work", "--yes"]);
    assert!(ran.ends_with("[exit 0]"), "{ran}");
    let (told, exit) = lines(&program, &["rerun", "work"]);
    assert_eq!((verdicts(&told).as_str(), exit), ("same same same same same same same end", 0), "{told:#?}");
    // On the host the same commands do the same, in another place.
    let (told, exit) = lines(&program, &["rerun", "work", "--yes", "--backend", "host"]);
    assert_eq!((verdicts(&told).as_str(), exit), ("same same same same same same same end", 0), "{told:#?}");
    let left = std::fs::read_dir(program.path("cache")).unwrap().count();
    let sessions = program.json(&["sessions"]).as_array().unwrap().len();
    assert_eq!(left, sessions + 1, "nothing is left of the others; the pool of layers is no session's");
}
