//! The label of the process that made a container.

use std::os::unix::fs::MetadataExt;

use crate::backends::caller::{STARTED, process_stat};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    Lives,
    Ended,
    Elsewhere,
}

/// The identity of a pid namespace: pids of other namespaces mean nothing here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PidNamespace {
    boot: String,
    pid_namespace: u64,
}

impl PidNamespace {
    #[expect(clippy::disallowed_methods, reason = "the kernel reports in files")]
    pub(super) fn here() -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let pid_namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino());
        Self { boot: boot.trim().to_owned(), pid_namespace }
    }

    pub(super) fn owner(&self, label: &str, running: bool) -> Owner {
        let fields: Vec<&str> = label.split(':').collect();
        let [pid, start, boot, pid_namespace, ..] = fields[..] else { return Owner::Ended };
        match (boot == self.boot, pid_namespace == self.pid_namespace.to_string()) {
            (true, true) => {}
            // It was made before this machine's last boot, or on another machine; in both cases nothing runs in it.
            (false, _) if !running => return Owner::Ended,
            _ => return Owner::Elsewhere,
        }
        let began = pid.parse().ok().and_then(start_of);
        if began.is_some_and(|began| began == start) { Owner::Lives } else { Owner::Ended }
    }
}

/// Identifies this process, as distinct from later processes with its pid and processes of other namespaces.
pub(crate) fn owner_of_this_process() -> String {
    let (pid, PidNamespace { boot, pid_namespace }) = (std::process::id(), PidNamespace::here());
    format!("{pid}:{}:{boot}:{pid_namespace}", start_of(pid).unwrap_or_default())
}

fn start_of(pid: u32) -> Option<String> {
    process_stat(pid).ok()?.into_iter().nth(STARTED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_lives_and_others_do_not() {
        let here = PidNamespace::here();
        assert!(!here.boot.is_empty() && here.pid_namespace > 0);
        assert_eq!(here.owner(&owner_of_this_process(), true), Owner::Lives);
        let place = format!("{}:{}", here.boot, here.pid_namespace);
        let ended = [format!("{}:1:{place}", std::process::id()), format!("4194305:1:{place}"), format!("x:y:{place}")];
        for ended in ended.iter().map(String::as_str).chain(["", "x", "x:y"]) {
            assert_eq!(here.owner(ended, true), Owner::Ended, "{ended}");
        }
    }

    #[test]
    fn of_processes_elsewhere_nothing_is_known() {
        let here = PidNamespace::here();
        let label = owner_of_this_process();
        let other_container = PidNamespace { pid_namespace: here.pid_namespace + 1, ..here.clone() };
        assert_eq!(other_container.owner(&label, true), Owner::Elsewhere);
        assert_eq!(other_container.owner(&label, false), Owner::Elsewhere, "it may be stopped temporarily");
        let other_machine = PidNamespace { boot: "another".to_owned(), ..here };
        assert_eq!(other_machine.owner(&label, true), Owner::Elsewhere);
        assert_eq!(other_machine.owner(&label, false), Owner::Ended, "this machine may have rebooted");
    }
}
