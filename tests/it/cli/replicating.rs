//! `replicate`, `serve --replicate-to` and `restore`, as a person uses them.

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::serve::ServeProcess;
use crate::rig::s3::{Fault, S3};
use crate::rig::{Program, Random, eventually, rounds, told};

fn output(program: &Program, s3: &S3, arguments: &[&str]) -> String {
    told(&program.command(arguments).envs(s3.environment()).output().unwrap())
}

/// Makes a store of the copy, and checks that it is clean and has the same history.
fn check_copy(program: &Program, s3: &S3, from: &str, name: &str) {
    let place = program.path(name).to_string_lossy().into_owned();
    let restored = output(program, s3, &["restore", "--from", from, "--data", &place]);
    assert!(restored.ends_with("[exit 0]"), "{restored}");
    for check in ["fsck", "verify"] {
        let checked = program.run(&[check, "--data", &place]);
        assert!(checked.ends_with("[exit 0]"), "{checked}");
    }
    assert_eq!(program.run(&["log", "demo", "--data", &place]), program.run(&["log", "demo"]));
    assert_eq!(program.run(&["cat", "demo", "a.txt", "--data", &place]), program.run(&["cat", "demo", "a.txt"]));
}

fn write(serving: &ServeProcess, text: &str) {
    let call =
        json!({ "tool": "write_file", "params": { "file_path": "a.txt", "content": text, "mode": "overwrite" } });
    let (status, answer) = serving.ask("POST", "/v1/sessions/demo/calls", Some(&call));
    assert_eq!((status, &answer["status"]), (200, &json!("ok")), "{answer}");
}

fn replication(serving: &ServeProcess) -> Value {
    serving.ask("GET", "/v1/server", None).1["replication"].clone()
}

#[test]
fn serve_copies_to_a_server_that_fails_and_recovers() {
    let Some(s3) = S3::begin() else { return };
    let program = Program::new();
    let to = &format!("s3://bucket/serve/{}", std::process::id());
    let serving = ServeProcess::begin(&program, &["--replicate-to", to], |command: &mut Command| {
        command.envs(s3.environment());
    });
    serving.ask("POST", "/v1/sessions", Some(&json!({ "name": "demo" })));
    let caught_up = |text: &str| {
        write(&serving, text);
        let after = foldspace::event::Clock::now(&foldspace::event::SystemClock::default());
        eventually("the copy has it", || {
            let until = replication(&serving)["until"].as_str().and_then(|until| until.parse().ok());
            until.is_some_and(|until: foldspace::Timestamp| until > after)
        });
    };
    caught_up("first");
    let faults = [
        Fault::Unavailable,
        Fault::HalfAnswer(150),
        Fault::HalfRequest(1_000),
        Fault::Slow(Duration::from_millis(300)),
    ];
    for (round, fault) in faults.into_iter().enumerate() {
        s3.set(fault);
        write(&serving, &format!("{fault:?}"));
        if !matches!(fault, Fault::Slow(_)) {
            eventually("the status tells", || replication(&serving)["problem"].is_string());
            assert!(program.printed(&["status"]).contains("; retrying"));
            let figures = serving.ask("GET", "/metrics", None).1;
            assert!(figures.as_str().unwrap().contains("\nfoldspace_replication_failing 1\n"));
            s3.set(Fault::None);
        }
        caught_up(&format!("after {fault:?}"));
        s3.set(Fault::None);
        assert_eq!(replication(&serving)["problem"], Value::Null);
        check_copy(&program, &s3, to, &format!("restored-{round}"));
    }
    write(&serving, "last");
    let (code, said) = serving.end();
    assert_eq!(code, Some(0), "{said}");
    // The end is copied, too.
    check_copy(&program, &s3, to, "restored");
}

#[test]
fn replicator_killed_at_any_time_leaves_a_copy() {
    let Some(s3) = S3::begin() else { return };
    let program = Program::new();
    let to = &format!("s3://bucket/killed/{}", std::process::id());
    let mut random = Random(7);
    for round in 0..rounds(4) {
        let params = json!({ "file_path": "a.txt", "content": format!("{round}"), "mode": "overwrite" });
        let call = json!({ "tool": "write_file", "params": params });
        program.printed(&["run", &program.file("call.jsonl", call.to_string()), "--session", "demo"]);
        let mut command = program.command(&["replicate", "--to", to]);
        let mut child = command.envs(s3.environment()).stderr(std::process::Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(random.below(400)));
        child.kill().unwrap();
        child.wait().unwrap();
        let copied = output(&program, &s3, &["replicate", "--once", "--to", to]);
        assert!(copied.ends_with("[exit 0]"), "{copied}");
        check_copy(&program, &s3, to, &format!("restored-{round}"));
    }
}

