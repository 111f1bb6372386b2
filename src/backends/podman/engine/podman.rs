//! Podman, through podman-api, except for requests that it can't make correctly.
//!
//! Its container options have `no_new_privilages`, which it sends under that name: the engine does not know it.

use std::collections::BTreeMap;
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use containers_api::conn::hyper::{Body, Client, Response, body::to_bytes};
use containers_api::conn::{Headers, Payload, RequestClient, Transport, get_http_connector, get_unix_connector};
use futures_util::StreamExt;
use podman_api::opts::{
    ContainerDeleteOpts, ContainerListFilter, ContainerListOpts, ContainerStopOpts, ImageBuildOpts, NetworkMode,
    PullOpts,
};
use podman_api::{Error, LATEST_API_VERSION, Podman};
use serde_json::{Value, json};

use super::{
    CONTAINERFILE_NAME, ContainerPlace, EngineAnswer, EngineClient, EngineFacts, ImageBuild, InspectedContainer, Ours,
    Progress, Refusal, pass_on,
};
use crate::backends::ContainerNetwork;
use crate::backends::containers::PodmanOptions;
use crate::backends::podman::container_plan::{
    CGROUPS, CPU_PERIOD, ContainerPlan, LABEL, OF_ROOT, OWNER, RESOLV_CONF, RUN, STOP_SECONDS, TRUSTED, most, places,
    workspace_of,
};
use crate::backends::podman::paths::{CERTIFICATES, DOOR, OWN_IDS, RESOLVER};
use crate::backends::podman::process_label::owner_of_this_process;

/// The number of attempts if a rootless engine finds no ids for its user, due to a library that is not thread-safe.
const MAPPING_TRIES: u32 = 10;
/// The pause before the second attempt; each further pause is longer by this.
const MAPPING_PAUSE: Duration = Duration::from_millis(10);

pub(super) struct PodmanClient {
    podman: Podman,
    requests: Requests,
}

impl PodmanClient {
    pub(super) fn new(url: &str) -> Result<Self, String> {
        let made = Podman::new(url).and_then(|podman| Ok(Self { podman, requests: Requests::new(url)? }));
        made.map_err(|error| error.to_string())
    }
}

