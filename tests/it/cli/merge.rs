//! `merge`: a clone's work comes back, and what a person does about conflicts.

use insta::assert_snapshot;

use crate::rig::Program;

/// A session on this machine's disk, and a clone of it in which work was done.
fn program(own: &str, clones: &str) -> Program {
    program_with(&[], own, clones)
}

/// The same with options of the session.
fn program_with(options: &[&str], own: &str, clones: &str) -> Program {
    let program = Program::new();
    let begin = r#"
{"tool": "write_file", "params": {"file_path": "a.txt", "content": "1\n2\n3\n4\n5\n"}}
{"tool": "write_file", "params": {"file_path": "old/b.txt", "content": "b\n"}}
"#;
    let begin = program.file("begin.jsonl", begin);
    let ran = program.run(&[&["run", &begin, "--backend", "host", "--session", "main"], options].concat());
    assert!(ran.ends_with("[exit 0]"), "{ran}");
    program.printed(&["clone", "main", "--name", "worker"]);
    work(&program, "main", own);
    work(&program, "worker", clones);
    program
}

fn work(program: &Program, session: &str, script: &str) {
    let command = format!("set -e\n{script}");
    let ran = program.run(&["exec", session, "--", "/bin/sh", "-c", &command]);
    assert!(ran.ends_with("[exit 0]"), "{ran}");
}

fn head(program: &Program, session: &str) -> u64 {
    program.json_lines(&["log", session]).last().unwrap()["seq"].as_u64().unwrap()
}

