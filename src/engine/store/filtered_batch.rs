//! What one slice gets to see of a batch of events.

use super::EventBatch;
use crate::engine::event::Common;
use crate::engine::id::Seq;
use crate::engine::recorded::EventRef;

/// The kinds of events that a slice takes.
#[derive(Debug, Clone)]
pub(crate) struct WantedKinds {
    /// A bit for each of [`Common`].
    kinds: u8,
    /// Which of [`Common::Other`]; none for all.
    others: Option<Vec<&'static str>>,
}

impl WantedKinds {
    /// No kind yet.
    pub(crate) fn nothing() -> Self {
        Self { kinds: 0, others: Some(Vec::new()) }
    }

    /// Every kind.
    pub(crate) const fn all() -> Self {
        Self { kinds: u8::MAX, others: None }
    }

    /// The kinds that are not told apart by [`Common`].
    pub(crate) const fn uncommon() -> Self {
        Self { kinds: 1 << Common::Other as u8, others: None }
    }

    /// Adds a kind.
    pub(crate) fn add(&mut self, kind: &'static str) {
        let common = Common::of(kind.as_bytes());
        self.kinds |= common.bit();
        if common == Common::Other
            && let Some(others) = &mut self.others
        {
            others.push(kind);
        }
    }

    /// Whether an event among these may be wanted: of [`Common::Other`] the name decides.
    #[inline]
    pub(crate) fn may_take(&self, kinds: u8) -> bool {
        self.kinds & kinds != 0
    }

    /// Whether an event that may be wanted is.
    #[inline]
    pub(crate) fn takes(&self, common: Common, kind: &str) -> bool {
        common != Common::Other || self.others.as_ref().is_none_or(|others| others.contains(&kind))
    }
}

/// The events of a batch that one slice takes, in order.
#[derive(Debug, Clone, Copy)]
pub struct EventRun<'a> {
    pub(crate) batch: &'a EventBatch,
    pub(crate) wanted: &'a WantedKinds,
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
