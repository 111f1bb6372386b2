//! What happened to files: `blame`, `history`, `grep --all-history`.

use insta::assert_snapshot;
use serde_json::json;

use crate::rig::Program;

/// What a project goes through: a mount, edits, moves by a command, a second agent, deletions.
const PROJECT: &str = r#"
{"tool": "write_file", "params": {"file_path": "a.txt", "content": "one\ntwo\nthree\n"}}
{"tool": "edit_file", "params": {"file_path": "a.txt", "old_string": "two", "new_string": "zwei"}, "agent": "ed"}
{"tool": "shell_execute", "params": {"command": "mkdir d && mv a.txt d/b.txt && mv src lib"}}
{"tool": "shell_execute", "params": {"command": "sed -i s/three/drei/ d/b.txt; echo four >> d/b.txt; printf '\\0' > bin; ln -s bin link"}, "agent": "ed"}
{"tool": "shell_execute", "params": {"command": "cp d/b.txt c.txt; rm -r lib"}}
"#;

impl Program {
    /// A world in which the project's session is `w`, on the host.
    fn with_project() -> Self {
        let program = Self::new();
        let mounted = program.path("mounted").to_string_lossy().into_owned();
        program.file("mounted/src/main.rs", "fn main() {}\n");
        program.file("mounted/src/lib.rs", "// lib\n");
        let script = program.file("w.jsonl", PROJECT);
        let ran = program.run(&["run", &script, "--backend", "host", "--session", "w", "--yes", "--mount", &mounted]);
        assert!(ran.ends_with("[exit 0]"), "{ran}");
        program
    }
}

