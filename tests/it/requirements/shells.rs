//! The session's shell in all its forms: scripts, facts, approvals, logs.

use std::sync::{Arc, Mutex};

use foldspace::backends::{ShellCommand, ShellError, unwatched};
use foldspace::event::{CommandDecided, CommandLine, CommandResult, DecidedBy, SessionAllow};
use foldspace::tools::{ApprovalAnswer, Asker, Asking, CaptureBudget, CommandPolicy, CommandQuestion, ShellRules};
use foldspace::{Recorded, WorkspaceSpec};
use serde_json::{Value, json};

use crate::rig::{Kind, Program, Rig, told};

const KINDS: [Kind; 2] = [Kind::Host, Kind::Plain];

#[test]
fn row_20_scripts_are_decided_on_and_recorded_as_commands_are() {
    for kind in KINDS {
        let Some(rig) = Rig::new(kind) else { continue };
        let long = "# a comment\n".repeat(1000) + "echo \"$A$1 $(cat)\"\necho kept > f\nexit 3\n";
        let params = json!({ "script": long, "env": { "A": "a" }, "stdin": "in" });
        let step = rig.call("execute_script", params);
        assert_eq!((step.exit_code(), step.stdout(), step.paths().0), (3, "a in", vec!["f".to_owned()]));
        let command = &step.of::<CommandResult>()[0].command;
        assert!(matches!(command, CommandLine::Script { interpreter, .. } if interpreter.ends_with("sh")), "{command}");
        assert_eq!(step.of::<CommandDecided>()[0].command, *command);
        for (script, words) in
            [("cd /\nrm -rf /\n", "not allowed"), (" ", "exit code 0"), ("exit 1\u{7}", "not allowed")]
        {
            let outcome = rig.bare("execute_script", json!({ "script": script }));
            assert!(outcome.text.contains(words), "{script:?}: {}", outcome.text);
        }
        let outcome = rig.bare("execute_script", json!({ "script": "x".repeat(65_537) }));
        assert!(outcome.text.contains("at most 65536"), "{}", outcome.text);
        let most = format!("{}\nexit 5\n", "#".repeat(65_528));
        assert_eq!(rig.bare("execute_script", json!({ "script": most })).result["exit_code"], 5);
        rig.verify();
    }
}

#[test]
fn row_20_script_without_interpreter_is_run_by_its_first_line_or_bash() {
    for kind in KINDS {
        let Some(rig) = Rig::new(kind) else { continue };
        let has_bash = !rig.bare("which", json!({ "program": "bash" })).result["path"].is_null();
        let run = |script: &str| {
            let outcome = rig.bare("execute_script", json!({ "script": script }));
            let stdout = outcome.result["stdout"].as_str().unwrap_or(&outcome.text).to_owned();
            (stdout, outcome.result["interpreter"].clone(), outcome.text)
        };
        let (stdout, interpreter, text) = run("a=(1 2 3); [[ a == a ]] && echo ${#a[@]}\n");
        if has_bash {
            let interpreter = interpreter.as_str().unwrap();
            assert!(interpreter.ends_with("/bash") && stdout == "3\n", "{text}");
            assert!(text.ends_with(&format!("[exit code 0 of {interpreter}]")), "{text}");
        } else {
            assert_eq!(interpreter, "/bin/sh");
        }
        let (_, interpreter, text) = run("#!/bin/sh -e\nfalse\necho on\n");
        assert_eq!((interpreter, text.as_str()), (json!("/bin/sh -e"), "[exit code 1 of /bin/sh -e]"));
        let (stdout, interpreter, _) = run("#!/usr/bin/env cat\ntext");
        assert_eq!((stdout.as_str(), interpreter), ("#!/usr/bin/env cat\ntext", json!("cat")));
        let (_, _, text) = run("#!/nowhere/python\n");
        assert!(text.contains("[exit code 127 of /nowhere/python]"), "{text}");
        let given =
            rig.bare("execute_script", json!({ "script": "#!/bin/cat\necho $0 | wc -l", "interpreter": "/bin/sh" }));
        assert_eq!((given.result["stdout"].as_str(), given.result.get("interpreter")), (Some("1\n"), None));
        rig.verify();
    }
}

