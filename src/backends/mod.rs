//! Workspaces: the places of files and processes. They know nothing of events.

#[doc(hidden)]
pub mod agent_process;
mod asciicast;
pub(crate) mod caller;
mod capture;
mod command_input;
#[doc(hidden)]
pub mod command_options;
mod commands;
#[cfg(feature = "compliance")]
pub mod compliance;
pub(crate) mod config;
mod container_network;
mod containers;
#[doc(hidden)]
pub mod disk;
mod doctor;
mod error;
#[doc(hidden)]
pub mod git;
mod host;
mod layered;
mod memory;
mod mock;
mod output;
#[cfg_attr(
    not(any(feature = "docker", feature = "podman")),
    expect(dead_code, unused_imports, unused_variables, reason = "the clients of engines use the rest")
)]
mod podman;
#[doc(hidden)]
pub mod python;
mod runner;
pub(crate) mod running_commands;
mod shell;
mod throwaway;
pub(crate) mod workspace;

pub use crate::engine::durations::Durations;
pub use crate::network::{HostPattern, HttpAnswers, HttpMessage, HttpReport, NetworkRules};
pub use agent_process::agent_process;
pub use asciicast::TerminalRecording;
#[doc(hidden)]
pub use caller::name_and_value;
pub use caller::{CallerProcess, HostCaller};
#[doc(hidden)]
pub use caller::{STARTED, process_stat};
pub use capture::{Below, ChangeDetector, DirtyPath, FileId, KeptAt, KnownFilesKeeper, Observed, Walked};
#[doc(hidden)]
pub use command_input::ClosesInput;
pub use command_input::{CommandInput, WindowSize};
pub use command_options::CommandOptions;
pub use config::{MockOptions, MockRule, WorkspaceSpec};
pub use container_network::ContainerNetwork;
pub use containers::{EngineKind, Leftover, Leftovers, OverlayUse, PodmanOptions};
pub use disk::{IgnoredLimits, is_secret_name};
pub use doctor::{DoctorReport, Finding, diagnose};
pub use error::{BackendError, UnusableDirectory};
#[doc(hidden)]
pub use git::{GitPlace, commit_in, write_commit};
#[doc(hidden)]
pub use host::HostPath;
pub use host::{HostOptions, HostWorkspace};
pub use memory::MemoryWorkspace;
pub use mock::{MockAnswer, MockWorkspace};
pub use output::Output;
pub use podman::{BuiltImage, build_image, container_figures, find_engine, remove_leftovers, sweep_sandboxes};
pub use podman::{ContainerFigures, PodmanSandbox, WarmContainers, WarmForUsed};
pub use python::PythonEvaluator;
pub use shell::{
    DEFAULT_KEEP_BYTES, DEFAULT_TIMEOUT, EnvMode, MAX_COMMAND_BYTES, MAX_SCRIPT_BYTES, MAX_STDIN_BYTES, MAX_TIMEOUT,
    MAX_VARIABLES, MIN_TIMEOUT, OutputStream, OutputWatch, Running, Shell, ShellCommand, ShellEnv, ShellError,
    ShellProperties, ShellResult, Which, unwatched,
};
pub use throwaway::{Throwaway, sweep_throwaways};
pub use workspace::{Container, FileChange, MachineNews, MachineUsage, ProgressWatch, Workspace};
