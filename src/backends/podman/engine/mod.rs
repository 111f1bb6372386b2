//! A container engine: one of several programs, each with its own client.

mod address;
#[cfg(feature = "docker")]
mod docker;
#[cfg(feature = "docker")]
mod docker_address;
#[cfg(feature = "podman")]
mod podman;
#[cfg(feature = "podman")]
mod podman_address;

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::runtime::Runtime;

use address::{EngineAddress, ProcessEnv};

use super::container_plan::ContainerPlan;
use super::paths;
use crate::backends::containers::{EngineKind, PodmanOptions};

/// Building or removing an image blocks other requests of an engine, on a slow disk for many seconds.
const SHORT: Duration = Duration::from_secs(30);
const LONG: Duration = Duration::from_secs(120);
const PULL: Duration = Duration::from_secs(1800);
const CONTAINERFILE_NAME: &str = "Containerfile";

/// A client of one kind of engine. Container names may be ids.
trait EngineClient: Send + Sync {
    fn info(&self) -> EngineAnswer<'_, EngineFacts>;
    fn create<'a>(&'a self, plan: &'a ContainerPlan<'_>, place: &'a ContainerPlace) -> EngineAnswer<'a, String>;
    fn start<'a>(&'a self, container: &'a str) -> EngineAnswer<'a, ()>;
    fn inspect<'a>(&'a self, container: &'a str) -> EngineAnswer<'a, InspectedContainer>;
    fn stop<'a>(&'a self, container: &'a str) -> EngineAnswer<'a, ()>;
    /// Pauses or resumes the processes of a running container.
    fn set_paused<'a>(&'a self, container: &'a str, paused: bool) -> EngineAnswer<'a, ()>;
    /// Removes a container, running or not, with its volumes.
    fn remove<'a>(&'a self, container: &'a str) -> EngineAnswer<'a, ()>;
    /// Lists the containers made by foldspace.
    fn ours(&self) -> EngineAnswer<'_, Vec<Ours>>;
    /// Returns the architecture of an image, in the engine's notation.
    fn architecture<'a>(&'a self, image: &'a str) -> EngineAnswer<'a, Option<String>>;
    fn pull<'a>(&'a self, image: &'a str, progress: Progress<'a>) -> EngineAnswer<'a, ()>;
    fn build<'a>(&'a self, build: &'a ImageBuild<'a>, progress: Progress<'a>) -> EngineAnswer<'a, ()>;
}

/// An image to build: its name, its Containerfile, and the build arguments.
pub(crate) struct ImageBuild<'a> {
    pub(crate) name: &'a str,
    pub(crate) containerfile: &'a str,
    pub(crate) arguments: HashMap<String, String>,
    /// The network of its commands; by default the engine's.
    pub(crate) network: Option<&'a str>,
}

type EngineAnswer<'a, T> = BoxFuture<'a, Result<T, Refusal>>;
type Progress<'a> = &'a mut (dyn FnMut(&str) + Send);

/// The properties that an engine reports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct EngineFacts {
    version: String,
    rootless: bool,
    cgroup_version: u8,
    runtime_name: String,
}

/// Settings of a container that depend on the engine and its user.
struct ContainerPlace {
    /// The user and the group in the container.
    user: (u32, u32),
    rootless: bool,
    cgroup_version: u8,
}

/// An engine's error, classified by the possible reactions.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("the container or image was not found")]
    Absent,
    #[error("nothing to change")]
    Unchanged,
    /// The engine found no ids for the container's user, which is temporary.
    #[cfg(feature = "podman")]
    #[error("{0}")]
    NoMapping(String),
    #[error("{0}")]
    Connection(String),
    #[error("{0}")]
    Other(String),
}

