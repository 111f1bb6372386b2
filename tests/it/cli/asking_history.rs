//! What happened to files: `blame`, `history`, `grep --all-history`.

use insta::assert_snapshot;
use serde_json::json;

use super::World;

/// What a project goes through: a mount, edits, moves by a command, a second agent, deletions.
const PROJECT: &str = r#"
{"tool": "write_file", "params": {"file_path": "a.txt", "content": "one\ntwo\nthree\n"}}
{"tool": "edit_file", "params": {"file_path": "a.txt", "old_string": "two", "new_string": "zwei"}, "agent": "ed"}
{"tool": "shell_execute", "params": {"command": "mkdir d && mv a.txt d/b.txt && mv src lib"}}
{"tool": "shell_execute", "params": {"command": "sed -i s/three/drei/ d/b.txt; echo four >> d/b.txt; printf '\\0' > bin; ln -s bin link"}, "agent": "ed"}
{"tool": "shell_execute", "params": {"command": "cp d/b.txt c.txt; rm -r lib"}}
"#;

impl World {
    /// A world in which the project's session is `w`, on the host.
    fn with_project() -> Self {
        let world = Self::new();
        let mounted = world.path("mounted").to_string_lossy().into_owned();
        world.file("mounted/src/main.rs", "fn main() {}\n");
        world.file("mounted/src/lib.rs", "// lib\n");
        let script = world.file("w.jsonl", PROJECT);
        let ran = world.run(&["run", &script, "--backend", "host", "--session", "w", "--yes", "--mount", &mounted]);
        assert!(ran.ends_with("[exit 0]"), "{ran}");
        world
    }
}

#[test]
fn each_line_is_whose_who_wrote_it() {
    let world = World::with_project();
    assert_snapshot!(world.run(&["blame", "w", "d/b.txt"]), @"");
    assert_snapshot!(world.run(&["blame", "w", "a.txt", "--before", "12"]), @"");
    assert_snapshot!(world.run(&["blame", "w", "lib/main.rs", "--at", "25"]), @"");
    // What is no move is the work of who wrote it.
    assert_snapshot!(world.run(&["blame", "w", "c.txt"]), @"");
    let blamed = world.json(&["blame", "w", "d/b.txt"]);
    let whose = blamed["lines"].as_array().unwrap().iter().map(|line| &line["seq"]).collect::<Vec<_>>();
    let changes = blamed["changes"].as_array().unwrap();
    assert_eq!(blamed["lines"][1], json!({ "line_number": 2, "line": "zwei", "seq": whose[1] }));
    assert!(whose.iter().all(|seq| changes.iter().any(|change| change["seq"] == **seq)), "{blamed}");
}

#[test]
fn what_has_no_lines_is_told() {
    let world = World::with_project();
    for (path, what) in [
        ("bin", "/bin is a binary file; only text files have lines"),
        ("link", "/link is a symbolic link"),
        ("d", "there is no /d at position"),
        ("a.txt", "there is no /a.txt at position"),
        ("nothing", "there is no /nothing at position"),
    ] {
        let told = world.run(&["blame", "w", path]);
        assert!(
            told.contains(what) && told.contains("hint: `foldspace history`") && told.ends_with("[exit 3]"),
            "{told}"
        );
    }
    assert!(world.run(&["blame", "w", "../a"]).ends_with("[exit 2]"));
    assert!(world.run(&["blame", "w", "c.txt", "--at", "999"]).ends_with("[exit 3]"));
    assert!(world.run(&["blame", "nobody", "c.txt"]).ends_with("[exit 3]"));
}

#[test]
fn lines_that_nobody_s_call_wrote_are_drift() {
    let world = World::new();
    world.file("mine/a.txt", "kept\n");
    let script = world.file("own.jsonl", r#"{"tool": "read_file", "params": {"file_path": "a.txt"}}"#);
    let mine = world.path("mine").to_string_lossy().into_owned();
    world.printed(&["run", &script, "--backend", "host", "--dir", &mine, "--session", "own"]);
    std::fs::write(world.path("mine/a.txt"), "kept\nchanged behind its back\n").unwrap();
    world.printed(&["run", &script, "--session", "own"]);
    let blamed = world.printed(&["blame", "own", "a.txt"]);
    assert_eq!(blamed.matches("drift").count(), 2, "{blamed}");
    let history = world.json(&["history", "own", "a.txt"]);
    let told: Vec<_> = history.as_array().unwrap().iter().map(|change| (&change["what"], &change["cause"])).collect();
    assert_eq!(told, [(&json!("created"), &json!("drift")), (&json!("changed"), &json!("drift"))]);
}

#[test]
fn the_history_of_a_path_follows_it() {
    let world = World::with_project();
    assert_snapshot!(world.run(&["history", "w", "d/b.txt"]), @"");
    assert_snapshot!(world.run(&["history", "w", "a.txt"]), @"");
    assert_snapshot!(world.run(&["history", "w", "lib"]), @"");
    assert_snapshot!(world.run(&["history", "w", "d/b.txt", "--patch"]), @"");
    assert_snapshot!(world.run(&["history", "w", "nothing"]), @"");
    let all = world.json(&["history", "w", "/"]);
    let paths: Vec<_> = all.as_array().unwrap().iter().map(|change| change["path"].as_str().unwrap()).collect();
    assert!(["a.txt", "d/b.txt", "bin", "link", "src/main.rs", "lib/main.rs"].iter().all(|path| paths.contains(path)));
    let patched = world.json(&["history", "w", "a.txt", "-p"]);
    assert!(patched[1]["patch"].as_str().unwrap().contains("\n-two\n+zwei\n"), "{patched}");
    assert!(world.run(&["history", "w", "a.txt", "--at", "0"]).ends_with("[exit 3]"));
}

#[test]
fn what_was_ever_there_is_found() {
    let world = World::with_project();
    assert_snapshot!(world.run(&["grep", "w", "zwei|three", "--all-history"]), @"");
    assert_snapshot!(world.run(&["grep", "w", "three", "/", "--all-history", "-l"]), @"");
    assert_snapshot!(world.run(&["grep", "w", "FN MAIN", "/lib", "-i", "--all-history"]), @"");
    assert_snapshot!(world.run(&["grep", "w", "one", "--all-history", "--glob", "*.txt", "--at", "8"]), @"");
    assert_eq!(world.run(&["grep", "w", "nowhere at all", "--all-history"]), "\n[exit 1]");
    assert!(world.run(&["grep", "w", "(", "--all-history"]).ends_with("[exit 2]"));
    let found = world.json_lines(&["grep", "w", "^four$", "--all-history"]);
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
fn what_commands_printed_and_long_texts_are_found() {
    let world = World::new();
    let long = format!("{}needle in a long text\n", "hay\n".repeat(3000));
    let write = json!({ "tool": "write_file", "params": { "file_path": "long.txt", "content": long } });
    let print = json!({ "tool": "shell_execute", "params": { "command": "printf 'nee%s\\n' dle-printed; printf 'nee%s\\n' dle-told >&2" } });
    let script = world.file("p.jsonl", format!("{write}\n{print}\n"));
    world.printed(&["run", &script, "--backend", "host", "--session", "p", "--yes"]);
    let found = world.json_lines(&["grep", "p", "needle", "--all-history"]);
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
