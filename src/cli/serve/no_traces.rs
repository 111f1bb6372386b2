//! Stand-in for a program that was built without traces.

use tokio::runtime::Handle;

use super::super::logs::{EndTraces, TraceLayer};
use crate::cli::Failure;

pub(super) fn begin(given: Option<&str>, _: &Handle) -> Result<(TraceLayer, EndTraces), Failure> {
    if given.is_some() {
        return Err(Failure::usage("--otlp: this foldspace was built without traces")
            .with_hint("build it with `--features otel`"));
    }
    Ok((None, Box::new(|| {})))
}
