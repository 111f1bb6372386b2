#![expect(clippy::disallowed_methods, reason = "the tests create files directly")]

use std::fs;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use sha2::Digest as _;

use super::editor_files::{CopyKind, edited, path_of};
use super::*;

/// A directory of lost files, and a home.
struct Machine {
    _root: tempfile::TempDir,
    places: RescuePlaces,
}

impl Machine {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let [directory, home] = ["project", "home"].map(|name| root.path().canonicalize().unwrap().join(name));
        fs::create_dir(&directory).unwrap();
        let names = vec![directory.to_str().unwrap().to_owned()];
        let below = |name: &str| Some(home.join(name));
        let places = RescuePlaces {
            directory,
            names,
            claude: below(".claude"),
            codex: below(".codex"),
            gemini: below(".gemini"),
            config: below(".config"),
            state: below(".local/state"),
            home: Some(home),
        };
        Self { _root: root, places }
    }

    fn directory(&self) -> &str {
        &self.places.names[0]
    }

    fn write(&self, below_home: &str, contents: impl AsRef<[u8]>) {
        self.put(&self.places.home.as_ref().unwrap().join(below_home), contents);
    }

    fn put(&self, path: &Path, contents: impl AsRef<[u8]>) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }

    /// Writes a recorded transcript of an agent.
    fn fixture(&self, name: &str, below_home: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/rescue").join(name);
        self.write(below_home, fs::read_to_string(path).unwrap().replace("{DIR}", self.directory()));
    }

    /// Lists candidates as `certainty path: detail: contents`, sorted, and the notes.
    fn scan(&self) -> (Vec<String>, BTreeSet<String>) {
        let mut found = BTreeSet::new();
        let notes = RescueScan::run(&self.places, &mut |candidate, content| {
            let path = candidate.path.as_ref().map_or("?".to_owned(), EntryPath::to_string);
            let content = String::from_utf8_lossy(&content).escape_debug().to_string();
            found.insert(format!("{:?} {path}: {}: {content}", candidate.sure, candidate.detail));
        });
        (found.into_iter().collect(), notes)
    }

    fn report(&self) -> RescueReport {
        RescueReport::of(&self.places)
    }

    fn project_of_claude(&self) -> String {
        let name: String = self.directory().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        format!(".claude/projects/{name}")
    }
}

fn set_time(path: &Path, seconds: u64) {
    fs::File::options()
        .write(true)
        .open(path)
        .unwrap()
        .set_modified(UNIX_EPOCH + Duration::from_secs(seconds))
        .unwrap();
}

