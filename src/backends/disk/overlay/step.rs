//! Points at which a test cuts off changes of overlays and layers, as the death of a process does.

/// Comes before each change on the disk that a later process finds.
#[cfg(not(test))]
pub(super) fn step() -> Result<(), rustix::io::Errno> {
    Ok(())
}

#[cfg(test)]
pub(in crate::backends::disk) use testing::{cut_after, step};

#[cfg(test)]
mod testing {
    use std::cell::Cell;

    use rustix::io::Errno;

    thread_local! {
        static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
    }

    pub(in crate::backends::disk) fn step() -> Result<(), Errno> {
        match LEFT.get() {
            None => Ok(()),
            Some(0) => Err(Errno::OWNERDEAD),
            Some(left) => {
                LEFT.set(Some(left - 1));
                Ok(())
            }
        }
    }

    /// Lets this thread take so many steps, and then no more; without a number as many as it wants. Gives whether the
    /// steps that it had until now were enough.
    pub(in crate::backends::disk) fn cut_after(steps: Option<u32>) -> bool {
        LEFT.replace(steps) != Some(0)
    }
}
