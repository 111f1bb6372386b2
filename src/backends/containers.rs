//! Options of containers, and the report on those that are left over. Every build knows them.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::command_options::CommandOptions;
use super::host::recorded_path;
use super::podman;

/// A program that runs containers.
///
/// ```
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
    /// All of them; where several would do, an earlier one is taken.
    pub const ALL: [Self; 2] = [Self::Podman, Self::Docker];

    /// The name of the backend, and of the program for a terminal.
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

/// Options of a session's container, of whichever engine. They come with the workspace's definition, never with a tool call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PodmanOptions {
    /// The engine, which is recorded as the backend's name.
    #[serde(skip)]
    pub engine: EngineKind,
    /// The image.
    pub image: String,
    /// Pulls an image that is not there; otherwise that is an error.
    pub pull: bool,
    /// A directory of this machine that is the workspace; the session has files of its own when nothing is said.
    #[serde(with = "recorded_path", skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
    /// The directory is only copied at the beginning: the session is a fork of one that has the directory, made by
    /// [`Hub::create`](crate::Hub::create), and `apply` merges its changes back.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub copy_on_write: bool,
    /// Bytes of memory; there is no swap.
    pub memory_bytes: u64,
    /// Processors.
    pub cpus: f64,
    /// Processes and threads.
    pub pids: u32,
    /// Bytes of the memory file system at `/tmp`.
    pub tmp_bytes: u64,
    /// Bytes that stay free on the disk of the files: a command that leaves less is ended. Where less than twice that
    /// is free when it begins, it may use half.
    pub reserve_bytes: u64,
    /// Another place in the container where the workspace is, too, such as `/app`. It covers what the image has there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub also_at: Option<String>,
    /// Runs commands as root of a user namespace of the container's own, which may change its whole root file system.
    /// What they change outside of the workspace is not recorded, and goes with the container. Podman only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub writable_root: bool,
    /// Lets commands reach the network.
    pub network: bool,
    /// Seconds without a call after which the container is stopped; 0 for never.
    pub idle_seconds: u64,
    /// Seconds after whose start the container is removed, whatever runs in it; 0 for never. The next command makes
    /// another.
    #[serde(skip_serializing_if = "is_none")]
    pub uptime_seconds: u64,
    /// The beginning of the container's name, before the session's id.
    #[serde(skip_serializing_if = "is_usual_prefix")]
    pub name_prefix: String,
    /// Puts the files into an overlay.
    pub overlay: OverlayUse,
    /// The engine's address, such as `unix:///run/podman/podman.sock`; found out when nothing is said.
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

/// Use of an overlay for a session's files, which finds changes without looking at every file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OverlayUse {
    /// An overlay wherever one can be mounted: by root, for an engine of this machine.
    #[default]
    Auto,
    /// Never: they lie in a plain directory.
    Never,
}

impl PodmanOptions {
    /// Returns the directory that is the workspace itself, and no copy.
    pub(crate) fn own_directory(&self) -> Option<&Path> {
        self.directory.as_deref().filter(|_| !self.copy_on_write)
    }

    /// Gives the usual options for an engine, at `connection` or where it is found. The image is the one that
    /// `FOLDSPACE_IMAGE` names, else the [development image](super::build_image) where the engine has it, else the default.
    pub fn usual(engine: EngineKind, connection: Option<&str>) -> Self {
        let named = std::env::var("FOLDSPACE_IMAGE").ok().filter(|image| !image.is_empty());
        let defaults = Self { engine, connection: connection.map(str::to_owned), ..Self::default() };
        let image = named.or_else(|| podman::built_image(engine, connection)).unwrap_or_else(|| defaults.image.clone());
        Self { image, ..defaults }
    }
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
            network: false,
            idle_seconds: 600,
            uptime_seconds: 0,
            name_prefix: PREFIX.to_owned(),
            overlay: OverlayUse::Auto,
            connection: None,
            commands: CommandOptions::default(),
        }
    }
}

/// A container of foldspace's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Leftover {
    /// Its name.
    pub name: String,
    /// The session that it was made for; `warm` of one that was made for whichever needs one.
    pub session: String,
    /// It runs.
    pub running: bool,
}

/// The containers of an engine that were looked through.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Leftovers {
    /// Their process has ended, and they are removed, or would be.
    pub removed: Vec<Leftover>,
    /// Their process is one of another machine or container. They are left.
    pub elsewhere: Vec<Leftover>,
    /// The containers that could not be removed, and the reasons.
    pub failed: Vec<String>,
    /// The reason that no engine was asked.
    pub unasked: Option<String>,
}