#[test]
fn transcript_of_claude_has_states_before_and_after_edits() {
    let machine = Machine::new();
    machine.fixture("claude.jsonl", &format!("{}/a.jsonl", machine.project_of_claude()));
    let (found, notes) = machine.scan();
    insta::assert_snapshot!(found.join("\n"), @r"
    Text bom.txt: before an edit: \u{feff}one\ntwo\n
    Text bom.txt: read: one\ntwo\n
    Text bom.txt: written: \u{feff}one\nTWO\n
    Text crlf.txt: before an edit: one\nTWO\nthree\n
    Text crlf.txt: before an edit: one\ntwo\nthree\n
    Text crlf.txt: read: one\ntwo\nthree\n
    Text crlf.txt: written: one\nTWO\nthree\n
    Text crlf.txt: written: whole\nnew\n
    Text tabs.txt: before an edit: \tone\n\ttwo\n\tthree\nlast
    Text tabs.txt: read: \tone\n\ttwo\n\tthree\nlast
    Text tabs.txt: written: \tone\n\tthree\nlast
    ");
    assert_eq!(notes, BTreeSet::new());
}

#[test]
fn transcript_of_claude_with_part_of_a_file_is_no_candidate() {
    let machine = Machine::new();
    let path = format!("{}/a.jsonl", machine.project_of_claude());
    machine.fixture("claude.jsonl", &path);
    let place = machine.places.home.as_ref().unwrap().join(&path);
    let partly = fs::read_to_string(&place).unwrap().replace("\"totalLines\": 4", "\"totalLines\": 40");
    machine.put(&place, partly);
    let (found, _) = machine.scan();
    assert!(found.iter().any(|line| line.contains("bom.txt: read")), "{found:?}");
    assert!(!found.iter().any(|line| line.contains("tabs.txt: read")), "{found:?}");
}

#[test]
fn rollout_of_codex_has_whole_files_and_patched_ones() {
    let machine = Machine::new();
    machine.fixture("codex.jsonl", ".codex/sessions/2026/11/29/rollout-a.jsonl");
    let (found, notes) = machine.scan();
    insta::assert_snapshot!(found.join("\n"), @r"
    Text bom.txt: read: \u{feff}one\ntwo\n
    Text crlf.txt: read: one\r\ntwo\r\nthree\r\n
    Text crlf.txt: written: one\r\nTWO\r\nthree\r\n
    Text tabs.txt: read: \tone\n\ttwo\n\tthree\nlast
    ");
    assert_eq!(notes, BTreeSet::new());
}

#[test]
fn chat_of_gemini_has_states_before_and_after_edits() {
    let machine = Machine::new();
    machine.fixture("gemini.jsonl", ".gemini/tmp/project/chats/session-a.jsonl");
    assert_eq!(machine.scan().0, [""; 0], "the chat may be another project's");
    machine.write(".gemini/tmp/project/.project_root", machine.directory());
    let (found, notes) = machine.scan();
    insta::assert_snapshot!(found.join("\n"), @r"
    Text bom.txt: before an edit: \u{feff}one\ntwo\n
    Text bom.txt: written: \u{feff}one\nTWO\n
    Text crlf.txt: before an edit: one\ntwo\nthree\n
    Text crlf.txt: before an edit: one\r\nTWO\r\nthree\r\n
    Text crlf.txt: written: one\nTWO\nthree\n
    Text crlf.txt: written: whole\nnew\n
    Text tabs.txt: before an edit: \tone\n\ttwo\n\tthree\nlast
    Text tabs.txt: written: \tone\n\n\tthree\nlast
    ");
    assert_eq!(notes, BTreeSet::new());
}

#[test]
fn runs_elsewhere_are_not_read() {
    let machine = Machine::new();
    let other = Machine::new();
    machine.fixture("codex.jsonl", ".codex/sessions/2026/11/29/rollout-a.jsonl");
    let rollout = ".codex/sessions/2026/11/29/rollout-a.jsonl";
    let text = fs::read_to_string(machine.places.home.as_ref().unwrap().join(rollout)).unwrap();
    other.write(rollout, text);
    assert_eq!(other.scan().0, [""; 0]);
}

#[test]
fn copies_of_claude_belong_to_paths_with_their_digest() {
    let machine = Machine::new();
    machine.fixture("claude.jsonl", &format!("{}/a.jsonl", machine.project_of_claude()));
    let digest = sha2::Sha256::digest(format!("{}/crlf.txt", machine.directory()));
    let name: String = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    machine.write(&format!(".claude/file-history/1bad1ed4/{name}@v1"), "one\r\n");
    machine.write(".claude/file-history/1bad1ed4/0123456789abcdef@v1", "another project's");
    let (found, _) = machine.scan();
    let copies: Vec<_> = found.iter().filter(|line| line.contains("file history")).collect();
    assert_eq!(copies, ["Exact crlf.txt: file history: one\\r\\n"]);
}

#[test]
fn local_history_has_versions_of_files_below_the_directory() {
    let machine = Machine::new();
    let list = |resource: &str| {
        format!(
            r#"{{"version":1,"resource":"{resource}","entries":[
            {{"id":"aB1c.md","timestamp":1700000000000}},{{"id":"Zz9y.md","source":"Chat Edit: fix","timestamp":1700000001000}},
            {{"id":"gone.md","timestamp":1}},{{"id":"../../../escape","timestamp":1}}]}}"#
        )
    };
    machine
        .write(".config/Code/User/History/-1f/entries.json", list(&format!("file://{}/a%20b.md", machine.directory())));
    machine.write(".config/Code/User/History/-1f/aB1c.md", "first");
    machine.write(".config/Code/User/History/-1f/Zz9y.md", "second");
    machine.write(".config/Cursor/User/History/2e/entries.json", list("file:///elsewhere/a.md"));
    machine.write(".config/Cursor/User/History/2e/aB1c.md", "other");
    machine.write(".config/VSCodium/User/History/3d/entries.json", "{ cut");
    let (found, notes) = machine.scan();
    assert_eq!(found, ["Exact a b.md: Chat Edit: fix: second", "Exact a b.md: saved: first"]);
    let notes: Vec<_> =
        notes.iter().map(|note| note.replace(machine.places.home.as_ref().unwrap().to_str().unwrap(), "~")).collect();
    assert!(notes[0].starts_with("skipped ~/.config/Code/User/History/-1f/gone.md: No such file"), "{notes:?}");
    assert!(notes[1].starts_with("skipped ~/.config/VSCodium/User/History/3d/entries.json: "), "{notes:?}");
    assert_eq!(notes.len(), 2);
}

