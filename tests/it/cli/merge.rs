//! `merge`: a clone's work comes back, and what a person does about conflicts.

use super::World;

/// A session on this machine's disk, and a clone of it in which work was done.
fn world(own: &str, clones: &str) -> World {
    let world = World::new();
    let begin = r#"
{"tool": "write_file", "params": {"file_path": "a.txt", "content": "1\n2\n3\n4\n5\n"}}
{"tool": "write_file", "params": {"file_path": "old/b.txt", "content": "b\n"}}
"#;
    let ran = world.run(&["run", &world.file("begin.jsonl", begin), "--backend", "host", "--session", "main"]);
    assert!(ran.ends_with("[exit 0]"), "{ran}");
    world.printed(&["clone", "main", "--name", "worker"]);
    work(&world, "main", own);
    work(&world, "worker", clones);
    world
}

fn work(world: &World, session: &str, script: &str) {
    let command = format!("set -e\n{script}");
    let ran = world.run(&["exec", session, "--", "/bin/sh", "-c", &command]);
    assert!(ran.ends_with("[exit 0]"), "{ran}");
}

fn says(world: &World, arguments: &[&str], exit: i32, words: &[&str]) {
    let told = world.run(arguments);
    assert!(told.ends_with(&format!("[exit {exit}]")), "{told}");
    words.iter().for_each(|words| assert!(told.contains(words), "{words:?} is not in {told}"));
}

fn head(world: &World, session: &str) -> u64 {
    world.json_lines(&["log", session]).last().unwrap()["seq"].as_u64().unwrap()
}

#[test]
fn what_both_did_comes_together() {
    let world =
        world("sed -i s/1/one/ a.txt", "sed -i s/5/five/ a.txt; rm -r old; mkdir -p new/deep; echo n > new/deep/n");
    let before = head(&world, "main");
    says(
        &world,
        &["merge", "worker", "--dry-run"],
        0,
        &["would merge 3 entries into main", "lines of both", "removed  old"],
    );
    assert_eq!(head(&world, "main"), before);
    says(&world, &["merge", "worker"], 0, &["merged 3 entries into main"]);
    assert_eq!(world.printed(&["cat", "main", "a.txt"]), "one\n2\n3\n4\nfive\n");
    assert_eq!(
        world.printed(&["exec", "main", "--", "/bin/sh", "-c", "cat a.txt new/deep/n; ls"]),
        "one\n2\n3\n4\nfive\nn\na.txt\nnew\n"
    );
    let head = head(&world, "main");
    says(&world, &["merge", "worker"], 0, &["nothing to merge: worker has changed no file"]);
    assert_eq!(super::merge::head(&world, "main"), head);
    assert!(world.run(&["verify", "main"]).ends_with("[exit 0]"));
}

#[test]
fn conflicts_are_shown_and_decided() {
    let world =
        world("sed -i s/3/ours/ a.txt; echo more >> old/b.txt", "sed -i s/3/theirs/ a.txt; rm -r old; echo n > n");
    says(
        &world,
        &["merge", "worker"],
        1,
        &["both changed the same lines", "changed here, removed by the child", "2 conflicts to be decided"],
    );
    let half = &["merge", "worker", "--ours", "old", "--theirs", "n"];
    says(&world, half, 1, &["1 conflict to be decided", "/n: nothing is in conflict there"]);
    says(&world, &["merge", "worker", "--ours", "/", "--theirs", "a.txt"], 0, &["merged 2 entries into main"]);
    assert_eq!(world.printed(&["cat", "main", "a.txt"]), "1\n2\ntheirs\n4\n5\n");
    assert_eq!(world.printed(&["cat", "main", "old/b.txt"]), "b\nmore\n");
}

#[test]
fn as_json_it_tells_the_same() {
    let world = world("sed -i s/3/ours/ a.txt", "sed -i s/3/theirs/ a.txt; echo n > n");
    let output = world.output(&["--json", "merge", "worker"]);
    assert_eq!(output.status.code(), Some(1));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&told["outcome"], &told["into_name"]), (&"conflicted".into(), &"main".into()));
    assert_eq!((&told["conflicts"][0]["kind"], &told["conflicts"][0]["path"]), (&"text".into(), &"a.txt".into()));
    let merged = world.json(&["merge", "worker", "--theirs", "a.txt"]);
    assert_eq!((&merged["outcome"], &merged["conflicts"][0]["resolved"]), (&"merged".into(), &"theirs".into()));
    assert_eq!((&merged["merged"][1]["path"], &merged["merged"][1]["change"]), (&"n".into(), &"added".into()));
    assert_eq!(world.json(&["merge", "worker"])["outcome"], "nothing");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let world = world("true", "echo n > n");
    says(&world, &["merge", "main"], 2, &["began by itself"]);
    says(&world, &["merge", "main", "--into", "worker"], 2, &["does not come from"]);
    says(&world, &["merge", "worker", "--into", "worker"], 2, &["shares its files"]);
    says(&world, &["merge", "worker", "--ours", "a", "--theirs", "/a"], 2, &["both sides are chosen for /a"]);
    says(&world, &["merge", "worker", "--ours", "../a"], 2, &["are not allowed"]);
    says(&world, &["merge", "nobody"], 3, &["nobody"]);
    world.printed(&["remove", "main", "--yes"]);
    says(&world, &["merge", "worker"], 3, &["the parent of worker, main, was removed"]);
}
