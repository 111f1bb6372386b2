//! Docker, through bollard.

use std::path::Path;

use bollard::errors::Error;
use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig, ImageInspect,
    Mount, MountBindOptions, MountBindOptionsPropagationEnum, MountType, ResourcesUlimits, SystemInfoCgroupVersionEnum,
};
use bollard::query_parameters::{
    BuildImageOptions, CreateContainerOptions, CreateImageOptions, InspectContainerOptions, ListContainersOptions,
    RemoveContainerOptions, StartContainerOptions, StopContainerOptions,
};
use bollard::{API_DEFAULT_VERSION, Docker, body_full};
use futures_util::StreamExt;

use super::{
    CONTAINERFILE_NAME, ContainerPlace, EngineAnswer, EngineClient, EngineFacts, ImageBuild, InspectedContainer, Ours,
    PULL, Progress, Refusal, pass_on,
};
use crate::backends::ContainerNetwork;
use crate::backends::podman::container_plan::{
    CGROUPS, CPU_PERIOD, ContainerPlan, LABEL, OWNER, RESOLV_CONF, RUN, STOP_SECONDS, TRUSTED, WORKSPACE, most, places,
    workspace_of,
};
use crate::backends::podman::paths::{CERTIFICATES, DOOR, RESOLVER, SECCOMP};
use crate::backends::podman::process_label::owner_of_this_process;

/// Paths that Docker masks by default. A configured list replaces them.
const MASKED: [&str; 12] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
];

pub(super) struct DockerClient {
    docker: Docker,
}

impl DockerClient {
    pub(super) fn new(url: &str) -> Result<Self, String> {
        // The callers have shorter limits.
        let limit = PULL.as_secs();
        let made = match url.strip_prefix("unix://") {
            Some(path) => Docker::connect_with_unix(path, limit, API_DEFAULT_VERSION),
            None => Docker::connect_with_http(url, limit, API_DEFAULT_VERSION),
        };
        Ok(Self { docker: made.map_err(|error| told(&error))? })
    }

    /// Returns the volumes of an image that are not part of the sandbox.
    async fn volumes(&self, image: &str) -> Result<Vec<String>, Refusal> {
        let ImageInspect { config, .. } = self.docker.inspect_image(image).await?;
        let volumes = config.and_then(|config| config.volumes).unwrap_or_default();
        let within = |volume: &&String| [WORKSPACE, RUN].iter().any(|own| is_below(volume, own));
        match volumes.iter().find(within) {
            Some(within) => Err(Refusal::Other(format!(
                "the image {image} has the volume {within}, which Docker would put among the sandbox's own files; use \
                 an image without it, or Podman"
            ))),
            None => Ok(volumes.into_iter().filter(|volume| ![WORKSPACE, "/tmp"].contains(&volume.as_str())).collect()),
        }
    }
}

/// Returns true if a path is inside of a directory, not the directory itself.
fn is_below(place: &str, directory: &str) -> bool {
    let (place, directory) = (Path::new(place), Path::new(directory));
    place.starts_with(directory) && place != directory
}

