//! House rules as tests: layers, file sizes, forgotten files, unused fixtures.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const LINES_MAX: usize = 500;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files(below: &str, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![root().join(below)];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else if path.to_string_lossy().ends_with(ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn pure_rooms_read_no_clock_and_no_disk() {
    for room in ["src/reducers", "src/view", "src/mcp"] {
        for file in files(room, ".rs") {
            for impure in ["std::fs", "std::time::Instant", "SystemTime", "getrandom"] {
                assert!(!text(&file).contains(impure), "{} names {impure}", file.display());
            }
        }
    }
}

/// Cargo keeps the other layers: each is a package. Engine and reducers are one.
#[test]
fn the_engine_names_no_reducer() {
    for file in files("src/engine", ".rs").iter().filter(|file| !file.ends_with("lib.rs")) {
        assert!(!text(file).contains("crate::reducers"), "{} names a reducer", file.display());
    }
}

#[test]
fn sled_and_im_are_named_in_one_place_each() {
    for (name, place) in [("sled::", "src/engine/store/index"), ("im::", "src/engine/collections.rs")] {
        let place = root().join(place);
        for file in files("src", ".rs").iter().filter(|file| !file.starts_with(&place)) {
            let named = text(file).lines().any(|line| {
                line.split(|c: char| !(c.is_alphanumeric() || "_:".contains(c))).any(|word| word.starts_with(name))
            });
            assert!(!named, "{} names {name}", file.display());
        }
    }
}

#[test]
fn replay_holds_no_executor() {
    let replay = text(&root().join("src/engine/replay.rs"));
    for word in ["record(", "submit(", "ToolRunner", "Workspace"] {
        assert!(!replay.contains(word), "replay names {word}");
    }
}

/// The words of a text: what stands between anything but letters, digits and `_`.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
}

/// The debugger without its tests, which make histories to look at.
fn debugger() -> impl Iterator<Item = (PathBuf, String)> {
    let files = files("src/tui", ".rs").into_iter();
    files.filter(|file| !file.ends_with("fixture.rs") && !file.to_string_lossy().ends_with("tests.rs")).map(|file| {
        let text = text(&file);
        let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
        (file, text[..end].to_owned())
    })
}

#[test]
fn the_debugger_holds_no_executor() {
    for (file, text) in debugger() {
        for word in ["ToolRunner", "Forker", "Workspace", "WorkspaceSpec", "Probe", "NewSession", "ForkOptions"] {
            assert!(!words(&text).any(|named| named == word), "{} names {word}", file.display());
        }
        assert!(!text.contains("std::process"), "{} starts programs", file.display());
        // What can be recorded with is in one place, which only reads.
        let holds =
            words(&text).any(|word| matches!(word, "Session" | "Sessions")) && !file.ends_with("model/error.rs");
        assert_eq!(holds, file.ends_with("model/history.rs"), "{} names Session", file.display());
        let reading = "clone content event event_json find head id name session state state_at visit_between";
        for held in ["self.session.", "self.sessions."] {
            for (at, _) in text.match_indices(held) {
                let method = words(&text[at + held.len()..]).next().unwrap();
                assert!(reading.split(' ').any(|known| known == method), "{} has {held}{method}", file.display());
            }
        }
    }
}

#[test]
fn tui_and_terminal_name_nothing_of_cli() {
    for folder in ["src/tui", "src/terminal"] {
        for file in files(folder, ".rs") {
            assert!(!text(&file).contains("crate::cli"), "{} names the commands", file.display());
        }
    }
    for file in files("src/terminal", ".rs") {
        assert!(!text(&file).contains("crate::tui"), "{} names the debugger", file.display());
    }
    for file in files("src/cli", ".rs").iter().filter(|file| !file.starts_with(root().join("src/cli/replay"))) {
        assert!(!text(file).contains("crate::tui"), "{} names the debugger", file.display());
    }
}

#[test]
fn no_file_is_too_long() {
    for folder in ["src", "runner", "tests", "examples", "benches"] {
        for file in files(folder, ".rs") {
            let lines = text(&file).lines().count();
            assert!(lines <= LINES_MAX, "{} has {lines} lines", file.display());
        }
    }
}

/// Lines of a function, from its name to its closing brace.
const FUNCTION_MAX: usize = 60;

