//! Warm containers for the options that sessions have used last.

use std::sync::{Arc, Mutex, Weak};

use super::warm::WarmContainers;
use crate::backends::containers::PodmanOptions;
use crate::engine::lock::lock;

/// Maximum number of pools.
const KINDS: usize = 4;

/// Warm containers for the sessions of this process. The first container with new options starts a pool of containers
/// with the same options for later sessions. The four most recently used pools are kept.
///
/// Dropping this removes the containers.
#[derive(Debug)]
pub struct WarmForUsed {
    _pools: Arc<UsedPools>,
}

#[derive(Debug)]
struct UsedPools {
    count: usize,
    /// Most recently used last.
    pools: Mutex<Vec<WarmContainers>>,
}

static CURRENT: Mutex<Weak<UsedPools>> = Mutex::new(Weak::new());

impl WarmForUsed {
    /// Keeps `count` containers in each pool.
    pub fn keep(count: usize) -> Self {
        let pools = Arc::new(UsedPools { count, pools: Mutex::default() });
        *lock(&CURRENT) = Arc::downgrade(&pools);
        Self { _pools: pools }
    }
}

/// Notes that a session needs a container with these options.
pub(super) fn used(options: &PodmanOptions) {
    let Some(current) = lock(&CURRENT).upgrade() else { return };
    let mut pools = lock(&current.pools);
    if let Some(found) = pools.iter().position(|pool| pool.is_for(options)) {
        let pool = pools.remove(found);
        pools.push(pool);
        return;
    }
    match WarmContainers::keep(options, current.count) {
        Ok(warm) => pools.push(warm),
        Err(error) => tracing::warn!(%error, "no containers are kept ready"),
    }
    if pools.len() > KINDS {
        let oldest = pools.remove(0);
        // It waits for the engine.
        std::thread::spawn(move || drop(oldest));
    }
}
