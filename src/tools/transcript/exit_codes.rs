//! Exit codes that a transcript states, and hooks do not.

use std::collections::BTreeMap;
use std::path::Path;

use super::error::TranscriptError;
use super::source::RunSource;
use super::step::StepKind;

/// Reads the exit codes of the calls in a transcript, by the calls' ids.
///
/// # Errors
/// [`TranscriptError`]: it can't be read, or no format fits.
pub(crate) fn exit_codes(path: &Path) -> Result<BTreeMap<String, i64>, TranscriptError> {
    let mut codes = BTreeMap::new();
    for source in RunSource::all_at(path)? {
        source.read(&mut |step| {
            if let StepKind::Ended(call) = step.kind {
                codes.extend(call.result["exit_code"].as_i64().map(|code| (call.id, code)));
            }
            Ok(())
        })?;
    }
    Ok(codes)
}
