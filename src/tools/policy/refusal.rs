//! Why a command is refused, and the bound on the work of finding out.

/// Levels of substitutions, groups, wrappers and shells in shells.
const DEPTH_MAX: usize = 40;
/// Steps for one command, and for each of its characters: what is read, expanded, compared with rules.
const FUEL: usize = 200_000;
const FUEL_PER_CHAR: usize = 16;

/// A command is refused, with the reason.
#[derive(Debug)]
pub(super) struct Denied(pub(super) String);

/// Bounds the work for one command, whatever it says.
#[derive(Debug)]
pub(super) struct Fuel {
    left: usize,
    all: usize,
}

impl Fuel {
    /// What a command of this length gets.
    pub(super) fn for_chars(chars: usize) -> Self {
        let all = FUEL_PER_CHAR.saturating_mul(chars).saturating_add(FUEL);
        Self { left: all, all }
    }

    /// Takes some, or refuses the command.
    pub(super) fn take(&mut self, steps: usize) -> Result<(), Denied> {
        let left = self.left.checked_sub(steps);
        self.left = left.unwrap_or_default();
        match left {
            Some(_) => Ok(()),
            None => {
                let all = self.all;
                Err(Denied(format!("too tangled to be judged in {all} steps; split it into several commands")))
            }
        }
    }
}

/// Refuses what is nested too deeply.
pub(super) fn check_depth(depth: usize) -> Result<(), Denied> {
    match depth > DEPTH_MAX {
        true => Err(Denied(format!("nested more than {DEPTH_MAX} levels deep; write it flatter, or as a script"))),
        false => Ok(()),
    }
}
