//! Checks and repairs of a whole store, while no other process uses it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::catalogue_file::{self, CatalogueFile};
use super::open::Opening;
use super::proof::{self, JournalEnd, ProvenLoss};
use super::session_head::past_of;
use super::{LocalStore, LocalStoreOptions};
use crate::engine::event::EventsLost;
use crate::engine::store::hosts::COPY_FILE;
use crate::engine::store::index::{self, CatalogueRow, SledIndex};
use crate::engine::store::journal::disk::{JournalDisk, OsDisk};
use crate::engine::store::journal::{self, CheckedJournal, FsckReport, JournalProblem, Segments};
use crate::engine::store::lock::StoreLock;
use crate::engine::store::{EventStore, Loss, LostEvents, Result, StoreError};
use crate::engine::{Clock, Commit, CommitId, Expected, SessionId, SystemClock};

/// Maximum duration of a write to the journal.
const WRITE_IN_FLIGHT: Duration = Duration::from_millis(200);

impl LocalStore {
    /// Reads every byte of the journal in `directory`. With `repair`, moves damage into files next to the journal, and
    /// replaces each event in it by an [`EventsLost`]; everything intact stays. Repairs nothing after a loss, until the
    /// user [accepts](Self::accept_loss) it. Fails with [`StoreError::Locked`] if another process owns the store.
    pub fn fsck(directory: impl AsRef<Path>, repair: bool) -> Result<FsckReport> {
        Self::fsck_on(Arc::new(OsDisk), directory.as_ref(), repair.then_some(&[]))
    }

    /// Repairs the journal in `directory` like [`fsck`](Self::fsck), and drops intact events of the sessions in `drop`
    /// that [contradict](FsckReport::contradictions) earlier ones.
    pub fn repair(directory: impl AsRef<Path>, drop: &[SessionId]) -> Result<FsckReport> {
        Self::fsck_on(Arc::new(OsDisk), directory.as_ref(), Some(drop))
    }

    /// Reads every byte of the journal while another process owns the store, without the index and without repairs. A
    /// write in flight looks like damage, so only problems that a second pass finds again are reported.
    pub fn fsck_beside(directory: impl AsRef<Path>) -> Result<FsckReport> {
        let directory = directory.as_ref();
        let pass = || {
            let segments = Segments::new(&directory.join("journal"), false);
            segments.numbers()?;
            Ok::<_, StoreError>(look(directory, &segments, None)?.0.report)
        };
        let first = pass()?;
        if first.problems.is_empty() {
            return Ok(first);
        }
        std::thread::sleep(WRITE_IN_FLIGHT);
        let mut report = pass()?;
        report.problems.retain(|problem| first.problems.contains(problem));
        report.gaps.retain(|gap| first.gaps.contains(gap));
        report.contradictions.retain(|session| first.contradictions.contains(session));
        report.loss = report.loss.filter(|loss| first.loss.as_ref() == Some(loss));
        Ok(report)
    }

    pub(super) fn fsck_on(
        disk: Arc<dyn JournalDisk>,
        directory: &Path,
        repair: Option<&[SessionId]>,
    ) -> Result<FsckReport> {
        let segments = Segments::on(disk, &directory.join("journal"), repair.is_some());
        segments.numbers()?;
        let _lock =
            if repair.is_some() { Some(StoreLock::take(directory)?) } else { StoreLock::take_to_look(directory)? };
        let (mut checked, found) = look(directory, &segments, index_in(directory))?;
        if let Some(drop) = repair.filter(|drop| found.is_none() && checked.is_repairable(drop)) {
            if !checked.report.gaps.is_empty() {
                refuse_copy(directory)?;
            }
            if checked.is_rewritten(drop) {
                index::remove(segments.disk(), directory)?;
            }
            checked.repair(&segments, directory, drop)?;
        }
        Ok(checked.report)
    }

    /// Repairs the journal in `directory` and continues without the events lost at its end. Each affected session gets
    /// an [`EventsLost`]; a session that lost all events is recreated with its first event, if the index has it. A note
    /// preserves the loss until then, so that a crash at any moment can't hide it.
    pub fn accept_loss(directory: impl AsRef<Path>) -> Result<FsckReport> {
        Self::accept_loss_with(directory.as_ref(), Opening::new(LocalStoreOptions::default(), Arc::default()))
    }

    pub(super) fn accept_loss_with(directory: &Path, opening: Opening) -> Result<FsckReport> {
        let disk = Arc::clone(&opening.disk);
        let segments = Segments::on(Arc::clone(&disk), &directory.join("journal"), true);
        segments.numbers()?;
        let lock = StoreLock::take(directory)?;
        let (mut checked, found) = look(directory, &segments, index_in(directory))?;
        let Some(found) = found else {
            drop(lock);
            return Self::fsck_on(disk, directory, Some(&[]));
        };
        if checked.is_strange {
            return Ok(checked.report);
        }
        let id = proof::note(&*disk, directory, &found)?;
        // The index matches neither a repaired journal nor a journal that continues after the loss.
        index::remove(&*disk, directory)?;
        checked.repair(&segments, directory, &[])?;
        if checked.is_followed {
            checked.follow(&segments)?;
        }
        let ProvenLoss { loss, rows } = found;
        let store = Self::open_locked(directory, opening, lock)?;
        checked
            .report
            .repaired
            .push(format!("the journal continues after byte {} of segment {}", loss.offset, loss.segment));
        checked.report.repaired.extend(record(&store, id, &loss, &rows)?);
        store.sync()?;
        proof::forget(&*disk, directory)?;
        Ok(checked.report)
    }
}

