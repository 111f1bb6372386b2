//! Copies of sessions that start late, as a host of a cluster makes them.

use super::LocalStore;
use super::late::LateStart;
use super::named::REMEMBERED;
use crate::engine::store::index::CatalogueRow;
use crate::engine::store::journal::frame::FrameKind;
use crate::engine::store::pending::GroupWait;
use crate::engine::store::{EventStore, Result, SessionEntry, StoreError};
use crate::engine::{Seq, SessionId};

impl LateStart {
    /// Encodes session, position, the length of the row, the row, and the commits with their first and last positions.
    pub(in crate::engine::store) fn encode(&self) -> Result<Vec<u8>> {
        let mut bytes = [&self.entry.id.as_bytes()[..], &self.entry.head.to_le_bytes()].concat();
        let row = CatalogueRow::of(self.entry.clone()).encode()?;
        bytes.extend_from_slice(&u32::try_from(row.len()).unwrap_or(u32::MAX).to_le_bytes());
        bytes.extend_from_slice(&row);
        for (id, first, last) in &self.recent {
            bytes.extend_from_slice(id.as_bytes());
            bytes.extend_from_slice(&first.to_le_bytes());
            bytes.extend_from_slice(&last.to_le_bytes());
        }
        Ok(bytes)
    }
}

impl LocalStore {
    /// Returns the state of a session at the end of a commit, for a copy that starts there.
    pub(in crate::engine::store) fn start_at(&self, session: SessionId, seq: Seq) -> Result<LateStart> {
        let (shared, slot) = (&self.shared, self.shared.slot(session)?);
        let entry = self.entry(session)?.ok_or(StoreError::NoSession(session))?;
        let batch = shared.read(session, seq, seq, 1)?;
        let event = batch.event_at(seq).filter(|_| batch.last() == seq);
        let updated =
            event.ok_or_else(|| StoreError::Index(format!("session {session} has no commit up to {seq}")))?.time;
        let later = shared.count_calls(session, seq + 1, entry.head)?;
        let calls = entry.calls.map(|calls| calls.saturating_sub(later));
        let mut recent = Vec::from(shared.named_commits(&slot, &slot.lock())?);
        recent.retain(|(_, _, last)| *last <= seq);
        recent.drain(..recent.len().saturating_sub(REMEMBERED));
        Ok(LateStart { entry: SessionEntry { head: seq, updated, calls, ..entry }, recent })
    }

