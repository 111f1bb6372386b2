//! Recorded HTTP exchanges, and responses from a recording.

use std::sync::Arc;
use std::time::Duration;

/// The most recorded bytes of a body.
pub const BODY_KEPT: usize = 16 << 20;

/// A request and its response.
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
    /// The status of the response; 0 without one.
    pub status: u16,
    /// The response.
    pub response: HttpMessage,
    /// The reason why there is no response, or only a part of one.
    pub error: String,
    /// True if the response is from a recording.
    pub is_replayed: bool,
    /// The number of later requests that are not recorded, because too many are waiting.
    pub left_out: u64,
    /// Time from the request to the end of the response.
    pub duration: Duration,
}

/// Headers and a body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HttpMessage {
    /// The headers, in order.
    pub headers: Vec<(String, String)>,
    /// The recorded beginning of the body, at most [`BODY_KEPT`] bytes.
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

/// Returns the recorded status and response for a request, or the reason why there is none. It may block.
pub type HttpAnswers = Arc<dyn Fn(&HttpReport) -> Result<(u16, HttpMessage), String> + Send + Sync>;
