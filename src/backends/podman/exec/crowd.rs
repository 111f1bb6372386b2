//! The processes of a container, as this machine sees them, and the end of those of one command.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::time::{ClockId, clock_gettime};

/// Rounds in which all that can still fork is looked for.
const ROUNDS_MAX: u32 = 50;

/// What is known of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    parent: i32,
    session: i32,
    /// Clock ticks since this machine was booted.
    started: u64,
}

/// The live processes of a container by their number here. They change while they are looked at.
pub(crate) type ExecProcesses = BTreeMap<i32, Process>;

/// A container's processes.
#[derive(Debug)]
pub(crate) struct ExecCrowd {
    /// The container's first process.
    first: i32,
    /// Its process, whatever becomes of its number.
    handle: OwnedFd,
    namespace: (u64, u64),
    /// Clock ticks in a second.
    pace: u64,
}

impl ExecCrowd {
    /// Of the container whose first process is that one.
    pub(crate) fn of(first: i32) -> io::Result<Self> {
        let handle = open(first)?;
        let namespace = namespace_of(first)?;
        Ok(Self { first, handle, namespace, pace: rustix::param::clock_ticks_per_second().max(1) })
    }

    pub(crate) fn first(&self) -> i32 {
        self.first
    }

    /// Whether the first process lives.
    pub(crate) fn is_alive(&self) -> bool {
        !has_ended(&self.handle)
    }

    /// This moment, as the start of processes is told.
    pub(crate) fn moment(&self) -> u64 {
        let now = clock_gettime(ClockId::Boottime);
        let (seconds, nanos) = (u64::try_from(now.tv_sec).unwrap_or(0), u64::try_from(now.tv_nsec).unwrap_or(0));
        seconds * self.pace + nanos * self.pace / 1_000_000_000
    }

    /// A handle of a process, if it is one of this container.
    pub(crate) fn member(&self, pid: i32) -> Option<OwnedFd> {
        let handle = open(pid).ok()?;
        // Looked up after it was opened, so that it is of the same process unless that has ended.
        (namespace_of(pid).ok()? == self.namespace).then_some(handle)
    }

    fn look(&self) -> ExecProcesses {
        pids()
            .filter(|pid| namespace_of(*pid).is_ok_and(|found| found == self.namespace))
            .filter_map(|pid| Some((pid, process(pid)?)))
            .collect()
    }

    /// The processes of the command with that first process, which has begun at that moment.
    pub(crate) fn of_command(&self, leader: Option<i32>, began: u64) -> BTreeSet<i32> {
        command(&self.look(), self.first, leader, began)
    }

    /// Sends a signal to processes of this container.
    pub(crate) fn signal(&self, pids: &BTreeSet<i32>, signal: Signal) {
        for handle in pids.iter().filter_map(|pid| self.member(*pid)) {
            if let Err(error) = pidfd_send_signal(handle, signal)
                && error != rustix::io::Errno::SRCH
            {
                tracing::debug!(%error, "a process of a container could not be sent a signal");
            }
        }
    }

    /// Kills a command's processes. They are stopped first, until no new ones are found: a stopped process
    /// keeps its place, so a fork bomb can't outrun this.
    pub(crate) fn kill(&self, leader: Option<i32>, began: u64) {
        let mut stopped = BTreeSet::new();
        for _ in 0..ROUNDS_MAX {
            let found = self.of_command(leader, began);
            let new: BTreeSet<i32> = found.difference(&stopped).copied().collect();
            if new.is_empty() {
                break;
            }
            self.signal(&new, Signal::STOP);
            stopped.extend(new);
        }
        self.signal(&stopped, Signal::KILL);
    }
}

/// Which processes are a command's.
///
/// What the engine starts in a container has its parent outside, so each such process is the first of a running
/// command, or of somebody's own. Those below another one, and those in its session, are not ours. What has no such
/// ancestor any more is ours, unless it is older than the command and another one runs that it may belong to.
fn command(all: &ExecProcesses, first: i32, leader: Option<i32>, began: u64) -> BTreeSet<i32> {
    let own = all.get(&first).map(|process| process.session);
    let is_root = |(pid, process): &(&i32, &Process)| **pid != first && !all.contains_key(&process.parent);
    let others: BTreeSet<i32> =
        all.iter().filter(is_root).map(|(pid, _)| *pid).filter(|pid| Some(*pid) != leader).collect();
    let below_others: BTreeSet<i32> = all.keys().copied().filter(|pid| is_below(all, *pid, &others)).collect();
    let sessions: BTreeSet<i32> = others.iter().filter_map(|pid| all.get(pid)).map(|process| process.session).collect();
    let is_ours = |pid: i32, process: &Process| {
        let old = process.started < began && !others.is_empty();
        let spared = below_others.contains(&pid) || sessions.contains(&process.session);
        pid != first && Some(process.session) != own && !spared && !old
    };
    all.iter().filter(|(pid, process)| is_ours(**pid, process)).map(|(pid, _)| *pid).collect()
}

