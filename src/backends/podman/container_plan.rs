//! A container to be made, as the engine is told of it.

use std::collections::HashMap;
use std::path::Path;

use podman_api::models::{ContainerMount, LinuxResources, Namespace, PosixRlimit};
use podman_api::opts::{ContainerCreateOpts, ContainerRestartPolicy, ImageVolumeMode, SystemdEnabled};
use rustix::process::{Resource, getrlimit};
use serde_json::json;

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

pub(super) fn creation(plan: &ContainerPlan<'_>, rootless: bool) -> ContainerCreateOpts {
    let options = plan.options;
    let runner = [format!("{RUN}/runner"), "serve".to_owned(), format!("{RUN}/{DOOR}/{SOCKET}"), WORKSPACE.to_owned()];
    let quota = (options.cpus * CPU_PERIOD as f64).round();
    let memory = i64::try_from(options.memory_bytes).unwrap_or(i64::MAX);
    // The structs have no defaults; their JSON is what is meant.
    let resources = json!({
        "cpu": { "period": CPU_PERIOD, "quota": quota as i64 },
        "memory": { "limit": memory, "swap": memory },
        "pids": { "limit": options.pids },
    });
    let network = Namespace { nsmode: Some(if options.network { "" } else { "none" }.to_owned()), value: None };
    let mut builder = ContainerCreateOpts::builder()
        .image(&options.image)
        .name(plan.name)
        .labels([(LABEL, plan.session), (OWNER, &owner_of_this_process())])
        .command(&runner)
        .entrypoint(Vec::<String>::new())
        .user(format!("{}:{}", USER.0, USER.1))
        .work_dir(WORKSPACE)
        .env(HashMap::from([("HOME", WORKSPACE), ("LANG", "C.UTF-8")]))
        .drop_capabilities(["all"])
        .read_only_fs(true)
        .privileged(false)
        .seccomp_profile_path(plan.paths.seccomp.to_string_lossy())
        .systemd(SystemdEnabled::False)
        .restart_policy(ContainerRestartPolicy::No)
        // They would be writable.
        .image_volume_mode(ImageVolumeMode::Ignore)
        .stop_timeout(STOP_SECONDS as u64)
        .net_namespace(network)
        .mounts(mounts(plan))
        .r_limits(limits(rootless));
    if rootless {
        // User 65534 inside is this process's user outside, which so owns what commands make.
        let value = format!("uid={},gid={}", USER.0, USER.1);
        builder = builder.user_namespace(Namespace { nsmode: Some("keep-id".to_owned()), value: Some(value) });
    }
    if let Ok(resources) = serde_json::from_value::<LinuxResources>(resources) {
        builder = builder.resource_limits(resources);
    }
    builder.build()
}

fn mounts(plan: &ContainerPlan<'_>) -> Vec<ContainerMount> {
    let bind = |source: &Path, destination: &str, options: &[&str]| ContainerMount {
        destination: Some(destination.to_owned()),
        source: Some(source.to_string_lossy().into_owned()),
        _type: Some("bind".to_owned()),
        options: Some(options.iter().map(|&option| option.to_owned()).collect()),
        uid_mappings: None,
        gid_mappings: None,
    };
    let tmp = ContainerMount {
        destination: Some("/tmp".to_owned()),
        source: Some("tmpfs".to_owned()),
        _type: Some("tmpfs".to_owned()),
        options: Some(vec![
            format!("size={}", plan.options.tmp_bytes),
            "mode=1777".to_owned(),
            "nosuid".to_owned(),
            "nodev".to_owned(),
        ]),
        uid_mappings: None,
        gid_mappings: None,
    };
    vec![
        bind(plan.workspace, WORKSPACE, &["rbind", "rw", "nosuid", "nodev", "rprivate"]),
        bind(&plan.paths.run, RUN, &["bind", "ro", "nosuid", "nodev", "rprivate"]),
        bind(&plan.paths.door, &format!("{RUN}/{DOOR}"), &["bind", "rw", "nosuid", "nodev", "noexec", "rprivate"]),
        tmp,
    ]
}

/// Both must be named, and without their usual prefix. A user may not raise its own.
fn limits(rootless: bool) -> Vec<PosixRlimit> {
    let limit = |name: &str, resource: Resource| {
        let most = getrlimit(resource).maximum.filter(|_| rootless).unwrap_or(u64::MAX);
        let at = Some(FILES_MAX.min(most));
        PosixRlimit { type_: Some(name.to_owned()), soft: at, hard: at }
    };
    vec![limit("nofile", Resource::Nofile), limit("nproc", Resource::Nproc)]
}