#[test]
fn blame_names_the_agent_of_each_line() {
    let program = Program::with_project();
    assert_snapshot!(program.run(&["blame", "w", "d/b.txt"]), @"
     6  #5 write_file in /a.txt  -   [time]  1  one
     9  #8 edit_file in /a.txt   ed  [time]  2  zwei
    24  #20 shell_execute        ed  [time]  3  drei
    24  #20 shell_execute        ed  [time]  4  four
    [exit 0]
    ");
    assert_snapshot!(program.run(&["blame", "w", "a.txt", "--before", "12"]), @"
    6  #5 write_file  -   [time]  1  one
    9  #8 edit_file   ed  [time]  2  zwei
    6  #5 write_file  -   [time]  3  three
    [exit 0]
    ");
    assert_snapshot!(program.run(&["blame", "w", "lib/main.rs", "--at", "25"]), @"
    4  mount in /src/main.rs  -  [time]  1  fn main() {}
    [exit 0]
    ");
    // What is no move is the work of who wrote it.
    assert_snapshot!(program.run(&["blame", "w", "c.txt"]), @"
    31  #27 shell_execute  -  [time]  1  one
    31  #27 shell_execute  -  [time]  2  zwei
    31  #27 shell_execute  -  [time]  3  drei
    31  #27 shell_execute  -  [time]  4  four
    [exit 0]
    ");
    let blamed = program.json(&["blame", "w", "d/b.txt"]);
    let whose = blamed["lines"].as_array().unwrap().iter().map(|line| &line["seq"]).collect::<Vec<_>>();
    let changes = blamed["changes"].as_array().unwrap();
    assert_eq!(
        blamed["lines"][1],
        json!({ "line_number": 2, "line": "zwei", "session": changes[1]["session"], "seq": whose[1] })
    );
    assert!(whose.iter().all(|seq| changes.iter().any(|change| change["seq"] == **seq)), "{blamed}");
}

#[test]
fn blame_after_rewind_names_the_first_writer() {
    let program = Program::with_project();
    let (now, then) =
        (program.run(&["blame", "w", "d/b.txt"]), program.run(&["blame", "w", "a.txt", "--before", "12"]));
    for undone in ["rm -r d", "rm -r d; mkdir d; echo zwei > d/b.txt; echo other >> d/b.txt"] {
        program.printed(&["exec", "w", "--sh", "--", undone]);
        program.printed(&["rewind", "w", "--to", "32"]);
        assert_eq!(program.run(&["blame", "w", "d/b.txt"]), now, "{undone}");
    }
    program.printed(&["rewind", "w", "--before", "11"]);
    assert_eq!(program.run(&["blame", "w", "a.txt"]), then);
    let history = program.json(&["history", "w", "a.txt"]);
    let last = history.as_array().unwrap().last().unwrap();
    assert_eq!((&last["cause"], &last["to"]), (&json!("rewind"), &json!(10)));
}

/// A project with changes that a child and its child made, merged.
fn with_merges() -> Program {
    let program = Program::with_project();
    program.printed(&["clone", "w", "--name", "kid"]);
    program.printed(&["clone", "kid", "--name", "grandkid"]);
    program.printed(&["exec", "grandkid", "--agent", "gail", "--sh", "--", "echo six >> c.txt; echo deep > deep.txt"]);
    program.printed(&["merge", "grandkid"]);
    program.printed(&["exec", "kid", "--sh", "--", "sed -i s/drei/trois/ c.txt; echo new > n.txt"]);
    program.printed(&["exec", "w", "--agent", "ed", "--sh", "--", "sed -i s/one/eins/ c.txt"]);
    program.printed(&["merge", "kid"]);
    program
}

#[test]
fn blame_after_merge_names_the_child_agent() {
    let program = with_merges();
    assert_snapshot!(program.run(&["blame", "w", "c.txt"]), @"
             37  #34 shell_execute  ed    [time]  1  eins
             31  #27 shell_execute  -     [time]  2  zwei
         kid@41  #38 shell_execute  -     [time]  3  trois
             31  #27 shell_execute  -     [time]  4  four
    grandkid@38  #35 shell_execute  gail  [time]  5  six
    [exit 0]
    ");
    assert_snapshot!(program.run(&["blame", "w", "deep.txt"]), @"
    grandkid@39  #35 shell_execute  gail  [time]  1  deep
    [exit 0]
    ");
    assert_snapshot!(program.run(&["history", "w", "c.txt"]), @"
    31  [time]  #27 shell_execute  -   created          19 B  /c.txt
    37  [time]  #34 shell_execute  ed  changed  19 B -> 20 B  /c.txt
    40  [time]  merge kid@41       -   changed  20 B -> 25 B  /c.txt
    [exit 0]
    ");
    assert_snapshot!(program.run(&["history", "w", "c.txt", "--follow-merges"]), @"
             31  [time]  #27 shell_execute  -     created          19 B  /c.txt
             37  [time]  #34 shell_execute  ed    changed  19 B -> 20 B  /c.txt
    grandkid@38  [time]  #35 shell_execute  gail  changed  19 B -> 23 B  /c.txt
         kid@36  [time]  merge grandkid@38  -     changed  19 B -> 23 B  /c.txt
         kid@41  [time]  #38 shell_execute  -     changed  23 B -> 24 B  /c.txt
             40  [time]  merge kid@41       -     changed  20 B -> 25 B  /c.txt
    [exit 0]
    ");
}

#[test]
fn blame_json_after_merge_names_sessions() {
    let program = with_merges();
    let all = program.json(&["history", "w", "/", "--follow-merges"]);
    let paths = |name: &str| {
        let of = all.as_array().unwrap().iter().filter(|change| change["session_name"] == name);
        of.map(|change| change["path"].as_str().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(
        (paths("grandkid"), paths("kid")),
        (vec!["c.txt", "deep.txt"], vec!["c.txt", "deep.txt", "c.txt", "n.txt"])
    );
    let blamed = program.json(&["blame", "w", "c.txt"]);
    let change = |line: usize| {
        let line = &blamed["lines"][line];
        let is_its = |change: &&serde_json::Value| change["session"] == line["session"] && change["seq"] == line["seq"];
        blamed["changes"].as_array().unwrap().iter().find(is_its).unwrap().clone()
    };
    assert_eq!((&change(4)["session_name"], &change(4)["agent"]), (&json!("grandkid"), &json!("gail")));
    assert_eq!((&change(2)["session_name"], &change(2)["tool"]), (&json!("kid"), &json!("shell_execute")));
    assert_eq!(change(0)["session_name"], "w");
    let merged = program.json(&["history", "w", "n.txt"])[0].clone();
    assert_eq!(
        (&merged["child"], &merged["from"]),
        (&json!("kid"), &program.json(&["history", "kid", "n.txt"])[0]["seq"])
    );
    assert_eq!(merged["child_id"], change(2)["session"]);
}

#[test]
fn blame_after_removal_of_child_names_the_merge() {
    let program = with_merges();
    program.printed(&["remove", "grandkid", "--yes"]);
    assert_snapshot!(program.run(&["blame", "w", "deep.txt"]), @"
    kid@37  merge grandkid@39 (removed)  -  [time]  1  deep
    [exit 0]
    ");
    program.printed(&["remove", "kid", "--yes"]);
    assert_snapshot!(program.run(&["blame", "w", "c.txt"]), @"
    37  #34 shell_execute       ed  [time]  1  eins
    31  #27 shell_execute       -   [time]  2  zwei
    40  merge kid@41 (removed)  -   [time]  3  trois
    31  #27 shell_execute       -   [time]  4  four
    40  merge kid@41 (removed)  -   [time]  5  six
    [exit 0]
    ");
    assert_snapshot!(program.run(&["history", "w", "n.txt", "--follow-merges"]), @"
    42  [time]  merge kid@42 (removed)  -  created  4 B  /n.txt
    [exit 0]
    ");
    assert_eq!(program.json(&["blame", "w", "n.txt"])["changes"][0]["child_removed"], true);
}

#[test]
fn blame_of_binary_or_directory_is_refused() {
    let program = Program::with_project();
    for (path, what) in [
        ("bin", "/bin is a binary file; only text files have lines"),
        ("link", "/link is a symbolic link"),
        ("d", "/d is a directory; only text files have lines"),
        ("a.txt", "/a.txt does not exist at position"),
        ("nothing", "/nothing does not exist at position"),
    ] {
        let told = program.run(&["blame", "w", path]);
        assert!(
            told.contains(what) && told.contains("`foldspace log SESSION PATH`") && told.ends_with("[exit 3]"),
            "{told}"
        );
    }
    assert!(program.run(&["blame", "w", "../a"]).ends_with("[exit 2]"));
    assert!(program.run(&["blame", "w", "c.txt", "--at", "999"]).ends_with("[exit 3]"));
    assert!(program.run(&["blame", "nobody", "c.txt"]).ends_with("[exit 3]"));
}

#[test]
fn blame_names_drift() {
    let (program, script) = Program::with_own_directory("a.txt", "kept\n");
    std::fs::write(program.path("mine/a.txt"), "kept\nchanged behind its back\n").unwrap();
    program.printed(&["run", &script, "--session", "own"]);
    let blamed = program.printed(&["blame", "own", "a.txt"]);
    assert_eq!(blamed.matches("drift").count(), 2, "{blamed}");
    let history = program.json(&["history", "own", "a.txt"]);
    let told: Vec<_> = history.as_array().unwrap().iter().map(|change| (&change["what"], &change["cause"])).collect();
    assert_eq!(told, [(&json!("created"), &json!("drift")), (&json!("changed"), &json!("drift"))]);
}

#[test]
fn history_of_path_follows_renames() {
    let program = Program::with_project();
    assert_snapshot!(program.run(&["history", "w", "d/b.txt"]), @"
     6  [time]  #5 write_file      -   created             14 B  /a.txt
     9  [time]  #8 edit_file       ed  changed     14 B -> 15 B  /a.txt
    16  [time]  #11 shell_execute  -   moved here          15 B  /d/b.txt from /a.txt
    24  [time]  #20 shell_execute  ed  changed     15 B -> 19 B  /d/b.txt
    [exit 0]
    ");
    assert_snapshot!(program.run(&["history", "w", "a.txt"]), @"
     6  [time]  #5 write_file      -   created             14 B  /a.txt
     9  [time]  #8 edit_file       ed  changed     14 B -> 15 B  /a.txt
    14  [time]  #11 shell_execute  -   moved away          15 B  /a.txt to /d/b.txt
    [exit 0]
    ");
    assert_snapshot!(program.run(&["history", "w", "lib"]), @"
    17  [time]  #11 shell_execute  -  moved here        7 B  /lib/lib.rs from /src/lib.rs
    18  [time]  #11 shell_execute  -  moved here       13 B  /lib/main.rs from /src/main.rs
    30  [time]  #27 shell_execute  -  deleted     directory  /lib
    30  [time]  #27 shell_execute  -  deleted           7 B  /lib/lib.rs (with /lib)
    30  [time]  #27 shell_execute  -  deleted          13 B  /lib/main.rs (with /lib)
    [exit 0]
    ");
    assert_snapshot!(program.run(&["history", "w", "nothing"]), @"
    error: /nothing did not exist at any position up to 32
    hint: `foldspace ls [id] -R` lists the files
    [exit 3]
    ");
    let all = program.json(&["history", "w", "/"]);
    let paths: Vec<_> = all.as_array().unwrap().iter().map(|change| change["path"].as_str().unwrap()).collect();
    assert!(["a.txt", "d/b.txt", "bin", "link", "src/main.rs", "lib/main.rs"].iter().all(|path| paths.contains(path)));
    assert!(program.run(&["history", "w", "a.txt", "--at", "0"]).ends_with("[exit 3]"));
}

#[test]
fn history_patch_shows_each_change() {
    let program = Program::with_project();
    assert_snapshot!(program.run(&["history", "w", "d/b.txt", "--patch"]), @"
    6  [time]  #5 write_file  -  created  14 B  /a.txt
    diff --git a/a.txt b/a.txt
    new file mode 100644
    --- /dev/null
    +++ b/a.txt
    @@ -0,0 +1,3 @@
    +one
    +two
    +three

    9  [time]  #8 edit_file  ed  changed  14 B -> 15 B  /a.txt
    diff --git a/a.txt b/a.txt
    --- a/a.txt
    +++ b/a.txt
    @@ -1,3 +1,3 @@
     one
    -two
    +zwei
     three

    16  [time]  #11 shell_execute  -  moved here  15 B  /d/b.txt from /a.txt

    24  [time]  #20 shell_execute  ed  changed  15 B -> 19 B  /d/b.txt
    diff --git a/d/b.txt b/d/b.txt
    --- a/d/b.txt
    +++ b/d/b.txt
    @@ -1,3 +1,4 @@
     one
     zwei
    -three
    +drei
    +four
    [exit 0]
    ");
    let patched = program.json(&["history", "w", "a.txt", "-p"]);
    assert!(patched[1]["patch"].as_str().unwrap().contains("\n-two\n+zwei\n"), "{patched}");
}

#[test]
fn search_finds_text_of_any_moment() {
    let program = Program::with_project();
    assert_snapshot!(program.run(&["grep", "w", "zwei|three", "--all-history"]), @r"
    event 5 CallStarted params.content: three
    event 8 CallStarted params.new_string: zwei
    a.txt:2:zwei [since 9 #8 edit_file, until 13]
    a.txt:3:three [since 6 #5 write_file, until 13]
    event 20 CallStarted params.command: sed -i s/three/drei/ d/b.txt; echo four >> d/b.txt; printf '\0' > bin; ln -s bin link
    event 21 CommandDecided of #20 command: sed -i s/three/drei/ d/b.txt; echo four >> d/b.txt; printf '\0' > bin; ln -s bin link
    event 22 CommandResult of #20 command: sed -i s/three/drei/ d/b.txt; echo four >> d/b.txt; printf '\0' > bin; ln -s bin link
    d/b.txt:3:three [since 16 #11 shell_execute, until 23]
    c.txt:2:zwei [since 31 #27 shell_execute, still there]
    d/b.txt:2:zwei [since 16 #11 shell_execute, still there]
    [exit 0]
    ");
    assert_snapshot!(program.run(&["grep", "w", "three", "/", "--all-history", "-l"]), @"
    a.txt
    d/b.txt
    [exit 0]
    ");
    assert_snapshot!(program.run(&["grep", "w", "FN MAIN", "/lib", "-i", "--all-history"]), @"
    lib/main.rs:1:fn main() {} [since 18 #11 shell_execute, until 29]
    [exit 0]
    ");
    assert_snapshot!(program.run(&["grep", "w", "one", "--all-history", "--glob", "*.txt", "--at", "8"]), @"
    a.txt:1:one [since 6 #5 write_file, still there]
    [exit 0]
    ");
    assert_eq!(program.run(&["grep", "w", "nowhere at all", "--all-history"]), "\n[exit 1]");
    assert!(program.run(&["grep", "w", "(", "--all-history"]).ends_with("[exit 2]"));
    let found = program.json_lines(&["grep", "w", "^four$", "--all-history"]);
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(
        (&found[0]["path"], &found[0]["still"], &found[0]["agent"]),
        (&json!("c.txt"), &json!(true), &json!(""))
    );
    assert_eq!(
        (&found[1]["path"], &found[1]["tool"], &found[1]["agent"]),
        (&json!("d/b.txt"), &json!("shell_execute"), &json!("ed"))
    );
}

#[test]
fn search_goes_past_text_that_looks_like_a_mark() {
    let program = Program::new();
    let content = json!({ "$content": "0".repeat(64), "note": "a needle" });
    let params = json!({ "file_path": "needle.txt", "more": content });
    let call = json!({ "tool": "read_file", "params": params, "expect": "error" });
    program.printed(&["run", &program.file("m.jsonl", call.to_string()), "--session", "m"]);
    let found = program.json_lines(&["grep", "m", "needle", "--all-history"]);
    let fields: Vec<_> = found.iter().filter_map(|hit| hit["field"].as_str()).collect();
    assert!(fields.contains(&"params.more.note") && fields.contains(&"params.file_path"), "{found:?}");
}

#[test]
fn search_finds_output_and_long_texts() {
    let program = Program::new();
    let long = format!("{}needle in a long text\n", "hay\n".repeat(3000));
    let write = json!({ "tool": "write_file", "params": { "file_path": "long.txt", "content": long } });
    let print = json!({ "tool": "shell_execute", "params": { "command": "printf 'nee%s\\n' dle-printed; printf 'nee%s\\n' dle-told >&2" } });
    let script = program.file("p.jsonl", format!("{write}\n{print}\n"));
    program.printed(&["run", &script, "--backend", "host", "--session", "p", "--yes"]);
    let found = program.json_lines(&["grep", "p", "needle", "--all-history"]);
    let fields: Vec<_> = found.iter().map(|hit| (hit["field"].as_str(), hit["line"].as_str().unwrap())).collect();
    for wanted in [
        (Some("params.content"), "needle in a long text"),
        (Some("stdout"), "needle-printed"),
        (Some("stderr"), "needle-told"),
        (None, "needle in a long text"),
    ] {
        assert!(fields.contains(&wanted), "{wanted:?}: {fields:?}");
    }
    let line = found.iter().find(|hit| hit["found"] == "line").unwrap();
    assert_eq!((&line["line_number"], &line["still"]), (&json!(3001), &json!(true)));
}
