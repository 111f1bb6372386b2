//! The hidden directories of a mount with all moments: `.at`, `.call` and `.sessions`.

use std::ops::ControlFlow;

use crate::engine::event::{CallStarted, Event};
use crate::engine::id::{Seq, SessionId};
use crate::engine::session::error::SessionError;
use crate::engine::session::sessions::Sessions;
use crate::engine::store::StoreError;
use crate::reducers::Annotations;
use crate::view::Position;

const AT: &[u8] = b".at";
const CALL: &[u8] = b".call";
const SESSIONS: &[u8] = b".sessions";

/// The files and the place of a view. The kernel allows a directory only one place in a mount, so each place has a
/// separate view.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ViewKey {
    pub(super) session: SessionId,
    /// `None` for a view that follows the present.
    pub(super) at: Option<Seq>,
    /// The hidden directory and the name that lead to it; `None` for the mount's root.
    pub(super) via: Option<(Moments, String)>,
}

/// A hidden directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Moments {
    /// The positions of a session, named as people write them.
    Positions(Root),
    /// The calls of a session, by number.
    Calls(Root),
    /// The positions before and after a call.
    Call(Root, Seq),
    /// All sessions, by name.
    Sessions,
}

/// The root of a view, which has hidden directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Root {
    /// The view's id.
    pub(super) view: u64,
    pub(super) session: SessionId,
}

/// The target of a name in a hidden directory.
pub(super) enum FoundMoment {
    Directory(Moments),
    View(ViewKey),
}

impl Moments {
    /// Returns the hidden directory with that name in the root of a session.
    pub(super) fn at_root(root: Root, is_top: bool, name: &[u8]) -> Option<Self> {
        match name {
            AT => Some(Self::Positions(root)),
            CALL => Some(Self::Calls(root)),
            SESSIONS if is_top => Some(Self::Sessions),
            _ => None,
        }
    }

    /// Returns the target of a name; `None` if it has none.
    pub(super) fn find(&self, sessions: &Sessions, name: &[u8]) -> Result<Option<FoundMoment>, SessionError> {
        let Ok(name) = std::str::from_utf8(name) else { return Ok(None) };
        let via = || Some((self.clone(), name.to_owned()));
        let at = |Root { session, .. }: Root, position: Position| {
            let at = Some(position.resolve(&sessions.session(session)?)?);
            Ok(FoundMoment::View(ViewKey { session, at, via: via() }))
        };
        let found = match self {
            Self::Positions(root) => match name.parse() {
                Ok(position) => at(*root, position),
                Err(_) => return Ok(None),
            },
            Self::Calls(root) => match name.parse() {
                Ok(call) if is_call(sessions, root.session, call)? => {
                    Ok(FoundMoment::Directory(Self::Call(*root, call)))
                }
                _ => return Ok(None),
            },
            Self::Call(root, call) => match name {
                "before" => at(*root, Position::Before(*call)),
                "after" => at(*root, Position::Seq(*call)),
                _ => return Ok(None),
            },
            Self::Sessions => {
                sessions.find(name).map(|entry| FoundMoment::View(ViewKey { session: entry.id, at: None, via: via() }))
            }
        };
        match found {
            Err(error) if is_missing(&error) => Ok(None),
            found => found.map(Some),
        }
    }

    /// Returns the listed names: tags, calls or sessions. Other positions are found by name, but not listed.
    pub(super) fn names(&self, sessions: &Sessions) -> Result<Vec<String>, SessionError> {
        Ok(match self {
            Self::Positions(root) => {
                let state = sessions.session(root.session)?.state()?;
                let tags = state.slice::<Annotations>().map(|annotations| &annotations.tags);
                let names = tags.into_iter().flat_map(|tags| tags.keys()).map(|name| format!("tag:{name}"));
                names.filter(|name| !name.contains('/')).collect()
            }
            Self::Calls(root) => {
                let mut calls = Vec::new();
                sessions.session(root.session)?.visit(1, &mut |event| {
                    if event.kind == CallStarted::KIND {
                        calls.push(event.seq.to_string());
                    }
                    ControlFlow::Continue(())
                })?;
                calls
            }
            Self::Call(..) => vec!["before".to_owned(), "after".to_owned()],
            Self::Sessions => sessions.list()?.iter().map(|entry| entry.name()).collect(),
        })
    }
}

fn is_call(sessions: &Sessions, session: SessionId, call: Seq) -> Result<bool, SessionError> {
    match sessions.session(session)?.event(call) {
        Ok(event) => Ok(*event.event.kind == *CallStarted::KIND),
        Err(SessionError::NoPosition { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns true if an error means that the moment does not exist.
fn is_missing(error: &SessionError) -> bool {
    matches!(
        error,
        SessionError::NoPosition { .. }
            | SessionError::NothingBack { .. }
            | SessionError::NotBegun { .. }
            | SessionError::NotInCall { .. }
            | SessionError::NoTag { .. }
            | SessionError::NotFound { .. }
            | SessionError::Ambiguous { .. }
            | SessionError::Store(StoreError::NoSession(_))
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::engine::clock::StepClock;
    use crate::engine::clock::Timestamp;
    use crate::engine::event::PositionTagged;
    use crate::engine::registry::Registry;
    use crate::engine::session::sessions::NewSession;
    use crate::engine::session::snapshot::SnapshotPolicy;
    use crate::engine::store::MemoryStore;

    #[test]
    fn moments_are_found_by_tag_and_position() {
        let (store, clock) = (Arc::new(MemoryStore::default()), Arc::new(StepClock::new(Timestamp(0), 1)));
        let sessions = Sessions::new(store, Registry::standard(), clock, SnapshotPolicy::default()).unwrap();
        let session = sessions.create(NewSession::named("demo")).unwrap();
        let mut commit = session.commit();
        commit.push(&PositionTagged { name: "start".to_owned(), at: Some(1) }).unwrap();
        session.record(commit).unwrap();
        let root = Root { view: 0, session: session.id() };
        let at = Moments::at_root(root, true, b".at").unwrap();
        let found = |name: &str| match at.find(&sessions, name.as_bytes()).unwrap() {
            Some(FoundMoment::View(key)) => key.at,
            _ => None,
        };
        assert_eq!(["tag:start", "1", "@1", "-0", "0"].map(found), [Some(1), Some(1), Some(1), Some(2), Some(0)]);
        assert_eq!(["tag:end", "3", "-3", "x", "", "tag:"].map(found), [None; 6]);
        assert_eq!(at.names(&sessions).unwrap(), ["tag:start"]);
        assert!(Moments::at_root(root, true, b".git").is_none());
        assert!(Moments::at_root(root, false, b".sessions").is_none());
        sessions.remove(session.id()).unwrap();
        assert!(at.find(&sessions, b"1").unwrap().is_none());
    }
}
