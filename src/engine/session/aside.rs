use tokio::runtime::{Handle, RuntimeFlavor};

/// Waits on the current thread, for a caller that can't await. If the thread runs tasks of a runtime with several
/// threads, its other tasks move to another thread first.
pub fn aside<T>(wait: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(wait),
        _ => wait(),
    }
}