#[test]
fn no_function_is_too_long() {
    let is_function = |line: &str| line.trim_start().starts_with("fn ") || line.contains(" fn ");
    let mut long = Vec::new();
    for folder in ["src", "runner", "tests", "examples", "benches"] {
        for file in files(folder, ".rs") {
            let text = text(&file);
            let lines: Vec<&str> = text.lines().collect();
            let begins =
                |line: &&str| is_function(line) && !line.trim_start().starts_with("//") && line.ends_with(['{', '(']);
            for (at, line) in lines.iter().enumerate().filter(|(_, line)| begins(line)) {
                let end = format!("{}}}", &line[..line.len() - line.trim_start().len()]);
                let length = lines[at..].iter().position(|line| *line == end).map_or(0, |last| last + 1);
                if length > FUNCTION_MAX {
                    long.push(format!("{}:{} has {length} lines", file.display(), at + 1));
                }
            }
        }
    }
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn no_file_is_forgotten() {
    for folder in ["src", "runner", "tests/it"] {
        for file in files(folder, ".rs") {
            let stem = file.file_stem().unwrap().to_str().unwrap();
            let directory = file.parent().unwrap();
            if matches!(stem, "main" | "lib" | "build") {
                continue;
            }
            let (name, parents) = match stem {
                "mod" => (directory.file_name().unwrap().to_str().unwrap(), directory.parent().unwrap()),
                _ => (stem, directory),
            };
            // A package declares its rooms itself: the engine's also declares the reducers.
            let roots = [directory.join("lib.rs"), root().join("src/engine/lib.rs")];
            let above = ["mod.rs", "main.rs", "lib.rs"].map(|parent| parents.join(parent));
            let declared = above.into_iter().chain(roots).any(|parent| {
                parent.exists()
                    && text(&parent).lines().any(|line| {
                        line.contains(&format!("mod {name};")) || line.contains(&format!("path = \"{name}.rs\""))
                    })
            });
            assert!(declared, "{} is in no module", file.display());
        }
    }
}

#[test]
fn every_fixture_is_read_by_a_test_and_explained() {
    let tests: String = files("tests", ".rs").iter().map(|file| text(file)).collect();
    let readme = text(&root().join("fixtures/README.md"));
    let folders: BTreeSet<_> = std::fs::read_dir(root().join("fixtures"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    for folder in folders {
        assert!(tests.contains(&format!("fixtures/{folder}")), "no test reads fixtures/{folder}");
        assert!(readme.contains(&folder), "fixtures/README.md says nothing of {folder}");
    }
}

/// The documents for people.
fn documents() -> Vec<PathBuf> {
    let others = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "fixtures/README.md"];
    let folders = ["docs", "deploy"].into_iter().flat_map(|folder| files(folder, ".md"));
    folders.chain(others.map(|name| root().join(name))).collect()
}

#[test]
fn documents_name_tests_that_exist() {
    for (document, least) in [("ARCHITECTURE.md", 20), ("docs/requirements.md", 30)] {
        let written = text(&root().join(document));
        let named: Vec<_> = written.split('`').filter_map(|code| code.split_once("::")).collect();
        let named: Vec<_> = named.into_iter().filter(|(file, _)| file.ends_with(".rs")).collect();
        assert!(named.len() >= least, "only {} tests are named in {document}", named.len());
        for (file, test) in named {
            let path = root().join(file);
            let exists = path.exists() && text(&path).contains(&format!("fn {test}("));
            assert!(exists, "{document} names {file}::{test}, which does not exist");
        }
    }
}

/// The anchor of a heading, as hosts of repositories make it.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

#[test]
fn links_in_documents_lead_somewhere() {
    for document in documents() {
        let written = text(&document);
        for link in written.split("](").skip(1) {
            let target = link.split(')').next().unwrap();
            if target.contains("://") {
                continue;
            }
            let (path, heading) = target.split_once('#').unwrap_or((target, ""));
            let file = if path.is_empty() { document.clone() } else { document.parent().unwrap().join(path) };
            assert!(file.exists(), "{} links to {target}, which is not there", document.display());
            let has = |line: &str| line.starts_with('#') && anchor(line.trim_start_matches('#').trim()) == heading;
            let found = heading.is_empty() || text(&file).lines().any(has);
            assert!(found, "{} links to {target}, and there is no such heading", document.display());
        }
    }
}

#[test]
fn first_documents_stay_short() {
    for (name, most) in [("README.md", 120), ("ARCHITECTURE.md", 200)] {
        let lines = text(&root().join(name)).lines().count();
        assert!(lines <= most, "{name} has {lines} lines, more than {most}");
    }
}

/// The files that may read the words of an error: those of sled and of the container engine, which have no variants
/// for them.
const READS_WORDS: [&str; 2] = ["src/engine/store/index/mod.rs", "src/backends/podman/engine/podman.rs"];

/// What comes before a comparison of texts in a line that lets the words of an error decide.
const ERROR_TEXTS: [&str; 8] =
    ["message", "reason", "detail", "hint", "error.to_string()", "why", "failure.to_string()", "problem.to_string()"];

/// Whether a line of code lets the words of an error decide.
fn reads_words(line: &str) -> bool {
    let compares = [".contains(", ".starts_with(", ".ends_with(", ".strip_prefix(", ".strip_suffix(", " == \""];
    compares.iter().flat_map(|compare| line.match_indices(compare)).any(|(at, _)| {
        let before = &line[..at];
        let starts = |text: &str| {
            let rest = before.strip_suffix(text)?;
            Some(!rest.ends_with(|c: char| c.is_alphanumeric() || c == '_'))
        };
        ERROR_TEXTS.iter().any(|text| starts(text) == Some(true))
    })
}

#[test]
fn no_error_text_decides() {
    assert!(reads_words("Err(E { reason, .. }) if reason.contains(\"304\") => {}"));
    assert!(reads_words("if end.message.starts_with(TOO_LARGE) {") && reads_words("error.to_string().ends_with(x)"));
    assert!(!reads_words("line.contains(\"reason\")") && !reads_words("commit_message_of.contains(x)"));
    for file in files("src", ".rs") {
        let short = file.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
        if READS_WORDS.contains(&short.as_str()) || short.contains("/tests") || short.contains("compliance") {
            continue;
        }
        let text = text(&file);
        let code = text.find("#[cfg(test)]\nmod tests {").map_or(&text[..], |end| &text[..end]);
        for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
            assert!(!reads_words(line), "{short} lets the words of an error decide: {}", line.trim());
        }
    }
}
