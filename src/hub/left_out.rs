//! Ignored entries of attached directories that exceed a limit.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::attached::AttachedDirectory;
use crate::backends::IgnoredLimits;
use crate::backends::disk::{IgnoreRules, RecordedBeyond};
use crate::reducers::VirtualFileSystem;

/// The number of ignored entries that exceed a limit, with the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IgnoredLeftOut {
    /// The number of files and directories that are not recorded. A directory counts as one.
    pub left_out: u64,
    /// The limits.
    #[serde(flatten)]
    pub limits: IgnoredLimits,
}

impl IgnoredLeftOut {
    /// Counts the ignored entries that are missing from the recorded `files` because of a limit. `None` if nothing is
    /// missing, or if the directory can't be read.
    pub fn of(attached: &AttachedDirectory, files: &VirtualFileSystem) -> Option<Self> {
        let AttachedDirectory { directory, include, keep_ignored, keep_secrets, .. } = attached;
        let asked = RecordedBeyond { included: include.clone(), ignored: *keep_ignored, secrets: *keep_secrets };
        let counted = IgnoreRules::of(&directory.0, asked).beyond_limits(|path| files.get(path).is_some());
        let left_out =
            counted.inspect_err(|error| tracing::info!(%error, "can't count ignored entries over a limit")).ok()?;
        (left_out > 0).then_some(Self { left_out, limits: IgnoredLimits::default() })
    }
}
