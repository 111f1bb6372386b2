//! What one slice gets to see of a batch of events.

use super::event::Common;
use super::recorded::{EventRef, Seq};
use super::store::EventBatch;

/// The kinds of events that a slice takes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    all: bool,
    /// A bit for each common kind.
    common: u8,
    others: Vec<&'static str>,
}

impl Wanted {
    /// Every kind.
    pub(crate) const fn all() -> Self {
        Self { all: true, common: 0, others: Vec::new() }
    }

    /// Adds a kind.
    pub(crate) fn add(&mut self, kind: &'static str) {
        match Common::of(kind.as_bytes()) {
            Common::Other => self.others.push(kind),
            common => self.common |= common.bit(),
        }
    }

    /// Whether an event of this kind is wanted, as far as the common ones go: of others the name decides.
    #[inline]
    pub(crate) fn may_take(&self, common: Common) -> bool {
        self.all || self.common & common.bit() != 0 || (common == Common::Other && !self.others.is_empty())
    }

    /// Whether an event of that name is wanted.
    #[inline]
    pub(crate) fn takes(&self, common: Common, kind: &str) -> bool {
        self.all || common != Common::Other || self.others.contains(&kind)
    }
}

/// The events of a batch that one slice takes, in order.
#[derive(Debug, Clone, Copy)]
pub struct EventRun<'a> {
    pub(crate) batch: &'a EventBatch,
    pub(crate) wanted: &'a Wanted,
    /// The run begins behind this position, and ends with the other.
    pub(crate) after: Seq,
    pub(crate) until: Seq,
}

impl<'a> EventRun<'a> {
    /// The events.
    pub fn events(&self) -> impl Iterator<Item = EventRef<'a>> + use<'a> {
        self.batch.select(self.wanted, self.after, self.until)
    }
}