#[test]
fn merge_combines_changes_of_both() {
    let program =
        program("sed -i s/1/one/ a.txt", "sed -i s/5/five/ a.txt; rm -r old; mkdir -p new/deep; echo n > new/deep/n");
    let before = head(&program, "main");
    assert_snapshot!(program.run(&["merge", "worker", "--dry-run"]), @"
    removed  old         by event 12 of worker
    changed  a.txt       by event 13 of worker, with the lines of both
    added    new/deep/n  by event 14 of worker
    would merge 3 entries into main: changes of worker from 7 to 15
    [exit 0]
    ");
    assert_eq!(head(&program, "main"), before);
    assert_snapshot!(program.run(&["merge", "worker"]), @"
    removed  old         by event 12 of worker
    changed  a.txt       by event 13 of worker, with the lines of both
    added    new/deep/n  by event 14 of worker
    merged 3 entries into main at 14: changes of worker from 7 to 15
    [exit 0]
    ");
    assert_eq!(program.printed(&["cat", "main", "a.txt"]), "one\n2\n3\n4\nfive\n");
    assert_eq!(
        program.printed(&["exec", "main", "--", "/bin/sh", "-c", "cat a.txt new/deep/n; ls"]),
        "one\n2\n3\n4\nfive\nn\na.txt\nnew\n"
    );
    let head = head(&program, "main");
    assert_snapshot!(program.run(&["merge", "worker"]), @"
    nothing to merge: worker has not changed any files since 15
    [exit 0]
    ");
    assert_eq!(super::merge::head(&program, "main"), head);
    assert!(program.run(&["verify", "main"]).ends_with("[exit 0]"));
}

#[test]
fn merge_conflicts_are_shown_and_resolved() {
    let program =
        program("sed -i s/3/ours/ a.txt; echo more >> old/b.txt", "sed -i s/3/theirs/ a.txt; rm -r old; echo n > n");
    assert_snapshot!(program.run(&["merge", "worker"]), @"
    conflict  a.txt      here: file 13 B [id]  child: file 15 B [id]  both changed the same lines
    conflict  old/b.txt  here: file 7 B [id]   child: nothing                 changed here, removed by the child
    error: 2 conflicts to resolve; nothing was merged into main
    hint: choose with --ours PATH or --theirs PATH, for a file, a directory, or a hunk as PATH:1; --patch shows them
    [exit 1]
    ");
    assert_snapshot!(program.run(&["merge", "worker", "--ours", "old", "--theirs", "n"]), @"
    conflict  a.txt      here: file 13 B [id]  child: file 15 B [id]  both changed the same lines
    kept      old/b.txt  here: file 7 B [id]   child: nothing                 changed here, removed by the child
    note: /n: no conflict there to resolve
    error: 1 conflict to resolve; nothing was merged into main
    hint: choose with --ours PATH or --theirs PATH, for a file, a directory, or a hunk as PATH:1; --patch shows them
    [exit 1]
    ");
    assert_snapshot!(program.run(&["merge", "worker", "--ours", "/", "--theirs", "a.txt"]), @"
    changed  a.txt  by event 13 of worker
    added    n      by event 14 of worker
    taken  a.txt      here: file 13 B [id]  child: file 15 B [id]  both changed the same lines
    kept   old/b.txt  here: file 7 B [id]   child: nothing                 changed here, removed by the child
    merged 2 entries into main at 17: changes of worker from 7 to 15
    [exit 0]
    ");
    assert_eq!(program.printed(&["cat", "main", "a.txt"]), "1\n2\ntheirs\n4\n5\n");
    assert_eq!(program.printed(&["cat", "main", "old/b.txt"]), "b\nmore\n");
    assert_snapshot!(program.run(&["state", "main", "Merges"]), @r#"
    {
      "merges": {
        "[session]": {
          "child_at": 15,
          "seq": 17,
          "time": "[time]"
        }
      },
      "conflicts": {}
    }
    [exit 0]
    "#);
}

#[test]
fn merge_dry_run_with_conflict_lists_the_rest() {
    let own = "sed -i s/3/ours/ a.txt; mkdir -p .git; echo 1 > .git/index; echo 1 > m.pyc";
    let program =
        program(own, "sed -i s/3/theirs/ a.txt; echo n > n; mkdir -p .git; echo 2 > .git/index; echo 2 > m.pyc");
    assert_snapshot!(program.run(&["merge", "worker", "--dry-run"]), @"
    conflict  .git/index  here: file 2 B [id]   child: file 2 B [id]   both created it, with different contents
    conflict  a.txt       here: file 13 B [id]  child: file 15 B [id]  both changed the same lines

    also to be merged, once the conflicts are resolved:
    added  n  by event 15 of worker
    note: /m.pyc: generated, and changed on both sides; it stays as it is here
    note: git regenerates these: --ours .git/index
    error: 2 conflicts to resolve; nothing was merged into main
    hint: choose with --ours PATH or --theirs PATH, for a file, a directory, or a hunk as PATH:1; --patch shows them
    [exit 1]
    ");
    assert!(!program.run(&["merge", "worker"]).contains("added"), "nothing is merged");
}

#[test]
fn merge_takes_globs_and_refuses_what_fits_nothing() {
    let made = |by: &str| {
        format!("mkdir -p p/__pycache__ r; echo {by} > p/__pycache__/a.pyc; echo {by} > r/r.html; echo {by} > l")
    };
    let program = program(&made("1"), &made("2"));
    let refused = program.run(&["merge", "worker", "--ours", "l", "--theirs", "*.htm"]);
    assert_snapshot!(refused, @"
    error: no entry of either side matches `*.htm`; correct this path or glob, or omit it
    [exit 2]
    ");
    let invalid = program.run(&["merge", "worker", "--generated", "r/{"]);
    assert!(invalid.contains("the glob \"r/{\" is invalid") && invalid.ends_with("[exit 2]"), "{invalid}");
    let merged = program.json(&["merge", "worker", "--theirs", "**/*.html", "--generated", "l"]);
    assert_eq!(
        (&merged["outcome"], &merged["generated"]),
        (&"merged".into(), &serde_json::json!(["l", "p/__pycache__/a.pyc"]))
    );
    assert_eq!(program.printed(&["cat", "main", "r/r.html"]), "2\n");
    assert_eq!(program.printed(&["cat", "main", "p/__pycache__/a.pyc"]), "1\n");
}

#[test]
fn merge_keeps_generated_files_of_session() {
    let made = |by: &str| format!("mkdir -p reports; echo {by} > reports/r.html; echo {by} > l");
    let program = program_with(&["--generated", "reports/**", "--generated", "l"], &made("1"), &made("2"));
    let merged = program.json(&["merge", "worker"]);
    assert_eq!(merged["generated"], serde_json::json!(["l", "reports/r.html"]));
    assert_eq!(program.printed(&["cat", "main", "l"]), "1\n");
    let script = program.file("one.jsonl", r#"{"tool": "read_file", "params": {"file_path": "a"}}"#);
    let begin = |backend: &str, glob: &str| {
        program.run(&["run", &script, "--backend", backend, "--session", "bad", "--generated", glob])
    };
    assert_snapshot!(begin("host", "r/{"), @r#"
    error: the host workspace failed: its options: generated: the glob "r/{" is invalid: unclosed alternate group; missing '}' (maybe escape '{' with '[{]'?)
    [exit 2]
    "#);
    assert_snapshot!(begin("memory", "r"), @"
    error: --generated requires a backend that runs commands
    hint: add --backend host or --backend container
    [exit 2]
    ");
}

#[test]
fn merge_json_tells_the_same() {
    let program = program("sed -i s/3/ours/ a.txt", "sed -i s/3/theirs/ a.txt; echo n > n");
    let output = program.output(&["--json", "merge", "worker"]);
    assert_eq!(output.status.code(), Some(1));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&told["outcome"], &told["into_name"]), (&"conflicted".into(), &"main".into()));
    assert_eq!((&told["conflicts"][0]["kind"], &told["conflicts"][0]["path"]), (&"text".into(), &"a.txt".into()));
    let merged = program.json(&["merge", "worker", "--theirs", "a.txt"]);
    assert_eq!((&merged["outcome"], &merged["conflicts"][0]["resolved"]), (&"merged".into(), &"theirs".into()));
    assert_eq!((&merged["merged"][1]["path"], &merged["merged"][1]["change"]), (&"n".into(), &"added".into()));
    assert_eq!(program.json(&["merge", "worker"])["outcome"], "nothing");
}

#[test]
fn merge_wrong_arguments_are_refused() {
    let program = program("true", "echo n > n");
    assert_snapshot!(program.run(&["merge", "main"]), @"
    error: session main has no parent
    hint: `foldspace fork` makes children; `foldspace sessions --tree` shows them
    [exit 2]
    ");
    assert_snapshot!(program.run(&["merge", "main", "--into", "worker"]), @"
    error: session main does not descend from session worker: they share no base to merge from
    hint: `foldspace sessions --tree` shows parents and children
    [exit 2]
    ");
    assert_snapshot!(program.run(&["merge", "worker", "--into", "worker"]), @"
    error: session worker can't be merged into itself: agents that share a session share its changes
    hint: `foldspace sessions --tree` shows parents and children
    [exit 2]
    ");
    assert_snapshot!(program.run(&["merge", "worker", "--ours", "a", "--theirs", "/a"]), @"
    error: both sides are chosen for /a; choose one
    [exit 2]
    ");
    assert_snapshot!(program.run(&["merge", "worker", "--ours", "../a"]), @r#"
    error: path "../a": `.` and `..` are not allowed; give the path from the workspace root
    [exit 2]
    "#);
    assert_snapshot!(program.run(&["merge", "nobody"]), @r#"
    error: no session is called "nobody", and no id begins with that
    hint: `foldspace sessions` lists them
    [exit 3]
    "#);
    assert_snapshot!(program.run(&["merge", "main", "--into", "main"]), @"
    error: session main can't be merged into itself: agents that share a session share its changes
    hint: `foldspace sessions --tree` shows parents and children
    [exit 2]
    ");
    program.printed(&["remove", "main", "--yes"]);
    assert_snapshot!(program.run(&["merge", "worker"]), @"
    error: the parent of worker, main, was removed
    hint: name another ancestor to merge into with --into
    [exit 3]
    ");
}

#[test]
fn shared_child_limits_hold_in_every_process() {
    let program = program("true", "true");
    program.printed(&["clone", "main", "--isolation", "shared", "--agent", "w", "--max-calls", "1", "--deny", "uniq"]);
    assert!(program.run(&["exec", "main", "--agent", "w", "--", "true"]).ends_with("[exit 0]"));
    let second = program.run(&["exec", "main", "--agent", "w", "--", "true"]);
    assert!(second.contains("agent w has used up its 1 call") && !second.ends_with("[exit 0]"), "{second}");
    assert!(program.run(&["exec", "main", "--", "true"]).ends_with("[exit 0]"));
}

#[test]
fn merge_includes_drift_of_the_clone() {
    let program = program("true", "true");
    let place = program.printed(&["exec", "worker", "--", "pwd"]);
    let asked = program.run(&["remove", "worker"]);
    assert!(asked.contains("for good?") && !asked.contains("not merged"), "{asked}");
    std::fs::write(std::path::Path::new(place.trim()).join("by-hand.txt"), "by hand\n").unwrap();
    assert_eq!(program.json(&["merge", "worker"])["merged"][0]["path"], "by-hand.txt");
    assert_eq!(program.printed(&["cat", "main", "by-hand.txt"]), "by hand\n");
    work(&program, "worker", "echo more > more");
    let asked = program.run(&["remove", "worker"]);
    assert!(asked.contains("its changes of 1 entry are not merged into main"), "{asked}");
    program.printed(&["remove", "worker", "--yes"]);
}

#[test]
fn merge_patch_shows_conflicting_lines_of_three_sides() {
    let program = program("sed -i '1i0' a.txt; sed -i s/3/ours/ a.txt", "sed -i s/3/theirs/ a.txt; seq 3 > n");
    let shown = program.run(&["merge", "worker", "--dry-run", "--patch"]);
    let hunk = shown.split_once("\n\n").and_then(|(_, rest)| rest.split_once("\n\n")).unwrap().0;
    assert_snapshot!(hunk, @"
    a.txt:1  (line 4 here, line 3 in worker)
    <<<<<<< here
    ours
    ||||||| before both
    3
    =======
    theirs
    >>>>>>> worker
    ");
    assert!(program.run(&["merge", "worker", "--patch"]).contains("<<<<<<< here\nours\n"));
    let merged = program.run(&["merge", "worker", "--theirs", "a.txt"]);
    assert!(!merged.contains("<<<<<<<") && merged.ends_with("[exit 0]"), "{merged}");
}

#[test]
fn merge_takes_a_side_for_each_hunk() {
    let program = program("sed -i 's/1/our 1/; s/5/our 5/' a.txt", "sed -i 's/1/their 1/; s/5/their 5/' a.txt");
    let some = program.run(&["merge", "worker", "--theirs", "a.txt:1", "--dry-run"]);
    assert!(some.contains("error: 1 conflict to resolve") && some.ends_with("[exit 1]"), "{some}");
    let both = program.run(&["merge", "worker", "--theirs", "a.txt:1", "--ours", "a.txt:1"]);
    assert!(both.contains("both sides are chosen for /a.txt:1") && both.ends_with("[exit 2]"), "{both}");
    let missing = program.run(&["merge", "worker", "--ours", "none.txt:1", "--dry-run"]);
    assert!(missing.contains("none.txt") && missing.ends_with("[exit 2]"), "{missing}");
    let merged = program.run(&["merge", "worker", "--theirs", "a.txt:1", "--ours", "a.txt", "--ours", "a.txt:9"]);
    assert!(merged.contains("note: /a.txt:9: no conflict there to resolve"), "{merged}");
    assert!(merged.contains("mixed  a.txt") && merged.ends_with("[exit 0]"), "{merged}");
    assert_eq!(program.printed(&["cat", "main", "a.txt"]), "their 1\n2\n3\n4\nour 5\n");
}
