//! Client names, adapted for sessions, agents and display.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use crate::engine::commit::MAX_AGENT_BYTES;
use crate::engine::id::SessionId;
use crate::engine::lock::lock;
use crate::engine::session::error::MAX_NAME_CHARS;
use crate::view::misleads;

/// Bytes reserved for a name's number.
const ROOM: usize = 8;

pub(super) fn for_session(client: &str) -> String {
    let fits = |c: char| if c.is_ascii_alphanumeric() || "._".contains(c) { c.to_ascii_lowercase() } else { '-' };
    let mut name = String::new();
    for c in client.chars().take(MAX_NAME_CHARS).map(fits) {
        if c != '-' || !name.ends_with('-') {
            name.push(c);
        }
    }
    let name = name.trim_start_matches(|c: char| !c.is_ascii_alphanumeric()).trim_end_matches(['-', '.', '_']);
    let name: String = name.chars().take(MAX_NAME_CHARS - ROOM).collect();
    if name.is_empty() { "mcp".to_owned() } else { name }
}

pub(super) fn for_agent(client: &str) -> String {
    let mut name = shown(client, MAX_AGENT_BYTES).replace('\n', " ");
    while name.len() > MAX_AGENT_BYTES - ROOM {
        name.pop();
    }
    if name.trim().is_empty() { "mcp".to_owned() } else { name }
}

/// Yields the name, then the name with the suffixes -2, -3, ...
pub(super) fn numbered(name: &str) -> impl Iterator<Item = String> {
    std::iter::once(name.to_owned()).chain((2_u64..).map(move |number| format!("{name}-{number}")))
}

/// Cuts a text and replaces misleading characters.
pub(super) fn shown(text: &str, chars: usize) -> String {
    let fits = |c: char| if c != '\n' && misleads(c) { '\u{fffd}' } else { c };
    let mut cut: String = text.chars().take(chars).map(fits).collect();
    if text.chars().nth(chars).is_some() {
        cut.push('…');
    }
    cut
}

#[derive(Default)]
pub(super) struct Agents(Mutex<BTreeMap<SessionId, BTreeSet<String>>>);

impl Agents {
    /// Reserves the name, or its first unused numbered form, until the guard is dropped.
    pub(super) fn take(self: &Arc<Self>, session: SessionId, client: &str) -> AgentName {
        let mut taken = lock(&self.0);
        let names = taken.entry(session).or_default();
        let free = numbered(&for_agent(client)).find(|name| !names.contains(name)).unwrap_or_default();
        names.insert(free.clone());
        AgentName { agents: Arc::clone(self), session, name: free }
    }
}

pub(super) struct AgentName {
    agents: Arc<Agents>,
    session: SessionId,
    pub(super) name: String,
}

impl Drop for AgentName {
    fn drop(&mut self) {
        let mut taken = lock(&self.agents.0);
        if let Some(names) = taken.get_mut(&self.session) {
            names.remove(&self.name);
            if names.is_empty() {
                taken.remove(&self.session);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_name_gives_session_name() {
        let names = ["Claude Code", "mcp", "  ", "../x", "Ünïcode (dev)", "a--b__"].map(for_session);
        assert_eq!(names, ["claude-code", "mcp", "mcp", "x", "n-code-dev", "a-b"]);
        assert_eq!(for_session(&"n".repeat(1000)).len(), MAX_NAME_CHARS - ROOM);
    }

    #[test]
    fn client_name_has_no_hidden_characters() {
        assert_eq!(
            shown("a\u{61c}\u{ad}\u{fff9}\u{e0041}\u{202e}\tb\nc", 80),
            format!("a{}b\nc", "\u{fffd}".repeat(6))
        );
        assert_eq!(shown("abc", 2), "ab…");
    }

    #[test]
    fn agent_names_are_unique_in_session() {
        let (agents, session) = (Arc::new(Agents::default()), SessionId::from_bytes([1; 16]));
        let first = agents.take(session, "cursor");
        let second = agents.take(session, "cursor");
        assert_eq!((&*first.name, &*second.name), ("cursor", "cursor-2"));
        assert_eq!(agents.take(SessionId::from_bytes([2; 16]), "cursor").name, "cursor");
        drop(first);
        assert_eq!(agents.take(session, "cursor").name, "cursor");
        assert_eq!(agents.take(session, "\u{1b}[31m").name, "\u{fffd}[31m");
        assert!(agents.take(session, &"é".repeat(10_000)).name.len() <= MAX_AGENT_BYTES);
    }
}
