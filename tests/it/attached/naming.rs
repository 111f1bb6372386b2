//! Sessions that are not named, and runs of agents.

use std::process::Stdio;

use serde_json::{Value, json};

use super::Repository;
use crate::rig::told;

/// Runs the program in the repository.
fn here(repository: &Repository, arguments: &[&str]) -> String {
    let mut command = repository.program.command(arguments);
    told(&command.current_dir(repository.root()).stdin(Stdio::null()).output().unwrap())
}

fn document(repository: &Repository, arguments: &[&str]) -> Value {
    let mut command = repository.program.command(&[arguments, &["--json"]].concat());
    let output = command.current_dir(repository.root()).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{arguments:?}: {error} {}", told(&output)))
}

/// A repository in which a run of Claude's has changed two lines, and its user a third.
fn with_run() -> Repository {
    let repository = Repository::with(&[("a.txt", "one\ntwo\nthree\n"), ("src/b.txt", "b\n")]);
    repository.claude("SessionStart", json!({ "model": "some-model" }));
    repository.claude("UserPromptSubmit", json!({ "prompt": "make it better\nplease" }));
    repository.command("t1", |repository| repository.write("a.txt", "one\nTWO\nthree\nfour\n"));
    repository.write("src/b.txt", "b\nmine\n");
    repository.claude("SessionEnd", json!({}));
    repository
}

#[test]
fn session_left_out_is_that_of_the_directory() {
    let repository = with_run();
    for (nameless, named) in [
        (&["cat", "src/b.txt"][..], &["cat", "-s", "repo", "src/b.txt"][..]),
        (&["ls", "src"], &["ls", "repo", "src"]),
        (&["log", "--calls"], &["log", "--session=repo", "--calls"]),
        (&["diff", "1.."], &["diff", "repo", "1.."]),
        (&["show", "-1"], &["show", "-srepo", "-1"]),
        (&["stat", "a.txt"], &["stat", "a.txt", "--session", "repo"]),
    ] {
        let printed = here(&repository, nameless);
        assert!(printed.ends_with("[exit 0]"), "{nameless:?}: {printed}");
        assert_eq!(printed, repository.program.run(named), "{nameless:?}");
    }
    assert!(here(&repository, &["ls", "-Rs", "other"]).ends_with("[exit 2]"), "it is not ignored");
    assert!(here(&repository, &["ls", "--help"]).contains("[SESSION]"));
}

#[test]
fn argument_that_may_be_a_session_or_a_path_is_refused() {
    let repository = with_run();
    assert!(here(&repository, &["ls", "repo"]).contains("a.txt"), "only a session has that name");
    repository.write("repo/inner.txt", "");
    let refused = here(&repository, &["ls", "repo"]);
    assert!(refused.contains("`ls -s repo`") && refused.contains("`ls -s repo repo`"), "{refused}");
    assert!(refused.ends_with("[exit 2]"), "{refused}");
    assert!(here(&repository, &["cat", "repo"]).ends_with("[exit 2]"), "the session is there, and the path missing");
    assert!(here(&repository, &["remove"]).ends_with("[exit 2]"), "what is removed is named");
}

#[test]
fn run_selects_what_belongs_to_it() {
    let repository = with_run();
    let runs = document(&repository, &["log", "--runs"]);
    assert_eq!((&runs["run"], &runs["model"], &runs["calls"]), (&json!("s1"), &json!("some-model"), &json!(1)));
    assert_eq!(runs["prompt"], "make it better");
    let log = here(&repository, &["log", "--run", "last"]);
    assert!(log.contains("RunPrompted") && log.contains("a.txt") && !log.contains("b.txt"), "{log}");
    assert_eq!(here(&repository, &["diff", "--run", "s1", "--name-only"]), "a.txt\n[exit 0]");
    assert!(here(&repository, &["diff", "--run", "s2"]).contains("run s2 not found"));
    let found = here(&repository, &["bisect", "--run", "s1", "--backend", "host", "--", "grep", "-q", "two", "a.txt"]);
    assert!(found.contains("the first bad change is event"), "{found}");
    let undone = here(&repository, &["rewind", "--run", "last", "-y"]);
    assert!(undone.ends_with("[exit 0]"), "{undone}");
    assert_eq!(
        (repository.read("a.txt"), repository.read("src/b.txt")),
        ("one\ntwo\nthree\n".into(), "b\nmine\n".into())
    );
}

#[test]
fn rewind_of_an_attached_session_is_an_undo() {
    let repository = with_run();
    let asked = here(&repository, &["rewind", "--to", "4"]);
    assert!(asked.contains("no terminal to ask on"), "{asked}");
    assert!(here(&repository, &["rewind", "--to", "4", "--yes"]).ends_with("[exit 0]"));
    assert_eq!(
        (repository.read("a.txt"), repository.read("src/b.txt")),
        ("one\ntwo\nthree\n".into(), "b\nmine\n".into())
    );
}

