//! What is being done through a hub, and whether it takes more.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::HubError;
use super::figures::Figures;
use crate::engine::event::CallStatus;
use crate::tools::Tools;

/// Calls, rewinds and merges that are under way.
#[derive(Default)]
pub(super) struct InFlight {
    work: Mutex<InFlightWork>,
    ended: Notify,
    /// Of the calls that have ended.
    pub(super) figures: Figures,
}

#[derive(Default)]
struct InFlightWork {
    is_ending: bool,
    /// The number of the one that began last.
    last: u64,
    /// With what takes them back.
    going: BTreeMap<u64, CancellationToken>,
}

/// Something that is under way, until this is dropped.
pub(super) struct Going {
    under_way: Arc<InFlight>,
    number: u64,
}

impl InFlight {
    /// Notes something that begins.
    pub(super) fn begin(self: &Arc<Self>, cancel: CancellationToken) -> Result<Going, HubError> {
        let mut work = self.lock();
        if work.is_ending {
            return Err(HubError::Ending);
        }
        work.last += 1;
        let number = work.last;
        work.going.insert(number, cancel);
        Ok(Going { under_way: Arc::clone(self), number })
    }

    /// From now on nothing begins.
    pub(super) fn end(&self) {
        self.lock().is_ending = true;
    }

    pub(super) fn still_going(&self) -> Result<(), HubError> {
        if self.lock().is_ending { Err(HubError::Ending) } else { Ok(()) }
    }

    pub(super) fn count(&self) -> usize {
        self.lock().going.len()
    }

    pub(super) fn cancel(&self) {
        self.lock().going.values().for_each(CancellationToken::cancel);
    }

    /// Waits until nothing is under way.
    pub(super) async fn ended(&self) {
        loop {
            let ended = self.ended.notified();
            if self.count() == 0 {
                return;
            }
            ended.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, InFlightWork> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Going {
    /// Counts a call that has ended.
    pub(super) fn called(&self, tool: &str, tools: &Tools, status: CallStatus, micros: u64) {
        self.under_way.figures.ended(tool, tools, status, micros);
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        let mut work = self.under_way.lock();
        work.going.remove(&self.number);
        let is_quiet = work.going.is_empty();
        drop(work);
        if is_quiet {
            self.under_way.ended.notify_waiters();
        }
    }
}
