//! Options of containers, and the report on leftover ones. Compiled into every build.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::command_options::CommandOptions;
use super::container_network::ContainerNetwork;
use super::host::recorded_path;
use super::podman;

/// A program that runs containers.
///
/// ```
/// # use foldspace_backends as foldspace;
/// use foldspace::{WorkspaceSpec, backends::{EngineKind, PodmanOptions}};
/// let spec = WorkspaceSpec::Podman(PodmanOptions { engine: EngineKind::Docker, ..PodmanOptions::default() });
/// assert_eq!(spec.backend_name(), EngineKind::Docker.name());
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EngineKind {
    /// Podman.
    #[default]
    Podman,
    /// Docker.
    Docker,
}

impl EngineKind {
    /// All engines; if several would do, the earlier one is used.
    pub const ALL: [Self; 2] = [Self::Podman, Self::Docker];

    /// The name of the backend, and of the command-line program.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Podman => "podman",
            Self::Docker => "docker",
        }
    }
}

impl std::fmt::Display for EngineKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Podman => "Podman",
            Self::Docker => "Docker",
        })
    }
}

/// Options of a session's container, for either engine. They come with the workspace's definition, not from tool calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PodmanOptions {
    /// The engine, recorded as the backend's name.
    #[serde(skip)]
    pub engine: EngineKind,
    /// The image.
    pub image: String,
    /// True to pull a missing image; without it a missing image is an error.
    pub pull: bool,
    /// A directory of this machine that is the workspace; by default the session has its own files.
    #[serde(with = "recorded_path", skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
    /// True if the directory is only copied at the beginning: the session is a fork, made by
    /// `Hub::create`, of the directory's session, and `apply` merges its changes back.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub copy_on_write: bool,
    /// Bytes of memory. Swap is disabled.
    pub memory_bytes: u64,
    /// Processors.
    pub cpus: f64,
    /// Processes and threads.
    pub pids: u32,
    /// Bytes of the memory file system at `/tmp`.
    pub tmp_bytes: u64,
    /// Bytes that stay free on the disk of the files: a command that leaves less is ended. If less than twice that is
    /// free when it starts, it may use half.
    pub reserve_bytes: u64,
    /// A second path in the container for the workspace, such as `/app`. Commands start there. It hides the image's files
    /// at that path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub also_at: Option<String>,
    /// True to run commands as root of the container's own user namespace, with its whole root file system writable.
    /// Changes outside of the workspace are not recorded, and are removed with the container. Podman only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub writable_root: bool,
    /// The network of commands.
    pub network: ContainerNetwork,
    /// The ports that anyone may reach through `foldspace serve --http`, without a token.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub public_ports: BTreeSet<u16>,
    /// Seconds without a call until the container is stopped; 0 for never.
    pub idle_seconds: u64,
    /// Seconds after its start until the container is removed, even while commands run; 0 for never. The next command
    /// makes another.
    #[serde(skip_serializing_if = "is_none")]
    pub uptime_seconds: u64,
    /// The beginning of the container's name, before the session's id.
    #[serde(skip_serializing_if = "is_usual_prefix")]
    pub name_prefix: String,
    /// Use of an overlay for the files.
    pub overlay: OverlayUse,
    /// The engine's address, such as `unix:///run/podman/podman.sock`; detected by default.
    pub connection: Option<String>,
    /// Options of all commands.
    #[serde(skip)]
    pub commands: CommandOptions,
}

const PREFIX: &str = "foldspace";

fn is_none(seconds: &u64) -> bool {
    *seconds == 0
}

fn is_usual_prefix(prefix: &str) -> bool {
    prefix == PREFIX
}

/// Use of an overlay for a session's files, which finds changes without scanning every file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OverlayUse {
    /// An overlay wherever one can be mounted: as root, with an engine on this machine.
    #[default]
    Auto,
    /// No overlay: the files are in a plain directory.
    Never,
}

impl PodmanOptions {
    /// Returns the directory if it is the workspace itself, not a copy.
    #[doc(hidden)]
    pub fn own_directory(&self) -> Option<&Path> {
        self.directory.as_deref().filter(|_| !self.copy_on_write)
    }

    /// Returns the usual options for an engine, at `connection` or its detected address. The image is
    /// `FOLDSPACE_IMAGE`, else the [development image](super::build_image) if the engine has it, else the default.
    pub fn usual(engine: EngineKind, connection: Option<&str>) -> Self {
        let defaults = Self { engine, connection: connection.map(str::to_owned), ..Self::default() };
        let image = named_image()
            .or_else(|| podman::BuiltImage::Development.built(engine, connection))
            .unwrap_or_else(|| defaults.image.clone());
        Self { image, ..defaults }
    }

    /// Uses the image like E2B's in place of the usual one, if the engine has it and `FOLDSPACE_IMAGE` names no other.
    pub fn prefer_e2b_image(&mut self) {
        if named_image().is_none()
            && let Some(built) = podman::BuiltImage::E2bBase.built(self.engine, self.connection.as_deref())
        {
            self.image = built;
        }
    }
}

fn named_image() -> Option<String> {
    std::env::var("FOLDSPACE_IMAGE").ok().filter(|image| !image.is_empty())
}

impl Default for PodmanOptions {
    fn default() -> Self {
        Self {
            engine: EngineKind::default(),
            image: "docker.io/library/python:3.12-bookworm".to_owned(),
            pull: false,
            directory: None,
            copy_on_write: false,
            memory_bytes: 1 << 30,
            cpus: 1.0,
            pids: 512,
            tmp_bytes: 256 << 20,
            reserve_bytes: 1 << 30,
            also_at: None,
            writable_root: false,
            network: ContainerNetwork::None,
            public_ports: BTreeSet::new(),
            idle_seconds: 600,
            uptime_seconds: 0,
            name_prefix: PREFIX.to_owned(),
            overlay: OverlayUse::Auto,
            connection: None,
            commands: CommandOptions::default(),
        }
    }
}

/// A container made by foldspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Leftover {
    /// Its name.
    pub name: String,
    /// The session that it was made for; `warm` if it was made for no particular session.
    pub session: String,
    /// True if it runs.
    pub running: bool,
}

/// The containers of an engine that were checked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Leftovers {
    /// Containers whose process has ended: removed, or to be removed without a dry run.
    pub removed: Vec<Leftover>,
    /// Containers whose process is on another machine or in another container. They are left alone.
    pub elsewhere: Vec<Leftover>,
    /// The containers that could not be removed, with the reasons.
    pub failed: Vec<String>,
    /// The reason that no engine was queried.
    pub unasked: Option<String>,
}
