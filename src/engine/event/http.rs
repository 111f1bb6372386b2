//! Event of a recorded request.

use serde::{Deserialize, Serialize};

use crate::engine::Digest;

/// Event of an HTTP or HTTPS request of a container's command, with its response. Likely secrets in it are
/// masked. It belongs to the call that recorded it; with several calls at once, another one may have made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpExchange {
    /// Method.
    pub method: String,
    /// URL.
    pub url: String,
    /// Request.
    pub request: HttpPart,
    /// Status of the response; 0 without one.
    pub status: u16,
    /// Response.
    pub response: HttpPart,
    /// Reason why there is no response, or only a part of one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// True if the response is from the recording of another session.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replayed: bool,
    /// Number of later requests that are not recorded, because too many were waiting.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u64,
    /// Time from the request to the end of the response, in microseconds.
    pub micros: u64,
}

/// Headers and body of a request or a response.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpPart {
    /// Headers, in order.
    pub headers: Vec<(String, String)>,
    /// Digest of the stored body; `None` if it is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Digest>,
    /// Bytes of the body, before its secrets were masked.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes: u64,
    /// True if the stored body is not whole: it has at most the first 16 MiB, and may be absent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}
