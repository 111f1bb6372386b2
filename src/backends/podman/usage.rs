//! The resources that a container uses, from its control groups.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::confinement::text;
use crate::backends::MachineUsage;

/// Returns the resource use of the container with this first process; `None` if the kernel does not report it.
pub(super) fn usage(pid: i32, files: &Path) -> Option<MachineUsage> {
    let groups = text(format!("/proc/{pid}/cgroup"));
    let number = |controller: &str, file: &str| text(group(&groups, controller)?.join(file)).trim().parse::<u64>().ok();
    let line = |controller: &str, file: &str, name: &str| {
        let all = text(group(&groups, controller)?.join(file));
        let found = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        found?.parse::<u64>().ok()
    };
    // With both versions mounted, the container's groups may be of version 1 only.
    let cpu = number("cpuacct", "cpuacct.usage").map(Duration::from_nanos);
    let cpu = cpu.or_else(|| line("", "cpu.stat", "usage_usec").map(Duration::from_micros))?;
    let disk = rustix::fs::statvfs(files).ok()?;
    Some(MachineUsage {
        cpu,
        memory_bytes: number("memory", "memory.usage_in_bytes").or_else(|| number("", "memory.current"))?,
        cache_bytes: line("memory", "memory.stat", "cache").or_else(|| line("", "memory.stat", "file"))?,
        disk_bytes: disk.f_blocks.saturating_sub(disk.f_bfree).saturating_mul(disk.f_frsize),
        disk_total_bytes: disk.f_blocks.saturating_mul(disk.f_frsize),
    })
}

/// Returns the directory of a controller's group. Version 2 of control groups has one for all, without a name.
fn group(groups: &str, controller: &str) -> Option<PathBuf> {
    groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let is_meant = controllers.split(',').any(|name| name == controller);
        let mount = Path::new("/sys/fs/cgroup").join(controllers);
        // Some systems mount version 2 beside version 1.
        let mount =
            if controller.is_empty() && !mount.join("cgroup.procs").exists() { mount.join("unified") } else { mount };
        is_meant.then(|| mount.join(path.trim_start_matches('/')))
    })
}
