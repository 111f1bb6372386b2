//! All processes below the runner, told apart by the commands that they belong to.
//!
//! A command's first process adopts what its descendants leave behind (it is a subreaper). So a process below
//! a live first process belongs to that command, and any other is left over from a command that has ended.

use std::collections::BTreeSet;

use crate::processes::{self, Processes, kill_group_of};
use crate::sys::{Dead, Reaped, SIGKILL, kill_namespace, reap};

/// Attempts after which, in a container, commands that still run are killed too, to be rid of what cannot be caught.
const LAST_ATTEMPT: u32 = 10;

pub(crate) struct Population {
    contained: bool,
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

    pub(crate) fn add(&mut self, leader: i32) {
        self.leaders.insert(leader);
        self.childless = false;
    }

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

    pub(crate) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    pub(crate) fn is_empty(&mut self) -> bool {
        self.reap();
        self.childless
    }

    pub(crate) fn kill_all(&mut self) {
        processes::kill_all(|now| now.below(own_id(), &BTreeSet::new()));
    }

    /// Tells whether processes live that belong to no running command; cheap where nothing else runs.
    pub(crate) fn has_leftovers(&mut self) -> bool {
        loop {
            if self.leaders.is_empty() {
                return !self.childless;
            }
            if !self.leftovers().is_empty() {
                return true;
            }
            // A process is missed that was born, and whose parent died, while they were looked at. The dead parent was
            // then this process's child: a look that finds none, with none to reap, has not missed any.
            if !self.reap() {
                return false;
            }
        }
    }

    pub(crate) fn leftovers(&mut self) -> BTreeSet<i32> {
        let leaders = &self.leaders;
        self.leftovers.get_or_insert_with(|| Processes::now().below(own_id(), leaders)).clone()
    }

    /// Kills all that belongs to no other running command, the harder the more often it was tried.
    pub(crate) fn kill(&mut self, leader: i32, attempt: u32) {
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
