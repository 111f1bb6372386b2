//! What holds a command, as it sees it itself, and as the host sees its limits.

use std::path::{Path, PathBuf};

use foldspace::backends::PodmanOptions;
use foldspace::event::ContainerStarted;

use crate::rig::{Rig, process_of};

fn rig() -> Option<Rig> {
    Rig::container(|options| options)
}

/// The lines of a status file of the kernel, by name.
fn status(text: &str, name: &str) -> String {
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn confined_command_cannot_change_user() {
    let Some(rig) = rig() else { return };
    let text = rig.printed("cat /proc/self/status");
    for name in ["Uid", "Gid"] {
        assert_eq!(status(&text, name), "65534 65534 65534 65534", "{name}");
    }
    for name in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(status(&text, name), "0000000000000000", "{name}");
    }
    assert_eq!((status(&text, "NoNewPrivs"), status(&text, "Seccomp")), ("1".to_owned(), "2".to_owned()));
    let groups = status(&text, "Groups");
    assert!(groups.is_empty() || groups == "65534", "{groups}");
    let first = rig.printed("cat /proc/1/status");
    for name in ["Uid", "CapBnd", "NoNewPrivs", "Seccomp"] {
        assert_eq!(status(&first, name), status(&text, name), "{name} of the runner");
    }
}

#[test]
fn confined_command_has_loopback_only() {
    let Some(rig) = rig() else { return };
    let devices = rig.printed("cat /proc/net/dev");
    let names: Vec<_> = devices.lines().filter_map(|line| Some(line.split_once(':')?.0.trim())).collect();
    assert_eq!(names, ["lo"]);
    let program = "import socket\ntry:\n    socket.create_connection(('192.0.2.1', 80), 3)\nexcept OSError as e:\n    print(e.errno)\n";
    assert_eq!(rig.python(program).stdout(), "101", "the network is unreachable");
}

/// The control group of a process for a controller, on this machine, and the file in it.
fn group(process: i64, controller: &str, file: &str) -> Option<String> {
    let groups = std::fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap();
    groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
        let is_it = controllers.is_empty() || controllers.split(',').any(|one| one == controller);
        let mounts = [controllers, controller, "", "unified"].map(|mount| Path::new("/sys/fs/cgroup").join(mount));
        let found = |mount: &PathBuf| std::fs::read_to_string(mount.join(path).join(file)).ok();
        mounts.iter().filter(|_| is_it).find_map(found).map(|text| text.trim().to_owned())
    })
}

#[test]
fn confined_command_has_its_limits() {
    let options = |options| PodmanOptions { memory_bytes: 96 << 20, pids: 77, cpus: 0.5, ..options };
    let Some(rig) = Rig::container(options) else { return };
    let step = rig.ok("true");
    assert!(step.of::<ContainerStarted>()[0].limits_enforced);
    let process = process_of(&rig.name()).unwrap();
    let one_of =
        |files: [(&str, &str); 2]| files.into_iter().find_map(|(group_of, file)| group(process, group_of, file));
    let memory = one_of([("memory", "memory.limit_in_bytes"), ("memory", "memory.max")]);
    assert_eq!(memory.as_deref(), Some("100663296"));
    assert_eq!(group(process, "pids", "pids.max").as_deref(), Some("77"));
    let processor = one_of([("cpu", "cpu.cfs_quota_us"), ("cpu", "cpu.max")]).unwrap();
    assert!(["50000", "50000 100000"].contains(&processor.as_str()), "{processor}");
}

#[test]
fn confined_command_writes_workspace_and_tmp_only() {
    let Some(rig) = rig() else { return };
    for path in
        ["/x", "/usr/bin/x", "/etc/x", "/run/x", "/run/foldspace/x", "/run/foldspace/scripts/x", "/proc/sys/kernel/x"]
    {
        let step = rig.sh(&format!("echo x > {path}"));
        assert_ne!(step.exit_code(), 0, "{path}");
    }
    let root = rig.printed("grep ' / ' /proc/mounts");
    assert!(root.lines().all(|line| line.split_whitespace().nth(3).unwrap().split(',').any(|o| o == "ro")), "{root}");
    let program = "import os\nv = os.statvfs('/tmp')\nprint(v.f_blocks * v.f_frsize)\n";
    assert_eq!(rig.python(program).stdout(), (256u64 << 20).to_string());
    rig.ok("echo x > /tmp/x && echo x > x");
    // What is set to run as its owner does not.
    rig.ok("cp /usr/bin/python3 mine && chmod u+s mine && ./mine -c 'import os; assert os.geteuid() == 65534'");
    rig.verify();
}

const DEVICES: &str = "
import os, stat
for name, device in [('disk', os.makedev(8, 0)), ('memory', os.makedev(1, 1))]:
    try:
        os.mknod(name, stat.S_IFBLK | 0o666, device)
        open(name).read(1)
        print(name)
    except OSError:
        pass
for entry in os.listdir('/dev'):
    if stat.S_ISBLK(os.lstat('/dev/' + entry).st_mode):
        print(entry)
";

#[test]
fn confined_command_sees_no_devices() {
    let Some(rig) = rig() else { return };
    assert_eq!(rig.python(DEVICES).stdout(), "");
}
