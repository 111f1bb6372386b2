//! Recorded requests of HTTP, and answers from a recording.

use std::sync::Arc;
use std::time::Duration;

/// The most bytes of a body that are kept.
pub const BODY_KEPT: usize = 16 << 20;

/// A request and its answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HttpReport {
    /// The order in which the requests of a proxy began.
    pub order: u64,
    /// The method.
    pub method: String,
    /// The URL.
    pub url: String,
    /// The request.
    pub request: HttpMessage,
    /// The status of the answer; 0 without one.
    pub status: u16,
    /// The answer.
    pub response: HttpMessage,
    /// The reason why there is no answer, or only a part of one.
    pub error: String,
    /// True if the answer is from a recording.
    pub is_replayed: bool,
    /// The number of later requests that are not recorded, because too many are waiting.
    pub left_out: u64,
    /// Time from the request to the end of the answer.
    pub duration: Duration,
}

/// Headers and a body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HttpMessage {
    /// The headers, in order.
    pub headers: Vec<(String, String)>,
    /// The first [`BODY_KEPT`] bytes of the body.
    pub body: Vec<u8>,
    /// Bytes of the whole body.
    pub bytes: u64,
}

impl HttpMessage {
    /// Returns the bytes of the headers, with a few for each, and of the kept body.
    pub fn sizes(&self) -> (usize, usize) {
        let head = self.headers.iter().map(|(name, value)| name.len() + value.len() + 16).sum();
        (head, self.body.len())
    }
}

/// Answers a request from a recording: returns the status and the answer, or the reason why there is none. It may block.
pub type HttpAnswers = Arc<dyn Fn(&HttpReport) -> Result<(u16, HttpMessage), String> + Send + Sync>;