#[test]
fn failures_of_the_storage_are_named() {
    let Some(s3) = S3::begin() else { return };
    let program = Program::with_story();
    insta::assert_snapshot!(output(&program, &s3, &["replicate", "--once", "--to", "s3://nowhere/x"]), @r"
    error: can't list pieces in s3://nowhere/x: 404 Not Found: NoSuchBucket: The specified bucket does not exist
    hint: AWS_ENDPOINT, AWS_REGION, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY configure S3, SSL_CERT_FILE names trusted certificates
    [exit 6]
    ");
    insta::assert_snapshot!(output(&program, &s3, &["restore", "--from", "s3://bucket/nothing", "--data", "there"]), @r"
    error: no copy found in s3://bucket/nothing
    [exit 3]
    ");
    for (name, value) in [("AWS_ENDPOINT", "host:9000"), ("AWS_REGION", "a b"), ("AWS_ACCESS_KEY_ID", "key\n")] {
        let mut command = program.command(&["replicate", "--once", "--to", "s3://bucket/x"]);
        let said = told(&command.envs(s3.environment()).env(name, value).output().unwrap());
        assert!(said.contains(&format!("copy: {name} ")) && said.ends_with("[exit 2]"), "{said}");
    }
    insta::assert_snapshot!(output(&program, &s3, &["replicate", "--once", "--to", "s3://b b/x"]), @r"
    error: can't use s3://b b/x for a copy: a bucket name consists of letters, digits, dots and hyphens
    hint: AWS_ENDPOINT, AWS_REGION, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY configure S3, SSL_CERT_FILE names trusted certificates
    [exit 2]
    ");
    let within = format!("file://{}", program.data().join("copy").display());
    insta::assert_snapshot!(program.run(&["replicate", "--once", "--to", &within]), @r"
    error: can't use file://[dir]/data/copy for a copy: it is in the data directory, and would be lost with it
    hint: use s3://BUCKET/PREFIX or file:///DIRECTORY
    [exit 2]
    ");
    std::fs::write(program.path("full"), "").unwrap();
    let file = format!("file://{}", program.path("full").display());
    insta::assert_snapshot!(program.run(&["replicate", "--once", "--to", &file]), @r"
    error: can't create [dir]/full/pieces: File exists (os error 17)
    [exit 6]
    ");
}

#[test]
fn copy_of_a_data_directory_is_refused_until_it_takes_over() {
    let program = Program::with_story();
    let to = format!("file://{}", program.path("copy").display());
    let copied = program.run(&["replicate", "--to", &to, "--once"]);
    assert!(copied.starts_with("copied up to byte ") && copied.ends_with("[exit 0]"), "{copied}");
    let twin = program.path("twin").to_string_lossy().into_owned();
    assert!(Command::new("cp").args(["-r", &program.data().to_string_lossy(), &twin]).status().unwrap().success());
    let refused = program.run(&["replicate", "--to", &to, "--once", "--data", &twin]);
    assert!(refused.contains("is written by process") && refused.contains("--take-over"), "{refused}");
    assert!(refused.ends_with("[exit 1]"), "{refused}");
    let taken = program.run(&["replicate", "--to", &to, "--once", "--take-over", "--data", &twin]);
    assert!(taken.ends_with("[exit 0]"), "{taken}");
    let refused = program.run(&["replicate", "--to", &to]);
    assert!(refused.contains(&format!("for {twin}")), "{refused}");
}

#[test]
fn restore_names_what_is_wrong() {
    let program = Program::with_story();
    let to = format!("file://{}", program.path("copy").display());
    let nowhere = format!("file://{}", program.path("nowhere").display());
    program.printed(&["replicate", "--to", &to, "--once"]);
    let place = program.path("restored").to_string_lossy().into_owned();
    let restore = |arguments: &[&str]| program.run(&[&["restore", "--data", &place][..], arguments].concat());
    insta::assert_snapshot!(program.run(&["restore", "--from", &to]), @r#"
    error: [dir]/data already has a store
    hint: choose another directory: --data DIR
    [exit 2]
    "#);
    insta::assert_snapshot!(restore(&["--from", &nowhere]), @r#"
    error: no copy found in file://[dir]/nowhere
    [exit 3]
    "#);
    insta::assert_snapshot!(restore(&["--from", "ftp://host/x"]), @r#"
    error: can't use ftp://host/x for a copy: it is neither s3:// nor file:///
    hint: use s3://BUCKET/PREFIX or file:///DIRECTORY
    [exit 2]
    "#);
    insta::assert_snapshot!(restore(&["--from", &to, "--at", "2001-01-01T00:00:00Z"]), @r#"
    error: the copy in file://[dir]/copy has no commit at or before [time]
    [exit 3]
    "#);
    insta::assert_snapshot!(restore(&["--from", &to, "--at", "tomorrow"]), @r#"
    error: invalid value 'tomorrow' for '--at <TIME>': expected a time, such as 2025-01-31T[time]Z, or an age, such as 10m

    For more information, try '--help'.
    [exit 2]
    "#);
    let piece = std::fs::read_dir(program.path("copy/pieces")).unwrap().next().unwrap().unwrap().path();
    let whole = std::fs::read(&piece).unwrap();
    std::fs::write(&piece, &whole[1..]).unwrap();
    insta::assert_snapshot!(restore(&["--from", &to]), @r#"
    error: the copy in file://[dir]/copy is damaged: segment 1: 00000001-00000001 does not match its digest
    hint: if the store still exists, delete the copy, then run `foldspace replicate` again
    [exit 5]
    "#);
    std::fs::write(&piece, &whole).unwrap();
    insta::assert_snapshot!(restore(&["--from", &to]), @r#"
    1 session, 15 events, 1 segment, up to [time] restored to [dir]/restored
    [exit 0]
    "#);
    assert_eq!(program.run(&["log", "story", "--data", &place]), program.run(&["log", "story"]));
}
