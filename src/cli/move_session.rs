use foldspace::http::MovedSession;
use serde_json::json;

use super::{Failure, Globals, Out, OwnerClient, open, text};

/// Moves a session to another host of a store that several hosts share
///
/// Its calls are waited for, processes that it runs in the background end, and the other host opens its workspace with
/// its files. Calls that come to any host are done there from then on.
#[derive(Debug, clap::Args)]
pub(super) struct MoveArgs {
    /// The session, by name or by the beginning of its id
    session: String,
    /// The host's name, as its `serve --host` or `status` says
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
            out.line(format!(
                "{session} is on {host} now; it took {}",
                text::duration(moved.millis.saturating_mul(1000))
            ))
        })
    }
}
