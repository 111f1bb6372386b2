//! Scans of the disk that are not yet recorded.
//!
//! While an agent asks for a permission, a person may edit files, and the command's start is known only at its end. So
//! the disk is scanned several times a second, and the next report records the findings of each scan.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

use super::capture::Captured;
use super::plan::{NewContents, PlannedChange};
use crate::backends::DirtyPath;
use crate::backends::disk::changed_at;
use crate::engine::clock::Timestamp;
use crate::engine::id::Seq;
use crate::engine::lock::lock;
use crate::engine::path::EntryPath;
use crate::reducers::VirtualFileSystem;

/// Limits of held scans: their number, and the bytes of their contents.
const LOOKS_MAX: usize = 500;
const BYTES_MAX: usize = 64 << 20;

/// Findings of a scan.
#[derive(Debug, Default)]
pub(crate) struct Look {
    pub(super) captured: Captured,
    /// Changed paths that the kernel did not report.
    pub(super) late: Vec<DirtyPath>,
    /// The start of the previous scan, if there was one. The changes are later.
    pub(super) after: Option<Timestamp>,
    /// Calls that may have made the changes, if no open call has.
    pub(super) perhaps: Vec<Seq>,
    /// Times of the changes, for a held scan.
    times: BTreeMap<EntryPath, Timestamp>,
}

impl Look {
    pub(crate) fn new(captured: Captured, late: Vec<DirtyPath>) -> Self {
        Self { captured, late, ..Self::default() }
    }

    /// Returns the time of a change.
    pub(super) fn changed_at(&self, root: Option<&Path>, path: &EntryPath) -> Option<Timestamp> {
        self.times.get(path).copied().or_else(|| changed_at(root?, path).map(Timestamp))
    }

    fn bytes(&self) -> usize {
        self.captured.contents.values().map(|content| content.len()).sum()
    }
}

/// The unrecorded scans of a workspace, and the time of its last scan.
#[derive(Debug, Default)]
pub(super) struct HeldLooks(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    looks: Vec<Look>,
    /// The start of the last scan.
    looked: Option<Timestamp>,
}

impl HeldLooks {
    /// Returns true if no more scans should be held.
    pub(super) fn is_full(&self) -> bool {
        let held = lock(&self.0);
        held.looks.len() >= LOOKS_MAX || held.looks.iter().map(Look::bytes).sum::<usize>() >= BYTES_MAX
    }

    pub(super) fn is_empty(&self) -> bool {
        lock(&self.0).looks.is_empty()
    }

    /// Applies the findings of the held scans to the recorded files.
    pub(super) fn apply_to(&self, files: &mut VirtualFileSystem, now: Timestamp) {
        for look in &lock(&self.0).looks {
            look.captured.changes.iter().for_each(|change| change.apply_to(files, now));
        }
    }

    /// Applies the findings of the held scans, and adds their contents.
    pub(super) fn add_to(&self, (files, contents): (&mut VirtualFileSystem, &mut NewContents), now: Timestamp) {
        self.apply_to(files, now);
        let held = lock(&self.0);
        contents.extend(held.looks.iter().flat_map(|look| look.captured.contents.clone()));
    }

    /// Stores the start of a successful scan, and returns the start of the previous one.
    pub(super) fn looked(&self, began: Timestamp) -> Option<Timestamp> {
        lock(&self.0).looked.replace(began)
    }

    /// Holds a scan with the times of its changes.
    pub(super) fn hold(&self, mut look: Look, root: Option<&Path>) {
        let changed: Vec<EntryPath> = look.captured.changes.iter().map(PlannedChange::path).cloned().collect();
        let dated = changed.into_iter().filter_map(|path| Some((path.clone(), look.changed_at(root, &path)?)));
        look.times = dated.collect();
        lock(&self.0).looks.push(look);
    }

    pub(super) fn take(&self) -> Vec<Look> {
        std::mem::take(&mut lock(&self.0).looks)
    }
}
