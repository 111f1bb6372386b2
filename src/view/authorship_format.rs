//! Public formats for the lines of a commit that agents wrote.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::authorship::{AttributedFile, Authorship};
use super::observed::RunMention;
use crate::engine::id::Digest;

/// The version of the Agent Trace format.
const TRACE_VERSION: &str = "0.1.0";
/// The version of git-ai's note format.
const NOTE_VERSION: &str = "authorship/3.0.0";
/// Digits of an id in a note.
const NOTE_DIGITS: usize = 14;

/// Returns the record of Agent Trace 0.1.0.
pub fn agent_trace(authorship: &Authorship) -> Value {
    let Authorship { session, time, commit, files, .. } = authorship;
    let conversation = |mentions: &[(u64, &RunMention)]| {
        let Some((_, first)) = mentions.first() else { return Value::Null };
        let mut contributor = Map::from_iter([("type".to_owned(), json!("ai"))]);
        contributor.extend(first.model.as_ref().map(|model| ("model_id".to_owned(), json!(model))));
        let lines: Vec<u64> = mentions.iter().map(|(line, _)| *line).collect();
        let range = |(start, end): (u64, u64)| json!({ "start_line": start, "end_line": end });
        let ranges: Vec<Value> = ranges(&lines).into_iter().map(range).collect();
        let url = format!("foldspace://{session}/runs/{}", in_url(&first.run));
        json!({ "url": url, "contributor": contributor, "ranges": ranges })
    };
    let file = |file: &AttributedFile| {
        let conversations: Vec<Value> =
            grouped(file, |by| by.run.clone()).values().map(|mentions| conversation(mentions)).collect();
        json!({ "path": file.path.to_string(), "conversations": conversations })
    };
    let files: Vec<Value> = files.iter().map(file).collect();
    json!({
        "version": TRACE_VERSION,
        "id": uuid(&format!("{session} {commit} {time}")),
        "timestamp": time.to_string(),
        "vcs": { "type": "git", "revision": commit },
        "tool": { "name": "foldspace", "version": env!("CARGO_PKG_VERSION") },
        "files": files,
    })
}

/// Returns the note of git-ai's standard 3.0.0.
pub fn git_ai_note(authorship: &Authorship) -> String {
    let (mut note, mut sessions) = (String::new(), Map::new());
    for file in &authorship.files {
        let path = file.path.to_string();
        let path = if path.contains(char::is_whitespace) { format!("\"{path}\"") } else { path };
        // Writing to a string does not fail.
        let _ = writeln!(note, "{path}");
        for mentions in grouped(file, |by| by.call).values() {
            let Some((_, first)) = mentions.first() else { continue };
            let (session, lines) = (session_key(first), mentions.iter().map(|(line, _)| *line).collect::<Vec<_>>());
            let trace = key("t", &format!("{} {}", authorship.session, first.call));
            let shown =
                |(start, end): (u64, u64)| if start == end { start.to_string() } else { format!("{start}-{end}") };
            let lines: Vec<String> = ranges(&lines).into_iter().map(shown).collect();
            let _ = writeln!(note, "  {session}::{trace} {}", lines.join(","));
            let model = first.model.as_deref().unwrap_or("unknown");
            let agent = json!({ "tool": tool(first), "id": first.run, "model": model });
            sessions.insert(session, json!({ "agent_id": agent }));
        }
    }
    let told = json!({
        "schema_version": NOTE_VERSION,
        "base_commit_sha": authorship.commit,
        "prompts": {},
        "sessions": sessions,
    });
    note.push_str("---\n");
    note.push_str(&serde_json::to_string_pretty(&told).unwrap_or_default());
    note.push('\n');
    note
}

/// Returns the agent of a call without its subagent.
fn tool(by: &RunMention) -> &str {
    by.agent.split('/').next().unwrap_or_default()
}

fn session_key(by: &RunMention) -> String {
    key("s", &format!("{}:{}", tool(by), by.run))
}

fn key(prefix: &str, of: &str) -> String {
    format!("{prefix}_{}", &Digest::of(of.as_bytes()).to_string()[..NOTE_DIGITS])
}

fn grouped<K: Ord>(file: &AttributedFile, of: impl Fn(&RunMention) -> K) -> BTreeMap<K, Vec<(u64, &RunMention)>> {
    let mut groups: BTreeMap<K, Vec<(u64, &RunMention)>> = BTreeMap::new();
    for (line, by) in &file.lines {
        groups.entry(of(by)).or_default().push((*line, by));
    }
    groups
}

/// Joins sorted line numbers into inclusive ranges.
fn ranges(lines: &[u64]) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for line in lines {
        match ranges.last_mut().filter(|(_, end)| end + 1 == *line) {
            Some((_, end)) => *end = *line,
            None => ranges.push((*line, *line)),
        }
    }
    ranges
}

/// Returns a deterministic UUID (version 8) of a text.
fn uuid(text: &str) -> String {
    let digest = Digest::of(text.as_bytes()).to_string();
    format!("{}-{}-8{}-8{}-{}", &digest[..8], &digest[8..12], &digest[12..15], &digest[15..18], &digest[18..30])
}

fn in_url(id: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    id.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_join_neighbours() {
        assert_eq!(ranges(&[1, 2, 3, 5, 7, 8]), [(1, 3), (5, 5), (7, 8)]);
        assert_eq!(ranges(&[]), []);
    }

    #[test]
    fn uuid_has_version_and_variant() {
        let made = uuid("a");
        assert_eq!((made.len(), made.as_bytes()[14], made.as_bytes()[19]), (36, b'8', b'8'));
        assert_ne!(made, uuid("b"));
        assert_eq!(in_url("a/b c"), "a%2Fb%20c");
    }
}
