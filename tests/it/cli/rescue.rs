//! Accidents in repositories that were not attached: what is lost is found, and nothing is written.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use serde_json::Value;

use crate::rig::Program;

const LINES: &str = "fn first_function() {}\nfn second_function() {}\nfn third_function() {}\n";

/// A repository below a home, with one commit of `a.rs`.
struct Lost {
    program: Program,
    root: PathBuf,
}

/// Each entry with its times and contents.
type Bytes = BTreeMap<PathBuf, (i64, i64, Vec<u8>)>;

impl Lost {
    fn new() -> Self {
        let program = Program::new();
        program.file("home/app/a.rs", LINES);
        let root = program.path("home/app").canonicalize().unwrap();
        let lost = Self { program, root };
        lost.git(&["init", "-q", "-b", "main"]);
        lost.commit("Begin");
        lost
    }

    fn git(&self, arguments: &[&str]) {
        let name = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"];
        let mut git = Command::new("git");
        git.arg("-C").arg(&self.root).args(name).args(arguments).env("HOME", self.program.path("home"));
        let done = git.output().unwrap();
        assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    }

    fn commit(&self, subject: &str) {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "-m", subject]);
    }

    fn write(&self, name: &str, contents: &str) {
        self.program.file(&format!("home/app/{name}"), contents);
    }

    /// Writes a recorded transcript of Claude Code in the directory.
    fn with_transcript(&self) {
        let root = self.root.to_str().unwrap();
        let project: String = root.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/rescue/claude.jsonl");
        let recorded = fs::read_to_string(recorded).unwrap().replace("{DIR}", root);
        self.program.file(&format!("home/.claude/projects/{project}/e1621bd0.jsonl"), recorded);
    }

    fn bytes(&self) -> Bytes {
        let (mut found, mut waiting) = (Bytes::new(), vec![self.program.path("home")]);
        while let Some(path) = waiting.pop() {
            let metadata = path.symlink_metadata().unwrap();
            let contents = if metadata.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
            if metadata.is_dir() {
                let entries = fs::read_dir(&path).unwrap().collect::<io::Result<Vec<_>>>().unwrap();
                waiting.extend(entries.into_iter().map(|entry| entry.path()));
            }
            found.insert(path, (metadata.mtime(), metadata.mtime_nsec(), contents));
        }
        found
    }

    /// Runs a rescue of the repository, which must change nothing.
    fn rescue(&self, arguments: &[&str]) -> String {
        let before = self.bytes();
        let told = self.program.run(&[&["rescue", self.root.to_str().unwrap()], arguments].concat());
        assert!(self.bytes() == before, "{arguments:?} wrote something: {told}");
        told
    }

    /// Lists the candidates of a path as `source, certainty, contents`, newest first.
    fn candidates(&self, path: Option<&str>) -> Vec<String> {
        let told = self.rescue(&["--json", "--all"]);
        let report: Value = serde_json::from_str(&told[..told.rfind('}').unwrap() + 1]).unwrap();
        let found = report["paths"].as_array().unwrap().iter().find(|found| found["path"].as_str() == path);
        let found = found.map(|found| found["candidates"].as_array().unwrap().clone()).unwrap_or_default();
        let shown = |candidate: &Value| {
            let (source, sure) = (candidate["source"].as_str().unwrap(), candidate["sure"].as_str().unwrap());
            let content = self.rescue(&["--show", &candidate["id"].as_str().unwrap()[..12]]);
            format!("{source} {sure} {}", content.split('\n').next().unwrap())
        };
        found.iter().map(shown).collect()
    }

    /// Returns the file that a rescue writes to a new directory.
    fn saved(&self, arguments: &[&str], path: &str) -> Option<String> {
        let into = tempfile::tempdir().unwrap();
        let new = into.path().join("new");
        self.rescue(&[&["--to", new.to_str().unwrap()], arguments].concat());
        fs::read_to_string(new.join(path)).ok()
    }
}

#[test]
fn rescue_after_reset_hard_finds_commits_and_staged_files() {
    let lost = Lost::new();
    lost.write("docs/b.md", "in a lost commit\n");
    lost.commit("Add b");
    lost.write("a.rs", &format!("{LINES}fn staged_function() {{}}\n"));
    lost.write("new.txt", "staged, and in no commit\n");
    lost.git(&["add", "-A"]);
    lost.git(&["reset", "-q", "--hard", "HEAD~1"]);
    assert_eq!(lost.candidates(Some("docs/b.md")), ["git exact in a lost commit"]);
    let mut nameless = lost.candidates(None);
    nameless.sort();
    assert_eq!(nameless, ["git inferred fn first_function() {}", "git inferred staged, and in no commit"]);
    let told = lost.rescue(&[]);
    assert!(told.contains("docs/b.md  missing\n") && told.contains("  exact  git: commit "), "{told}");
    assert!(told.contains("Add b\n") && told.contains("without a name\n") && !told.contains("a.rs"), "{told}");
    // The person has to name it.
    assert_eq!(lost.saved(&[], "docs/b.md").as_deref(), Some("in a lost commit\n"));
    let line = told.lines().find(|line| line.ends_with(" fn first_function() {}")).unwrap();
    let guess = line.split_whitespace().next().unwrap();
    let refused = lost.rescue(&["--to", "new", "--take", guess]);
    assert!(refused.contains("has no certain name") && refused.ends_with("[exit 2]"), "{refused}");
    let saved = lost.saved(&["--take", &format!("{guess}=src/mine.rs")], "src/mine.rs").unwrap();
    assert!(saved.ends_with("fn staged_function() {}\n"));
    for wrong in ["../out.rs", "/etc/passwd", "src/../../out"] {
        let refused = lost.rescue(&["--to", "new", "--take", &format!("{guess}={wrong}")]);
        assert!(refused.contains("is not a path below") && refused.ends_with("[exit 2]"), "{refused}");
    }
}

