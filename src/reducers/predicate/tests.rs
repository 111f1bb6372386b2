use std::sync::Arc;

use super::*;
use crate::engine::clock::{StepClock, Timestamp};
use crate::engine::commit::Content;
use crate::engine::error::ValueError;
use crate::engine::event::{CallStarted, Node, WriteFile, WriteMode};
use crate::engine::session::Session;
use crate::engine::session::sessions::NewSession;
use crate::engine::session::sessions::Sessions;
use crate::engine::session::snapshot::SnapshotPolicy;
use crate::engine::store::MemoryStore;

fn session() -> Session {
    let clock = Arc::new(StepClock::new(Timestamp(1000), 10));
    let sessions =
        Sessions::new(Arc::new(MemoryStore::default()), Registry::standard(), clock, SnapshotPolicy::default())
            .unwrap();
    let session = sessions.create(NewSession::named("p")).unwrap();
    let mut commit = session.commit();
    commit.push(&CallStarted { tool: "write_file".to_owned(), params: Value::Null }).unwrap();
    for (path, text) in [("/a.txt", "hello"), ("/dir/my file", "x")] {
        let (path, node) = (EntryPath::lookup(path).unwrap(), Node::file(text.as_bytes(), false));
        commit.push(&WriteFile { path, mode: WriteMode::Create, node }).unwrap();
        commit.keep(Content::of(text));
    }
    session.record(commit).unwrap();
    session
}

fn parse(text: &str) -> Result<Predicate, ValueError> {
    Predicate::parse(text, &Registry::standard())
}

#[test]
fn predicate_holds_or_not() {
    let state = session().state().unwrap();
    let yes = [
        "Usage.calls == 1",
        "Usage.calls > 0 and Usage.calls < 2",
        "Usage.calls >= 1 && Usage.calls <= 1.0",
        "Usage.events != 3 || false == true",
        "VirtualFileSystem./a.txt exists",
        "(VirtualFileSystem./a.txt exists)",
        "VirtualFileSystem./a.txt and not VirtualFileSystem./b.txt",
        "VirtualFileSystem[\"/dir/my file\"].size == 1",
        "VirtualFileSystem[\"a.txt\"].text",
        "VirtualFileSystem./dir exists and VirtualFileSystem[\"/dir\"].node == \"directory\"",
        "not VirtualFileSystem./b.txt exists",
        "!(VirtualFileSystem./b.txt exists)",
        "count(VirtualFileSystem) == 3",
        "count(Mounts) == 0",
        "VirtualFileSystem[\"/a.txt\"].content matches \"^[0-9a-f]{64}$\"",
        "VirtualFileSystem[\"/a.txt\"].node contains \"il\"",
        "Usage contains \"calls\"",
        "Usage[\"calls\"] == 1",
        "PodmanWorkspace.container == null",
        "Usage.nothing == null and not Usage.nothing exists",
        "Mounts[0] == null",
        "\"b\" > \"a\"",
        "not \"b\" > 1",
        "-1 < Usage.calls",
        "not Usage.calls",
        "Usage.calls == 2 or Usage.calls == 1 and Usage.calls == 1",
    ];
    for text in yes {
        let predicate = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert!(predicate.holds(&state).unwrap(), "{text}");
        assert_eq!(predicate.to_string(), text);
    }
    let no = ["Usage.calls > 10", "PodmanWorkspace.running", "Usage.calls == \"1\"", "Usage.nothing < 5", "null"];
    for text in no {
        assert!(!parse(text).unwrap().holds(&state).unwrap(), "{text}");
    }
    // By position: the third event creates the file.
    let at = |seq| session().state_at(seq).unwrap();
    let exists = parse("VirtualFileSystem./a.txt exists").unwrap();
    assert_eq!([0, 1, 2, 3].map(|seq| exists.holds(&at(seq)).unwrap()), [false, false, false, true]);
}

#[test]
fn predicate_error_names_its_position() {
    let told = |text: &str| parse(text).map(|_| ()).unwrap_err().to_string();
    let begin = |at: usize| format!("invalid predicate at character {at}: ");
    for (text, at, what) in [
        ("", 1, "a place such as"),
        ("Usage.calls >", 14, "a place such as"),
        ("Usage.calls = 1", 14, "write `==`"),
        (
            "Usagee.calls > 1",
            1,
            "unknown slice \"Usagee\" (did you mean Usage?); slices: VirtualFileSystem, ToolCalls, Usage",
        ),
        ("Usage.calls > 1x", 15, "invalid number"),
        ("Usage.calls > 1 Usage.calls", 17, "`and`, `or` or the end"),
        ("(Usage.calls > 1", 17, "expected `)`"),
        ("Usage. > 1", 7, "expected a name"),
        ("Usage[x]", 7, "expected an item number"),
        ("Usage[1", 8, "expected `]`"),
        ("\"abc", 5, "the closing quote"),
        ("\"a\\", 4, "the closing quote"),
        ("\"\\q\" == 1", 1, "invalid string"),
        ("Usage.a matches \"(\"", 17, "invalid regular expression"),
        ("Usage.a matches 1", 17, "a regular expression in quotes"),
        ("VirtualFileSystem.size", 19, "a path that begins with `/`"),
        ("VirtualFileSystem./ exists", 20, "`/` is no entry"),
        ("VirtualFileSystem[0]", 21, "files have paths"),
        ("VirtualFileSystem[\"../x\"]", 26, "`.` and `..`"),
        ("count(Usage", 12, "expected `)`"),
    ] {
        let told = told(text);
        assert!(
            told.starts_with(&format!("{}{what}", begin(at))) || told.contains(what) && told.starts_with(&begin(at)),
            "{text}: {told}"
        );
    }
    assert!(told(&"!".repeat(500)).contains("nested deeper"));
    assert!(told(&"(".repeat(500)).contains("nested deeper"));
    assert!(told(&"x".repeat(5000)).contains("more than 4096 characters"));
    assert!(
        parse(&"(".repeat(40).chars().chain("null".chars()).chain(")".repeat(40).chars()).collect::<String>()).is_ok()
    );
}

proptest::proptest! {
    #[test]
    fn predicate_of_any_text_never_panics(text in "[ -~]{0,40}|(Usage|VirtualFileSystem|count|not|and|or|[(){}\\[\\].\"/\\\\=<>!&| 0-9a-z]){0,20}") {
        if let Ok(predicate) = parse(&text) {
            drop(predicate.holds(&session().state().unwrap()));
        }
    }
}

#[test]
fn misspelled_field_is_refused_for_a_state() {
    let state = session().state().unwrap();
    for (text, meant) in [("Usage.call > 5", "calls"), ("not (true == Usage.evnts)", "events")] {
        let refused = Predicate::parse_for(text, &state).unwrap_err().to_string();
        assert!(refused.contains(&format!("did you mean {meant}?")), "{refused}");
    }
    for text in ["Usage.calls > 5", "Usage.nothing exists", "PodmanWorkspace.container == null", "Mounts[0] exists"] {
        assert!(Predicate::parse_for(text, &state).is_ok(), "{text}");
    }
}