#[test]
fn resource_of_local_history_is_a_path() {
    assert_eq!(path_of("file:///a%20b/%C3%A9.rs"), Some("/a b/é.rs".into()));
    assert_eq!(path_of("vscode-remote://ssh-remote%2Bhost/home/a"), Some("/home/a".into()));
    for other in ["untitled:Untitled-1", "git:/a?%7B", "file://", "file:///%zz", "file:///%e9", "file:///a%2"] {
        assert_eq!(path_of(other), None, "{other}");
    }
}

#[test]
fn editor_copies_are_known_by_their_names() {
    let whole = |name| match edited(name) {
        Some((original, CopyKind::Whole(sure, _))) => (original, sure),
        other => panic!("{name}: {other:?}"),
    };
    assert_eq!(edited(".a.txt.swp"), Some(("a.txt", CopyKind::Swap)));
    assert_eq!(edited(".#a.txt"), Some(("a.txt", CopyKind::Lock)));
    assert_eq!(whole("#a.txt#"), ("a.txt", Certainty::Exact));
    assert_eq!(whole("a.txt~"), ("a.txt", Certainty::Exact));
    assert_eq!(whole("a.txt.save"), ("a.txt", Certainty::Inferred));
    for other in ["a.txt", "~", "##", ".swp", ".a.txt.un~", "a.txt.~12~", "a.saved", "a.save.me", ".save", ".#"] {
        assert_eq!(edited(other), None, "{other}");
    }
}

#[test]
fn editor_files_are_read_without_following_links() {
    let machine = Machine::new();
    let project = machine.places.directory.clone();
    for (name, text) in
        [("src/a.c~", "backup"), ("#b#", "saved"), ("c.save", "nano"), (".d.swp", "b0VIM"), ("target/x~", "no")]
    {
        machine.put(&project.join(name), text);
    }
    machine.write("secret", "out");
    std::os::unix::fs::symlink(machine.places.home.as_ref().unwrap().join("secret"), project.join("e~")).unwrap();
    std::os::unix::fs::symlink(machine.places.home.as_ref().unwrap(), project.join("away")).unwrap();
    machine.write("f~", "out");
    let big = fs::File::create(project.join("big~")).unwrap();
    big.set_len(CONTENT_MAX + 1).unwrap();
    machine.write(&format!(".local/state/nvim/swap/{}%src%n.rs.swp", machine.directory().replace('/', "%")), "b0nvim");
    let (found, notes) = machine.scan();
    let found: Vec<_> = found.iter().map(|line| line.split("recover").next().unwrap()).collect();
    assert_eq!(
        found,
        [
            "Exact b: Emacs auto-save: saved",
            "Exact d: swap file; ",
            "Exact src/a.c: backup file: backup",
            "Exact src/n.rs: swap file; ",
            "Inferred c: nano's emergency file: nano",
        ]
    );
    assert!(notes.contains("skipped big~: more than 64 MiB"), "{notes:?}");
    assert_eq!(notes.len(), 2, "{notes:?}");
}

#[test]
fn damaged_transcripts_are_skipped_with_a_note() {
    let machine = Machine::new();
    let project = machine.project_of_claude();
    machine.fixture("claude.jsonl", &format!("{project}/a.jsonl"));
    let place = machine.places.home.as_ref().unwrap().join(format!("{project}/a.jsonl"));
    let (whole, _) = machine.scan();
    let text = fs::read_to_string(&place).unwrap().replacen('\n', "\nnot json\n", 3);
    machine.put(&place, text);
    machine.write(&format!("{project}/b.jsonl"), "\0\0\0\0");
    machine.write(".codex/sessions/2026/11/29/rollout-a.jsonl", "[1, 2]\n");
    machine.write(".gemini/tmp", "not a directory");
    let (found, notes) = machine.scan();
    assert_eq!(found, whole);
    assert_eq!(notes.len(), 4, "{notes:?}");
    assert!(notes.iter().any(|note| note.ends_with("a.jsonl: skipped 3 lines that are not JSON")), "{notes:?}");
}

