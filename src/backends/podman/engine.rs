//! The engine: podman-api for the life of containers.

use std::future::Future;
use std::time::Duration;

use podman_api::opts::{ContainerDeleteOpts, ContainerListFilter, ContainerListOpts, ContainerStopOpts, PullOpts};
use podman_api::{Error, Podman};
use serde_json::json;
use tokio::runtime::Runtime;

use super::connection::{EngineAddress, ProcessEnv, resolve};
use super::container_plan::{ContainerPlan, LABEL, OWNER, STOP_SECONDS, creation};
pub(crate) use super::paths::USER;
use super::requests::Requests;

const CGROUPS: &str = "/sys/fs/cgroup";
const SHORT: Duration = Duration::from_secs(10);
const LONG: Duration = Duration::from_secs(120);
const PULL: Duration = Duration::from_secs(1800);
/// Tries where a rootless engine finds no ids for its user: it reads them through a library that is not thread-safe.
const MAPPING_TRIES: u32 = 10;
/// The pause before the second attempt; each is longer by as much.
const MAPPING_PAUSE: Duration = Duration::from_millis(10);

/// A connection to an engine. Every call blocks, and none may be made from within an async task.
pub(crate) struct Engine {
    pub(super) podman: Podman,
    requests: Requests,
    runtime: Option<Runtime>,
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
    #[error("there is no such container")]
    NoContainer,
    #[error("the engine has no image {0}; get it with `podman pull {0}`, or allow pulling (--pull)")]
    NoImage(String),
    /// The container runs, or has run, but not the resident runner in it.
    #[error("the runner can't run in the container: {0}")]
    NoRunner(String),
    /// It is another user's, who could not use this process's files in a container, or be kept from others.
    #[error("{0}")]
    Foreign(String),
    /// It found no ids for the container's user, which passes.
    #[error("the engine could not make the container: {0}")]
    NoMapping(String),
    #[error("the container is so already")]
    Unchanged,
    #[error("the engine could not {action}: {reason}")]
    Failed { action: &'static str, reason: String },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InspectedContainer {
    pub(crate) id: String,
    pub(crate) running: bool,
    pub(crate) pid: i32,
    pub(crate) exit_code: i32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ours {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) session: String,
    pub(crate) owner: String,
    pub(crate) running: bool,
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Nothing is under way, and within another runtime it could not be waited for.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Engine {
    pub(crate) fn connect(explicit: Option<&str>) -> Result<Self, EngineError> {
        let connection = resolve(explicit, &ProcessEnv).map_err(EngineError::Unreachable)?;
        let unreachable = |what: &dyn std::fmt::Display| {
            EngineError::Unreachable(format!(
                "the Podman engine at {} (from {}) does not answer: {what}; start it with `systemctl start podman.socket` \
                 or `podman system service --time=0 {}`",
                connection.url, connection.source, connection.url
            ))
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| unreachable(&error))?;
        let podman = Podman::new(&connection.url).map_err(|error| unreachable(&error))?;
        let requests = Requests::new(&connection.url).map_err(|error| unreachable(&error))?;
        let info = block_on(&runtime, async { tokio::time::timeout(SHORT, podman.info()).await });
        let info = info.map_err(|_| unreachable(&"no answer in 10 s"))?.map_err(|error| unreachable(&error))?;
        let host = info.host.as_ref();
        let version = info.version.as_ref().and_then(|version| version.version.clone()).unwrap_or_default();
        let rootless = host.and_then(|host| host.security.as_ref()).and_then(|security| security.rootless);
        let cgroups = host.and_then(|host| host.cgroup_version.clone()).unwrap_or_default();
        let oci = host.and_then(|host| host.oci_runtime.as_ref()).and_then(|oci| oci.name.clone());
        Ok(Self {
            podman,
            requests,
            runtime: Some(runtime),
            version,
            rootless: rootless.unwrap_or(false),
            cgroup_version: if cgroups == "v2" { 2 } else { 1 },
            runtime_name: oci.unwrap_or_default(),
            connection,
        })
    }

    /// Connects to an engine whose containers can have this process's files.
    pub(crate) fn of_this_user(explicit: Option<&str>) -> Result<Self, EngineError> {
        let engine = Self::connect(explicit)?;
        engine.check_user().map(|()| engine)
    }

    /// Checks that this process's files can be shown: a rootless engine must be this user's, any other root's.
    pub(crate) fn check_user(&self) -> Result<(), EngineError> {
        let me = rustix::process::geteuid().as_raw();
        let url = &self.connection.url;
        foreign(url, self.rootless, self.connection.user(), me).map_or(Ok(()), |why| Err(EngineError::Foreign(why)))
    }

    pub(crate) fn user_outside(&self) -> u32 {
        if self.rootless { rustix::process::geteuid().as_raw() } else { USER.0 }
    }

    pub(super) fn ask<T>(
        &self,
        action: &'static str,
        limit: Duration,
        question: impl Future<Output = Result<T, Error>> + Send,
    ) -> Result<T, EngineError>
    where
        T: Send,
    {
        let Some(runtime) = &self.runtime else {
            return Err(EngineError::Unreachable("the connection to the engine is closed".to_owned()));
        };
        match block_on(runtime, async { tokio::time::timeout(limit, question).await }) {
            Err(_) => Err(EngineError::Unreachable(format!(
                "the engine did not {action} within {} s; is it alive? (`podman --url {} ps`)",
                limit.as_secs(),
                self.connection.url
            ))),
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) => Err(failure(action, &error)),
        }
    }

    pub(crate) fn inspect(&self, name: &str) -> Result<InspectedContainer, EngineError> {
        let container = self.podman.containers().get(name);
        let inspected = self.ask("inspect the container", SHORT, container.inspect())?;
        let state = inspected.state.as_ref();
        Ok(InspectedContainer {
            id: inspected.id.clone().unwrap_or_default(),
            running: state.and_then(|state| state.running).unwrap_or(false),
            pid: state.and_then(|state| state.pid).and_then(|pid| i32::try_from(pid).ok()).unwrap_or(0),
            exit_code: state.and_then(|state| state.exit_code).unwrap_or(0),
        })
    }

    pub(crate) fn create(&self, plan: &ContainerPlan<'_>) -> Result<String, EngineError> {
        let action = "make the container";
        let mut options = creation(plan, self.rootless);
        if self.cgroup_version == 1 {
            // The groups are there in a tmpfs that every user may write to.
            options["mask"] = json!([CGROUPS]);
        }
        let post = || self.ask(action, LONG, self.requests.post("/libpod/containers/create", &options));
        let mut tries = 1..MAPPING_TRIES;
        loop {
            match (post(), tries.next()) {
                (Err(EngineError::NoMapping(_)), Some(tries)) => std::thread::sleep(tries * MAPPING_PAUSE),
                (Err(EngineError::NoContainer | EngineError::NoImage(_)), _) => {
                    return Err(EngineError::NoImage(plan.options.image.clone()));
                }
                (created, _) => return created.map(|created| created["Id"].as_str().unwrap_or_default().to_owned()),
            }
        }
    }

    pub(crate) fn start(&self, id: &str) -> Result<(), EngineError> {
        let container = self.podman.containers().get(id);
        self.ask("start the container", LONG, container.start(None))
    }

    pub(crate) fn stop(&self, id: &str) -> Result<(), EngineError> {
        let container = self.podman.containers().get(id);
        let options = ContainerStopOpts::builder().timeout(STOP_SECONDS).build();
        match self.ask("stop the container", LONG, container.stop(&options)) {
            Err(EngineError::Unchanged) => Ok(()),
            stopped => stopped,
        }
    }

    pub(crate) fn remove(&self, id: &str) -> Result<(), EngineError> {
        let container = self.podman.containers().get(id);
        let options = ContainerDeleteOpts::builder().force(true).timeout(0).volumes(true).build();
        self.ask("remove the container", LONG, container.delete(&options))
    }

    pub(crate) fn remove_if_there(&self, id: &str) -> Result<(), EngineError> {
        match self.remove(id) {
            Err(EngineError::NoContainer) => Ok(()),
            other => other,
        }
    }

    pub(crate) fn has_image(&self, image: &str) -> Result<bool, EngineError> {
        let found = self.podman.images().get(image);
        match self.ask("look for the image", SHORT, found.exists()) {
            Ok(exists) => Ok(exists),
            Err(EngineError::NoContainer) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the architecture that an image is for, as the engine names it.
    pub(crate) fn architecture(&self, image: &str) -> Result<Option<String>, EngineError> {
        let found = self.podman.images().get(image);
        match self.ask("inspect the image", SHORT, found.inspect()) {
            Ok(inspected) => Ok(inspected.architecture.filter(|architecture| !architecture.is_empty())),
            Err(EngineError::NoContainer) => Err(EngineError::NoImage(image.to_owned())),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn pull(&self, image: &str, progress: &mut (dyn FnMut(&str) + Send)) -> Result<(), EngineError> {
        use futures_util::StreamExt;
        let options = PullOpts::builder().reference(image).build();
        let images = self.podman.images();
        self.ask("pull the image", PULL, async {
            let mut stream = images.pull(&options);
            while let Some(report) = stream.next().await {
                let report = report?;
                if let Some(error) = report.error.filter(|error| !error.is_empty()) {
                    return Err(Error::StringError(error));
                }
                let lines = report.stream.unwrap_or_default();
                lines.lines().filter(|line| !line.trim().is_empty()).for_each(&mut *progress);
            }
            Ok(())
        })
    }

    pub(crate) fn ours(&self) -> Result<Vec<Ours>, EngineError> {
        let filter = ContainerListFilter::LabelKey(LABEL.to_owned());
        let options = ContainerListOpts::builder().all(true).filter([filter]).build();
        let list = self.ask("list the containers", SHORT, self.podman.containers().list(&options))?;
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
    }
}

/// Waits on a thread of its own: the caller may be within another runtime, where waiting is not allowed.
fn block_on<T: Send>(runtime: &Runtime, work: impl Future<Output = T> + Send) -> T {
    std::thread::scope(|scope| match scope.spawn(|| runtime.block_on(work)).join() {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// Tells the library's errors apart by what can be done about them. Nothing else reads the engine's words.
fn failure(action: &'static str, error: &Error) -> EngineError {
    match error {
        Error::Fault { code, message } => {
            let (code, reason) = (code.as_u16(), format!("{} {message}", code.as_u16()));
            match code {
                304 => EngineError::Unchanged,
                404 => EngineError::NoContainer,
                _ if message.contains("no such image") => EngineError::NoImage(reason),
                _ if message.contains("keep-id requires additional UIDs") => EngineError::NoMapping(reason),
                _ => EngineError::Failed { action, reason },
            }
        }
        Error::IO(_) | Error::Error(_) => {
            EngineError::Unreachable(format!("the engine did not {action}: the connection failed: {error}"))
        }
        other => EngineError::Failed { action, reason: other.to_string() },
    }
}

/// Gives the reason that a process of the user `me` can't use an engine, as far as that can be known beforehand.
fn foreign(url: &str, rootless: bool, owner: Option<u32>, me: u32) -> Option<String> {
    let whose = owner.map_or_else(|| "another user's".to_owned(), |uid| format!("user {uid}'s"));
    match (rootless, me) {
        (true, 0) => Some(format!(
            "the Podman engine at {url} is rootless, {whose}, and can't show root's files in a container; \
             run foldspace as that user, or use root's engine (`systemctl start podman.socket`)"
        )),
        (true, _) if owner.is_some_and(|owner| owner != me) => Some(format!(
            "the Podman engine at {url} is rootless, {whose}, and can't show files of user {me} in a container; \
             run foldspace as that user, or use your own engine (`systemctl --user start podman.socket`)"
        )),
        (false, 1..) => Some(format!(
            "the Podman engine at {url} is root's, and its containers can't write files of user {me}; \
             run foldspace as root, or use your own engine (`systemctl --user start podman.socket`)"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::foreign;

    #[test]
    fn engine_serves_its_own_user() {
        let url = "unix:///e.sock";
        assert_eq!(foreign(url, true, Some(1000), 1000), None);
        assert_eq!(foreign(url, true, None, 1000), None, "nobody knows who is at the other end of a network");
        assert_eq!(foreign(url, false, Some(0), 0), None);
        assert_eq!(foreign(url, false, None, 0), None);
    }

    #[test]
    fn engine_of_another_user_is_refused_with_hint() {
        let refused = |rootless, owner, me| foreign("unix:///e.sock", rootless, owner, me).unwrap();
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