    /// Starts a session late. Returns false if it exists already, or was removed and is retained for its children.
    pub(in crate::engine::store) fn begin_late(&self, start: LateStart) -> Result<bool> {
        let (session, shared) = (start.entry.id, &self.shared);
        if !shared.slots.is_free(session) {
            return Ok(false);
        }
        let payload = start.encode()?;
        let crc = crc32c::crc32c(&payload);
        let writer = shared.writer()?;
        let mut stage = writer.stage()?;
        let staged = stage.frame(FrameKind::LateStart, &payload, crc);
        shared.pressed(staged);
        let slot = shared.slots.begin_late(start.entry, staged.place);
        drop(stage);
        writer.wait(staged.number)?;
        shared.slots.note(&slot);
        shared.bus.moved([session].into_iter());
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::super::session_head::past_of;
    use super::*;
    use crate::engine::store::disk::OsDisk;
    use crate::engine::store::{LocalStoreOptions, index};
    use crate::engine::{Commit, Expected, Timestamp};
    use crate::engine::{CommitId, ForkPoint};

    const SESSION: SessionId = SessionId::from_bytes([3; 16]);
    const CHILD: SessionId = SessionId::from_bytes([4; 16]);

    fn note(session: SessionId, number: u64) -> Commit {
        let mut commit = Commit::new(session, Timestamp(1)).with_id(id(number));
        commit.push_encoded("Note", 1, &number.to_le_bytes()).unwrap();
        commit
    }

    fn id(number: u64) -> CommitId {
        CommitId::from_bytes(u128::from(number).to_le_bytes())
    }

    fn add(store: &LocalStore, commit: Commit) -> Result<Seq> {
        Ok(store.submit(commit)?.wait()?.first)
    }

    fn open(directory: &std::path::Path) -> LocalStore {
        LocalStore::open(directory, LocalStoreOptions::default()).unwrap()
    }

    fn history(store: &LocalStore, session: SessionId, from: Seq) -> Result<Vec<(Seq, Vec<u8>)>> {
        let batch = store.read(session, from, Seq::MAX, usize::MAX)?;
        Ok(batch.events().map(|event| (event.seq, event.payload.to_vec())).collect())
    }

    /// Compares a late copy without its past with the full history.
    fn check_late(late: &LocalStore, whole: &LocalStore) {
        assert_eq!(late.entry(SESSION).unwrap(), whole.entry(SESSION).unwrap());
        assert_eq!(history(late, SESSION, 21).unwrap(), history(whole, SESSION, 21).unwrap());
        for (session, seq) in [(SESSION, 20), (SESSION, 1), (CHILD, 1)] {
            let read = late.read(session, seq, seq, 1);
            assert!(matches!(read, Err(StoreError::NotHere { session: SESSION, until: 20 })), "{read:?}");
        }
        assert_eq!(history(late, CHILD, 22).unwrap().len(), 1);
        for number in [1, 20, 25] {
            let again = late.submit(note(SESSION, number)).unwrap().wait().unwrap();
            assert_eq!((again.first, again.repeated), (number, true));
        }
    }

    #[test]
    fn late_copy_outlives_openings_and_gets_its_past() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let whole = open(first.path());
        for number in 1..=25 {
            assert_eq!(add(&whole, note(SESSION, number)).unwrap(), number);
        }
        assert!(whole.start_at(SESSION, 26).is_err());
        let start = whole.start_at(SESSION, 20).unwrap();
        assert_eq!(LateStart::decode(&start.encode().unwrap()), Some(start.clone()));
        let late = open(second.path());
        assert!(late.begin_late(start.clone()).unwrap());
        assert_eq!(late.head(SESSION).unwrap(), 20);
        drop(late);
        let late = open(second.path());
        assert_eq!(late.head(SESSION).unwrap(), 20, "without own events");
        assert!(!late.begin_late(start).unwrap(), "it exists already");
        for number in 21..=25 {
            assert_eq!(add(&late, note(SESSION, number)).unwrap(), number);
        }
        let point = ForkPoint { session: SESSION, seq: 21 };
        assert_eq!(add(&late, note(CHILD, 100).expecting(Expected::ForkOf(point))).unwrap(), 22);
        check_late(&late, &whole);
        drop(late);
        check_late(&open(second.path()), &whole);
        index::remove(&OsDisk, second.path()).unwrap();
        check_late(&open(second.path()), &whole);
        assert_eq!(LocalStore::fsck(second.path(), false).unwrap().problems, []);
        assert_eq!(LocalStore::collect(second.path(), false).unwrap().commits, 0);
        let late = open(second.path());
        check_late(&late, &whole);
        for number in 1..=20 {
            assert_eq!(add(&late, note(past_of(SESSION), number)).unwrap(), number);
        }
        drop(late);
        let late = open(second.path());
        let bytes = |store: &LocalStore| history(store, SESSION, 1).unwrap();
        let in_parts = [history(&late, SESSION, 1).unwrap(), history(&late, SESSION, 21).unwrap()].concat();
        assert_eq!(in_parts, bytes(&whole));
        assert_eq!(late.read(SESSION, 3, 3, 1).unwrap().event_at(3).unwrap().session, SESSION);
        assert_eq!(history(&late, CHILD, 1).unwrap().len(), 20);
        late.remove(CHILD).unwrap();
        late.remove(SESSION).unwrap();
        assert!(late.head(past_of(SESSION)).is_err(), "it is removed with its session");
        drop(late);
        assert_eq!(LocalStore::collect(second.path(), false).unwrap().commits, 26);
        assert_eq!(open(second.path()).entries().unwrap(), []);
    }
}
