//! Own events, and slices that users declare: recorded with the past folded once.

use std::ops::ControlFlow;

use serde_json::Value;

use super::call::content_params::lift_over;
use crate::engine::commit::{CallLink, Commit, Expected};
use crate::engine::error::ValueError;
use crate::engine::event::{SessionRewound, SliceDeclared};
use crate::engine::id::{CommitId, Seq};
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::engine::session::sessions::Sessions;
use crate::engine::slice::OnRewind;
use crate::engine::state::State;
use crate::engine::store::{Committed, StoreError};
use crate::reducers::{DECLARED_MAX, DeclaredSlice, DeclaredSlices, SliceDeclaration, merged_value};
use crate::tools::error::WorkspaceError;

/// Texts above this many bytes in an own event's data are stored as contents.
const TEXT_MAX: usize = 16 << 10;
/// The name of the session whose declared slices each new session begins with.
pub const DEFAULT_SLICES: &str = "defaults";
/// Attempts to declare a slice while others record events.
const ATTEMPTS: usize = 20;

/// An event of an own kind, to be recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnEvent {
    /// The kind: letters, digits, `.`, `_`, `-` or `/`; the first is a lower-case letter.
    pub kind: String,
    /// The data.
    pub data: Value,
}

/// Records own events in one commit. A retry with the same id returns the positions of the first attempt.
///
/// # Errors
/// The id belongs to other events, a kind is invalid, data is over its limit, the call is not in this session, or the
/// store fails. Nothing is recorded then.
pub fn record_own(
    session: &Session,
    events: Vec<OwnEvent>,
    call: Option<Seq>,
    id: Option<CommitId>,
) -> Result<Committed, SessionError> {
    session.check_own()?;
    let mut commit = session.commit();
    for OwnEvent { kind, data } in events {
        push(&mut commit, &kind, data)?;
    }
    if let Some(call) = call {
        commit = commit.of_call(CallLink::Of(call));
    }
    match id {
        Some(id) => session.record_once(commit.with_id(id)),
        None => session.record(commit),
    }
}

fn push(commit: &mut Commit, kind: &str, data: Value) -> Result<(), SessionError> {
    let mut contents = Vec::new();
    let data = lift_over(data, TEXT_MAX, &mut contents);
    commit.push_own(kind, &data)?;
    contents.into_iter().for_each(|content| commit.keep(content));
    Ok(())
}

/// Returns the declared slices of a state.
pub fn declared_in(state: &State) -> DeclaredSlices {
    state.slice::<DeclaredSlices>().cloned().unwrap_or_default()
}

/// Declares a slice, or changes its declaration, and folds the session's past into it. Returns the declared slice; the
/// same declaration again changes nothing.
///
/// # Errors
/// [`WorkspaceError`]: too many slices, a value over its limit, and errors of the store. Nothing is recorded then.
pub fn declare_slice(session: &Session, declaration: SliceDeclaration) -> Result<DeclaredSlice, WorkspaceError> {
    session.check_own()?;
    let name = declaration.name.clone();
    let mut past = PastFold::new(DeclaredSlice::begin(declaration, 1)?, session);
    for _ in 0..ATTEMPTS {
        let head = session.head()?;
        let all = declared_in(&session.state_at(head)?);
        let old = all.get(&name);
        if let Some(old) = old.filter(|old| old.declaration() == past.slice.declaration()) {
            return Ok(old.clone());
        }
        if old.is_none() && all.len() >= DECLARED_MAX {
            let what = format!("the session has {DECLARED_MAX} declared slices, and can't have more; remove one");
            return Err(ValueError::new(what).into());
        }
        past.fold_to(head)?;
        past.slice.set_version(old.map_or(0, DeclaredSlice::version) + 1);
        match record_at(session, &past.slice.to_event(), head) {
            // Commits in flight count, but `head` does not show them yet.
            Err(SessionError::Store(StoreError::Conflict { .. })) => session.sync()?,
            recorded => {
                let at = recorded?.last;
                return Ok(declared_in(&session.state_at(at)?).get(&name).cloned().unwrap_or(past.slice));
            }
        }
    }
    Err(ValueError::new("other calls of the session record events all the time; declare the slice again later").into())
}

/// Declares the slices of the session called [`DEFAULT_SLICES`] in a new session, if there is one of that name.
///
/// # Errors
/// Errors of the store, and of [`declare_slice`].
pub fn declare_defaults(sessions: &Sessions, session: &Session) -> Result<(), WorkspaceError> {
    let defaults = sessions.named(DEFAULT_SLICES)?;
    if let Some(defaults) = defaults.filter(|defaults| defaults.id != session.id()) {
        for slice in declared_in(&sessions.session(defaults.id)?.state()?).iter() {
            declare_slice(session, slice.declaration().clone())?;
        }
    }
    Ok(())
}

