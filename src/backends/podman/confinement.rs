//! The confinement of a container's processes, read from the kernel instead of the request.

use std::path::Path;

use super::container_plan::{OF_ROOT, RUN, WORKSPACE};
use super::paths::DOOR;
use crate::backends::containers::PodmanOptions;

/// Mounts of the engine that may be mounted writable: each file in them has its own owner.
const OF_THE_ENGINE: [&str; 7] =
    ["/dev", "/proc", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/run/.containerenv", "/run/secrets"];

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Confinement {
    pub(crate) uid: Option<u32>,
    /// The capabilities that it, or a program that it executes, has or may get: the union of all sets.
    pub(crate) capabilities: u64,
    /// True if its user namespace is not this process's; its capabilities then count only in that namespace.
    pub(crate) has_own_users: bool,
    pub(crate) no_new_privileges: bool,
    pub(crate) seccomp: bool,
    /// Writable mounts that our containers do not need.
    pub(crate) writable: Vec<String>,
    /// The limits in force; `None` if the kernel enforces none.
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) pids: Option<u64>,
    pub(crate) cpu_quota: Option<(u64, u64)>,
}

impl Confinement {
    pub(crate) fn of(pid: i32) -> Self {
        let mut found = Self::default();
        found.read_status(&text(format!("/proc/{pid}/status")));
        found.read_limits(&text(format!("/proc/{pid}/cgroup")));
        found.has_own_users = has_own_users(pid);
        found.writable = writable(&text(format!("/proc/{pid}/mountinfo")));
        found
    }

    /// Returns true if the requested limits of memory, processes and processors are in force.
    pub(crate) fn has_limits(&self, asked: &PodmanOptions) -> bool {
        let memory = self.memory_bytes.is_some_and(|bytes| bytes <= asked.memory_bytes);
        let pids = self.pids.is_some_and(|pids| pids <= u64::from(asked.pids));
        let cpus = self.cpu_quota.is_some_and(|(quota, period)| quota as f64 <= (asked.cpus * period as f64).round());
        memory && pids && cpus
    }

    /// Lists the holes of the sandbox; a container with one must not be used. `user` is its user on this machine.
    pub(crate) fn faults(&self, user: u32, asked: &PodmanOptions) -> Vec<String> {
        let of_root = OF_ROOT.iter().fold(0, |all, (number, _)| all | 1 << number);
        let allowed = if asked.writable_root { of_root } else { 0 };
        let checks = [
            (self.uid == Some(user), "it runs as the wrong user"),
            (self.capabilities & !allowed == 0, "it has capabilities"),
            (!asked.writable_root || self.has_own_users, "it is root outside of a user namespace"),
            (self.no_new_privileges, "it may gain privileges"),
            (self.seccomp, "no seccomp filter is in force"),
        ];
        let faults = checks.into_iter().filter(|(holds, _)| !holds).map(|(_, fault)| fault.to_owned());
        let is_asked_for = |place: &str| asked.writable_root && place == "/" || asked.also_at.as_deref() == Some(place);
        let writable = self.writable.iter().filter(|place| !is_asked_for(place));
        faults.chain(writable.map(|place| format!("{place} can be written to"))).collect()
    }

    fn read_status(&mut self, status: &str) {
        for line in status.lines() {
            let Some((name, value)) = line.split_once(':') else { continue };
            let value = value.trim();
            match name {
                "Uid" => self.uid = value.split_whitespace().nth(1).and_then(|uid| uid.parse().ok()),
                "CapInh" | "CapPrm" | "CapEff" | "CapBnd" | "CapAmb" => {
                    self.capabilities |= u64::from_str_radix(value, 16).unwrap_or(u64::MAX);
                }
                "NoNewPrivs" => self.no_new_privileges = value == "1",
                "Seccomp" => self.seccomp = value == "2",
                _ => {}
            }
        }
    }