/// Opens the index of a store whose lock this process has. `None` if it is missing or unusable.
fn index_in(directory: &Path) -> Option<SledIndex> {
    let place = directory.join("index");
    let is_usable = place.is_dir() && !SystemClock::default().is_before_1970();
    is_usable.then(|| SledIndex::open(&place).ok()).flatten()
}

fn look(
    directory: &Path,
    segments: &Segments,
    index: Option<SledIndex>,
) -> Result<(CheckedJournal, Option<ProvenLoss>)> {
    let mut checked = journal::check(segments, known(directory, segments, index.as_ref()))?;
    let is_whole = checked.report.problems.is_empty();
    let ending = JournalEnd { place: checked.end, is_followed: checked.is_followed, is_whole };
    let noted = proof::noted(segments.disk(), directory)?.map(|(_, found)| found);
    let found = noted.or_else(|| proof::find(segments, &ending, index.as_ref()));
    checked.conclude(found.is_some());
    if let Some(found) = &found {
        let loss = &found.loss;
        let problem =
            |session, what| JournalProblem { segment: loss.segment, offset: loss.offset, bytes: 0, what, session };
        let of_session = |lost: &LostEvents| problem(Some(lost.session), format!("session {}: {lost}", lost.session));
        checked.report.problems.push(problem(None, loss.to_string()));
        checked.report.problems.extend(loss.sessions.iter().map(of_session));
        checked.report.loss = Some(loss.clone());
    }
    Ok((checked, found))
}

/// Returns the session rows of the index, or else of the catalogue, if they match the journal.
fn known(directory: &Path, segments: &Segments, index: Option<&SledIndex>) -> BTreeMap<SessionId, CatalogueRow> {
    let indexed = index.and_then(|index| Some((index.stamp()?, index.rows().ok()?)));
    let indexed = indexed.filter(|(stamp, _)| catalogue_file::fits(stamp, segments).is_ok());
    let catalogue = || CatalogueFile::read(segments.disk(), directory)?.rows(segments);
    let rows = indexed.map(|(_, rows)| rows).or_else(catalogue).unwrap_or_default();
    // A session that started late begins with a frame without events.
    let rows = rows.into_iter().filter(|row| row.base.is_none_or(|base| base.session != past_of(row.entry.id)));
    rows.map(|row| (row.entry.id, row)).collect()
}

/// Fails in a copy of a cluster's sessions: the cluster still has the lost events.
fn refuse_copy(directory: &Path) -> Result<()> {
    let path = directory.join(COPY_FILE);
    let what = "the directory is a copy of a cluster, which has the lost events: remove the directory".to_owned();
    if path.exists() { Err(StoreError::Format { path, what }) } else { Ok(()) }
}

/// Records the loss in each session, in commits with the id; returns a line for each.
fn record(store: &LocalStore, id: CommitId, loss: &Loss, rows: &[CatalogueRow]) -> Result<Vec<String>> {
    let time = SystemClock::default().now();
    let mut left = Vec::new();
    // Before any `EventsLost` is recorded: a child's past must consist of its parent's original events.
    for (lost, row) in loss.sessions.iter().zip(rows) {
        left.push(store.entry(lost.session)?.is_some() || begin_again(store, row).is_ok());
    }
    // Makes the recreated sessions visible.
    store.sync()?;
    let mut lines = Vec::new();
    for (LostEvents { session, first, last }, is_left) in loss.sessions.iter().zip(left) {
        // A repair may have removed more.
        let next = if is_left { store.head(*session)? + 1 } else { *first };
        if is_left && next <= *last {
            let mut commit = Commit::new(*session, time).with_id(id);
            commit.push(&EventsLost { first: next, last: *last, segment: loss.segment, gap: None })?;
            store.submit(commit).map(drop)?;
        }
        let outcome = if is_left { "recorded in its history" } else { "no events of it remain" };
        let from = next.min(*first);
        lines.push(format!("session {session}: events {from} to {last} are lost; {outcome}"));
    }
    Ok(lines)
}

/// Recreates a session without events, with its first event.
fn begin_again(store: &LocalStore, row: &CatalogueRow) -> Result<()> {
    let expected = row.base.map_or(Expected::NoSession, Expected::ForkOf);
    store.submit(Commit::of_recorded(&row.entry.origin)?.expecting(expected)).map(drop)
}