impl EngineClient for PodmanClient {
    fn info(&self) -> EngineAnswer<'_, EngineFacts> {
        Box::pin(async {
            let info = self.podman.info().await?;
            let host = info.host.as_ref();
            let rootless = host.and_then(|host| host.security.as_ref()).and_then(|security| security.rootless);
            let cgroups = host.and_then(|host| host.cgroup_version.clone()).unwrap_or_default();
            let runtime = host.and_then(|host| host.oci_runtime.as_ref()).and_then(|runtime| runtime.name.clone());
            Ok(EngineFacts {
                version: info.version.and_then(|version| version.version).unwrap_or_default(),
                rootless: rootless.unwrap_or(false),
                cgroup_version: if cgroups == "v2" { 2 } else { 1 },
                runtime_name: runtime.unwrap_or_default(),
            })
        })
    }

    fn create<'a>(&'a self, plan: &'a ContainerPlan<'_>, place: &'a ContainerPlace) -> EngineAnswer<'a, String> {
        Box::pin(async move {
            let options = creation(plan, place);
            let mut tries = 1..MAPPING_TRIES;
            loop {
                let created = self.requests.post("/libpod/containers/create", &options).await.map_err(Refusal::from);
                match (created, tries.next()) {
                    (Err(Refusal::NoMapping(_)), Some(tries)) => tokio::time::sleep(tries * MAPPING_PAUSE).await,
                    (created, _) => return Ok(created?["Id"].as_str().unwrap_or_default().to_owned()),
                }
            }
        })
    }

    fn start<'a>(&'a self, container: &'a str) -> EngineAnswer<'a, ()> {
        Box::pin(async move { Ok(self.podman.containers().get(container).start(None).await?) })
    }

    fn inspect<'a>(&'a self, container: &'a str) -> EngineAnswer<'a, InspectedContainer> {
        Box::pin(async move {
            let inspected = self.podman.containers().get(container).inspect().await?;
            let state = inspected.state.as_ref();
            Ok(InspectedContainer {
                id: inspected.id.clone().unwrap_or_default(),
                running: state.and_then(|state| state.running).unwrap_or(false),
                paused: state.and_then(|state| state.paused).unwrap_or(false),
                pid: state.and_then(|state| state.pid).and_then(|pid| i32::try_from(pid).ok()).unwrap_or(0),
                exit_code: state.and_then(|state| state.exit_code).unwrap_or(0),
                image: inspected.image.clone().unwrap_or_default(),
            })
        })
    }

    fn stop<'a>(&'a self, container: &'a str) -> EngineAnswer<'a, ()> {
        let options = ContainerStopOpts::builder().timeout(STOP_SECONDS as usize).build();
        Box::pin(async move { Ok(self.podman.containers().get(container).stop(&options).await?) })
    }

    fn set_paused<'a>(&'a self, container: &'a str, paused: bool) -> EngineAnswer<'a, ()> {
        Box::pin(async move {
            let container = self.podman.containers().get(container);
            let done = if paused { container.pause().await } else { container.unpause().await };
            Ok(done?)
        })
    }

    fn remove<'a>(&'a self, container: &'a str) -> EngineAnswer<'a, ()> {
        let options = ContainerDeleteOpts::builder().force(true).timeout(0).volumes(true).build();
        Box::pin(async move { Ok(self.podman.containers().get(container).delete(&options).await?) })
    }

    fn ours(&self) -> EngineAnswer<'_, Vec<Ours>> {
        Box::pin(async {
            let filter = ContainerListFilter::LabelKey(LABEL.to_owned());
            let options = ContainerListOpts::builder().all(true).filter([filter]).build();
            let list = self.podman.containers().list(&options).await?;
            let ours = list.into_iter().map(|one| {
                let label = |name| one.labels.as_ref().and_then(|labels| labels.get(name).cloned()).unwrap_or_default();
                Ours {
                    session: label(LABEL),
                    owner: label(OWNER),
                    running: one.state.as_deref() == Some("running"),
                    name: one.names.and_then(|names| names.into_iter().next()).unwrap_or_default(),
                    id: one.id.unwrap_or_default(),
                }
            });
            Ok(ours.collect())
        })
    }

    fn architecture<'a>(&'a self, image: &'a str) -> EngineAnswer<'a, Option<String>> {
        Box::pin(async move { Ok(self.podman.images().get(image).inspect().await?.architecture) })
    }

    fn pull<'a>(&'a self, image: &'a str, progress: Progress<'a>) -> EngineAnswer<'a, ()> {
        Box::pin(async move {
            let options = PullOpts::builder().reference(image).build();
            let images = self.podman.images();
            let mut stream = images.pull(&options);
            while let Some(report) = stream.next().await {
                let report = report?;
                if let Some(error) = report.error.filter(|error| !error.is_empty()) {
                    return Err(Refusal::Other(error));
                }
                pass_on(&report.stream.unwrap_or_default(), progress);
            }
            Ok(())
        })
    }

    #[expect(clippy::disallowed_methods, reason = "the client builds from a directory, created for it")]
    fn build<'a>(&'a self, build: &'a ImageBuild<'a>, progress: Progress<'a>) -> EngineAnswer<'a, ()> {
        Box::pin(async move {
            let failed = |error: std::io::Error| Refusal::Other(format!("preparing the build failed: {error}"));
            let directory = tempfile::tempdir().map_err(failed)?;
            std::fs::write(directory.path().join(CONTAINERFILE_NAME), build.containerfile).map_err(failed)?;
            let mut options = ImageBuildOpts::builder(directory.path().to_string_lossy())
                .dockerfile(CONTAINERFILE_NAME)
                .tag(build.name)
                .build_args(build.arguments.iter().map(|(name, value)| (name.as_str(), value.as_str())));
            if let Some(network) = build.network {
                options = options.network_mode(NetworkMode::Custom(network.to_owned()));
            }
            let (images, options) = (self.podman.images(), options.build());
            let mut stream = images.build(&options)?;
            while let Some(report) = stream.next().await {
                pass_on(&report?.stream, progress);
            }
            Ok(())
        })
    }
}

/// Classifies the library's errors. No other code reads the engine's texts.
impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        match error {
            Error::Fault { code, message } => match code.as_u16() {
                304 => Self::Unchanged,
                404 => Self::Absent,
                _ if message.contains("no such image") => Self::Absent,
                code if message.contains("keep-id requires additional UIDs") => {
                    Self::NoMapping(format!("{code} {message}"))
                }
                code => Self::Other(format!("{code} {message}")),
            },
            Error::IO(_) | Error::Error(_) => Self::Connection(error.to_string()),
            other => Self::Other(other.to_string()),
        }
    }
}

