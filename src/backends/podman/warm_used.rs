//! Warm containers for the options that sessions have used last.

use std::sync::{Arc, Mutex, Weak};

use super::warm::{WarmContainers, essence};
use crate::backends::containers::PodmanOptions;
use crate::engine::lock::lock;

/// Different options at the same time.
const KINDS: usize = 4;

/// Warm containers for the options of this process' sessions: from the first container with new options on, a number of
/// them is ready for the next sessions. Those of the four options that were used last stay.
///
/// Dropping it removes them.
#[derive(Debug)]
pub struct WarmForUsed {
    _pools: Arc<UsedPools>,
}

#[derive(Debug)]
struct UsedPools {
    count: usize,
    /// Last used last.
    pools: Mutex<Vec<UsedPool>>,
}

#[derive(Debug)]
struct UsedPool {
    essence: PodmanOptions,
    /// Held for its drop.
    _warm: WarmContainers,
}

static CURRENT: Mutex<Weak<UsedPools>> = Mutex::new(Weak::new());

impl WarmForUsed {
    /// Keeps `count` containers ready for each of the options from now on.
    pub fn keep(count: usize) -> Self {
        let pools = Arc::new(UsedPools { count, pools: Mutex::default() });
        *lock(&CURRENT) = Arc::downgrade(&pools);
        Self { _pools: pools }
    }
}

/// Notes that a session needs a container with these options.
pub(super) fn used(options: &PodmanOptions) {
    let Some(current) = lock(&CURRENT).upgrade() else { return };
    let wanted = essence(options);
    let mut pools = lock(&current.pools);
    if let Some(found) = pools.iter().position(|pool| pool.essence == wanted) {
        let pool = pools.remove(found);
        pools.push(pool);
        return;
    }
    match WarmContainers::keep(options, current.count) {
        Ok(warm) => pools.push(UsedPool { essence: wanted, _warm: warm }),
        Err(error) => tracing::warn!(%error, "no containers are kept ready"),
    }
    if pools.len() > KINDS {
        let oldest = pools.remove(0);
        // It waits for the engine.
        std::thread::spawn(move || drop(oldest));
    }
}
