//! The process of a coding agent, which its hooks find above themselves.

use std::io;
use std::os::unix::process::parent_id;

/// Shells between an agent and its hook.
const SHELLS: [&str; 7] = ["ash", "bash", "dash", "fish", "ksh", "sh", "zsh"];
/// Most processes above a hook that are searched.
const ABOVE_MAX: usize = 8;

/// Some fields of a process's `stat`.
struct ProcessStat {
    command: String,
    state: String,
    parent: u32,
    started: String,
}

/// Returns the nearest process above this one that is not a shell, as unique text. `None` if the system hides processes.
pub fn agent_process() -> Option<String> {
    let mut process = parent_id();
    for _ in 0..ABOVE_MAX {
        let ProcessStat { command, parent, started, .. } = ProcessStat::of(process).ok()?;
        if !SHELLS.contains(&&*command) {
            return Some(format!("{process} {started} {}", namespace()?));
        }
        process = parent;
    }
    None
}

/// Returns true if that process has certainly ended. A process of another namespace is never certain.
pub(crate) fn process_ended(process: &str) -> bool {
    let mut words = process.splitn(3, ' ');
    let (Some(Ok(id)), Some(started), Some(of)) = (words.next().map(str::parse), words.next(), words.next()) else {
        return false;
    };
    if namespace().as_deref() != Some(of) {
        return false;
    }
    match ProcessStat::of(id) {
        Ok(stat) => stat.started != started || ["Z", "X"].contains(&&*stat.state),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

fn namespace() -> Option<String> {
    Some(std::fs::read_link("/proc/self/ns/pid").ok()?.to_string_lossy().into_owned())
}

impl ProcessStat {
    #[expect(clippy::disallowed_methods, reason = "the kernel describes a process in a file")]
    fn of(process: u32) -> io::Result<Self> {
        // The command may have spaces and parentheses.
        let text = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
        let read = || {
            let (head, tail) = text.rsplit_once(") ")?;
            let fields: Vec<&str> = tail.split(' ').collect();
            Some(Self {
                command: head.split_once('(')?.1.to_owned(),
                state: (*fields.first()?).to_owned(),
                parent: fields.get(1)?.parse().ok()?,
                started: (*fields.get(19)?).to_owned(),
            })
        };
        read().ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_that_runs_has_not_ended() {
        let here = agent_process().unwrap();
        assert!(!process_ended(&here));
        let words: Vec<&str> = here.split(' ').collect();
        assert!(process_ended(&format!("{} 1 {}", words[0], words[2])), "the id is another process's now");
        assert!(!process_ended(&format!("{} 1 pid:[1]", words[0])), "nothing is known of another namespace");
        assert!(process_ended(&format!("4194305 1 {}", words[2])), "no process has such an id");
        assert!(!process_ended("") && !process_ended("x y"));
    }
}
