//! Children of a session, with the limits and the usage of shared children.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{decode_blocks, encode_blocks};
use crate::engine::collections::{OrdMap, Vector};
use crate::engine::event::{
    CallFinished, CallStarted, ChildLimits, ChildStarted, CodecError, Common, Event, Isolation, SessionStarted,
    WriteFile,
};
use crate::engine::reducer::Folding;
use crate::engine::{EventRef, OnRewind, Registry, Seq, SessionId, Slice, SliceError, ValueError};

/// Children that a session began. A rewind keeps them; a fork starts without its parent's children.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Children {
    children: Vector<Child>,
    /// The limited children that share the session, by agent: the latest one of each.
    shared: OrdMap<String, SharedChild>,
}

/// A child, as its parent knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Child {
    /// The child; with shared isolation the session itself.
    pub id: SessionId,
    /// Name of the child when it began.
    pub name: String,
    /// The last position of this history that is in its past.
    pub at: Seq,
    /// Isolation of the child.
    pub isolation: Isolation,
    /// Name of its agent; may be empty.
    pub agent: String,
    /// The event that recorded it.
    pub seq: Seq,
}

/// A limited child that shares the session, with its usage since it began.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedChild {
    /// Limits of the child.
    pub limits: ChildLimits,
    /// The event that recorded it.
    pub seq: Seq,
    /// The agent that began it, if that is such a child itself: this child's usage counts for both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under: Option<String>,
    /// Calls that it began.
    pub calls: u64,
    /// The call that used up its calls; `None` while some are left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_call: Option<Seq>,
    /// Microseconds that its calls have taken.
    pub call_micros: u64,
    /// Bytes of the files that it wrote.
    pub bytes_written: u64,
}

impl SharedChild {
    fn begin_call(&mut self, call: Seq) {
        self.calls += 1;
        if self.limits.calls == Some(self.calls) {
            self.last_call = Some(call);
        }
    }
}

impl Children {
    /// Iterates over the children, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Child> {
        self.children.iter()
    }

    /// Iterates over the limited child with an agent's name, the child that began it, and so on. All their limits hold.
    pub fn shared<'a>(&'a self, agent: &'a str) -> impl Iterator<Item = (&'a str, &'a SharedChild)> {
        let found = |agent: &'a str| self.shared.get(agent).map(|child| (agent, child));
        std::iter::successors(found(agent), move |(_, child)| {
            let above = found(child.under.as_deref()?);
            // A child that has begun again since then counts as a different child.
            above.filter(|(_, above)| above.seq < child.seq)
        })
    }

    fn begin(&mut self, started: ChildStarted, by: &str, seq: Seq) {
        let ChildStarted { child, name, at, isolation, agent, limits } = started;
        if isolation == Isolation::Shared && !agent.is_empty() {
            let under = (by != agent && self.shared.contains_key(by)).then(|| by.to_owned());
            let last_call = (limits.calls == Some(0)).then_some(0);
            match limits.is_unlimited() && under.is_none() {
                true => drop(self.shared.remove(&agent)),
                false => {
                    let begun = SharedChild { limits, seq, under, last_call, ..SharedChild::default() };
                    self.shared.insert(agent.clone(), begun);
                }
            }
        }
        self.children.push_back(Child { id: child, name, at, isolation, agent, seq });
    }

    /// Counts an agent's action for it and for the children above it.
    fn count(&mut self, agent: &str, add: impl Fn(&mut SharedChild)) {
        let names: Vec<String> = self.shared(agent).map(|(name, _)| name.to_owned()).collect();
        for name in names {
            self.shared.entry(name).and_modify(&add);
        }
    }
}

impl Slice for Children {
    const NAME: &'static str = "Children";
    const ON_REWIND: OnRewind = OnRewind::Keep;

    fn encode(&self) -> Result<Vec<Vec<u8>>, SliceError> {
        let wrong = |error| SliceError::new(Self::NAME, error);
        let mut blocks = vec![serde_json::to_vec(&self.shared).map_err(wrong)?];
        blocks.extend(encode_blocks(Self::NAME, self.children.iter())?);
        Ok(blocks)
    }

    fn decode(blocks: &[Bytes]) -> Result<Self, SliceError> {
        let wrong = |error| SliceError::new(Self::NAME, error);
        let (first, blocks) = blocks.split_first().ok_or_else(|| SliceError::new(Self::NAME, "it has no blocks"))?;
        let shared = serde_json::from_slice(first).map_err(wrong)?;
        let children = decode_blocks::<Child>(Self::NAME, blocks)?.into_iter().collect();
        Ok(Self { children, shared })
    }
}

struct ChildrenFold(Children);