#[test]
fn blame_of_observed_lines_says_run_and_prompt() {
    let repository = with_run();
    let blamed = document(&repository, &["blame", "a.txt"]);
    let observed = blamed["observed"].as_array().unwrap();
    let by = observed.iter().find_map(|change| change["by"].get(0)).unwrap();
    assert_eq!((&by["agent"], &by["run"], &by["prompt"]), (&json!("claude"), &json!("s1"), &json!("make it better")));
    let text = here(&repository, &["blame", "a.txt"]);
    assert!(text.contains("there at attach") && text.contains("make it better"), "{text}");
    let call = by["call"].to_string();
    let shown = here(&repository, &["show", &call]);
    assert!(shown.contains("s1 with some-model") && shown.contains("make it better"), "{shown}");
}

/// An undo of an undo restores lines into a version that never was, if others have changed the file in between.
#[test]
fn undo_and_redo_keep_authors_of_lines_across_changes_of_others() {
    let repository = Repository::with(&[("a.txt", "one\ntwo\nthree\nfour\nfive\nsix\n")]);
    repository.command("t1", |repository| repository.write("a.txt", "one\nTWO\nthree\nfour\nfive\nsix\n"));
    for last in ["mine", "yours"] {
        assert!(here(&repository, &["undo", "--yes"]).ends_with("[exit 0]"));
        repository.write("a.txt", &format!("one\ntwo\nthree\nfour\nfive\n{last}\n"));
        assert!(here(&repository, &["undo", "--redo", "--yes"]).ends_with("[exit 0]"));
        assert_eq!(repository.read("a.txt"), format!("one\nTWO\nthree\nfour\nfive\n{last}\n"));
        let blamed = document(&repository, &["blame", "a.txt"]);
        let seqs: Vec<&Value> = blamed["lines"].as_array().unwrap().iter().map(|line| &line["seq"]).collect();
        let by = blamed["observed"].as_array().unwrap().iter().filter(|change| change["by"][0]["run"] == "s1");
        let by: Vec<&Value> = by.map(|change| &change["seq"]).collect();
        assert_eq!(by, [seqs[1]], "{blamed}");
        assert!(seqs.iter().enumerate().all(|(at, seq)| at == 1 || *seq != by[0]), "{blamed}");
    }
    repository.commit("second");
    let note = here(&repository, &["commit-notes", "--dry-run"]);
    let attested = note.lines().nth(1).unwrap();
    assert!(note.starts_with("a.txt\n") && attested.ends_with(" 2"), "{note}");
}

#[test]
fn commit_is_attributed_to_runs_in_public_formats() {
    let repository = with_run();
    repository.commit("second");
    // A line that came in with the commit, and that nobody saw.
    repository.write("a.txt", "zero\none\nTWO\nthree\nfour\n");
    repository.commit("third");
    repository.write("a.txt", "one\nTWO\nthree\nfour\n");
    for (revision, ranges) in [("HEAD~1", ["2-2", "4-4"]), ("HEAD", ["3-3", "5-5"])] {
        let trace = document(&repository, &["blame", "--format", "agent-trace", "--rev", revision]);
        assert_eq!((&trace["version"], &trace["vcs"]["type"]), (&json!("0.1.0"), &json!("git")));
        assert_eq!(trace["vcs"]["revision"], repository.git(&["rev-parse", revision]).trim());
        assert_eq!((trace["files"].as_array().unwrap().len(), &trace["files"][0]["path"]), (1, &json!("a.txt")));
        let conversation = &trace["files"][0]["conversations"][0];
        assert_eq!(conversation["contributor"], json!({ "type": "ai", "model_id": "some-model" }));
        let told = conversation["ranges"].as_array().unwrap().iter();
        let told: Vec<String> = told.map(|range| format!("{}-{}", range["start_line"], range["end_line"])).collect();
        assert_eq!(told, ranges, "{revision}");
    }
    assert!(here(&repository, &["blame", "--format", "agent-trace", "--rev", "--all"]).ends_with("[exit 2]"));
    assert!(here(&repository, &["blame", "--format", "agent-trace", "--rev", "none"]).ends_with("[exit 3]"));
}

