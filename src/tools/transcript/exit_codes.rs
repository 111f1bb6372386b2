//! Exit codes from a transcript, for agents that leave them out of their hooks.

use std::collections::BTreeMap;
use std::path::Path;

use super::documents::Documents;
use super::error::TranscriptError;
use super::source::FoundRuns;
use super::step::StepKind;

/// Reads the exit codes of the calls in a transcript, by call id.
///
/// # Errors
/// [`TranscriptError`]: the transcript can't be read, or no format fits.
pub(crate) fn exit_codes(path: &Path) -> Result<BTreeMap<String, i64>, TranscriptError> {
    let mut codes = BTreeMap::new();
    let (mut found, mut documents) = (FoundRuns::default(), Documents::default());
    found.add_all(path)?;
    for source in found.0 {
        source.read(&mut documents, &mut |step| {
            if let StepKind::Ended(call) = step.kind {
                codes.extend(call.result["exit_code"].as_i64().map(|code| (call.id, code)));
            }
            Ok(())
        })?;
    }
    Ok(codes)
}