impl EngineClient for DockerClient {
    fn info(&self) -> EngineAnswer<'_, EngineFacts> {
        Box::pin(async {
            // Older engines refuse requests of a newer API version.
            self.docker.clone().negotiate_version().await?;
            let components = self.docker.version().await?.components.unwrap_or_default();
            if components.iter().any(|component| component.name == "Podman Engine") {
                return Err(Refusal::Other("it belongs to Podman; use the backend podman".to_owned()));
            }
            let info = self.docker.info().await?;
            let security = info.security_options.unwrap_or_default();
            Ok(EngineFacts {
                version: info.server_version.unwrap_or_default(),
                rootless: security.iter().any(|option| option == "name=rootless"),
                cgroup_version: if info.cgroup_version == Some(SystemInfoCgroupVersionEnum::_2) { 2 } else { 1 },
                runtime_name: info.default_runtime.unwrap_or_default(),
            })
        })
    }

    fn create<'a>(&'a self, plan: &'a ContainerPlan<'_>, place: &'a ContainerPlace) -> EngineAnswer<'a, String> {
        Box::pin(async move {
            let mut volumes = self.volumes(&plan.options.image).await?;
            volumes.retain(|volume| plan.options.also_at.as_ref() != Some(volume));
            let name = Some(plan.name.to_owned());
            let options = CreateContainerOptions { name, ..CreateContainerOptions::default() };
            Ok(self.docker.create_container(Some(options), creation(plan, place, &volumes)).await?.id)
        })
    }

    fn start<'a>(&'a self, container: &'a str) -> EngineAnswer<'a, ()> {
        Box::pin(async move { Ok(self.docker.start_container(container, None::<StartContainerOptions>).await?) })
    }

    fn inspect<'a>(&'a self, container: &'a str) -> EngineAnswer<'a, InspectedContainer> {
        Box::pin(async move {
            let inspected = self.docker.inspect_container(container, None::<InspectContainerOptions>).await?;
            let state = inspected.state.unwrap_or_default();
            let number = |number: Option<i64>| number.and_then(|number| i32::try_from(number).ok()).unwrap_or(0);
            Ok(InspectedContainer {
                id: inspected.id.unwrap_or_default(),
                running: state.running.unwrap_or(false),
                paused: state.paused.unwrap_or(false),
                pid: number(state.pid),
                exit_code: number(state.exit_code),
                image: inspected.image.unwrap_or_default(),
            })
        })
    }

    fn stop<'a>(&'a self, container: &'a str) -> EngineAnswer<'a, ()> {
        let options = StopContainerOptions { t: Some(STOP_SECONDS), ..StopContainerOptions::default() };
        Box::pin(async move { Ok(self.docker.stop_container(container, Some(options)).await?) })
    }

    fn set_paused<'a>(&'a self, container: &'a str, paused: bool) -> EngineAnswer<'a, ()> {
        Box::pin(async move {
            let done = match paused {
                true => self.docker.pause_container(container).await,
                false => self.docker.unpause_container(container).await,
            };
            Ok(done?)
        })
    }

    fn remove<'a>(&'a self, container: &'a str) -> EngineAnswer<'a, ()> {
        let options = RemoveContainerOptions { force: true, v: true, ..RemoveContainerOptions::default() };
        Box::pin(async move { Ok(self.docker.remove_container(container, Some(options)).await?) })
    }

    fn ours(&self) -> EngineAnswer<'_, Vec<Ours>> {
        Box::pin(async {
            let filters = [("label".to_owned(), vec![LABEL.to_owned()])].into();
            let options =
                ListContainersOptions { all: true, filters: Some(filters), ..ListContainersOptions::default() };
            let list = self.docker.list_containers(Some(options)).await?;
            let ours = list.into_iter().map(|one| {
                let label = |name| one.labels.as_ref().and_then(|labels| labels.get(name).cloned()).unwrap_or_default();
                let name =
                    one.names.as_ref().and_then(|names| names.first()).map_or("", |name| name.trim_start_matches('/'));
                Ours {
                    session: label(LABEL),
                    owner: label(OWNER),
                    running: one.state.is_some_and(|state| state.to_string() == "running"),
                    name: name.to_owned(),
                    id: one.id.unwrap_or_default(),
                }
            });
            Ok(ours.collect())
        })
    }

    fn architecture<'a>(&'a self, image: &'a str) -> EngineAnswer<'a, Option<String>> {
        Box::pin(async move { Ok(self.docker.inspect_image(image).await?.architecture) })
    }

    fn pull<'a>(&'a self, image: &'a str, progress: Progress<'a>) -> EngineAnswer<'a, ()> {
        Box::pin(async move {
            // Without a tag Docker pulls all of them.
            let name = image.rsplit('/').next().unwrap_or(image);
            let tag = if name.contains([':', '@']) { "" } else { "latest" };
            let (from_image, tag) = (Some(image.to_owned()), Some(tag.to_owned()));
            let options = CreateImageOptions { from_image, tag, ..CreateImageOptions::default() };
            let mut stream = self.docker.create_image(Some(options), None, None);
            while let Some(report) = stream.next().await {
                let report = report?;
                if let Some(status) = report.status.filter(|_| report.progress_detail.is_none()) {
                    let id = report.id.map(|id| format!("{id}: ")).unwrap_or_default();
                    progress(&format!("{id}{status}"));
                }
            }
            Ok(())
        })
    }

    fn build<'a>(&'a self, build: &'a ImageBuild<'a>, progress: Progress<'a>) -> EngineAnswer<'a, ()> {
        Box::pin(async move {
            let context = context_of(build.containerfile).map_err(|error| Refusal::Other(error.to_string()))?;
            let options = BuildImageOptions {
                dockerfile: CONTAINERFILE_NAME.to_owned(),
                t: Some(build.name.to_owned()),
                buildargs: Some(build.arguments.clone()),
                networkmode: build.network.map(str::to_owned),
                rm: true,
                forcerm: true,
                ..BuildImageOptions::default()
            };
            let mut stream = self.docker.build_image(options, None, Some(body_full(context.into())));
            while let Some(report) = stream.next().await {
                let report = report?;
                if let Some(error) = report.error_detail.and_then(|error| error.message) {
                    return Err(Refusal::Other(error));
                }
                pass_on(&report.stream.unwrap_or_default(), progress);
            }
            Ok(())
        })
    }
}

