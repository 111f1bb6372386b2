//! A container to be made, as the engine is told of it.

use std::path::Path;

use rustix::process::{Resource, getrlimit};
use serde_json::{Value, json};

use super::paths::{DOOR, Paths, SOCKET, USER};
use super::process_label::owner_of_this_process;
use crate::backends::containers::PodmanOptions;

pub(crate) const WORKSPACE: &str = "/workspace";
pub(crate) const RUN: &str = "/run/foldspace";
pub(crate) const LABEL: &str = "foldspace.session";
/// The label's value of a container that was made before any session needed it.
pub(crate) const WARM: &str = "warm";
/// The label with the process that made a container, and that process's start time.
pub(crate) const OWNER: &str = "foldspace.owner";
/// The processor period, in microseconds.
const CPU_PERIOD: u64 = 100_000;
const FILES_MAX: u64 = 4096;
pub(super) const STOP_SECONDS: usize = 2;

pub(crate) struct ContainerPlan<'a> {
    pub(crate) name: &'a str,
    pub(crate) session: &'a str,
    pub(crate) options: &'a PodmanOptions,
    /// The directories that are bound at [`RUN`], and the seccomp profile.
    pub(crate) paths: &'a Paths,
    pub(crate) workspace: &'a Path,
}

/// Gives the plan as the engine takes it, rootless or not.
pub(super) fn creation(plan: &ContainerPlan<'_>, rootless: bool) -> Value {
    let ContainerPlan { name, session, options, paths, workspace } = plan;
    let (user, group) = USER;
    let runner = [format!("{RUN}/runner"), "serve".to_owned(), format!("{RUN}/{DOOR}/{SOCKET}"), WORKSPACE.to_owned()];
    let quota = (options.cpus * CPU_PERIOD as f64).round() as i64;
    let memory = i64::try_from(options.memory_bytes).unwrap_or(i64::MAX);
    let bind = |source: &Path, destination: &str, options: &[&str]| {
        let options = [&["nosuid", "nodev", "rprivate"], options].concat();
        json!({ "type": "bind", "source": source.to_string_lossy(), "destination": destination, "options": options })
    };
    let size = format!("size={}", options.tmp_bytes);
    let mounts = [
        bind(workspace, WORKSPACE, &["rbind", "rw"]),
        bind(&paths.run, RUN, &["bind", "ro"]),
        bind(&paths.door, &format!("{RUN}/{DOOR}"), &["bind", "rw", "noexec"]),
        json!({ "type": "tmpfs", "source": "tmpfs", "destination": "/tmp", "options": [size, "mode=1777", "nosuid", "nodev"] }),
    ];
    let mut plan = json!({
        "image": options.image,
        "name": name,
        "labels": { LABEL: session, OWNER: owner_of_this_process() },
        "command": runner,
        "entrypoint": [],
        "user": format!("{user}:{group}"),
        "work_dir": WORKSPACE,
        "env": { "HOME": WORKSPACE, "LANG": "C.UTF-8" },
        "cap_drop": ["all"],
        "no_new_privileges": true,
        "read_only_filesystem": true,
        "privileged": false,
        "seccomp_profile_path": paths.seccomp.to_string_lossy(),
        "systemd": "false",
        "restart_policy": "no",
        // They would be writable.
        "image_volume_mode": "ignore",
        "stop_timeout": STOP_SECONDS,
        "netns": { "nsmode": if options.network { "" } else { "none" } },
        "mounts": mounts,
        "r_limits": [limit("nofile", Resource::Nofile, rootless), limit("nproc", Resource::Nproc, rootless)],
        "resource_limits": {
            "cpu": { "period": CPU_PERIOD, "quota": quota },
            "memory": { "limit": memory, "swap": memory },
            "pids": { "limit": options.pids },
        },
    });
    if rootless {
        // User 65534 inside is this process's user outside, which so owns what commands make.
        plan["userns"] = json!({ "nsmode": "keep-id", "value": format!("uid={user},gid={group}") });
    }
    plan
}

/// A limit, which has to be named without its usual prefix. A user may not raise its own.
fn limit(name: &str, resource: Resource, rootless: bool) -> Value {
    let most = getrlimit(resource).maximum.filter(|_| rootless).unwrap_or(u64::MAX);
    let at = FILES_MAX.min(most);
    json!({ "type": name, "soft": at, "hard": at })
}
