//! Points where a test interrupts changes of overlays and layers, like the death of a process.

/// Called before each change on disk that a later process can see.
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

    /// Allows this thread the given number of steps, or any number without one. Returns true if the previous limit was
    /// not reached.
    pub(in crate::backends::disk) fn cut_after(steps: Option<u32>) -> bool {
        LEFT.replace(steps) != Some(0)
    }
}
