use foldspace::http::MovedSession;
use serde_json::json;

use super::{Failure, Globals, Out, OwnerClient, open, text};

/// Moves a session to another host of a shared store
///
/// Waits for the session's calls and ends its background processes. The other host then opens its workspace with its
/// files, and every host forwards the session's calls there.
#[derive(Debug, clap::Args)]
pub(super) struct MoveArgs {
    /// The session, by name or by the beginning of its id
    session: String,
    /// The host's name, from its `serve --host` or from `status`
    host: String,
}

impl MoveArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        let moved = super::block_on(async {
            let owner = OwnerClient::of_existing(globals).await?;
            let id = open::reading(globals)?.find(&self.session)?.session.id();
            let moved = owner.client.post(&format!("/v1/sessions/{id}/host"), &json!({ "host": self.host })).await;
            owner.end().await;
            Ok::<MovedSession, Failure>(moved?)
        })??;
        out.show(&moved, |out| {
            let host = text::one_line(&moved.host, 80);
            let session = text::one_line(&self.session, 80);
            out.line(format!("moved {session} to {host} in {}", text::duration(moved.millis.saturating_mul(1000))))
        })
    }
}
