//! Checks that the backends work on this machine.

use serde::Serialize;

use super::containers::PodmanOptions;
use super::podman;
use super::runner::Runner;

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The subject of the check.
    pub what: &'static str,
    /// Its state.
    pub state: DoctorReport,
    /// The finding.
    pub found: String,
    /// The remedy; empty if there is nothing to do.
    pub advice: String,
}

/// The state of a checked subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DoctorReport {
    /// It works.
    Ok,
    /// It works, with limitations.
    Limited,
    /// It does not work.
    Missing,
}

impl Finding {
    pub(crate) fn ok(what: &'static str, found: impl Into<String>) -> Self {
        Self { what, state: DoctorReport::Ok, found: found.into(), advice: String::new() }
    }

    pub(crate) fn limited(what: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { what, state: DoctorReport::Limited, found: found.into(), advice: advice.into() }
    }

    pub(crate) fn missing(what: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { what, state: DoctorReport::Missing, found: found.into(), advice: advice.into() }
    }
}

/// Checks the needs of the backends on this machine. A container is started only if the image is present.
pub fn diagnose(options: &PodmanOptions) -> Vec<Finding> {
    let mut findings = vec![user(), host_runner()];
    findings.extend(podman::diagnose(options));
    findings
}

fn user() -> Finding {
    match rustix::process::geteuid().is_root() {
        true => Finding::ok("user", "root: overlays can be mounted and shown in containers"),
        false => Finding::limited(
            "user",
            "not root",
            "overlays need root; without it changes are found by scanning every file, about 2 ms per 1,000 files",
        ),
    }
}

fn host_runner() -> Finding {
    let tried = tempfile::tempdir().map_err(|error| error.to_string());
    let tried = tried.and_then(|root| Runner::spawn_on_host(root.path()).map_err(|error| error.to_string()));
    match tried {
        Ok(_) => Finding::ok("host commands", "the runner starts"),
        Err(error) => Finding::missing(
            "host commands",
            error,
            "allow memfd_create, or executing files in the temporary directory",
        ),
    }
}
