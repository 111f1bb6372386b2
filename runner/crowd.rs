//! All processes below the runner, told apart by the commands that they belong to.
//!
//! A command's first process adopts what its descendants leave behind (it is a subreaper). So whoever is below a live
//! first process belongs to that command, and whoever is not is left over from a command that has ended.

use std::collections::BTreeSet;

use crate::exec::ProcessGroup;
use crate::processes::{self, Processes, kill_group_of};
use crate::sys::{Dead, Reaped, SIGKILL, kill_namespace, reap};

/// Attempts after which, in a container, commands that still run are killed too, to be rid of what cannot be caught.
const LAST_ATTEMPT: u32 = 10;

/// The processes below the runner.
pub(crate) struct Population {
    contained: bool,
    /// The first processes of running commands.
    leaders: BTreeSet<i32>,
    /// The leftovers of the last look. They change only when a child ends.
    leftovers: Option<BTreeSet<i32>>,
    childless: bool,
    /// First processes that have ended and whose commands do not know it yet.
    ended: Vec<Dead>,
}

impl Population {
    pub(crate) fn new(contained: bool) -> Self {
        Self { contained, leaders: BTreeSet::new(), leftovers: None, childless: false, ended: Vec::new() }
    }

    /// Notes a command's first process.
    pub(crate) fn add(&mut self, leader: i32) {
        self.leaders.insert(leader);
        self.childless = false;
    }

    /// Takes all children that have ended. True when there were some.
    pub(crate) fn reap(&mut self) -> bool {
        let mut took = false;
        loop {
            match reap() {
                Reaped::Child(dead) => {
                    took = true;
                    self.leftovers = None;
                    if self.leaders.remove(&dead.pid) {
                        self.ended.push(dead);
                    }
                }
                Reaped::Nothing => {
                    self.childless = false;
                    return took;
                }
                Reaped::Childless => {
                    self.childless = true;
                    return took;
                }
            }
        }
    }

    /// The first processes that have ended since this was asked.
    pub(crate) fn take_ended(&mut self) -> Vec<Dead> {
        std::mem::take(&mut self.ended)
    }

    /// Tells whether [`Population::take_ended`] has some.
    pub(crate) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Reaps, and tells whether no process lives below the runner.
    pub(crate) fn is_empty(&mut self) -> bool {
        self.reap();
        self.childless
    }

    /// Kills all processes below the runner.
    pub(crate) fn kill_all(&mut self) {
        processes::kill_all(|now| now.below(own_id(), &BTreeSet::new()));
    }
}

impl ProcessGroup for Population {
    fn has_leftovers(&mut self) -> bool {
        loop {
            if self.leaders.is_empty() {
                return !self.childless;
            }
            if !self.leftovers().is_empty() {
                return true;
            }
            // A process is missed that was born, and whose parent died, while they were looked at. The dead parent was
            // then this process's child, so whoever finds nobody and has nobody to reap has not missed any.
            if !self.reap() {
                return false;
            }
        }
    }

    fn leftovers(&mut self) -> BTreeSet<i32> {
        let leaders = &self.leaders;
        self.leftovers.get_or_insert_with(|| Processes::now().below(own_id(), leaders)).clone()
    }

    fn kill(&mut self, leader: i32, attempt: u32) {
        let mut others = self.leaders.clone();
        others.remove(&leader);
        let hopeless = attempt > LAST_ATTEMPT || (attempt > 1 && others.is_empty());
        if self.contained && hopeless {
            kill_namespace(SIGKILL);
            return;
        }
        kill_group_of(&Processes::now().below(own_id(), &others), leader);
        processes::kill_all(|now| now.below(own_id(), &others));
    }
}

fn own_id() -> i32 {
    std::process::id().cast_signed()
}
