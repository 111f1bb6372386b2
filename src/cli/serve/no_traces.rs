//! Stands in for traces in a program that was built without them.

use tokio::runtime::Handle;

use super::super::exit::{Exit, Failure};
use super::super::logs::TraceLayer;

pub(super) struct Traces;

impl Traces {
    /// Refuses a collector that was asked for; one that only the environment names gets a warning.
    pub(super) fn to(given: Option<&str>, _: &Handle) -> Result<Self, Failure> {
        if given.is_some() {
            let failure = Failure::new(Exit::Usage, "--otlp: this foldspace was built without traces");
            return Err(failure.with_hint("build it with `--features otel`"));
        }
        if std::env::var_os("OTEL_EXPORTER_OTLP_ENDPOINT").is_some() {
            tracing::warn!("OTEL_EXPORTER_OTLP_ENDPOINT is set, but this foldspace was built without the feature otel");
        }
        Ok(Self)
    }

    pub(super) fn layer(&self) -> TraceLayer {
        None
    }

    pub(super) fn end(self) {}
}