/// Creates the archive that the engine builds from.
fn context_of(containerfile: &str) -> std::io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(containerfile.len() as u64);
    header.set_mode(0o644);
    archive.append_data(&mut header, CONTAINERFILE_NAME, containerfile.as_bytes())?;
    archive.into_inner()
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        match error {
            Error::DockerResponseServerError { status_code: 304, .. } => Self::Unchanged,
            Error::DockerResponseServerError { status_code: 404, .. } => Self::Absent,
            Error::DockerResponseServerError { status_code, message } => {
                Self::Other(format!("{status_code} {message}"))
            }
            Error::IOError { .. }
            | Error::HyperResponseError { .. }
            | Error::HyperLegacyError { .. }
            | Error::SocketNotFoundError(_)
            | Error::RequestTimeoutError => Self::Connection(told(&error)),
            other => Self::Other(told(&other)),
        }
    }
}

/// Returns an error with its causes, which the library's own text leaves out.
fn told(error: &Error) -> String {
    let mut told = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        let text = next.to_string();
        if !told.ends_with(&text) {
            told = format!("{told}: {text}");
        }
        cause = next.source();
    }
    told
}

/// Converts the plan to the engine's request.
fn creation(plan: &ContainerPlan<'_>, place: &ContainerPlace, volumes: &[String]) -> ContainerCreateBody {
    let (user, group) = place.user;
    let labels = [(LABEL, plan.session.to_owned()), (OWNER, owner_of_this_process())];
    ContainerCreateBody {
        image: Some(plan.options.image.clone()),
        labels: Some(labels.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()),
        // Replaces the image's own command.
        entrypoint: Some(plan.runner()),
        cmd: Some(Vec::new()),
        user: Some(format!("{user}:{group}")),
        working_dir: Some(workspace_of(plan.options).to_owned()),
        env: Some(plan.environment().map(|(name, value)| format!("{name}={value}")).collect()),
        // Disables the image's health check, which would run commands in the container.
        healthcheck: Some(HealthConfig { test: Some(vec!["NONE".to_owned()]), ..HealthConfig::default() }),
        stop_timeout: Some(i64::from(STOP_SECONDS)),
        host_config: Some(host_config(plan, place, volumes)),
        ..ContainerCreateBody::default()
    }
}

