//! The network of a workspace's commands.

use regex::Regex;

use super::WorkspaceSpec;

impl WorkspaceSpec {
    /// Returns true if its commands may reach other machines.
    pub fn has_network(&self) -> bool {
        match self {
            Self::Memory | Self::Mock(_) => false,
            Self::Host(_) => true,
            Self::Podman(options) => options.network.is_on(),
        }
    }

    /// Returns true if requests of its commands to some hosts are recorded.
    pub fn records_http(&self) -> bool {
        matches!(self, Self::Podman(options) if options.network.records_http())
    }

    /// Returns the regular expressions that mask recorded requests, besides well-known secrets.
    pub fn http_masks(&self) -> Vec<String> {
        let Self::Podman(options) = self else { return Vec::new() };
        options.network.rules().map(|rules| rules.mask.clone()).unwrap_or_default()
    }

    pub(super) fn check_masks(&self) -> Result<(), String> {
        let is_valid =
            |text: &String| Regex::new(text).map(drop).map_err(|error| format!("network: mask {text:?}: {error}"));
        self.http_masks().iter().try_for_each(is_valid)
    }
}
