//! Stands in for traces in a program that was built without them.

use tokio::runtime::Handle;

use super::super::exit::{Exit, Failure};
use super::super::logs::TraceLayer;

/// Refuses a collector that was asked for.
pub(super) fn begin(given: Option<&str>, _: &Handle) -> Result<(TraceLayer, Box<dyn FnOnce()>), Failure> {
    if given.is_some() {
        let failure = Failure::new(Exit::Usage, "--otlp: this foldspace was built without traces");
        return Err(failure.with_hint("build it with `--features otel`"));
    }
    Ok((None, Box::new(|| {})))
}
