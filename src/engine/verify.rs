//! Verification: folds everything again and compares.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use serde::Serialize;

use super::event::{EventsLost, Node, WriteFile};
use super::session::snapshot::snapshot_of;
use super::store::{EventStore, Snapshot, StoreError};
use super::{Digest, Seq, Session, SessionError, SessionId, Sessions, State};

/// Findings of a verification.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// Sessions folded again.
    pub sessions: u64,
    /// Events folded.
    pub events: u64,
    /// Snapshots compared.
    pub snapshots: u64,
    /// Contents read and compared with their digests.
    pub contents: u64,
    /// Events that this program can't read. They are not differences: another program may know them.
    pub unreadable: u64,
    /// Events lost in an accepted loss or in damage. States after damage lack their changes.
    pub lost: u64,
    /// Differences, in the order of their discovery.
    pub differences: Vec<VerifyDifference>,
}

/// Difference from the events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VerifyDifference {
    /// Session.
    pub session: SessionId,
    /// Position.
    pub seq: Seq,
    /// Slice, if the difference is in one.
    pub slice: Option<String>,
    /// Problem.
    pub what: String,
}

impl Sessions {
    /// Folds sessions again from their events, and compares them with every stored snapshot and the current state, and
    /// every file's contents with its digest.
    pub fn verify(&self, session: Option<SessionId>) -> Result<VerifyReport, SessionError> {
        let ids = match session {
            Some(id) => vec![id],
            None => self.list()?.iter().map(|entry| entry.id).collect(),
        };
        let mut report = VerifyReport::default();
        for id in ids {
            VerifyCheck { sessions: self, session: self.session(id)?, report: &mut report }.run()?;
            report.sessions += 1;
        }
        Ok(report)
    }
}

struct VerifyCheck<'a> {
    sessions: &'a Sessions,
    session: Session,
    report: &'a mut VerifyReport,
}

impl VerifyCheck<'_> {
    fn run(&mut self) -> Result<(), SessionError> {
        let head = self.session.head()?;
        let store = self.sessions.store();
        let mut stops = store.snapshots(self.session.id())?;
        stops.retain(|seq| *seq < head);
        stops.push(head);
        let mut state = State::empty(self.sessions.registry(), self.session.id());
        for seq in stops {
            state = self.session.fold_from(state, seq)?;
            if let Some(stored) = store.snapshot(self.session.id(), seq)?.filter(|stored| stored.seq == seq) {
                self.report.snapshots += 1;
                self.compare(&stored, snapshot_of(&state).as_ref(), "the stored snapshot");
            }
        }
        self.report.events += head;
        self.report.unreadable += state.unreadable();
        let given = self.session.state_at(head)?;
        if let (Some(given), folded) = (snapshot_of(&given), snapshot_of(&state)) {
            self.compare(&given, folded.as_ref(), "the current state");
        }
        self.contents(store.as_ref())
    }

    fn compare(&mut self, stored: &Snapshot, folded: Option<&Snapshot>, what: &str) {
        let Some(folded) = folded else { return };
        let pairs: Option<Vec<_>> =
            folded.slices.iter().map(|slice| Some((slice, stored.slice(&slice.name, slice.version)?))).collect();
        // A program with other slices took it; this program does not use it.
        let Some(pairs) = pairs else { return };
        if let Some((slice, _)) = pairs.iter().find(|(slice, other)| slice.digest() != other.digest()) {
            self.differs(folded.seq, Some(slice.name.to_string()), format!("{what} differs from the events"));
        } else if stored.unreadable != folded.unreadable {
            self.differs(folded.seq, None, format!("{what} counts unreadable events wrongly"));
        }
    }

    fn contents(&mut self, store: &dyn EventStore) -> Result<(), SessionError> {
        let mut seen = BTreeSet::<Digest>::new();
        let mut found = Vec::new();
        let (mut lost, mut in_gaps) = (0, 0);
        self.session.visit(1, &mut |event| {
            if EventsLost::is_gap(event) {
                in_gaps += 1;
            } else if let Some(Ok(end)) = event.typed::<EventsLost>() {
                lost += end.event.last.saturating_sub(end.event.first).saturating_add(1);
            }
            if let Some(Ok(write)) = event.typed::<WriteFile>()
                && let Node::File { content, size, incomplete: false, .. } = write.event.node
                && seen.insert(content)
            {
                found.push((event.seq, write.event.path, content, size));
            }
            ControlFlow::Continue(())
        })?;
        self.report.lost += lost + in_gaps;
        // The fold counted them as unreadable.
        self.report.unreadable -= in_gaps;
        for (seq, path, digest, size) in found {
            self.report.contents += 1;
            let read = match store.content(&digest) {
                Err(error @ StoreError::NoContent(_)) => store.withheld(&digest)?.ok_or(error),
                read => read,
            };
            match read {
                Ok(bytes) if bytes.len() as u64 == size && digest.is_of(&bytes) => {}
                Ok(bytes) => self.differs(seq, None, format!("{path} has {size} bytes; {} are stored", bytes.len())),
                Err(error @ (StoreError::NoContent(_) | StoreError::Damaged { .. })) => {
                    self.differs(seq, None, format!("{path}: {error}"));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn differs(&mut self, seq: Seq, slice: Option<String>, what: String) {
        self.report.differences.push(VerifyDifference { session: self.session.id(), seq, slice, what });
    }
}
