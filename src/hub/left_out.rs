//! Ignored entries of attached directories that a limit leaves out.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::attached::AttachedDirectory;
use crate::backends::IgnoredLimits;
use crate::backends::disk::{IgnoreRules, RecordedBeyond};
use crate::reducers::VirtualFileSystem;

/// Ignored entries that a limit leaves out, with the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IgnoredLeftOut {
    /// Files and directories that are left out. A directory counts as one, whatever is in it.
    pub left_out: u64,
    /// The limits.
    #[serde(flatten)]
    pub limits: IgnoredLimits,
}

impl IgnoredLeftOut {
    /// Counts the ignored entries that a limit leaves out of the recorded `files`. `None` for no entries, or for a directory
    /// that can't be read.
    pub fn of(attached: &AttachedDirectory, files: &VirtualFileSystem) -> Option<Self> {
        let AttachedDirectory { directory, include, keep_ignored, keep_secrets, .. } = attached;
        let asked = RecordedBeyond { included: include.clone(), ignored: *keep_ignored, secrets: *keep_secrets };
        let counted = IgnoreRules::of(&directory.0, asked).beyond_limits(|path| files.get(path).is_some());
        let left_out =
            counted.inspect_err(|error| tracing::info!(%error, "can't count what a limit leaves out")).ok()?;
        (left_out > 0).then_some(Self { left_out, limits: IgnoredLimits::default() })
    }
}