/// Converts the plan to the engine's request.
fn creation(plan: &ContainerPlan<'_>, place: &ContainerPlace) -> Value {
    let ContainerPlan { name, session, options, paths, workspace } = plan;
    let ContainerPlace { user: (user, group), rootless, cgroup_version } = place;
    let bind = |source: &Path, destination: &str, options: &[&str]| {
        let options = [&["nosuid", "nodev", "rprivate"], options].concat();
        json!({ "type": "bind", "source": source.to_string_lossy(), "destination": destination, "options": options })
    };
    let size = format!("size={}", options.tmp_bytes);
    let mut mounts = vec![
        bind(&paths.run, RUN, &["bind", "ro"]),
        bind(&paths.door, &format!("{RUN}/{DOOR}"), &["bind", "rw", "noexec"]),
        json!({ "type": "tmpfs", "source": "tmpfs", "destination": "/tmp", "options": [size, "mode=1777", "nosuid", "nodev"] }),
    ];
    if options.network.records_http() {
        mounts.push(bind(&paths.run.join(CERTIFICATES), TRUSTED, &["bind", "ro"]));
    }
    if options.network.rules().is_some() {
        mounts.push(bind(&paths.run.join(RESOLVER), RESOLV_CONF, &["bind", "ro"]));
    }
    mounts.extend(places(options).map(|place| bind(workspace, place, &["rbind", "rw"])));
    let mut spec = json!({
        "image": options.image,
        "name": name,
        "labels": { LABEL: session, OWNER: owner_of_this_process() },
        "command": plan.runner(),
        "entrypoint": [],
        "user": format!("{user}:{group}"),
        "work_dir": workspace_of(options),
        "env": plan.environment().collect::<BTreeMap<_, _>>(),
        "cap_drop": ["all"],
        "no_new_privileges": true,
        "read_only_filesystem": !options.writable_root,
        "privileged": false,
        "seccomp_profile_path": paths.seccomp.to_string_lossy(),
        "systemd": "false",
        "restart_policy": "no",
        // Image volumes would be writable.
        "image_volume_mode": "ignore",
        "stop_timeout": STOP_SECONDS,
        "sysctl": plan.sysctls().collect::<BTreeMap<_, _>>(),
        "netns": { "nsmode": if options.network == ContainerNetwork::Engine { "" } else { "none" } },
        "mounts": mounts,
        // Their names have no prefix here.
        "r_limits": most(*rootless).map(|(name, most)| json!({ "type": name, "soft": most, "hard": most })),
        "resource_limits": {
            "cpu": { "period": CPU_PERIOD, "quota": plan.cpu_quota() },
            "memory": { "limit": plan.memory(), "swap": plan.memory() },
            "pids": { "limit": options.pids },
        },
    });
    map_users(&mut spec, options, place);
    if *cgroup_version == 1 {
        // The control groups are mounted in a tmpfs that every user may write to.
        spec["mask"] = json!([CGROUPS]);
    }
    spec
}

/// Maps the users of a container to users of this machine.
fn map_users(spec: &mut Value, options: &PodmanOptions, place: &ContainerPlace) {
    let ContainerPlace { user: (user, group), rootless, .. } = place;
    if options.writable_root {
        spec["cap_add"] = json!(OF_ROOT.map(|(_, name)| name));
        // A rootless engine's containers are already in a user namespace, with this process's user as root.
        if !*rootless {
            let (first, size) = OWN_IDS;
            let ids = json!([{ "container_id": 0, "host_id": first, "size": size }]);
            spec["userns"] = json!({ "nsmode": "private" });
            spec["idmappings"] = json!({ "UIDMap": ids, "GIDMap": ids });
        }
    } else if *rootless {
        // This user inside is this process's user outside, which thus owns the files of commands.
        spec["userns"] = json!({ "nsmode": "keep-id", "value": format!("uid={user},gid={group}") });
    }
}

/// Sends requests that podman-api can't, each on a new connection.
struct Requests {
    client: RequestClient<Error>,
}

impl Requests {
    fn new(url: &str) -> Result<Self, Error> {
        let transport = match url.split_once("://") {
            Some(("unix", path)) => Transport::Unix {
                client: Client::builder().pool_max_idle_per_host(0).build(get_unix_connector()),
                path: path.into(),
            },
            Some((_, host)) => Transport::Tcp {
                client: Client::builder().pool_max_idle_per_host(0).build(get_http_connector()),
                host: format!("tcp://{host}").parse().map_err(Error::InvalidUrl)?,
            },
            None => return Err(Error::MissingAuthority),
        };
        Ok(Self { client: RequestClient::new(transport, Box::new(validate)) })
    }

    async fn post(&self, endpoint: &str, body: &Value) -> Result<Value, Error> {
        let endpoint = LATEST_API_VERSION.make_endpoint(endpoint);
        self.client.post_json(endpoint, Payload::Json(body.to_string()), Headers::none()).await
    }
}

type ValidResponse = Pin<Box<dyn Future<Output = Result<Response<Body>, Error>> + Send + Sync>>;

/// Passes a successful answer on; converts a refusal into an error with the engine's message.
fn validate(response: Response<Body>) -> ValidResponse {
    Box::pin(async move {
        let code = response.status();
        if code.is_success() || code.is_informational() {
            return Ok(response);
        }
        let body = to_bytes(response.into_body()).await.map_err(containers_api::conn::Error::from)?;
        let said = serde_json::from_slice::<Value>(&body).ok();
        let said = said.as_ref().and_then(|said| said.get("message")).and_then(Value::as_str);
        let message = said.map_or_else(|| String::from_utf8_lossy(&body).into_owned(), str::to_owned);
        Err(Error::Fault { code, message })
    })
}