/// A connection to an engine. Every call blocks, and must not be made from within an async task.
pub(crate) struct Engine {
    pub(crate) kind: EngineKind,
    client: Box<dyn EngineClient>,
    runtime: OwnRuntime,
    pub(crate) connection: EngineAddress,
    pub(crate) version: String,
    pub(crate) rootless: bool,
    pub(crate) cgroup_version: u8,
    pub(crate) runtime_name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EngineError {
    #[error("{0}")]
    Unreachable(String),
    #[error("the container was not found")]
    NoContainer,
    #[error("the engine has no image {image}; get it with `{} pull {image}`, or set the option `pull`", kind.name())]
    NoImage { kind: EngineKind, image: String },
    /// The container runs, or has run, but the runner in it does not.
    #[error("the runner can't run in the container: {0}")]
    NoRunner(String),
    /// The engine belongs to another user: containers could not use this process's files, or would expose them.
    #[error("{0}")]
    Foreign(String),
    #[error("the engine failed to {action}: {reason}")]
    Failed { action: &'static str, reason: String },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InspectedContainer {
    pub(crate) id: String,
    pub(crate) running: bool,
    pub(crate) paused: bool,
    pub(crate) pid: i32,
    pub(crate) exit_code: i32,
    /// The id of its image: the digest of the image's configuration, which names the layers.
    pub(crate) image: String,
}

impl InspectedContainer {
    /// Returns the image's id in the form that both engines share.
    pub(crate) fn image_digest(&self) -> String {
        let digits = self.image.trim_start_matches("sha256:");
        if digits.is_empty() { String::new() } else { format!("sha256:{digits}") }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ours {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) session: String,
    pub(crate) owner: String,
    pub(crate) running: bool,
}

/// A separate runtime, which may be dropped within another runtime.
struct OwnRuntime(Option<Runtime>);

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        // Nothing is in progress, and blocking is not possible within another runtime.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl OwnRuntime {
    /// Blocks in a separate thread, because the caller may be within another runtime, where blocking is not allowed.
    /// Returns `None` on exceeding the limit.
    fn block_on<T: Send>(&self, limit: Duration, work: impl Future<Output = T> + Send) -> Option<T> {
        let runtime = self.0.as_ref()?;
        let work = async { tokio::time::timeout(limit, work).await.ok() };
        std::thread::scope(|scope| match scope.spawn(|| runtime.block_on(work)).join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }
}

impl Engine {
    pub(crate) fn connect(kind: EngineKind, explicit: Option<&str>) -> Result<Self, EngineError> {
        let connection = resolve(kind, explicit).map_err(EngineError::Unreachable)?;
        let unreachable = |what: &dyn std::fmt::Display| {
            let EngineAddress { url, source } = &connection;
            let remedy = match kind {
                EngineKind::Podman => {
                    format!("`systemctl start podman.socket` or `podman system service --time=0 {url}`")
                }
                EngineKind::Docker => format!("`systemctl start docker` or `dockerd --host {url}`"),
            };
            EngineError::Unreachable(format!(
                "the {kind} engine at {url} (from {source}) does not respond: {what}; start it with {remedy}"
            ))
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = OwnRuntime(Some(runtime.map_err(|error| unreachable(&error))?));
        let client = client(kind, &connection.url).map_err(|error| unreachable(&error))?;
        let info = runtime
            .block_on(SHORT, client.info())
            .ok_or_else(|| unreachable(&format!("no answer in {} s", SHORT.as_secs())))?;
        let info = info.map_err(|refusal| unreachable(&refusal))?;
        let EngineFacts { version, rootless, cgroup_version, runtime_name } = info;
        Ok(Self { kind, client, runtime, connection, version, rootless, cgroup_version, runtime_name })
    }

    /// Connects to the engine of each kind, at `explicit` or its detected address. Also returns the failures.
    pub(crate) fn all(explicit: Option<&str>) -> (Vec<Self>, Vec<EngineError>) {
        let (mut engines, mut errors) = (Vec::<Self>::new(), Vec::new());
        for kind in EngineKind::ALL {
            match Self::connect(kind, explicit) {
                Ok(engine) => engines.push(engine),
                Err(error) => errors.push(error),
            }
        }
        (engines, errors)
    }

    /// Connects to an engine whose containers can use this process's files.
    pub(crate) fn of_this_user(options: &PodmanOptions) -> Result<Self, EngineError> {
        let engine = Self::connect(options.engine, options.connection.as_deref())?;
        engine.check_user().map(|()| engine)
    }

    /// Checks that containers can use this process's files: rootless engines use their user's, rootful Podman root's.
    pub(crate) fn check_user(&self) -> Result<(), EngineError> {
        let me = rustix::process::geteuid().as_raw();
        let why = foreign(self.kind, &self.connection.url, self.rootless, self.connection.user(), me);
        why.map_or(Ok(()), |why| Err(EngineError::Foreign(why)))
    }

    /// Returns a container's user and group: unprivileged ids, or the ids that stand for this process's user.
    fn user(&self, options: &PodmanOptions) -> (u32, u32) {
        let (me, group) = (rustix::process::geteuid(), rustix::process::getegid());
        match (self.kind, self.rootless) {
            (EngineKind::Podman, _) if options.writable_root => (0, 0),
            // Podman maps this process's user to it.
            (EngineKind::Podman, _) => paths::owner(options),
            // Root in the container is this user, without capabilities.
            (EngineKind::Docker, true) => (0, 0),
            (EngineKind::Docker, false) if me.is_root() => paths::owner(options),
            (EngineKind::Docker, false) => (me.as_raw(), group.as_raw()),
        }
    }

    /// Returns the user of a container as seen on this machine.
    pub(crate) fn user_outside(options: &PodmanOptions) -> u32 {
        let me = rustix::process::geteuid();
        if me.is_root() { paths::owner(options).0 } else { me.as_raw() }
    }

    fn ask<T: Send>(
        &self,
        action: &'static str,
        limit: Duration,
        question: impl Future<Output = Result<T, Refusal>> + Send,
    ) -> Result<T, EngineError> {
        let Some(answer) = self.runtime.block_on(limit, question) else {
            let (seconds, url) = (limit.as_secs(), &self.connection.url);
            let see = match self.kind {
                EngineKind::Podman => format!("podman --url {url} ps"),
                EngineKind::Docker => format!("docker --host {url} ps"),
            };
            let why = format!("the engine did not {action} within {seconds} s; check it with `{see}`");
            return Err(EngineError::Unreachable(why));
        };
        answer.map_err(|refusal| match refusal {
            Refusal::Absent => EngineError::NoContainer,
            Refusal::Connection(why) => {
                EngineError::Unreachable(format!("the engine did not {action}: the connection failed: {why}"))
            }
            refusal => EngineError::Failed { action, reason: refusal.to_string() },
        })
    }

    pub(crate) fn inspect(&self, name: &str) -> Result<InspectedContainer, EngineError> {
        self.ask("inspect the container", SHORT, self.client.inspect(name))
    }

    pub(crate) fn create(&self, plan: &ContainerPlan<'_>) -> Result<String, EngineError> {
        let (rootless, cgroup_version) = (self.rootless, self.cgroup_version);
        let place = ContainerPlace { user: self.user(plan.options), rootless, cgroup_version };
        match self.ask("create the container", LONG, self.client.create(plan, &place)) {
            Err(EngineError::NoContainer) => Err(self.no_image(&plan.options.image)),
            created => created,
        }
    }

    pub(crate) fn start(&self, id: &str) -> Result<(), EngineError> {
        self.ask("start the container", LONG, unless_done(self.client.start(id)))
    }

    pub(crate) fn stop(&self, id: &str) -> Result<(), EngineError> {
        self.ask("stop the container", LONG, unless_done(self.client.stop(id)))
    }

    pub(crate) fn set_paused(&self, id: &str, paused: bool) -> Result<(), EngineError> {
        let what = if paused { "pause the container" } else { "resume the container" };
        self.ask(what, SHORT, self.client.set_paused(id, paused))
    }

    pub(crate) fn remove(&self, id: &str) -> Result<(), EngineError> {
        self.ask("remove the container", LONG, self.client.remove(id))
    }

    pub(crate) fn remove_if_there(&self, id: &str) -> Result<(), EngineError> {
        match self.remove(id) {
            Err(EngineError::NoContainer) => Ok(()),
            other => other,
        }
    }

    pub(crate) fn has_image(&self, image: &str) -> Result<bool, EngineError> {
        match self.architecture(image) {
            Ok(_) => Ok(true),
            Err(EngineError::NoImage { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the architecture of an image, in the engine's notation.
    pub(crate) fn architecture(&self, image: &str) -> Result<Option<String>, EngineError> {
        match self.ask("inspect the image", SHORT, self.client.architecture(image)) {
            Ok(architecture) => Ok(architecture.filter(|architecture| !architecture.is_empty())),
            Err(EngineError::NoContainer) => Err(self.no_image(image)),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn pull(&self, image: &str, progress: Progress<'_>) -> Result<(), EngineError> {
        self.ask("pull the image", PULL, self.client.pull(image, progress))
    }

    pub(crate) fn build(&self, build: &ImageBuild<'_>, progress: Progress<'_>) -> Result<(), EngineError> {
        self.ask("build the image", PULL, self.client.build(build, progress))
    }

    pub(crate) fn ours(&self) -> Result<Vec<Ours>, EngineError> {
        self.ask("list the containers", SHORT, self.client.ours())
    }

    fn no_image(&self, image: &str) -> EngineError {
        EngineError::NoImage { kind: self.kind, image: image.to_owned() }
    }
}

/// Passes on the nonempty lines of a report.
fn pass_on(report: &str, progress: Progress<'_>) {
    report.lines().filter(|line| !line.trim().is_empty()).for_each(progress);
}

/// Ignores the error that nothing had to change.
async fn unless_done(answer: EngineAnswer<'_, ()>) -> Result<(), Refusal> {
    match answer.await {
        Err(Refusal::Unchanged) => Ok(()),
        answer => answer,
    }
}

fn resolve(kind: EngineKind, explicit: Option<&str>) -> Result<EngineAddress, String> {
    match kind {
        #[cfg(feature = "podman")]
        EngineKind::Podman => podman_address::resolve(explicit, &ProcessEnv, &podman_address::connection_list),
        #[cfg(feature = "docker")]
        EngineKind::Docker => docker_address::resolve(explicit, &ProcessEnv),
        #[cfg(not(all(feature = "docker", feature = "podman")))]
        kind => Err(absent(kind)),
    }
}

fn client(kind: EngineKind, url: &str) -> Result<Box<dyn EngineClient>, String> {
    match kind {
        #[cfg(feature = "podman")]
        EngineKind::Podman => Ok(Box::new(podman::PodmanClient::new(url)?)),
        #[cfg(feature = "docker")]
        EngineKind::Docker => Ok(Box::new(docker::DockerClient::new(url)?)),
        #[cfg(not(all(feature = "docker", feature = "podman")))]
        kind => Err(absent(kind)),
    }
}

#[cfg(not(all(feature = "docker", feature = "podman")))]
fn absent(kind: EngineKind) -> String {
    format!("this program was built without {kind}; build it with the feature {}", kind.name())
}

/// Returns the reason that a process of user `me` can't use an engine, as far as it is known in advance.
fn foreign(kind: EngineKind, url: &str, rootless: bool, owner: Option<u32>, me: u32) -> Option<String> {
    let whose = owner.map_or_else(|| "another user's".to_owned(), |uid| format!("user {uid}'s"));
    let (root, user) = match kind {
        EngineKind::Podman => ("systemctl start podman.socket", "systemctl --user start podman.socket"),
        EngineKind::Docker => ("systemctl start docker", "systemctl --user start docker"),
    };
    match (rootless, me) {
        (true, 0) => Some(format!(
            "the {kind} engine at {url} is rootless, {whose}, and can't show root's files in a container; \
             run foldspace as that user, or use root's engine (`{root}`)"
        )),
        (true, _) if owner.is_some_and(|owner| owner != me) => Some(format!(
            "the {kind} engine at {url} is rootless, {whose}, and can't show files of user {me} in a container; \
             run foldspace as that user, or use your own engine (`{user}`)"
        )),
        // A Docker container runs as the requested user.
        (false, 1..) if kind == EngineKind::Podman => Some(format!(
            "the {kind} engine at {url} is root's, and its containers can't write files of user {me}; \
             run foldspace as root, or use your own engine (`{user}`)"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{EngineKind, foreign};

    #[test]
    fn engine_serves_its_own_user() {
        for kind in EngineKind::ALL {
            let foreign = |rootless, owner, me| foreign(kind, "unix:///e.sock", rootless, owner, me);
            assert_eq!(foreign(true, Some(1000), 1000), None);
            assert_eq!(foreign(true, None, 1000), None, "the user at the other end of a network is unknown");
            assert_eq!(foreign(false, Some(0), 0), None);
            assert_eq!(foreign(false, None, 0), None);
            assert_eq!(foreign(false, Some(0), 1000).is_none(), kind == EngineKind::Docker);
        }
    }

    #[test]
    fn engine_of_another_user_is_refused_with_hint() {
        let refused = |rootless, owner, me| foreign(EngineKind::Podman, "unix:///e.sock", rootless, owner, me).unwrap();
        let by_root = refused(true, Some(1000), 0);
        assert!(
            by_root.contains("rootless, user 1000's") && by_root.contains("run foldspace as that user"),
            "{by_root}"
        );
        assert!(refused(true, None, 0).contains("another user's"));
        assert!(refused(true, Some(1000), 1001).contains("files of user 1001"));
        let by_user = refused(false, Some(0), 1001);
        assert!(by_user.contains("is root's") && by_user.contains("systemctl --user start"), "{by_user}");
    }
}