#[test]
fn report_lists_what_is_not_as_last_written() {
    let machine = Machine::new();
    let project = machine.places.directory.clone();
    for (name, text, seconds) in
        [("same~", "a", 10), ("other~", "old", 30), ("#other#", "older", 20), ("gone~", "gone", 40)]
    {
        machine.put(&project.join(name), text);
        set_time(&project.join(name), seconds);
    }
    machine.put(&project.join("same"), "a");
    machine.put(&project.join("other"), "new");
    machine.put(&project.join("crlf"), "one\r\ntwo\r\n");
    machine.put(&project.join("crlf~"), "one\ntwo\n");
    machine.put(&project.join("place/inner"), "");
    machine.put(&project.join("place~"), "was a file");
    let report = machine.report();
    let of = |name: &str| report.at(&EntryPath::lookup(name).unwrap()).unwrap();
    let lost = |name: &str| (of(name).is_lost(), of(name).best().map(|best| best.bytes.unwrap()));
    assert_eq!(lost("same"), (false, None));
    assert_eq!(lost("crlf"), (false, None), "git and agents convert line ends");
    assert_eq!(lost("other"), (true, Some(3)), "the newest one");
    assert_eq!((lost("gone"), of("gone").now), ((true, Some(4)), FileNow::Missing));
    assert_eq!((lost("place").0, of("place").now), (true, FileNow::Other));
    let names: Vec<_> = report.paths.iter().filter_map(|found| Some(found.path.as_ref()?.to_string())).collect();
    let at = |name: &str| names.iter().position(|found| found == name);
    assert!(at("gone") < at("other") && at("other") < at("same"), "newest candidates first: {names:?}");
    let id = of("gone").candidates[0].id.unwrap().to_string();
    assert_eq!(report.with_id(&id[..8]).len(), 1);
}

#[test]
fn report_prefers_certain_names_and_the_latest_time() {
    let machine = Machine::new();
    let project = machine.places.directory.clone();
    for (name, seconds) in [("a~", 10), ("#a#", 20), ("b.save", 30)] {
        machine.put(&project.join(name), "text");
        set_time(&project.join(name), seconds);
    }
    let report = machine.report();
    let [found] = &report.paths[..] else { panic!("{report:?}") };
    assert_eq!(found.path.as_ref().unwrap().to_string(), "a", "the guess has the same contents");
    assert_eq!(found.candidates.len(), 1);
    assert_eq!(found.candidates[0].time, Some(Timestamp(20_000)));
}

#[test]
fn rescued_files_are_written_into_a_new_directory_only() {
    let machine = Machine::new();
    let project = machine.places.directory.clone();
    for name in ["a~", "d/b~", "c.save"] {
        machine.put(&project.join(name), name);
    }
    let report = machine.report();
    let chosen: std::collections::BTreeMap<_, _> = report
        .paths
        .iter()
        .filter_map(|found| Some((found.path.clone()?, found.best()?.clone())))
        .chain([(EntryPath::lookup("a/below").unwrap(), report.paths[0].candidates[0].clone())])
        .collect();
    let full = project.join("d");
    let link = project.join("link");
    std::os::unix::fs::symlink("new", &link).unwrap();
    for refused in [&full, &link, &project.join("a~")] {
        assert!(write_rescued(&machine.places, refused, &chosen).is_err(), "{}", refused.display());
    }
    let new = project.join("deep/new");
    let rescued = write_rescued(&machine.places, &new, &chosen).unwrap();
    let names = |paths: &[EntryPath]| paths.iter().map(EntryPath::to_string).collect::<Vec<_>>();
    assert_eq!(
        (names(&rescued.written), names(&rescued.left)),
        (vec!["a".to_owned(), "d/b".to_owned()], vec!["a/below".to_owned()])
    );
    assert_eq!(
        (fs::read(new.join("a")).unwrap(), fs::read(new.join("d/b")).unwrap()),
        (b"a~".to_vec(), b"d/b~".to_vec())
    );
    assert!(!new.join("c").exists(), "its name is a guess");
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(new.join("a")).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
}