    /// Reads the limits of the process's control groups, of either version.
    fn read_limits(&mut self, groups: &str) {
        for line in groups.lines() {
            let mut parts = line.splitn(3, ':');
            let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else { continue };
            let path = path.trim_start_matches('/');
            let under = |mount: &str, file: &str| text(Path::new("/sys/fs/cgroup").join(mount).join(path).join(file));
            let number = |text: String| text.trim().parse::<u64>().ok();
            for controller in controllers.split(',') {
                match controller {
                    "" => {
                        let two =
                            |file: &str| ["", "unified"].iter().map(|mount| under(mount, file)).find(|t| !t.is_empty());
                        let one = |file: &str| two(file).and_then(number);
                        self.memory_bytes = self.memory_bytes.or_else(|| one("memory.max"));
                        self.pids = self.pids.or_else(|| one("pids.max"));
                        self.cpu_quota = self.cpu_quota.or_else(|| two("cpu.max").and_then(|text| quota(&text)));
                    }
                    "memory" => {
                        let limit = number(under("memory", "memory.limit_in_bytes"));
                        // Without a limit the kernel reports the largest number of pages.
                        self.memory_bytes = limit.filter(|bytes| *bytes < 1 << 60);
                    }
                    "pids" => self.pids = number(under("pids", "pids.max")),
                    "cpu" => {
                        let file = |name| number(under(controllers, name)).or_else(|| number(under("cpu", name)));
                        self.cpu_quota = file("cpu.cfs_quota_us").zip(file("cpu.cfs_period_us"));
                    }
                    _ => {}
                }
            }
        }
    }
}

/// Lists the writable mounts that are not needed, from a process's `mountinfo`.
fn writable(mountinfo: &str) -> Vec<String> {
    let mounts: Vec<Mount<'_>> = mountinfo.lines().filter_map(Mount::read).collect();
    let is_covered = |mount: &Mount<'_>| mounts.iter().any(|top| top.below == mount.id && top.place == mount.place);
    let found = mounts.iter().filter(|mount| mount.is_writable && !is_covered(mount) && !is_known(mount.place));
    let found: Vec<_> = found.map(|mount| mount.place.to_owned()).collect();
    // Without a line for the root, it may be writable.
    if mounts.iter().any(|mount| mount.place == "/") { found } else { vec!["/".to_owned()] }
}

fn is_known(place: &str) -> bool {
    let own = [WORKSPACE, "/tmp"].contains(&place) || Path::new(place) == Path::new(RUN).join(DOOR);
    own || OF_THE_ENGINE.iter().any(|known| Path::new(place).starts_with(known))
}

struct Mount<'a> {
    id: &'a str,
    below: &'a str,
    place: &'a str,
    is_writable: bool,
}

impl<'a> Mount<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let (mount, system) = line.split_once(" - ")?;
        let mut fields = mount.split(' ');
        let (id, below, place, options) = (fields.next()?, fields.next()?, fields.nth(2)?, fields.next()?);
        let allows = |options: &str| options.split(',').any(|option| option == "rw");
        Some(Self { id, below, place, is_writable: allows(options) && system.split(' ').nth(2).is_none_or(allows) })
    }
}

/// Parses `100000 100000`, or `max 100000` for no limit.
fn quota(text: &str) -> Option<(u64, u64)> {
    let (quota, period) = text.trim().split_once(' ')?;
    Some((quota.parse().ok()?, period.parse().ok()?))
}

fn has_own_users(pid: i32) -> bool {
    let [its, own] = [pid.to_string(), "self".to_owned()].map(|of| std::fs::read_link(format!("/proc/{of}/ns/user")));
    matches!((its, own), (Ok(its), Ok(own)) if its != own)
}

