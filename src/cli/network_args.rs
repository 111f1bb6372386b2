//! The options of a container's network.

use std::collections::BTreeSet;

use foldspace::backends::{ContainerNetwork, HostPattern, NetworkRules};

use regex::Regex;

use super::Failure;
use super::mask::expression;

#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct NetworkArgs {
    /// container: lets commands reach public hosts, through a proxy that records each connection; `engine` gives them
    /// the engine's network instead, unrecorded
    #[arg(long, value_name = "WHICH", num_args = 0..=1, require_equals = true, default_missing_value = "recorded")]
    #[arg(value_parser = ["recorded", "engine"])]
    network: Option<String>,
    /// container: lets commands reach these hosts only, such as *.example.com, example.com:443 or 10.0.0.0/8
    #[arg(long, value_name = "HOST")]
    allow_host: Vec<HostPattern>,
    /// container: lets commands reach public hosts except these; the most specific pattern decides
    #[arg(long, value_name = "HOST")]
    deny_host: Vec<HostPattern>,
    /// container: records HTTP and HTTPS requests and responses, of all hosts or of HOST; may be given several times.
    /// `foldspace rerun --offline` replays them
    #[arg(long, value_name = "HOST", num_args = 0..=1, require_equals = true, default_missing_value = "*")]
    record_http: Vec<HostPattern>,
    /// container: masks matches in recorded requests and responses, besides well-known secrets; with a group named `s`,
    /// only that
    #[arg(long, value_name = "REGEX", value_parser = expression, requires = "record_http")]
    mask_http: Vec<Regex>,
    /// container: opens this port to everyone who reaches `foldspace serve --http`, without a token; may be given several
    /// times
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    public_port: Vec<u16>,
}

impl NetworkArgs {
    /// Returns the options, and whether each is given.
    pub(super) fn given(&self) -> [(bool, &'static str); 6] {
        [
            (self.network.is_some(), "--network"),
            (!self.allow_host.is_empty(), "--allow-host"),
            (!self.deny_host.is_empty(), "--deny-host"),
            (!self.record_http.is_empty(), "--record-http"),
            (!self.mask_http.is_empty(), "--mask-http"),
            (!self.public_port.is_empty(), "--public-port"),
        ]
    }

    pub(super) fn public_ports(&self) -> BTreeSet<u16> {
        self.public_port.iter().copied().collect()
    }

    pub(super) fn network(&self) -> Result<ContainerNetwork, Failure> {
        let (allow, deny) = (self.allow_host.clone(), self.deny_host.clone());
        let mask = self.mask_http.iter().map(ToString::to_string).collect();
        let rules =
            NetworkRules { allow, deny, record_http: self.record_http.clone(), mask, ..NetworkRules::default() };
        let has_rules = rules != NetworkRules::default();
        match self.network.as_deref() {
            Some("engine") if has_rules => {
                Err(Failure::usage("--network=engine excludes host rules and --record-http")
                    .with_hint("omit `=engine`, or the other options"))
            }
            Some("engine") => Ok(ContainerNetwork::Engine),
            None if !has_rules => Ok(ContainerNetwork::None),
            _ => Ok(ContainerNetwork::Recorded(rules)),
        }
    }
}
