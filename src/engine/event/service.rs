//! Events of services: commands with a name that run in the background.

use serde::{Deserialize, Serialize};

/// Event of a service's start. The call's process is the service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceStarted {
    /// Name, unique in the session.
    pub name: String,
    /// TCP port that it listens at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Services that had to run before it started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// True to start it again after a rewind, in a fork, and when the workspace is opened again.
    #[serde(default)]
    pub restart: bool,
}

/// Event of a service that someone stopped. It is not started again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceStopped {
    /// Name.
    pub name: String,
}
