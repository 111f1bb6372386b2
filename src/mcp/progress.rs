//! What a command prints, on its way to a client while the command runs.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::Peer;
use tokio::time::{Interval, MissedTickBehavior};

use crate::engine::live::OutputSubscription;
use crate::engine::recorded::Seq;
use crate::engine::session::Session;

/// How often a client is told.
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes of one message at most.
const MESSAGE_MAX: usize = 8 << 10;
/// Bytes of all messages of a call; the call's result has what was kept of the rest.
const ALL_MAX: usize = 1 << 20;

/// Tells a client what its command prints.
pub(super) struct Progress {
    peer: Peer<RoleServer>,
    token: ProgressToken,
    output: OutputSubscription,
    /// Whose output it is, once that is known.
    call: Arc<OnceLock<Seq>>,
    ticks: Interval,
    waiting: Vec<u8>,
    /// Bytes that the command has printed, which is how far it is.
    printed: u64,
    /// Bytes that were left out of the next message.
    left_out: u64,
    told: usize,
}

impl Progress {
    /// It must be called before the call begins.
    pub(super) fn new(
        peer: &Peer<RoleServer>,
        token: ProgressToken,
        session: &Session,
        call: &Arc<OnceLock<Seq>>,
    ) -> Self {
        let mut ticks = tokio::time::interval(PAUSE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            peer: peer.clone(),
            token,
            output: session.watch_output(),
            call: Arc::clone(call),
            ticks,
            waiting: Vec::new(),
            printed: 0,
            left_out: 0,
            told: 0,
        }
    }

    /// Waits until there may be something to tell.
    pub(super) async fn due(&mut self) {
        self.ticks.tick().await;
    }

    /// Tells what has come since the last time.
    pub(super) async fn tell(&mut self) {
        let before = self.printed;
        self.take();
        if self.printed == before && self.waiting.is_empty() {
            return;
        }
        let message = self.message();
        let progress = u32::try_from(self.printed).map_or(f64::from(u32::MAX), f64::from);
        let said = ProgressNotificationParam::new(self.token.clone(), progress).with_message(message);
        if let Err(error) = self.peer.notify_progress(said).await {
            tracing::debug!(%error, "a client could not be told of progress");
        }
    }

    /// Tells the rest, before the result.
    pub(super) async fn end(&mut self) {
        self.tell().await;
        while !self.waiting.is_empty() {
            self.tell().await;
        }
    }

    fn take(&mut self) {
        while let Some(piece) = self.output.try_next() {
            if self.call.get() != Some(&piece.call) {
                continue;
            }
            self.printed += piece.bytes.len() as u64;
            let room = (ALL_MAX - self.told).min(4 * MESSAGE_MAX).saturating_sub(self.waiting.len());
            let fits = room.min(piece.bytes.len());
            self.waiting.extend_from_slice(&piece.bytes[..fits]);
            self.left_out += (piece.bytes.len() - fits) as u64;
        }
    }

    /// The next piece of what waits. A character that has not come whole yet waits, unless it never does.
    fn message(&mut self) -> String {
        let mut end = self.waiting.len().min(MESSAGE_MAX);
        if let Err(error) = std::str::from_utf8(&self.waiting[..end])
            && error.error_len().is_none()
            && error.valid_up_to() > 0
        {
            end = error.valid_up_to();
        }
        let piece: Vec<u8> = self.waiting.drain(..end).collect();
        self.told += piece.len();
        let mut text = String::from_utf8_lossy(&piece).into_owned();
        if self.left_out > 0 && self.waiting.is_empty() {
            text.push_str(&format!("\n[{} bytes of output are not shown here]\n", self.left_out));
            self.left_out = 0;
        }
        text
    }
}
