//! The process of a coding agent, found by its hooks among their ancestors.

use std::io;
use std::os::unix::process::parent_id;

use super::caller::{STARTED, process_stat};

/// Shells that may stand between an agent and its hook.
const SHELLS: [&str; 7] = ["ash", "bash", "dash", "fish", "ksh", "sh", "zsh"];
/// The maximum number of ancestors that are searched.
const ABOVE_MAX: usize = 8;

/// Returns the nearest ancestor that is not a shell, as unique text. `None` if the system hides processes.
pub fn agent_process() -> Option<String> {
    let mut process = parent_id();
    for _ in 0..ABOVE_MAX {
        let stat = process_stat(process).ok()?;
        let [command, _, parent, ..] = &stat[..] else { return None };
        if !SHELLS.contains(&&**command) {
            return Some(format!("{process} {} {}", stat.get(STARTED)?, namespace()?));
        }
        process = parent.parse().ok()?;
    }
    None
}

/// Returns true if the process has certainly ended. That is never certain across namespaces.
pub fn process_ended(process: &str) -> bool {
    let mut words = process.splitn(3, ' ');
    let (Some(Ok(id)), Some(started), Some(of)) = (words.next().map(str::parse), words.next(), words.next()) else {
        return false;
    };
    if namespace().as_deref() != Some(of) {
        return false;
    }
    match process_stat(id) {
        Ok(stat) => stat.get(STARTED).is_some_and(|begun| begun != started || ["Z", "X"].contains(&&*stat[1])),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

fn namespace() -> Option<String> {
    Some(std::fs::read_link("/proc/self/ns/pid").ok()?.to_string_lossy().into_owned())
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
