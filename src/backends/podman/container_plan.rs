//! The plan of a container, as sent to the engine.

use std::path::Path;

use rustix::process::{Resource, getrlimit};

use super::network;
use super::paths::{DOOR, Paths, SOCKET};
use crate::backends::containers::PodmanOptions;

pub(crate) const WORKSPACE: &str = "/workspace";
pub(crate) const RUN: &str = "/run/foldspace";
/// The place of the file with the address of the resolver.
pub(super) const RESOLV_CONF: &str = "/etc/resolv.conf";
/// The place of the file with trusted certificates, as on Debian and Alpine.
pub(super) const TRUSTED: &str = "/etc/ssl/certs/ca-certificates.crt";
pub(crate) const LABEL: &str = "foldspace.session";
/// The label's value for a container made before a session needed it.
pub(crate) const WARM: &str = "warm";
/// The label with the process that made a container, and that process's start time.
pub(crate) const OWNER: &str = "foldspace.owner";
/// The processor period, in microseconds.
pub(super) const CPU_PERIOD: i64 = 100_000;
/// The maximum number of open files per process, and of processes of the container's user.
const MOST: i64 = 4096;
pub(super) const STOP_SECONDS: i32 = 2;
pub(super) const CGROUPS: &str = "/sys/fs/cgroup";
/// The capabilities that root keeps in its own user namespace, by number and name: what package managers need.
pub(super) const OF_ROOT: [(u32, &str); 9] = [
    (0, "CAP_CHOWN"),
    (1, "CAP_DAC_OVERRIDE"),
    (3, "CAP_FOWNER"),
    (4, "CAP_FSETID"),
    (5, "CAP_KILL"),
    (6, "CAP_SETGID"),
    (7, "CAP_SETUID"),
    (10, "CAP_NET_BIND_SERVICE"),
    (18, "CAP_SYS_CHROOT"),
];

pub(crate) struct ContainerPlan<'a> {
    pub(crate) name: &'a str,
    pub(crate) session: &'a str,
    pub(crate) options: &'a PodmanOptions,
    /// The directories bound at [`RUN`], and the seccomp profile.
    pub(crate) paths: &'a Paths,
    pub(crate) workspace: &'a Path,
}

/// Returns the path of the workspace where commands start.
pub(super) fn workspace_of(options: &PodmanOptions) -> &str {
    options.also_at.as_deref().unwrap_or(WORKSPACE)
}

/// Returns the paths of the workspace in a container.
pub(super) fn places(options: &PodmanOptions) -> impl Iterator<Item = &str> {
    [WORKSPACE].into_iter().chain(options.also_at.as_deref())
}

impl ContainerPlan<'_> {
    /// Returns the command of the container's first process.
    pub(super) fn runner(&self) -> Vec<String> {
        let socket = format!("{RUN}/{DOOR}/{SOCKET}");
        vec![format!("{RUN}/runner"), "serve".to_owned(), socket, workspace_of(self.options).to_owned()]
    }

    /// Returns the processor time per [`CPU_PERIOD`], in microseconds.
    pub(super) fn cpu_quota(&self) -> i64 {
        (self.options.cpus * CPU_PERIOD as f64).round() as i64
    }

    /// Returns the home directory of commands: files that programs put there must not mix with the user's own files.
    pub(super) fn home(&self) -> &str {
        match self.options.own_directory() {
            _ if self.options.writable_root => "/root",
            Some(_) => "/tmp",
            None => workspace_of(self.options),
        }
    }

    /// Returns the variables of commands.
    pub(super) fn environment(&self) -> impl Iterator<Item = (&'static str, String)> {
        let own = [("HOME", self.home().to_owned()), ("LANG", "C.UTF-8".to_owned())];
        let is_recorded = self.options.network.rules().is_some();
        let records_http = self.options.network.records_http();
        let trust = network::trust_variables(TRUSTED).filter(move |_| records_http);
        own.into_iter().chain(network::variables().filter(move |_| is_recorded)).chain(trust)
    }

    /// Returns settings of its own network: its resolver, like servers of commands, may listen at any port.
    pub(super) fn sysctls(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let is_recorded = self.options.network.rules().is_some();
        is_recorded.then_some(("net.ipv4.ip_unprivileged_port_start", "0")).into_iter()
    }

    pub(super) fn memory(&self) -> i64 {
        i64::try_from(self.options.memory_bytes).unwrap_or(i64::MAX)
    }
}

/// Returns the limits of a process in a container. A rootless engine can't exceed its own.
pub(super) fn most(rootless: bool) -> [(&'static str, i64); 2] {
    [("nofile", Resource::Nofile), ("nproc", Resource::Nproc)].map(|(name, resource)| {
        let own = getrlimit(resource).maximum.filter(|_| rootless);
        (name, own.and_then(|own| i64::try_from(own).ok()).map_or(MOST, |own| own.min(MOST)))
    })
}