#[test]
fn commit_note_is_written_when_asked() {
    let repository = with_run();
    repository.commit("second");
    repository.git(&["config", "user.name", "a"]);
    repository.git(&["config", "user.email", "a@example.org"]);
    let shown = here(&repository, &["commit-notes", "--dry-run"]);
    assert!(repository.git(&["for-each-ref", "refs/notes"]).is_empty(), "nothing is written");
    assert!(here(&repository, &["commit-notes"]).ends_with("[exit 0]"));
    let note = repository.git(&["notes", "--ref=ai", "show"]);
    assert_eq!(shown, format!("{}\n[exit 0]", note.trim_end()));
    let (lines, told) = note.split_once("---\n").unwrap();
    let [path, attested] = lines.lines().collect::<Vec<_>>()[..] else { panic!("{lines}") };
    let (key, ranges) = attested.trim_start().split_once(' ').unwrap();
    let (session, trace) = key.split_once("::").unwrap();
    assert_eq!((path, ranges, session.len(), trace.len()), ("a.txt", "2,4", 16, 16));
    let told: Value = serde_json::from_str(told).unwrap();
    assert_eq!(
        (&told["schema_version"], &told["base_commit_sha"]),
        (&json!("authorship/3.0.0"), &json!(repository.git(&["rev-parse", "HEAD"]).trim()))
    );
    assert_eq!(told["sessions"][session]["agent_id"], json!({ "tool": "claude", "id": "s1", "model": "some-model" }));
}

#[test]
fn record_is_a_run_with_the_command_as_its_call() {
    let repository = Repository::with(&[("a.txt", "one\n")]);
    let ran = here(&repository, &["record", "--", "sh", "-c", "echo new > new.txt; exit 7"]);
    assert_eq!(ran, "\n[exit 7]");
    let log = here(&repository, &["log", "--run", "last"]);
    assert!(log.contains("create /new.txt") && log.contains("RunEnded"), "{log}");
    assert!(here(&repository, &["undo", "--run", "last", "-y"]).ends_with("[exit 0]"));
    assert!(!repository.has("new.txt"));
    assert!(here(&repository, &["record", "--", "/none"]).ends_with("[exit 6]"));
    let elsewhere = repository.program.run(&["record", "--", "true"]);
    assert!(elsewhere.contains("not attached"), "{elsewhere}");
    let refused = here(&repository, &["exec", "--", "true"]);
    assert!(refused.contains("can't run commands"), "{refused}");
}

#[test]
fn detach_removes_what_was_recorded_only_when_it_is_told_to() {
    let repository = Repository::with(&[("a.txt", "one\n")]);
    let refused = here(&repository, &["detach", "--purge"]);
    assert!(refused.contains("no terminal to ask on") && refused.ends_with("[exit 2]"), "{refused}");
    assert!(document(&repository, &["attach", "--status"])["here"].is_object());
    assert!(here(&repository, &["detach"]).ends_with("[exit 0]"));
    assert_eq!(document(&repository, &["attach", "--status"])["here"], Value::Null);
    assert!(here(&repository, &["log", "repo"]).contains("SessionStarted"), "what was recorded stays");
    let late = here(&repository, &["detach", "--purge", "--yes"]);
    assert!(late.contains("is not attached\nhint: `foldspace remove repo`") && late.ends_with("[exit 3]"), "{late}");
    repository.attach();
    let purged = here(&repository, &["detach", "--purge", "--yes"]);
    assert!(purged.contains("note: removed what was recorded of ") && purged.ends_with("[exit 0]"), "{purged}");
    assert_eq!(document(&repository, &["sessions"]), json!([]));
    assert_eq!(repository.read("a.txt"), "one\n");
}

#[test]
fn directory_whose_git_leads_elsewhere_is_not_attached() {
    let repository = Repository::unattached(&[("a.txt", "a\n")]);
    let elsewhere = repository.program.path("elsewhere");
    repository.program.file("elsewhere/theirs", "secret\n");
    let elsewhere = elsewhere.to_string_lossy().into_owned();
    repository.git(&["config", "core.worktree", &elsewhere]);
    let linked = repository.program.path("linked");
    let git_directory = repository.root().join(".git");
    repository.program.file("linked/.git", format!("gitdir: {}\n", git_directory.display()));
    for directory in [repository.root(), linked] {
        let refused = repository.program.run(&["attach", &directory.to_string_lossy()]);
        assert!(refused.contains("which is elsewhere") && refused.ends_with("[exit 6]"), "{refused}");
        assert!(refused.contains(&format!("use {elsewhere} itself")), "{refused}");
    }
    assert_eq!(repository.program.json(&["sessions"]), json!([]));
    // Its user may want that directory.
    let attached = repository.program.json(&["attach", &elsewhere]);
    assert_eq!(attached["name"], "elsewhere");
    assert_eq!(here(&repository, &["cat", "-s", "elsewhere", "theirs"]), "secret\n[exit 0]");
}
