use super::{Recorded, Seq, Session, SessionError, State};

const NEAR: u64 = 1024;

/// Read-only cursor over a session's history, with the state at its position.
///
/// It holds nothing that could have an effect: no tools, no backends, no way to record.
#[derive(Debug, Clone)]
pub struct Replay {
    session: Session,
    state: State,
    head: Seq,
}

impl Replay {
    /// Creates a cursor before the first event of the current history.
    pub fn at_start(session: &Session) -> Result<Self, SessionError> {
        let head = session.head()?;
        Ok(Self { session: session.clone(), state: session.state_at(0)?, head })
    }

    /// Returns the position of the last applied event; 0 before the first.
    pub fn position(&self) -> Seq {
        self.state.seq()
    }

    /// Returns the position of the last event at the cursor's creation.
    pub fn head(&self) -> Seq {
        self.head
    }

    /// Returns the state at the position.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Moves forward by one event and returns it; `None` at the end.
    pub fn step(&mut self) -> Result<Option<Recorded>, SessionError> {
        if self.position() >= self.head {
            return Ok(None);
        }
        let next = self.position() + 1;
        let event = self.session.event(next)?;
        self.state = self.session.fold_from(self.state.clone(), next)?;
        Ok(Some(event))
    }

    /// Moves back by one event; false at the start.
    pub fn back(&mut self) -> Result<bool, SessionError> {
        let Some(before) = self.position().checked_sub(1) else { return Ok(false) };
        self.jump(before)?;
        Ok(true)
    }

    /// Moves to a position. Fails with [`SessionError::NoPosition`] if it is after the end.
    pub fn jump(&mut self, seq: Seq) -> Result<(), SessionError> {
        if seq > self.head {
            return Err(SessionError::NoPosition { seq, head: self.head });
        }
        // Folding a few events costs less than searching for a stored state.
        self.state = match seq.checked_sub(self.position()) {
            Some(0..=NEAR) => self.session.fold_from(self.state.clone(), seq)?,
            _ => self.session.state_at(seq)?,
        };
        Ok(())
    }
}