#[test]
fn row_20_parameters_and_results_are_in_a_models_words() {
    for kind in KINDS {
        let Some(rig) = Rig::new(kind) else { continue };
        let run = |params: Value| rig.bare("shell_execute", params);
        let pwd =
            |cwd: &str| run(json!({ "command": "pwd", "cwd": cwd, "timeout_seconds": "30" })).result["stdout"].clone();
        assert_eq!(pwd("  "), pwd(""));
        let missing = run(json!({ "command": "pwd", "cwd": "nope" }));
        assert!(
            missing.text.ends_with("a command can't start in /nope: there is no such directory"),
            "{}",
            missing.text
        );
        let wrong = run(json!({ "command": "pwd", "timeout_seconds": "soon" })).text;
        assert!(wrong.ends_with("timeout_seconds: expected a number, not \"soon\""), "{wrong}");
        let wrote = rig.bare("write_file", json!({ "file_path": "one", "content": "1" }));
        assert_eq!(wrote.text, "wrote /one (1 byte, version 1)");
        let read = rig.bare("read_file", json!({ "file_path": "one", "limit": "1" }));
        assert_eq!(read.result["content"], "1", "{}", read.text);
        let none = run(json!({ "command": "grep 2 one" }));
        assert_eq!(none.result["exit_note"], "exit code 1: no line matched, which is no error");
        assert_eq!(none.text, "[exit code 1]\n[note: exit code 1: no line matched, which is no error]");
        assert_eq!(run(json!({ "command": "grep 1 one" })).result.get("exit_note"), None);
        let killed = run(json!({ "command": "sh -c 'kill -9 $$'; exit 137" }));
        assert!(killed.text.contains("SIGKILL ended it"), "{}", killed.text);
    }
}

#[test]
fn row_20_which_env_and_env_mode_tell_of_the_shell() {
    for kind in KINDS {
        let Some(rig) = Rig::new(kind) else { continue };
        let found = rig.bare("which", json!({ "program": "sh" })).result;
        assert!(found["path"].as_str().unwrap().ends_with("/sh"), "{found}");
        assert_eq!(rig.bare("which", json!({ "program": "nosuch-program" })).result["path"], Value::Null);
        let env = rig.bare("env", json!({})).result;
        assert!(env["variables"]["PATH"].as_str().unwrap().contains("/bin"), "{env}");
        assert_eq!(env["shell"], "/bin/sh");
        // A command has the same variables.
        let printed = rig.bare("shell_execute", json!({ "command": "env" })).result["stdout"].clone();
        let has = |line: String| printed.as_str().unwrap().lines().any(|own| own == line);
        for name in ["PYTHONUNBUFFERED", "PWD"] {
            assert!(has(format!("{name}={}", env["variables"][name].as_str().unwrap())), "{name}: {env} {printed}");
        }
        // What a host's variables hold is not recorded.
        let cargo = &env["variables"]["CARGO_MANIFEST_DIR"];
        assert_eq!((cargo, kind), (&Value::Null, kind), "{env}");
        let params = |mode: &str| json!({ "command": "/usr/bin/env | cut -d= -f1 | sort", "env": { "A": "1" }, "env_mode": mode });
        let names = |mode| -> Vec<String> {
            let stdout = rig.bare("shell_execute", params(mode)).result["stdout"].as_str().unwrap().to_owned();
            stdout.lines().map(str::to_owned).collect()
        };
        let replaced = names("replace");
        assert!(replaced.contains(&"A".to_owned()) && !replaced.contains(&"HOME".to_owned()), "{replaced:?}");
        assert!(names("extend").contains(&"HOME".to_owned()));
        assert!(!rig.bare("shell_execute", params("other")).is_ok());
    }
}

#[test]
fn row_6_shell_of_the_section_is_decided_on_and_recorded() {
    for kind in KINDS {
        let Some(rig) = Rig::new(kind) else { continue };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let shell = rig.tool_runner().section().unwrap().shell.unwrap();
        let run = |command: ShellCommand| runtime.block_on(shell.execute(command, unwatched(), Default::default()));
        let before = rig.session().head().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let watch = Arc::clone(&seen);
        let command = ShellCommand::shell("echo out; echo kept > f");
        let watch = Arc::new(move |_, bytes: &[u8]| watch.lock().unwrap().extend_from_slice(bytes));
        let result = runtime.block_on(shell.execute(command, watch, Default::default())).unwrap();
        assert_eq!(
            (result.exit_code, &result.stdout.kept[..], &**seen.lock().unwrap()),
            (0, &b"out\n"[..], &b"out\n"[..])
        );
        let events = rig.session().events(before + 1, 100).unwrap();
        let kinds: Vec<&str> = events.iter().map(crate::rig::kind).collect();
        for kind in ["CallStarted", "CommandDecided", "CommandResult", "WriteFile", "CallFinished"] {
            assert!(kinds.contains(&kind), "{kinds:?}");
        }
        let blocked = run(ShellCommand::args(["mkfs.nothing", "/dev/null"]));
        assert!(matches!(blocked, Err(ShellError::Blocked(_))), "{blocked:?}");
        let decided = rig.session().events(1, 1000).unwrap();
        let decided: Vec<CommandDecided> =
            decided.iter().filter_map(Recorded::typed).map(|event| event.unwrap().event).collect();
        assert_eq!(decided.len(), 2, "the refusal is recorded, too");
        assert_eq!(run(ShellCommand::script("/bin/sh", "exit 4")).unwrap().exit_code, 4);
        let cancel = tokio_util::sync::CancellationToken::new();
        let running =
            runtime.spawn(shell.execute(ShellCommand::shell("echo begun; sleep 60"), unwatched(), cancel.clone()));
        std::thread::sleep(std::time::Duration::from_secs(2));
        cancel.cancel();
        let ended = runtime.block_on(running).unwrap().unwrap();
        assert!(ended.cancelled && &ended.stdout.kept[..] == b"begun\n", "{ended:?}");
        rig.check("the section's shell");
    }
}

