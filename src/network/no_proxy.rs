//! In place of the proxy, without the feature `proxy`.

use super::recording::HttpAnswers;
use super::report::ReportSink;
use super::rules::NetworkRules;
use super::sockets::{ProxyError, SocketOpener};

/// There is no proxy in this build.
#[derive(Debug)]
pub enum NoNetworkProxy {}

impl NoNetworkProxy {
    /// Reports that there is no proxy.
    ///
    /// # Errors
    /// Always.
    pub fn start(_: SocketOpener, _: NetworkRules, _: ReportSink) -> Result<Self, ProxyError> {
        Err(std::io::Error::other("this build has no proxy").into())
    }

    /// Returns `None`: there is no proxy.
    pub fn certificates(&self) -> Option<&str> {
        match *self {}
    }

    /// Does nothing: there is none.
    pub fn answer_from(&self, _: HttpAnswers) {
        match *self {}
    }

    /// Does nothing: there is none.
    pub fn set_rules(&self, _: NetworkRules) {
        match *self {}
    }
}
