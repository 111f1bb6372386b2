//! Progress notifications with a running command's output.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::Peer;
use tokio::time::{Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::engine::id::Seq;
use crate::engine::session::Session;
use crate::tools::{OutputOptions, OutputSubscription, SessionRuntime};

/// Interval between messages.
const PAUSE: Duration = Duration::from_millis(100);
/// Limit for a message in bytes.
const MESSAGE_MAX: usize = 8 << 10;
/// Limit for the buffered output in bytes.
const WAITING_MAX: usize = 4 * MESSAGE_MAX;
/// Limit for all messages of a call in bytes. The rest is only in the call's result, as far as it is stored.
const ALL_MAX: usize = 1 << 20;

pub(super) struct ProgressReporter {
    peer: Peer<RoleServer>,
    token: ProgressToken,
    output: OutputSubscription,
    call: Arc<OnceLock<Seq>>,
    ticks: Interval,
    waiting: Vec<u8>,
    /// Bytes so far, shown or not. Increases with every message.
    progress: u64,
    left_out: u64,
    told: usize,
}

impl ProgressReporter {
    /// Creates a reporter. Must be called before the call begins.
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
            output: SessionRuntime::of(session).output(OutputOptions::default()),
            call: Arc::clone(call),
            ticks,
            waiting: Vec::new(),
            progress: 0,
            left_out: 0,
            told: 0,
        }
    }

    /// Sends progress until the call has ended, and then the remaining output.
    pub(super) async fn run(mut self, ended: CancellationToken) {
        while ended.run_until_cancelled(self.ticks.tick()).await.is_some() {
            self.take();
            let length = whole(&self.waiting);
            self.send(length).await;
        }
        self.take();
        while self.left_out > 0 || !self.waiting.is_empty() {
            let length = match whole(&self.waiting) {
                // The character is incomplete at the end of the output.
                0 => self.waiting.len(),
                length => length,
            };
            self.send(length).await;
        }
    }

    fn take(&mut self) {
        while let Some(piece) = self.output.try_next() {
            if self.call.get() != Some(&piece.call) {
                continue;
            }
            let room = (ALL_MAX - self.told).min(WAITING_MAX).saturating_sub(self.waiting.len());
            let fits = room.min(piece.bytes.len());
            self.waiting.extend_from_slice(&piece.bytes[..fits]);
            self.left_out += (piece.bytes.len() - fits) as u64;
        }
    }

    async fn send(&mut self, length: usize) {
        let piece: Vec<u8> = self.waiting.drain(..length).collect();
        let mut text = String::from_utf8_lossy(&piece).into_owned();
        self.told += piece.len();
        self.progress += piece.len() as u64;
        if self.left_out > 0 && self.waiting.is_empty() {
            text.push_str(&format!("\n[{} bytes of output not shown]\n", self.left_out));
            self.progress += std::mem::take(&mut self.left_out);
        }
        // Progress must increase with every message, so none is sent beyond this number.
        let Ok(progress) = u32::try_from(self.progress) else { return };
        if text.is_empty() {
            return;
        }
        let said = ProgressNotificationParam::new(self.token.clone(), f64::from(progress)).with_message(text);
        if let Err(error) = self.peer.notify_progress(said).await {
            tracing::debug!(%error, "failed to notify a client of progress");
        }
    }
}

/// Returns the length of the next message, which fits the limit and ends with a whole character.
fn whole(waiting: &[u8]) -> usize {
    let fits = &waiting[..waiting.len().min(MESSAGE_MAX)];
    let last = fits.utf8_chunks().last().map_or(&b""[..], |chunk| chunk.invalid());
    match std::str::from_utf8(last) {
        Err(error) if error.error_len().is_none() => fits.len() - last.len(),
        _ => fits.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_characters_come_whole() {
        let cut = "aé€😀".as_bytes();
        let lengths: Vec<usize> = (0..=cut.len()).map(|end| whole(&cut[..end])).collect();
        assert_eq!(lengths, [0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10]);
        let long = format!("{}é", "x".repeat(MESSAGE_MAX - 1));
        assert_eq!(whole(long.as_bytes()), MESSAGE_MAX - 1);
        for broken in [&[0xff][..], &[0x80, 0x80], &[0xc3, b'a'], &[0x80; 5]] {
            assert_eq!(whole(broken), broken.len(), "{broken:?}");
        }
    }
}
