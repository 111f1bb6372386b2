mod export;
mod single_file;

use std::path::PathBuf;
use std::process::Stdio;

use foldspace::http::{HttpClient, PageAddress};
use foldspace::store::Durability;
use foldspace::view::Position;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;

use super::mask::MaskArgs;
use super::owner::OwnerClient;
use super::{Failure, Globals, Out, Signals, output};

/// Opens the debugger in a browser
///
/// The owner of the data serves a page on 127.0.0.1, on a port of the system's choice. The page shows every moment of a
/// session, and forks, rewinds, merges and bisects from there. The address has a code that admits one page, once,
/// within 60 seconds.
#[derive(Debug, clap::Args)]
#[command(mut_arg("mask", |arg| arg.requires("export")), mut_arg("no_mask", |arg| arg.requires("export")))]
#[command(after_help = "\
Examples:
  foldspace ui                                 the sessions, in a browser
  foldspace ui NAME --read-only                one session, without changes
  foldspace ui NAME --export run.html          the run and the page, in a file

Without a screen or over ssh, it only prints the address: forward its port with `ssh -L PORT:127.0.0.1:PORT`.")]
pub(super) struct UiArgs {
    /// The session, by name or by the beginning of its id [default: the list of sessions]
    session: Option<String>,
    /// Prints the address and opens no browser
    #[arg(long, conflicts_with = "export")]
    no_open: bool,
    /// Refuses all changes
    #[arg(long, conflicts_with = "export")]
    read_only: bool,
    /// Writes the page with the session in it as one file, which needs no server
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, requires = "session")]
    export: Option<PathBuf>,
    /// Exports only calls from this position on
    #[arg(long, value_name = "POSITION", allow_hyphen_values = true, requires = "export")]
    from: Option<Position>,
    /// Exports only calls up to this position
    #[arg(long, value_name = "POSITION", allow_hyphen_values = true, requires = "export")]
    to: Option<Position>,
    /// Replaces the file if it exists
    #[arg(long, requires = "export")]
    force: bool,
    #[command(flatten)]
    mask: MaskArgs,
}

impl UiArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        match (&self.export, &self.session) {
            (Some(file), Some(session)) => {
                let span = (self.from.as_ref(), self.to.as_ref());
                export::export(globals, session, span, (file, self.force), &self.mask, out)
            }
            _ => super::block_on(self.open(globals, out))?,
        }
    }

    async fn open(&self, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        let owner = OwnerClient::of(globals, Durability::default()).await?;
        let address = self.address(&owner.client).await?;
        out.show(&json!({ "address": address }), |out| out.line(&address))?;
        out.go_live()?;
        if !self.no_open && !out.is_json() && has_screen() && browse(&address).is_err() {
            output::note("failed to start a browser; open the address within 60 seconds");
        }
        if owner.is_here() {
            output::note("this process serves the page; Ctrl-C ends it");
            Signals::listen().next().await;
            owner.end().await;
        }
        Ok(())
    }

    async fn address(&self, client: &HttpClient) -> Result<String, Failure> {
        let session = match &self.session {
            Some(wanted) => Some(client.session(wanted).await?),
            None => None,
        };
        let PageAddress { address, code } = client.post("/v1/ui", &json!({ "read_only": self.read_only })).await?;
        let session = session.map(|session| format!("&s={}", utf8_percent_encode(&session.name, NON_ALPHANUMERIC)));
        Ok(format!("{address}#code={code}{}", session.unwrap_or_default()))
    }
}

/// Returns true if a browser that starts here would be visible to the person.
fn has_screen() -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    (set("DISPLAY") || set("WAYLAND_DISPLAY")) && !set("SSH_CONNECTION") && !set("SSH_TTY")
}

#[expect(clippy::disallowed_methods, reason = "the page is for a browser")]
fn browse(address: &str) -> std::io::Result<()> {
    let mut opener = std::process::Command::new("xdg-open");
    opener.arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    opener.spawn().map(drop)
}
