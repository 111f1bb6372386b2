//! Samples of real agents' hooks, replayed. What their tools did is done here in another way; the hooks are the same.

use std::path::Path;

use foldspace::reducers::AgentRuns;
use serde_json::Value;

use super::Repository;

const FILES: [(&str, &str); 4] = [
    ("calc.py", "def add(a, b):\n    return a - b\n"),
    ("a.txt", "one\n"),
    ("b.txt", "two\n"),
    (".gitignore", "*.log\nignored/\n"),
];

/// Returns the tool, its parameters and the id of a call, in whichever spelling.
fn call(payload: &Value) -> (String, Value) {
    let input = &payload["input"];
    let tool = [&payload["tool_name"], &payload["toolName"], &input["tool"]].into_iter().find_map(Value::as_str);
    let params = [&payload["tool_input"], &payload["toolArgs"], &payload["output"]["args"], &input["args"]];
    let params = params.into_iter().find(|params| params.is_object()).cloned().unwrap_or_default();
    (tool.unwrap_or_default().to_owned(), params)
}

/// Does what the tool of a call might have done.
fn act(repository: &Repository, payload: &Value, number: usize) {
    let (tool, params) = call(payload);
    let text = |names: &[&str]| names.iter().find_map(|name| params[*name].as_str()).map(str::to_owned);
    let path = text(&["file_path", "filePath", "path"]);
    match (&*tool.to_lowercase(), path) {
        ("write" | "write_file" | "create", Some(path)) => {
            std::fs::write(path, text(&["content", "file_text"]).unwrap_or_default()).unwrap();
        }
        ("edit" | "replace", Some(path)) if Path::new(&path).is_file() => {
            std::fs::write(&path, format!("{}# {number}\n", std::fs::read_to_string(&path).unwrap())).unwrap();
        }
        ("bash" | "run_shell_command" | "exec", _) => {
            repository.write(&format!("made/{number}.txt"), &format!("{number}\n"));
            repository.write(&format!("ignored/{number}.txt"), "not recorded");
            repository.write("a.txt", &format!("changed by {number}\n"));
            if number.is_multiple_of(3) && repository.has("b.txt") {
                repository.remove("b.txt");
            }
        }
        _ => {}
    }
}

/// Replays a file of samples, and returns the runs of the session then.
fn replay(agent: &str, file: &str) -> (Repository, AgentRuns) {
    let repository = Repository::with(&FILES);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/hooks").join(file);
    let root = repository.root().to_string_lossy().into_owned();
    let samples = std::fs::read_to_string(path).unwrap().replace("{PROJ}", &root);
    for (number, line) in samples.lines().enumerate() {
        let sample: Value = serde_json::from_str(line).unwrap();
        let (event, payload) = (sample["event"].as_str(), &sample["payload"]);
        let named = event.or(payload["hook"].as_str()).unwrap_or_default().to_lowercase();
        let is_end = named.starts_with("posttool") || named.starts_with("aftertool") || named.ends_with(".after");
        if is_end && !named.contains("batch") {
            act(&repository, payload, number);
        }
        let words: Vec<&str> = std::iter::once(agent).chain(event).collect();
        repository.hook(&words, payload);
        if is_end {
            repository.check(&format!("{file}:{}", number + 1));
        }
    }
    let runs = repository.session().state().unwrap().slice::<AgentRuns>().cloned().unwrap_or_default();
    assert!(!repository.program.path("data/hooks.log").exists(), "no hook has failed");
    (repository, runs)
}

/// Replays a file, undoes all of it, and compares with the repository before.
fn check(agent: &str, file: &str) -> AgentRuns {
    let (repository, runs) = replay(agent, file);
    assert!(!runs.runs.is_empty() && runs.open.is_empty(), "{file}: {runs:?}");
    let drift = repository.events("DriftFound");
    assert_eq!(drift.len(), 1, "{file}: only the baseline is external: {drift:?}");
    let undone = repository.program.run(&["undo", "repo", "--to", "1", "--yes"]);
    assert!(undone.ends_with("[exit 0]"), "{file}: {undone}");
    assert_eq!(repository.git(&["status", "--porcelain"]), "", "{file}: all is as it was");
    repository.check(&format!("{file}, undone"));
    let verified = repository.program.run(&["verify", "repo"]);
    assert!(verified.contains("all is as the events say"), "{file}: {verified}");
    runs
}

#[test]
fn claude_samples_are_recorded_call_by_call() {
    let runs = check("claude", "claude.jsonl");
    let agents: std::collections::BTreeSet<_> =
        runs.ended.iter().map(|ended| ended.observed.agent.to_string()).collect();
    assert_eq!(agents.len(), 3, "the agent and two subagents: {agents:?}");
}

#[test]
fn codex_samples_are_recorded_call_by_call() {
    check("codex", "codex.jsonl");
    check("codex", "codex-codemode.jsonl");
    check("codex", "codex-long-running.jsonl");
}

#[test]
fn gemini_samples_are_recorded_call_by_call() {
    check("gemini", "gemini.jsonl");
}

#[test]
fn copilot_samples_are_recorded_call_by_call() {
    check("copilot", "copilot.jsonl");
    check("copilot", "copilot-claude-spelling.jsonl");
}

#[test]
fn opencode_samples_are_recorded_call_by_call() {
    check("opencode", "opencode.jsonl");
}