fn host_config(plan: &ContainerPlan<'_>, place: &ContainerPlace, volumes: &[String]) -> HostConfig {
    let (options, paths) = (plan.options, plan.paths);
    let own = [bind(&paths.run, RUN.to_owned(), true), bind(&paths.door, format!("{RUN}/{DOOR}"), false)];
    let resolver = bind(&paths.run.join(RESOLVER), RESOLV_CONF.to_owned(), true);
    let resolver = options.network.rules().map(|_| resolver);
    let trusted = bind(&paths.run.join(CERTIFICATES), TRUSTED.to_owned(), true);
    let trusted = options.network.records_http().then_some(trusted);
    let binds = places(options)
        .map(|place| bind(plan.workspace, place.to_owned(), false))
        .chain(own)
        .chain(resolver)
        .chain(trusted);
    let size = options.tmp_bytes;
    let tmp = ("/tmp".to_owned(), format!("rw,exec,nosuid,nodev,mode=1777,size={size}"));
    // Covers each volume, because it would be writable, and anonymous volumes can't be disabled.
    let covered = volumes.iter().map(|volume| (volume.clone(), "ro,noexec,nosuid,nodev,size=4k".to_owned()));
    let ulimit =
        |(name, most): (&str, _)| ResourcesUlimits { name: Some(name.to_owned()), soft: Some(most), hard: Some(most) };
    // Version 1 of control groups is mounted in a tmpfs that every user may write to.
    let groups = (place.cgroup_version == 1).then_some(CGROUPS);
    HostConfig {
        mounts: Some(binds.collect()),
        tmpfs: Some(covered.chain([tmp]).collect()),
        readonly_rootfs: Some(true),
        privileged: Some(false),
        cap_drop: Some(vec!["ALL".to_owned()]),
        security_opt: Some(vec!["no-new-privileges:true".to_owned(), format!("seccomp={SECCOMP}")]),
        masked_paths: groups.map(|groups| MASKED.into_iter().chain([groups]).map(str::to_owned).collect()),
        network_mode: Some(if options.network == ContainerNetwork::Engine { "default" } else { "none" }.to_owned()),
        sysctls: Some(plan.sysctls().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()),
        ipc_mode: Some("private".to_owned()),
        cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
        // User remapping by the engine would make the files accessible to another user.
        userns_mode: Some("host".to_owned()).filter(|_| !place.rootless),
        init: Some(false),
        log_config: Some(HostConfigLogConfig { typ: Some("none".to_owned()), config: None }),
        memory: Some(plan.memory()),
        memory_swap: Some(plan.memory()),
        cpu_period: Some(CPU_PERIOD),
        cpu_quota: Some(plan.cpu_quota()),
        pids_limit: Some(i64::from(options.pids)),
        ulimits: Some(most(place.rootless).map(ulimit).into()),
        ..HostConfig::default()
    }
}

fn bind(source: &Path, target: String, read_only: bool) -> Mount {
    let propagation = Some(MountBindOptionsPropagationEnum::RPRIVATE);
    Mount {
        typ: Some(MountType::BIND),
        source: Some(source.to_string_lossy().into_owned()),
        target: Some(target),
        read_only: Some(read_only),
        bind_options: Some(MountBindOptions { propagation, ..MountBindOptions::default() }),
        ..Mount::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volume_within_the_sandbox_is_told_apart() {
        assert!(is_below("/workspace/data", WORKSPACE) && is_below("/run/foldspace/door/x", RUN));
        assert!(!is_below("/workspace", WORKSPACE) && !is_below("/workspaces", WORKSPACE) && !is_below("/data", RUN));
    }

    #[test]
    fn client_without_socket_names_it() {
        let refused = DockerClient::new("unix:///nowhere/docker.sock").err().unwrap();
        assert!(refused.contains("/nowhere/docker.sock"), "{refused}");
    }
}
