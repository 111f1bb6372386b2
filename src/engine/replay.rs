//! Replay: a cursor over a history that can only look.

use std::ops::ControlFlow;

use super::id::Seq;
use super::recorded::{EventRef, Recorded};
use super::session::Session;
use super::session::error::SessionError;
use super::state::State;

/// Events over which a jump folds from where it is.
const NEAR: u64 = 1024;

/// A cursor over a session's history, with the state at its position.
///
/// It holds nothing that could have an effect: no tools, no backends, no way to record.
///
/// ```
/// use foldspace::{NewSession, Registry, Replay, Sessions};
/// # let directory = tempfile::tempdir()?;
/// let sessions = Sessions::open(directory.path(), Registry::standard())?;
/// let session = sessions.create(NewSession::default())?;
/// let mut replay = Replay::at_start(&session)?;
/// let event = replay.step()?.expect("every session has a first event");
/// assert_eq!(&*event.event.kind, "SessionStarted");
/// assert!(replay.step()?.is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Replay {
    session: Session,
    state: State,
    head: Seq,
}

impl Replay {
    /// Before the first event of the history as it is now.
    ///
    /// # Errors
    /// What the session says.
    pub fn at_start(session: &Session) -> Result<Self, SessionError> {
        let head = session.head()?;
        Ok(Self { session: session.clone(), state: session.state_at(0)?, head })
    }

    /// The position: that of the last event taken into account, 0 before the first.
    pub fn position(&self) -> Seq {
        self.state.seq()
    }

    /// The position of the last event that there was when the replay began.
    pub fn head(&self) -> Seq {
        self.head
    }

    /// The state at the position.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Goes on by one event and gives it; none at the end.
    ///
    /// # Errors
    /// What the session says.
    pub fn step(&mut self) -> Result<Option<Recorded>, SessionError> {
        if self.position() >= self.head {
            return Ok(None);
        }
        let next = self.position() + 1;
        let event = self.session.event(next)?;
        self.state = self.session.fold_from(self.state.clone(), next)?;
        Ok(Some(event))
    }

    /// Goes back by one event; false at the start.
    ///
    /// # Errors
    /// What the session says.
    pub fn back(&mut self) -> Result<bool, SessionError> {
        let Some(before) = self.position().checked_sub(1) else { return Ok(false) };
        self.jump(before)?;
        Ok(true)
    }

    /// Goes to a position.
    ///
    /// # Errors
    /// [`SessionError::NoPosition`] when there is none, and others.
    pub fn jump(&mut self, seq: Seq) -> Result<(), SessionError> {
        if seq > self.head {
            return Err(SessionError::NoPosition { seq, head: self.head });
        }
        // Near enough on from here: folding costs less than looking for a state that was kept.
        self.state = match seq.checked_sub(self.position()) {
            Some(0..=NEAR) => self.session.fold_from(self.state.clone(), seq)?,
            _ => self.session.state_at(seq)?,
        };
        Ok(())
    }

    /// Goes on to the first later event that `wanted` accepts and gives it; to the end when there is none.
    ///
    /// # Errors
    /// What the session says.
    pub fn until(&mut self, mut wanted: impl FnMut(&EventRef<'_>) -> bool) -> Result<Option<Recorded>, SessionError> {
        let (mut found, head) = (None, self.head);
        self.session.visit(self.position() + 1, &mut |event| {
            if event.seq > head {
                return ControlFlow::Break(());
            }
            if wanted(event) {
                found = Some(event.to_recorded());
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        self.jump(found.as_ref().map_or(head, |event| event.seq))?;
        Ok(found)
    }
}