impl Folding<Children> for ChildrenFold {
    fn apply(&mut self, event: &EventRef<'_>) -> Result<(), CodecError> {
        let children = &mut self.0;
        match event.common {
            Common::Other if event.kind == ChildStarted::KIND => {
                children.begin(ChildStarted::decode(event.version, event.payload)?, event.agent, event.seq);
            }
            Common::Other if event.kind == SessionStarted::KIND => {
                // A child does not have its parent's children.
                if SessionStarted::decode(event.version, event.payload)?.begins_child() {
                    *children = Children::default();
                }
            }
            _ if children.shared.is_empty() => {}
            Common::CallStarted => children.count(event.agent, |child| child.begin_call(event.seq)),
            Common::CallFinished => {
                let micros = event.finished()?.micros;
                children.count(event.agent, |child| child.call_micros = child.call_micros.saturating_add(micros));
            }
            Common::WriteFile => {
                let size = event.written()?.size();
                children.count(event.agent, |child| child.bytes_written = child.bytes_written.saturating_add(size));
            }
            Common::DeleteEntry | Common::Other => {}
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Children {
        self.0
    }
}

pub(super) fn register(registry: Registry) -> Result<Registry, ValueError> {
    let kinds = [ChildStarted::KIND, SessionStarted::KIND, CallStarted::KIND, CallFinished::KIND, WriteFile::KIND];
    let open = |children: Children, _| Box::new(ChildrenFold(children)) as Box<dyn Folding<Children>>;
    let registry = registry.folded_slice::<Children>(Some(&kinds), open)?;
    Ok(registry.ignoring(|children: &Children, event| children.shared.is_empty() && event.common != Common::Other))
}

#[cfg(test)]
mod tests {
    use super::super::BLOCK;
    use super::*;
    use crate::engine::event::Origin;
    use crate::engine::recorded::ValidatedPayload;

    /// Folds an event by an agent, encoded as in a journal.
    fn told<E: Event>(slice: Children, seq: Seq, agent: &str, event: &E) -> Children {
        let mut payload = Vec::new();
        event.encode(&mut payload).unwrap();
        let mut fold = Box::new(ChildrenFold(slice));
        let event = EventRef {
            session: SessionId::from_bytes([1; 16]),
            seq,
            time: crate::engine::clock::Timestamp(1),
            call: None,
            agent,
            kind: E::KIND,
            version: E::VERSION,
            payload: &payload,
            declared: None,
            common: Common::of(E::KIND.as_bytes()),
            validated: ValidatedPayload::No,
        };
        fold.apply(&event).unwrap();
        fold.finish()
    }

    fn begin(slice: Children, by: &str, agent: &str, limits: ChildLimits, seq: Seq) -> Children {
        let (child, name, isolation) = (SessionId::from_bytes([2; 16]), "child".to_owned(), Isolation::Shared);
        let started = ChildStarted { child, name, at: seq - 1, isolation, agent: agent.to_owned(), limits };
        told(slice, seq, by, &started)
    }

    fn call(slice: Children, agent: &str, seq: Seq) -> Children {
        told(slice, seq, agent, &CallStarted { tool: "ls".to_owned(), params: serde_json::Value::Null })
    }

    fn calls(calls: u64) -> ChildLimits {
        ChildLimits { calls: Some(calls), ..ChildLimits::default() }
    }

    fn known<'a>(slice: &'a Children, agent: &'a str) -> Vec<(&'a str, u64, Option<Seq>)> {
        slice.shared(agent).map(|(name, child)| (name, child.calls, child.last_call)).collect()
    }

    #[test]
    fn shared_child_usage_counts_since_last_start() {
        let slice = begin(call(Children::default(), "w", 1), "", "w", calls(2), 2);
        let slice = call(call(call(call(slice, "w", 3), "other", 4), "w", 5), "w", 6);
        assert_eq!(known(&slice, "w"), [("w", 3, Some(5))]);
        assert_eq!(known(&slice, "other"), []);
        assert_eq!(known(&begin(slice.clone(), "", "w", calls(0), 7), "w"), [("w", 0, Some(0))]);
        assert_eq!(known(&begin(slice, "", "w", ChildLimits::default(), 7), "w"), []);
    }

    #[test]
    fn grandchild_usage_counts_for_both() {
        let slice = begin(begin(Children::default(), "", "w", calls(1), 1), "w", "low", calls(9), 2);
        let slice = call(slice, "low", 3);
        assert_eq!(known(&slice, "low"), [("low", 1, None), ("w", 1, Some(3))]);
        // A new child of the parent's name is not charged for it.
        let slice = call(begin(slice, "", "w", calls(5), 4), "low", 5);
        assert_eq!((known(&slice, "low"), known(&slice, "w")), (vec![("low", 2, None)], vec![("w", 0, None)]));
        // A cycle of names ends.
        let slice = begin(begin(slice, "low", "w", calls(5), 6), "w", "low", calls(5), 7);
        assert_eq!(known(&slice, "low").len(), 2);
    }

    #[test]
    fn forked_session_has_no_siblings() {
        let slice = begin(Children::default(), "", "w", calls(1), 1);
        let (name, backend, program) = ("fork".to_owned(), "memory".to_owned(), String::new());
        let limits = ChildLimits::default();
        let mut started = SessionStarted { name, backend, program, options: Default::default(), origin: None, limits };
        assert_eq!(told(slice.clone(), 2, "", &started), slice);
        let (parent, parent_name, isolation) = (SessionId::from_bytes([1; 16]), String::new(), Isolation::Fork);
        started.origin = Some(Origin { parent, parent_name, at: 1, isolation });
        assert_eq!(told(slice, 2, "", &started), Children::default());
    }

    #[test]
    fn children_snapshot_reuses_blocks() {
        let mut slice = begin(Children::default(), "", "w", calls(3), 4);
        for seq in 5..5 + 3 * BLOCK as u64 {
            slice = begin(slice, "", "", ChildLimits::default(), seq);
        }
        let blocks = slice.encode().unwrap();
        let bytes: Vec<Bytes> = blocks.iter().cloned().map(Bytes::from).collect();
        assert_eq!(Children::decode(&bytes).unwrap(), slice);
        let more = begin(slice, "", "", ChildLimits::default(), 999).encode().unwrap();
        assert_eq!(more[..blocks.len() - 1], blocks[..blocks.len() - 1]);
        assert!(Children::decode(&[]).is_err());
    }
}