#[test]
fn rescue_after_rm_of_untracked_files_finds_what_claude_wrote() {
    let lost = Lost::new();
    lost.with_transcript();
    assert_eq!(lost.candidates(Some("crlf.txt"))[0], "claude-code text whole");
    assert_eq!(lost.saved(&[], "crlf.txt").as_deref(), Some("whole\nnew\n"));
    assert_eq!(lost.saved(&[], "tabs.txt").as_deref(), Some("\tone\n\tthree\nlast"));
    // As last written, though with other line ends.
    lost.write("crlf.txt", "whole\r\nnew\r\n");
    let told = lost.rescue(&[]);
    assert!(!told.contains("crlf.txt") && told.contains("tabs.txt  missing\n"), "{told}");
    let told = lost.rescue(&["crlf.txt"]);
    assert!(
        told.contains("crlf.txt  as last written\n") && told.contains("  as now  claude-code: written\n"),
        "{told}"
    );
    lost.write("crlf.txt", "whole\nchanged\n");
    let told = lost.rescue(&["--diff", "crlf.txt"]);
    assert!(told.contains("\n-changed\n+new\n"), "{told}");
}

#[test]
fn rescue_after_stash_drop_finds_the_stash() {
    let lost = Lost::new();
    lost.write("a.rs", "changed and stashed\n");
    lost.write("u.txt", "untracked and stashed\n");
    lost.git(&["stash", "-q", "-u"]);
    let told = lost.rescue(&["--all"]);
    assert!(told.contains("WIP on main"), "a stash that nobody dropped, too: {told}");
    lost.git(&["stash", "drop", "-q"]);
    assert_eq!(lost.candidates(Some("a.rs")), ["git exact changed and stashed"]);
    assert_eq!(lost.candidates(Some("u.txt")), ["git exact untracked and stashed"]);
    assert_eq!(lost.saved(&[], "u.txt").as_deref(), Some("untracked and stashed\n"));
    assert_eq!(lost.saved(&[], "a.rs"), None, "it is not missing");
    assert_eq!(lost.saved(&["a.rs"], "a.rs").as_deref(), Some("changed and stashed\n"));
    // From below the top, paths are relative to the directory.
    fs::create_dir(lost.root.join("src")).unwrap();
    assert!(lost.program.run(&["rescue", "home/app/src"]).ends_with("[exit 1]"));
}

#[test]
fn rescue_after_checkout_finds_staged_contents() {
    let lost = Lost::new();
    lost.with_transcript();
    lost.write("crlf.txt", "committed\n");
    lost.commit("Add crlf.txt");
    lost.write("a.rs", &format!("{LINES}// staged\n"));
    lost.write("crlf.txt", "whole\nnew\n");
    lost.git(&["add", "a.rs"]);
    lost.git(&["checkout", "-q", "--", "."]);
    let told = lost.rescue(&[]);
    assert!(told.contains("crlf.txt  different now\n"), "{told}");
    assert!(!told.contains("a.rs"), "the index has it, and so has the worktree: {told}");
    lost.git(&["checkout", "-q", "HEAD", "--", "."]);
    assert_eq!(lost.candidates(None), ["git inferred fn first_function() {}"]);
    lost.git(&["rm", "-q", "-r", "."]);
    assert_eq!(lost.saved(&[], "a.rs").as_deref(), Some(LINES), "HEAD has it");
}

#[test]
fn rescue_without_git_reads_the_other_sources() {
    let lost = Lost::new();
    lost.with_transcript();
    fs::remove_dir_all(lost.root.join(".git")).unwrap();
    fs::write(lost.root.join(".git"), "gitdir: /nowhere").unwrap();
    let told = lost.rescue(&[]);
    assert!(told.contains("crlf.txt  missing\n") && told.contains("note: skipped the repository"), "{told}");
}

#[test]
fn rescue_shows_no_control_characters_and_follows_no_links() {
    let lost = Lost::new();
    lost.write("\u{1b}[2J~", "backup");
    symlink("/etc", lost.root.join("away")).unwrap();
    symlink("/etc/passwd", lost.root.join("b~")).unwrap();
    let told = lost.rescue(&[]);
    assert!(told.contains("\\x1b[2J  missing\n") && !told.contains('\u{1b}') && !told.contains("root:"), "{told}");
    assert!(told.contains("note: skipped b~: "), "{told}");
}

#[test]
fn rescue_with_wrong_input_says_what_to_do() {
    let lost = Lost::new();
    lost.write("gone~", "backup");
    let full = lost.root.to_str().unwrap().to_owned();
    let wrong: [(&[&str], &str, i32); 7] = [
        (&["--to", &full], "not empty", 2),
        (&["--show", "0123456789"], "no candidate with the id 0123456789", 3),
        (&["--show", "0"], "no candidate with the id 0", 3),
        (&["--show", "a.rs"], "no candidate with the id a.rs", 3),
        (&["--take", "0123"], "--to", 2),
        (&["/etc"], "is not a path below", 2),
        (&["nothing"], "found no lost file", 1),
    ];
    for (arguments, part, code) in wrong {
        let told = lost.rescue(arguments);
        assert!(told.contains(part) && told.ends_with(&format!("[exit {code}]")), "{arguments:?}: {told}");
    }
    assert!(lost.program.run(&["rescue", "home/app", "gone"]).contains("gone  missing\n"));
    let mut from_within = lost.program.command(&["rescue", "gone"]);
    let told = from_within.current_dir(&lost.root).output().unwrap();
    assert!(String::from_utf8(told.stdout).unwrap().contains("gone  missing\n"));
}
