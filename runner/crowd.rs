//! All processes below the runner, attributed to their commands.
//!
//! A command's first process is a subreaper: it adopts the orphans of its descendants. So a process below a live first
//! process belongs to that command, and any other is left over from a command that has ended.

use std::collections::BTreeSet;

use crate::processes::{self, Processes, kill_group_of};
use crate::sys::{Dead, Reaped, SIGKILL, kill_namespace, reap};

/// The number of attempts after which everything in the container is killed, including other running commands.
const LAST_ATTEMPT: u32 = 10;

pub(crate) struct Population {
    contained: bool,
    leaders: BTreeSet<i32>,
    /// The leftovers at the last scan. They change only when a child ends.
    leftovers: Option<BTreeSet<i32>>,
    childless: bool,
    /// First processes that have ended, before their commands are notified.
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

    /// Takes the first processes that have ended since the last call.
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

    /// Returns true if a live process belongs to no running command. Cheap if no command is running.
    pub(crate) fn has_leftovers(&mut self) -> bool {
        loop {
            if self.leaders.is_empty() {
                return !self.childless;
            }
            if !self.leftovers().is_empty() {
                return true;
            }
            // A scan misses a process that starts, and loses its parent, during the scan. That parent was a child of
            // this process, so a scan that finds none has missed none if there is no child to reap.
            if !self.reap() {
                return false;
            }
        }
    }

    pub(crate) fn leftovers(&mut self) -> BTreeSet<i32> {
        let leaders = &self.leaders;
        self.leftovers.get_or_insert_with(|| Processes::now().below(own_id(), leaders)).clone()
    }

    /// Kills every process that belongs to no other running command. Late attempts kill the whole container.
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
