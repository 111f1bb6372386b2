//! Why a command is refused, and the bounds of finding out.

/// Levels of substitutions, groups, wrappers and shells in shells.
pub(super) const DEPTH_MAX: usize = 40;
/// Steps for each character of a command and of what it is run with, and for any.
pub(super) const STEPS_PER_CHAR: usize = 64;
pub(super) const STEPS: usize = 4_096;

/// A command is refused, with the reason.
#[derive(Debug)]
pub(super) struct Denied(pub(super) String);

/// Refuses what is nested too deeply.
pub(super) fn check_depth(depth: usize) -> Result<(), Denied> {
    match depth > DEPTH_MAX {
        true => Err(Denied(format!("nested more than {DEPTH_MAX} levels deep; write it flatter, or as a script"))),
        false => Ok(()),
    }
}
