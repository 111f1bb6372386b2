//! Processes and their descendants, as `/proc` shows them, and the end of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::sys::{SIGCONT, SIGKILL, SIGSTOP, SIGTERM, group_of, kill, kill_group};

const ROUNDS_MAX: u32 = 50;

/// Fields of `/proc/PID/stat` between the parent and the number of threads.
const THREADS_AFTER_PARENT: usize = 15;

/// The processes that there are, each with its parent. They change while they are looked at.
pub(crate) struct Processes {
    children: BTreeMap<i32, Vec<i32>>,
}

impl Processes {
    /// Looks at all live processes. What has ended but not been waited for is not among them.
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
                // The listing is not of one moment, so parents might form a circle.
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
    // A process whose first thread alone has ended looks like a dead one, but for its threads.
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

/// Kills all that `find` finds, until it finds no more.
///
/// It stops them first: a dead process gives its place to a fork of one not seen yet, a stopped one keeps it.
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

/// Kills the processes of a group that has a member among `pids`, in one step.
pub(crate) fn kill_group_of(pids: &BTreeSet<i32>, group: i32) {
    // The number of a group without a known member may be another group's by now.
    if pids.iter().any(|&pid| group_of(pid) == Some(group)) {
        kill_group(group, SIGKILL);
    }
}
