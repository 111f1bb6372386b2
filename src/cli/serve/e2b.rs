//! E2B's wire API, next to the server's own.

use std::net::{Ipv4Addr, SocketAddr};

use foldspace::WorkspaceSpec;
use foldspace::backends::{PodmanOptions, find_engine};
use foldspace::http::{E2bApi, E2bOptions, HttpFace, HttpServer, Token};

use super::{bound, check_reach};
use crate::cli::{Failure, Out};

/// The port where the SDKs expect `envd` if `E2B_DEBUG` is set.
const DEBUG_PORT: u16 = 49983;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "E2B")]
pub(super) struct E2bArgs {
    /// Serves E2B's wire API on this address [default: 127.0.0.1:3000]; its sandboxes are sessions of the backend that
    /// the options below select, by default containers
    #[arg(
        long = "e2b", id = "e2b", value_name = "ADDR:PORT", group = "tcp",
        num_args = 0..=1, default_missing_value = "127.0.0.1:3000"
    )]
    address: Option<SocketAddr>,
    /// Removes the session of a sandbox when the sandbox ends; by default its history stays
    #[arg(long = "e2b-remove", requires = "e2b")]
    remove_ended: bool,
    /// Lets every program on this machine use one sandbox without a token, as clients with E2B_DEBUG=true do; also
    /// serves it on port 49983
    #[arg(long = "e2b-debug", requires = "e2b")]
    debug: bool,
}

impl E2bArgs {
    pub(super) fn is_given(&self) -> bool {
        self.address.is_some()
    }

    pub(super) fn check(&self, allow_remote: bool) -> Result<(), Failure> {
        match self.address {
            Some(address) if self.debug && !address.ip().is_loopback() => {
                Err(Failure::usage(format!("other machines can reach {address}, and --e2b-debug needs no token"))
                    .with_hint("serve on 127.0.0.1, or leave --e2b-debug out"))
            }
            address => check_reach(address, allow_remote),
        }
    }

    pub(super) async fn serve(
        &self,
        server: &HttpServer,
        face: &HttpFace,
        (workspace, names_image): (Option<WorkspaceSpec>, bool),
        (token, names): (Token, &[String]),
        out: &mut Out,
    ) -> Result<(), Failure> {
        let Some(address) = self.address else { return Ok(()) };
        let mut workspace = match workspace {
            Some(workspace) => workspace,
            None => WorkspaceSpec::Podman(PodmanOptions::usual(find_engine(None)?, None)),
        };
        if let (WorkspaceSpec::Podman(options), false) = (&mut workspace, names_image) {
            options.prefer_e2b_image();
        }
        let options =
            E2bOptions { token, names: names.to_vec(), workspace, remove_ended: self.remove_ended, debug: self.debug };
        let api = E2bApi::open(face, options).await?;
        let debug = self.debug.then(|| SocketAddr::from((Ipv4Addr::LOCALHOST, DEBUG_PORT)));
        for address in std::iter::once(address).chain(debug) {
            let (listener, place) = bound(address).await?;
            out.line(format!("serving E2B's API on http://{place}"))?;
            let (server, router) = (server.clone(), api.router());
            tokio::spawn(async move { server.serve_tcp(listener, router).await });
        }
        Ok(())
    }
}
