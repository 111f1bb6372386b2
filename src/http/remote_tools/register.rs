//! The route for programs that register tools.

use std::sync::Arc;

use axum::Router;
use bytes::Bytes;
use futures_util::FutureExt;
use tokio::io::{AsyncRead, AsyncWriteExt, BufReader, WriteHalf};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::link::{OfferedTool, ProgramLink, WAITING_MAX};
use super::wire::{self, OFFER_MAX, REGISTER, RegisterRequest, TOOLS_MAX, ToolOffer};
use crate::http::HttpFace;
use crate::http::upgrade::{UpgradeRequest, UpgradedStream, upgrade_route};
use crate::hub::operations::OperationError;
use crate::tools::{ErasedTool, Registration};

/// A program with its tools, until it is dropped.
struct Program {
    link: Arc<ProgramLink>,
    messages: mpsc::Receiver<Bytes>,
    end: CancellationToken,
    _registration: Registration,
    /// Ends the calls in flight when dropped.
    _close: DropGuard,
}

/// Returns the route for programs that register tools, for as long as they stay connected.
pub(crate) fn register_route(face: &HttpFace) -> Router {
    upgrade_route(face, REGISTER.0, REGISTER.1, |request| {
        let program = Program::of(request)?;
        Ok(Box::new(move |stream| program.serve(stream).boxed()))
    })
}

impl Program {
    fn of(UpgradeRequest { hub, caller, params, end }: UpgradeRequest) -> Result<Self, OperationError> {
        let RegisterRequest { session, tools } = serde_json::from_value(params).map_err(OperationError::Parameters)?;
        if !(1..=TOOLS_MAX).contains(&tools.len()) {
            return Err(OperationError::invalid(format!("a program registers 1 to {TOOLS_MAX} tools")));
        }
        tools.iter().try_for_each(check)?;
        let sessions = hub.sessions();
        let session = session.map(|wanted| sessions.find(&wanted)).transpose()?.map(|entry| entry.id);
        let (out, messages) = mpsc::channel(WAITING_MAX);
        let link = ProgramLink::new(caller, out);
        let offered = |offer: ToolOffer| {
            let tool: Arc<dyn ErasedTool> = Arc::new(OfferedTool { link: Arc::clone(&link), offer: offer.clone() });
            (offer.name, tool)
        };
        let registration = hub.register(session, tools.into_iter().map(offered).collect())?;
        let close = link.closed.clone().drop_guard();
        Ok(Self { link, messages, end, _registration: registration, _close: close })
    }

    async fn serve(mut self, stream: UpgradedStream) {
        let (read, write) = tokio::io::split(stream);
        let ended = async {
            self.end.cancelled().await;
            // Calls in flight get as much time as other calls.
            self.link.idle().await;
        };
        let why = tokio::select! {
            read = read_all(read, &self.link) => read.err(),
            written = write_all(write, &mut self.messages) => written.err().map(|error| error.to_string()),
            () = self.link.closed.cancelled() => None,
            () = ended => None,
        };
        if let Some(why) = why {
            tracing::warn!(process = self.link.program.number(), "a program with tools is disconnected: {why}");
        }
    }
}

fn check(offer: &ToolOffer) -> Result<(), OperationError> {
    let name = &offer.name;
    let bytes = serde_json::to_vec(offer).map_or(usize::MAX, |text| text.len());
    if bytes > OFFER_MAX {
        let what = format!("tool {name:.100} has {bytes} bytes of description and schemas; the limit is {OFFER_MAX}");
        return Err(OperationError::invalid(what));
    }
    let is_object = |schema: &schemars::Schema| schema.get("type").is_some_and(|kind| kind == "object");
    match is_object(&offer.params) && is_object(&offer.output) {
        true => Ok(()),
        false => {
            let what =
                format!("the schemas of {name} must have \"type\": \"object\", for parameters and for the result");
            Err(OperationError::invalid(what))
        }
    }
}

async fn read_all(read: impl AsyncRead + Unpin, link: &ProgramLink) -> Result<(), String> {
    let mut read = BufReader::new(read);
    while let Some(message) = wire::next(&mut read).await? {
        link.take(message)?;
    }
    Ok(())
}

async fn write_all(mut write: WriteHalf<UpgradedStream>, messages: &mut mpsc::Receiver<Bytes>) -> std::io::Result<()> {
    while let Some(line) = messages.recv().await {
        write.write_all(&line).await?;
        write.flush().await?;
    }
    Ok(())
}
