//! Options of a session's commands, and of its container.

use foldspace::backends::{CommandOptions, HostOptions, PodmanOptions};
use foldspace::event::{ContainerStopped, VariableValue};
use foldspace::reducers::PodmanWorkspace;
use foldspace::tools::CaptureBudget;
use foldspace::{EntryPath, Recorded, WorkspaceSpec};
use serde_json::json;

use crate::rig::{Program, Rig, named};

const SECRET: &str = "hunter2-secret";

fn commands() -> CommandOptions {
    CommandOptions {
        environment: [("TOKEN".to_owned(), VariableValue::Text(SECRET.to_owned()))].into(),
        workdir: EntryPath::for_creation("app/src").unwrap(),
        output_bytes: 1024,
        keep_output_bytes: 2048,
        merge_output: true,
        ..CommandOptions::default()
    }
}

fn commands_have_their_options(mut rig: Rig) {
    for _ in 0..2 {
        assert_eq!(rig.printed(r#"test "$TOKEN" = hunter2"-secret" && pwd | grep -o "/app/src$""#), "/app/src");
        let step = rig.ok("echo 1; echo 2 >&2; echo 3; echo 4 >&2");
        assert_eq!(step.outcome.result["stdout"], "1\n2\n3\n4\n");
        assert_eq!(step.outcome.result["stderr"], "");
        let step = rig.ok("seq 10000");
        let returned = step.outcome.result["stdout"].as_str().unwrap();
        assert!((900..=1024).contains(&returned.len()) && returned.ends_with("10000\n"), "{}", returned.len());
        assert_eq!(step.of::<foldspace::event::CommandResult>()[0].stdout.kept, 2048);
        let shell = rig.bare("shell_execute", json!({ "command": ["nosuch-program"] }));
        assert_eq!(shell.result["exit_code"], 127, "{}", shell.text);
        let events = format!("{:?}", rig.session().events(1, 1000).unwrap());
        assert!(!events.contains(SECRET), "the value is recorded");
        let options = &rig.session().started().unwrap().options;
        assert!(options["environment"]["TOKEN"]["digest"].is_string(), "{options}");
        assert!(rig.tool_runner().section().unwrap().text.contains("They have the variables TOKEN."));
        // A later process finds the value.
        rig.reopen();
    }
    rig.verify();
}

#[test]
fn row_17_19_23_24_host_commands_have_the_options_of_the_session() {
    let spec = WorkspaceSpec::Host(HostOptions { commands: commands(), ..HostOptions::default() });
    commands_have_their_options(Rig::of(&spec, CaptureBudget::default()));
}

#[test]
fn row_17_19_23_24_container_commands_have_the_options_of_the_session() {
    let Some(rig) = Rig::container(|options| PodmanOptions { commands: commands(), ..options }) else { return };
    rig.ok("true");
    let state = rig.session().state().unwrap();
    let slice = state.slice::<PodmanWorkspace>().unwrap();
    let container = slice.container.as_ref().unwrap();
    assert_eq!(container.workdir, "/workspace/app/src");
    assert!(matches!(container.environment["TOKEN"], VariableValue::Recorded { .. }));
    assert_eq!(container.overlay, !container.overlay_path.is_empty());
    assert!(slice.created_at <= slice.touched_at && slice.created_at.is_some(), "{slice:?}");
    commands_have_their_options(rig);
}

#[test]
fn row_18_19_container_has_its_name_and_ends_at_its_uptime() {
    let options = |options| PodmanOptions { uptime_seconds: 3, name_prefix: "team.a".to_owned(), ..options };
    let Some(rig) = Rig::container(options) else { return };
    let name = rig.name().replacen("foldspace", "team.a", 1);
    let killed = rig.bare("shell_execute", json!({ "command": "echo begun; sleep 60", "timeout_seconds": 50 }));
    assert_eq!((&killed.result["exit_code"], &killed.result["stdout"]), (&json!(137), &json!("begun\n")));
    assert_eq!(named(&name), Vec::<String>::new());
    let stopped = || -> Vec<String> {
        let events = rig.session().events(1, 1000).unwrap();
        events.iter().filter_map(Recorded::typed::<ContainerStopped>).map(|event| event.unwrap().event.reason).collect()
    };
    let again = rig.bare("shell_execute", json!({ "command": "echo again" }));
    assert_eq!(again.result["stdout"], "again\n", "{}", again.text);
    assert_eq!((stopped(), named(&name).len()), (vec!["uptime".to_owned()], 1));
}

#[test]
fn row_17_session_options_are_given_by_flags_and_over_http() {
    let program = Program::new().through_owner();
    let call = json!({ "tool": "shell_execute", "params": { "command": "printf %s \"$TOKEN$MORE\" | wc -c; pwd" } });
    let script = program.file("call.jsonl", call.to_string());
    let more = ["--env", "TOKEN", "--env", "MORE=1", "--workdir", "/workspace/app", "--merge-output", "--yes"];
    let mut command = program
        .command(&[&["run", &script, "--backend", "host", "--session", "work", "--show-output"][..], &more].concat());
    let told = crate::rig::told(&command.env("TOKEN", SECRET).output().unwrap());
    assert!(told.contains("15") && told.contains("/app") && told.ends_with("[exit 0]"), "{told}");
    let count = ["--sh", "--", "printf %s \"$TOKEN\" | wc -c"];
    assert_eq!(program.printed(&[&["exec", "work"][..], &count].concat()).trim(), "14");
    let typed = program.fed(&["shell", "work"], b"pwd\n");
    assert!(typed.contains("/app\n") && typed.ends_with("[exit 0]"), "{typed}");
    // A fork has them, and calls that run again.
    program.printed(&["clone", "work", "--name", "child"]);
    assert_eq!(program.printed(&[&["exec", "child"][..], &count].concat()).trim(), "14");
    let again = program.run(&["rerun", "work", "--yes"]);
    assert!(again.ends_with("[exit 0]"), "{again}");
    // The session's options are as recorded: the same flags go on with it, others do not.
    let mut command =
        program.command(&[&["run", &script, "--backend", "host", "--session", "work"][..], &more].concat());
    let told = crate::rig::told(&command.env("TOKEN", SECRET).output().unwrap());
    assert!(told.ends_with("[exit 0]"), "{told}");
    let other = program.run(&["run", &script, "--backend", "host", "--session", "work", "--yes", "--env", "TOKEN=x"]);
    assert!(other.contains("began with another workspace"), "{other}");
    for (flags, words) in [
        (&["--backend", "host", "--env", "NOT_SET_ANYWHERE"][..], "NOT_SET_ANYWHERE is not set here"),
        (&["--backend", "memory", "--workdir", "a"], "--workdir requires a backend that runs commands"),
        (&["--backend", "host", "--env", "A B=\u{e9}", "--env", "=1"], "environment: name"),
        (&["--backend", "host", "--name-prefix", "x"], "--name-prefix requires --backend container"),
        (&["--backend", "host", "--output-bytes", "10"], "1024..=1048576"),
    ] {
        let refused = program.run(&[&["run", &script, "--session", "new", "--yes"][..], flags].concat());
        assert!(refused.contains(words) && !refused.ends_with("[exit 0]"), "{refused}");
    }
}
