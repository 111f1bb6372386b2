//! The session tree of a session.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::ControlFlow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Operation, OperationContext, OperationError, OperationRoute, reading};
use crate::engine::event::{ChildMerged, ChildStarted, MergeConflicted, Origin, SessionStarted};
use crate::engine::id::{Seq, SessionId};
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::engine::store::SessionEntry;

/// Limit for the sessions of a tree.
const SESSIONS: usize = 2000;
/// Limit for the events, over all sessions, that are searched for merges.
const EVENTS: u64 = 2_000_000;

/// Shows a session's whole tree: its oldest existing ancestor and all sessions that descend from it, with the merges of
/// children.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShowFamily {}

/// A tree of sessions.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "Family")]
pub struct FamilyDocument {
    /// The root session of the tree.
    #[schemars(with = "String")]
    pub root: SessionId,
    /// At most 2,000 sessions, each after its parent, and each generation in order of creation.
    pub sessions: Vec<FamilyMember>,
    /// True if there are more sessions, or more events to search for merges.
    pub more: bool,
}

/// A session of a tree.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct FamilyMember {
    /// Its identity: 32 hexadecimal digits.
    #[schemars(with = "String")]
    pub session: SessionId,
    /// Its name.
    pub name: String,
    /// Its parent, which may have been removed; null for a root.
    #[schemars(with = "Option<String>")]
    pub parent: Option<SessionId>,
    /// The parent's position where it began.
    pub at: Option<Seq>,
    /// `fork`, with the parent's history, or `full`, without.
    pub isolation: Option<&'static str>,
    /// The agent that works in it, or else created it; empty if unnamed.
    pub agent: String,
    /// The position of its last event.
    pub head: Seq,
    /// The number of calls in its history; null if it can't be read.
    pub calls: Option<u64>,
    /// The merges of its children into it, in order.
    pub merges: Vec<FamilyMerge>,
}

/// An attempt to merge a child.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct FamilyMerge {
    /// The position of its event.
    pub at: Seq,
    /// The child.
    #[schemars(with = "String")]
    pub child: SessionId,
    /// The child's last position that was merged.
    pub child_at: Seq,
    /// `merged`, or `conflicted`, if nothing was written.
    pub outcome: &'static str,
    /// The number of conflicts, including conflicts with a chosen side.
    pub conflicts: usize,
}

impl Operation for ShowFamily {
    const NAME: &'static str = "show_family";
    const ROUTE: Option<OperationRoute> = OperationRoute::get("sessions", "/v1/sessions/{session}/family");
    type Output = FamilyDocument;

    async fn run(self, context: &OperationContext<'_>) -> Result<FamilyDocument, OperationError> {
        let (session, sessions) = (context.session().await?, context.hub.sessions().clone());
        reading(move || {
            let known = KnownSessions::of(sessions.list()?);
            let root = known.root(session.id());
            let (members, mut more) = known.below(root);
            let (mut found, mut agents, mut left) = (Vec::new(), BTreeMap::new(), EVENTS);
            for id in members {
                let Some((entry, origin)) = known.entries.get(&id) else { continue };
                // Removed since it was listed.
                let Ok(session) = sessions.session(id) else { continue };
                let first = known.children.get(&id).and_then(|children| children.iter().map(|(at, _)| *at).min());
                let merges = match first {
                    None => Vec::new(),
                    Some(first) => merges(&session, first.max(1), &mut agents, &mut left)?,
                };
                found.push(FamilyMember {
                    session: id,
                    name: entry.name(),
                    parent: origin.as_ref().map(|origin| origin.parent),
                    at: origin.as_ref().map(|origin| origin.at),
                    isolation: origin.as_ref().map(|origin| origin.isolation.name()),
                    agent: agents.remove(&id).unwrap_or_else(|| entry.origin.agent.to_string()),
                    head: entry.head,
                    calls: entry.calls,
                    merges,
                });
            }
            more |= left == 0;
            Ok(FamilyDocument { root, sessions: found, more })
        })
        .await
    }
}

/// The sessions of a store, with their origins and children.
pub struct KnownSessions {
    /// Each session, with its origin if it is a child.
    pub entries: BTreeMap<SessionId, (SessionEntry, Option<Origin>)>,
    /// The children of each session, in the order of the list, with the positions where they began.
    pub children: BTreeMap<SessionId, Vec<(Seq, SessionId)>>,
}

impl KnownSessions {
    /// Reads the origins of listed sessions.
    pub fn of(entries: Vec<SessionEntry>) -> Self {
        let mut known = Self { entries: BTreeMap::new(), children: BTreeMap::new() };
        for entry in entries {
            let started = entry.origin.typed::<SessionStarted>().and_then(Result::ok);
            let origin = started.and_then(|started| started.event.origin);
            if let Some(origin) = &origin {
                known.children.entry(origin.parent).or_default().push((origin.at, entry.id));
            }
            known.entries.insert(entry.id, (entry, origin));
        }
        known
    }

    /// Returns the oldest existing ancestor. Stops at cycles, which a forged file may contain.
    fn root(&self, of: SessionId) -> SessionId {
        let (mut root, mut seen) = (of, BTreeSet::from([of]));
        while let Some((_, Some(origin))) = self.entries.get(&root)
            && self.entries.contains_key(&origin.parent)
            && seen.insert(origin.parent)
        {
            root = origin.parent;
        }
        root
    }

    fn below(&self, root: SessionId) -> (Vec<SessionId>, bool) {
        let (mut found, mut waiting, mut seen) = (Vec::new(), VecDeque::from([root]), BTreeSet::new());
        while let Some(id) = waiting.pop_front() {
            if !seen.insert(id) {
                continue;
            }
            if found.len() == SESSIONS {
                return (found, true);
            }
            found.push(id);
            waiting.extend(self.children.get(&id).into_iter().flatten().map(|(_, child)| *child));
        }
        (found, false)
    }
}

/// Reads the merges into a session, starting at a position, and the agents of its children. `left` is the remaining
/// budget of events.
fn merges(
    session: &Session,
    from: Seq,
    agents: &mut BTreeMap<SessionId, String>,
    left: &mut u64,
) -> Result<Vec<FamilyMerge>, SessionError> {
    let mut found = Vec::new();
    session.visit(from, &mut |event| {
        if *left == 0 {
            return ControlFlow::Break(());
        }
        *left -= 1;
        let merge =
            |child, child_at, outcome, conflicts| FamilyMerge { at: event.seq, child, child_at, outcome, conflicts };
        if let Some(Ok(merged)) = event.typed::<ChildMerged>() {
            let merged = merged.event;
            found.push(merge(merged.child, merged.child_at, "merged", merged.conflicts.len()));
        }
        if let Some(Ok(started)) = event.typed::<ChildStarted>() {
            let ChildStarted { child, agent, .. } = started.event;
            agents.extend((!agent.is_empty()).then_some((child, agent)));
        }
        if let Some(Ok(conflicted)) = event.typed::<MergeConflicted>() {
            let conflicted = conflicted.event;
            found.push(merge(conflicted.child, conflicted.child_at, "conflicted", conflicted.conflicts.len()));
        }
        ControlFlow::Continue(())
    })?;
    Ok(found)
}