/// Reads a small file of the kernel; empty if it is missing.
#[expect(clippy::disallowed_methods, reason = "the kernel reports in files")]
pub(super) fn text(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\trunner\nUid:\t65534\t65534\t65534\t65534\nCapInh:\t0000000000000000\n\
        CapPrm:\t0000000000000000\nCapEff:\t0000000000000000\nCapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\n\
        NoNewPrivs:\t1\nSeccomp:\t2\n";

    fn of(status: &str) -> Confinement {
        let mut found = Confinement::default();
        found.read_status(status);
        found
    }

    #[test]
    fn confinement_of_tight_container_has_no_faults() {
        assert_eq!(of(STATUS).faults(65534, &PodmanOptions::default()), Vec::<String>::new());
        assert!(!of(STATUS).has_limits(&PodmanOptions::default()));
    }

    #[test]
    fn confinement_checks_limits() {
        let asked = PodmanOptions { memory_bytes: 1 << 30, pids: 512, cpus: 1.5, ..PodmanOptions::default() };
        let limits = |memory, pids, quota| Confinement {
            memory_bytes: Some(memory),
            pids: Some(pids),
            cpu_quota: Some((quota, 100_000)),
            ..Confinement::default()
        };
        assert!(limits(1 << 30, 512, 150_000).has_limits(&asked));
        assert!(!limits(1 << 31, 512, 150_000).has_limits(&asked));
        assert!(!limits(1 << 30, 513, 150_000).has_limits(&asked));
        assert!(!limits(1 << 30, 512, 200_000).has_limits(&asked));
    }

    #[test]
    fn confinement_names_every_hole() {
        assert_eq!(Confinement::default().faults(65534, &PodmanOptions::default()).len(), 3);
        assert_eq!(
            of(&STATUS.replace("CapBnd:\t0", "CapBnd:\t1")).faults(65534, &PodmanOptions::default()),
            ["it has capabilities"]
        );
        assert_eq!(
            of(&STATUS.replace("NoNewPrivs:\t1", "NoNewPrivs:\t0")).faults(65534, &PodmanOptions::default()),
            ["it may gain privileges"]
        );
        assert_eq!(
            of(&STATUS.replace("Seccomp:\t2", "Seccomp:\t0")).faults(65534, &PodmanOptions::default()),
            ["no seccomp filter is in force"]
        );
        let root = of(&STATUS.replace("65534", "0"));
        assert_eq!(root.faults(65534, &PodmanOptions::default()), ["it runs as the wrong user"]);
        assert!(of(&STATUS.replace("65534", "1000")).faults(1000, &PodmanOptions::default()).is_empty());
    }

    #[test]
    fn confinement_of_root_takes_a_user_namespace() {
        let rooted = PodmanOptions { writable_root: true, ..PodmanOptions::default() };
        let root = of(&STATUS.replace("CapBnd:\t0000000000000000", "CapBnd:\t00000000000404fb"));
        let mapped = Confinement { has_own_users: true, writable: vec!["/".to_owned()], ..root.clone() };
        assert_eq!(mapped.faults(65534, &rooted), Vec::<String>::new());
        assert_eq!(root.faults(65534, &rooted), ["it is root outside of a user namespace"]);
        assert_eq!(mapped.faults(65534, &PodmanOptions::default()), ["it has capabilities", "/ can be written to"]);
        let more = Confinement { capabilities: 1 << 21, writable: vec!["/data".to_owned()], ..mapped };
        assert_eq!(more.faults(65534, &rooted), ["it has capabilities", "/data can be written to"]);
        let placed = PodmanOptions { also_at: Some("/data".to_owned()), ..rooted };
        assert_eq!(more.faults(65534, &placed), ["it has capabilities"]);
    }

    #[test]
    fn confinement_names_writable_mounts() {
        let mount = |id: u32, below: u32, place: &str, options: &str, system: &str| {
            format!("{id} {below} 0:1 / {place} {options},nosuid shared:7 - tmpfs tmpfs {system},size=1k\n")
        };
        let usual = [("/", "ro"), ("/workspace", "rw"), ("/tmp", "rw"), ("/run/foldspace", "ro")];
        let more = [("/run/foldspace/door", "rw"), ("/dev/shm", "rw"), ("/proc", "rw"), ("/etc/hosts", "rw")];
        let lines = (10..).zip(usual.into_iter().chain(more)).map(|(id, (place, how))| mount(id, 1, place, how, "rw"));
        let usual: String = lines.collect();
        assert_eq!(writable(&usual), Vec::<String>::new());
        let groups = mount(30, 1, "/sys/fs/cgroup", "rw", "rw");
        assert_eq!(writable(&format!("{usual}{groups}")), ["/sys/fs/cgroup"]);
        let covered = mount(31, 30, "/sys/fs/cgroup", "ro", "rw");
        assert_eq!(writable(&format!("{usual}{groups}{covered}")), Vec::<String>::new());
        assert_eq!(writable(&format!("{usual}{covered}{}", mount(40, 1, "/data", "rw", "ro"))), Vec::<String>::new());
        assert_eq!(writable(&usual.replace("/ ro", "/ rw")), ["/"]);
        assert_eq!(writable(""), ["/"], "nothing shows that it is read-only");
        let confinement = Confinement { writable: vec!["/data".to_owned()], ..of(STATUS) };
        assert_eq!(confinement.faults(65534, &PodmanOptions::default()), ["/data can be written to"]);
    }

    #[test]
    fn confinement_reads_quotas() {
        assert_eq!(quota("100000 100000\n"), Some((100_000, 100_000)));
        assert_eq!(quota("max 100000\n"), None);
    }
}