/// Removes a declared slice. Earlier positions keep it. Returns false if there is none of that name.
///
/// # Errors
/// Errors of the store.
pub fn remove_slice(session: &Session, name: &str) -> Result<bool, SessionError> {
    session.check_own()?;
    let all = declared_in(&session.state()?);
    let Some(slice) = all.get(name) else { return Ok(false) };
    let mut commit = session.commit();
    commit.push(&SliceDeclared { declaration: Value::Null, value: Value::Null, ..slice.to_event() })?;
    session.record(commit)?;
    Ok(true)
}

fn record_at(session: &Session, event: &SliceDeclared, head: Seq) -> Result<Committed, SessionError> {
    let mut commit = session.commit().expecting(Expected::Exactly(head));
    commit.push(event)?;
    session.record(commit)
}

/// Returns the declared slices after a rewind: the declarations of now with the values of then. The past is folded for
/// those that were declared later.
pub(super) fn rewound(session: &Session, then: &State, now: &State) -> Result<DeclaredSlices, SessionError> {
    let (then_all, mut all) = (declared_in(then), DeclaredSlices::default());
    for slice in declared_in(now).iter() {
        let declaration = slice.declaration();
        let old = then_all.get(&declaration.name).filter(|old| old.declaration() == declaration);
        let slice = match (declaration.on_rewind, old) {
            (OnRewind::Keep, _) => slice.clone(),
            (OnRewind::Restore, Some(old)) => old.clone(),
            (OnRewind::Restore, None) => {
                let begun =
                    DeclaredSlice::begin(declaration.clone(), slice.version()).unwrap_or_else(|_| slice.clone());
                let mut past = PastFold::new(begun, session);
                past.fold_to(then.seq())?;
                past.slice
            }
        };
        all = all.with(slice);
    }
    Ok(all)
}

/// Returns true if a rewind to `to` undoes own events, or restores undone ones. They may have no other effect yet.
pub(super) fn changes_own_events(session: &Session, to: Seq) -> Result<bool, SessionError> {
    let head = session.head()?;
    let (now, then) = (kept_ranges(session, head)?, kept_ranges(session, to)?);
    let has = |ranges: &[(Seq, Seq)], seq| ranges.iter().any(|(from, until)| (*from..=*until).contains(&seq));
    let mut found = false;
    session.visit_between(1, head, &mut |event| {
        let is_own = event.kind.starts_with(|c: char| c.is_ascii_lowercase());
        found = is_own && has(&now, event.seq) != has(&then, event.seq);
        if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(found)
}

/// Returns the events that set the parent's slices after a merge of its child's changes since `base`.
pub(super) fn merged(base: &State, ours: &State, theirs: &State) -> Result<Vec<SliceDeclared>, ValueError> {
    let (base, theirs) = (declared_in(base), declared_in(theirs));
    let mut events = Vec::new();
    for slice in declared_in(ours).iter() {
        let name = &slice.declaration().name;
        let Some(child) = theirs.get(name) else { continue };
        events.extend(merged_value(base.get(name), slice, child)?.map(|merged| merged.to_event()));
    }
    Ok(events)
}

/// A fold of a slice over a session's past, without the events that rewinds undid.
struct PastFold<'a> {
    session: &'a Session,
    begun: DeclaredSlice,
    slice: DeclaredSlice,
    seq: Seq,
}

impl<'a> PastFold<'a> {
    fn new(slice: DeclaredSlice, session: &'a Session) -> Self {
        Self { session, begun: slice.clone(), slice, seq: 0 }
    }

    fn fold_to(&mut self, until: Seq) -> Result<(), SessionError> {
        let rewinds = rewinds(self.session, self.seq + 1, until)?;
        if self.slice.declaration().on_rewind == OnRewind::Restore && !rewinds.is_empty() {
            self.slice = self.begun.clone();
            for (from, to) in kept_ranges(self.session, until)? {
                self.add(from, to)?;
            }
        } else {
            self.add(self.seq + 1, until)?;
        }
        self.seq = until;
        Ok(())
    }

    fn add(&mut self, from: Seq, to: Seq) -> Result<(), SessionError> {
        let slice = &mut self.slice;
        self.session.visit_between(from, to, &mut |event| {
            slice.apply(event);
            ControlFlow::Continue(())
        })
    }
}

/// Returns the rewinds from one position to another: their positions and targets.
fn rewinds(session: &Session, from: Seq, until: Seq) -> Result<Vec<(Seq, Seq)>, SessionError> {
    let mut found = Vec::new();
    session.visit_between(from, until, &mut |event| {
        found.extend(event.decoded::<SessionRewound>().map(|rewound| (event.seq, rewound.to)));
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

/// Returns the ranges of positions, up to `until`, that no rewind undid.
fn kept_ranges(session: &Session, until: Seq) -> Result<Vec<(Seq, Seq)>, SessionError> {
    let (rewinds, mut until) = (rewinds(session, 1, until)?, until);
    let mut ranges = Vec::new();
    for (at, to) in rewinds.into_iter().rev() {
        if at <= until {
            ranges.push((at, until));
            until = to;
        }
    }
    ranges.push((1, until));
    ranges.reverse();
    Ok(ranges)
}
