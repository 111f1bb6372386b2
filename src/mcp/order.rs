//! The order of a connection's calls.

use rmcp::model::ClientRequest;

use super::client::ServerState;
use super::tool_list;

/// The tool that cancels calls.
const CANCEL: &str = "session_cancel";

/// The requests that a request may run concurrently with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Any: the request neither reads nor changes files.
    Free,
    /// Requests that change nothing.
    Reads,
    /// Only requests that neither read nor change files.
    Changes,
    /// Any: the request carries the answer that a call waits for. Later calls wait for it.
    Resumes,
}

impl Order {
    /// Returns the order of a request. A tool without a read-only hint counts as changing files.
    pub(super) fn of(shared: &ServerState, request: &ClientRequest) -> Self {
        match request {
            ClientRequest::CallToolRequest(call) if call.params.request_state.is_some() => Self::Resumes,
            // Must not wait for the calls that it cancels.
            ClientRequest::CallToolRequest(call) if call.params.name == CANCEL => Self::Free,
            ClientRequest::CallToolRequest(call) => match tool_list::only_reads(shared, &call.params.name) {
                None => Self::Free,
                Some(true) => Self::Reads,
                Some(false) => Self::Changes,
            },
            ClientRequest::ReadResourceRequest(_) | ClientRequest::GetPromptRequest(_) => Self::Reads,
            _ => Self::Free,
        }
    }

    pub(super) fn fits(self, in_flight: Self) -> bool {
        match (self, in_flight) {
            (Self::Free | Self::Resumes, _) | (_, Self::Free) => true,
            (Self::Reads, Self::Reads) => true,
            (Self::Reads | Self::Changes, _) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Order::{Changes, Free, Reads, Resumes};

    #[test]
    fn request_order_allows_independent_requests() {
        let all = [Free, Reads, Changes, Resumes];
        let fitting = |order: super::Order| all.into_iter().filter(move |other| order.fits(*other)).collect::<Vec<_>>();
        assert_eq!(fitting(Free), all);
        assert_eq!(fitting(Resumes), all, "a call waits for it");
        assert_eq!(fitting(Reads), [Free, Reads]);
        assert_eq!(fitting(Changes), [Free]);
    }
}