/// Answers the first question with everything, and fails at a second.
struct Everything(Mutex<u32>);

impl Asker for Everything {
    fn ask(&self, _: CommandQuestion) -> Asking {
        *self.0.lock().unwrap() += 1;
        assert_eq!(*self.0.lock().unwrap(), 1, "asked again");
        Box::pin(async { ApprovalAnswer::Everything })
    }
}

#[test]
fn row_30_everything_for_the_session_is_an_event_and_denies_what_is_denied() {
    let mut rig = Rig::of(&WorkspaceSpec::Host(Default::default()), CaptureBudget::default());
    let asker = Some(Arc::new(Everything(Mutex::new(0))) as Arc<dyn Asker>);
    rig.reopen_with(ShellRules { asker, policy: CommandPolicy::default(), ..ShellRules::default() });
    let step = rig.ok("uname > f");
    assert_eq!(step.of::<SessionAllow>(), [SessionAllow { programs: Vec::new(), everything: true }]);
    let step = rig.ok("id -u && touch g");
    assert_eq!(step.of::<CommandDecided>()[0].by, DecidedBy::Session);
    let refused = rig.bare("shell_execute", json!({ "command": "rm -rf /" }));
    assert!(refused.text.contains("not allowed"), "{}", refused.text);
    // A later process does not ask either.
    rig.reopen();
    rig.ok("date > h");
    rig.verify();
}

#[test]
fn row_35_each_command_is_a_line_in_the_log() {
    let program = Program::new();
    let call = json!({ "tool": "shell_execute", "params": { "command": "exit 7", "env": { "TOKEN": "hunter2" } } });
    let script = program.file("call.jsonl", call.to_string());
    let mut command = program.command(&["-vv", "--in-process", "run", &script, "--backend", "host", "--yes"]);
    let log = told(&command.output().unwrap());
    let line = log.lines().find(|line| line.contains("component=\"tools.host\"")).unwrap_or_else(|| panic!("{log}"));
    for words in ["command=\"exit 7\"", "cwd=\"/\"", "exit_code=7", "timed_out=false", "micros="] {
        assert!(line.contains(words), "{words}: {line}");
    }
    assert!(!log.contains("hunter2"), "{log}");
}

#[test]
fn row_26_podman_shell_is_there_for_scripts_and_over_http() {
    let program = Program::new();
    let call = json!({ "tool": "podman_shell", "params": { "action": "start" } });
    let script = program.file("call.jsonl", call.to_string());
    let refused = program.run(&["run", &script, "--backend", "host"]);
    assert!(refused.contains("podman_shell needs a container, and the host workspace has none"), "{refused}");
}

#[test]
fn row_38_outcome_has_the_command_its_success_signal_and_directory() {
    for kind in KINDS {
        let Some(rig) = Rig::new(kind) else { continue };
        rig.ok("mkdir -p deep/er");
        let ran = |tool: &str, params: Value| {
            let outcome = rig.bare(tool, params);
            let seen = outcome.result["stdout"].as_str().unwrap_or_default().trim_end().to_owned();
            (serde_json::to_value(outcome.ran).unwrap(), seen)
        };
        let (ok, seen) = ran("shell_execute", json!({ "command": ["pwd"], "cwd": "deep/er" }));
        assert_eq!(ok, json!({ "command": ["pwd"], "directory": seen, "success": true, "signal": null }));
        let (top, seen) = ran("execute_script", json!({ "script": "pwd; exit 3", "interpreter": "/bin/sh" }));
        let command = json!({ "interpreter": "/bin/sh", "script": "pwd; exit 3" });
        assert_eq!(top, json!({ "command": command, "directory": seen, "success": false, "signal": null }));
        let (killed, _) = ran("shell_execute", json!({ "command": "kill -9 $$" }));
        assert_eq!((&killed["success"], &killed["signal"]), (&json!(false), &json!(9)));
        let (outside, seen) = ran("shell_execute", json!({ "command": "pwd", "cwd": "/tmp" }));
        assert_eq!((outside["directory"].as_str(), seen.as_str()), (Some("/tmp"), "/tmp"));
        assert_eq!(ran("ls", json!({})).0, Value::Null);
        rig.verify();
    }
}
