//! Finds processes and their descendants in `/proc`, and kills them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::sys::{SIGCONT, SIGKILL, SIGSTOP, SIGTERM, group_of, kill, kill_group};

const ROUNDS_MAX: u32 = 50;

/// The number of fields in `/proc/PID/stat` between the parent and the thread count.
const THREADS_AFTER_PARENT: usize = 15;

/// The live processes by parent. The scan is not atomic: processes start and end during it.
pub(crate) struct Processes {
    children: BTreeMap<i32, Vec<i32>>,
}

impl Processes {
    /// Scans `/proc` for live processes, leaving out zombies.
    pub(crate) fn now() -> Self {
        let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            if let Some(parent) = parent_of(pid) {
                children.entry(parent).or_default().push(pid);
            }
        }
        Self { children }
    }

    pub(crate) fn below(&self, ancestor: i32, spared: &BTreeSet<i32>) -> BTreeSet<i32> {
        let mut found = BTreeSet::new();
        let mut left = vec![ancestor];
        while let Some(parent) = left.pop() {
            for &child in self.children.get(&parent).into_iter().flatten() {
                // The scan is not atomic, so parents might form a cycle.
                if !spared.contains(&child) && found.insert(child) {
                    left.push(child);
                }
            }
        }
        found
    }
}

fn parent_of(pid: i32) -> Option<i32> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The program's name is in parentheses and may hold any byte.
    let after = stat.iter().rposition(|&byte| byte == b')')?;
    let mut fields = stat.get(after + 1..)?.split(|&byte| byte == b' ').filter(|field| !field.is_empty());
    let state = fields.next()?;
    let parent = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    // The state is also `Z` if only the first thread has ended; then the process has other threads.
    let mut threads = || std::str::from_utf8(fields.nth(THREADS_AFTER_PARENT)?).ok()?.parse::<u32>().ok();
    let is_dead = match state {
        b"X" => true,
        b"Z" => threads().is_none_or(|count| count <= 1),
        _ => false,
    };
    (!is_dead).then_some(parent)
}

pub(crate) fn terminate(pids: &BTreeSet<i32>) {
    for number in [SIGTERM, SIGCONT] {
        pids.iter().for_each(|&pid| kill(pid, number));
    }
}

/// Stops the processes that `find` returns until it returns no new ones, then kills all of them.
///
/// Killing them earlier would free their slots for forks of processes that were not found yet.
pub(crate) fn kill_all(find: impl Fn(&Processes) -> BTreeSet<i32>) {
    let mut stopped = BTreeSet::new();
    for _ in 0..ROUNDS_MAX {
        let found = find(&Processes::now());
        let mut grew = false;
        for pid in found {
            if stopped.insert(pid) {
                grew = true;
                kill(pid, SIGSTOP);
            }
        }
        if !grew {
            break;
        }
    }
    stopped.iter().for_each(|&pid| kill(pid, SIGKILL));
}

/// Kills a process group in one step if one of `pids` is a member.
pub(crate) fn kill_group_of(pids: &BTreeSet<i32>, group: i32) {
    // Without a known member, the group's id may have been reused.
    if pids.iter().any(|&pid| group_of(pid) == Some(group)) {
        kill_group(group, SIGKILL);
    }
}