/// Whether a process is one of them or has one of them as an ancestor.
fn is_below(all: &ExecProcesses, pid: i32, ancestors: &BTreeSet<i32>) -> bool {
    let mut at = pid;
    // The listing is not of one moment, so parents might form a circle.
    for _ in 0..=all.len() {
        if ancestors.contains(&at) {
            return true;
        }
        match all.get(&at) {
            Some(process) => at = process.parent,
            None => return false,
        }
    }
    false
}

fn open(pid: i32) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::NotFound)?;
    Ok(pidfd_open(pid, PidfdFlags::NONBLOCK)?)
}

/// Whether the process of a handle has ended.
pub(crate) fn has_ended(handle: &OwnedFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(handle, PollFlags::IN)], Some(&at_once)).is_ok_and(|ready| ready > 0)
}

fn namespace_of(pid: i32) -> io::Result<(u64, u64)> {
    let found = rustix::fs::stat(format!("/proc/{pid}/ns/pid"))?;
    Ok((found.st_dev, found.st_ino))
}

#[expect(clippy::disallowed_methods, reason = "the kernel tells of processes in files")]
fn pids() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// What is known of a process; none for one that has ended and only was not waited for.
#[expect(clippy::disallowed_methods, reason = "the kernel tells of processes in files")]
fn process(pid: i32) -> Option<Process> {
    parsed(&std::fs::read(PathBuf::from(format!("/proc/{pid}/stat"))).ok()?)
}

fn parsed(stat: &[u8]) -> Option<Process> {
    // The program's name is in parentheses and may hold any byte.
    let after = stat.iter().rposition(|byte| *byte == b')')?;
    let text = std::str::from_utf8(stat.get(after + 1..)?).ok()?;
    let fields: Vec<&str> = text.split_whitespace().collect();
    let state = *fields.first()?;
    let number = |at: usize| fields.get(at)?.parse::<i32>().ok();
    let process = Process { parent: number(1)?, session: number(3)?, started: fields.get(19)?.parse().ok()? };
    // One whose first thread has ended while another goes on is shown as if it had ended.
    let lives_on = number(17).is_some_and(|threads| threads > 1);
    (lives_on || !matches!(state, "Z" | "X")).then_some(process)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers, parents, sessions, starts.
    fn crowd(rows: &[(i32, i32, i32, u64)]) -> ExecProcesses {
        rows.iter().map(|&(pid, parent, session, started)| (pid, Process { parent, session, started })).collect()
    }

    fn ours(all: &ExecProcesses, leader: Option<i32>, began: u64) -> Vec<i32> {
        command(all, 10, leader, began).into_iter().collect()
    }

    #[test]
    fn crowd_includes_descendants_and_daemons() {
        // The first process and its sleep; a command, its child, and two that have left: one with a session of its own.
        let all = crowd(&[
            (10, 1, 10, 0),
            (11, 10, 10, 0),
            (20, 2, 20, 5),
            (21, 20, 20, 5),
            (22, 10, 20, 6),
            (23, 10, 23, 6),
        ]);
        assert_eq!(ours(&all, Some(20), 5), [20, 21, 22, 23]);
        // Its first process has ended.
        let all = crowd(&[(10, 1, 10, 0), (11, 10, 10, 0), (22, 10, 20, 6), (23, 10, 23, 2)]);
        assert_eq!(ours(&all, Some(20), 5), [22, 23], "nobody else runs, so what is old is left over too");
    }

    #[test]
    fn crowd_excludes_other_commands() {
        let other =
            [(10, 1, 10, 0), (11, 10, 10, 0), (30, 2, 30, 3), (31, 30, 31, 7), (32, 10, 30, 7), (33, 10, 33, 4)];
        assert_eq!(ours(&crowd(&other), Some(20), 5), Vec::<i32>::new());
        let both = [&other[..], &[(22, 10, 22, 6)]].concat();
        assert_eq!(ours(&crowd(&both), Some(20), 5), [22]);
        // The leader is not known yet: then nothing that the engine has started is taken for it.
        assert_eq!(ours(&crowd(&both), None, 5), [22]);
    }

    #[test]
    fn crowd_with_parent_cycle_ends() {
        let all = crowd(&[(10, 1, 10, 0), (20, 21, 20, 5), (21, 20, 20, 5)]);
        assert_eq!(ours(&all, None, 0), [20, 21]);
    }

    #[test]
    fn crowd_parses_proc_stat() {
        let stat = b"14668 (a) b\xff) S 14608 14663 14662 0 -1 4194304 77 0 0 0 0 0 0 0 20 0 1 0 5727608 2";
        let expected = Process { parent: 14608, session: 14662, started: 5_727_608 };
        assert_eq!(parsed(stat), Some(expected));
        let ended = String::from_utf8_lossy(stat).replace(" S ", " Z ");
        assert_eq!(parsed(ended.as_bytes()), None);
        assert_eq!(parsed(ended.replace(" 20 0 1 0 ", " 20 0 2 0 ").as_bytes()), Some(expected));
        assert_eq!(parsed(b"garbage"), None);
    }
}
