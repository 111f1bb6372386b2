use std::path::PathBuf;
use std::sync::Arc;

use crate::backends::ProgressWatch;
use crate::tools::{AllowedRoots, ShellRules, Tools};

/// The options of a [`Hub`](super::Hub).
#[derive(Clone)]
pub struct HubOptions {
    /// The parent directory of workspaces without a given directory; usually the store's own.
    pub home: PathBuf,
    /// The tools that sessions offer.
    pub tools: Arc<Tools>,
    /// The default rules for commands.
    pub rules: ShellRules,
    /// The host directories that mounts may come from, with everything below them.
    pub roots: AllowedRoots,
    /// Receives the progress of preparations, before commands can run.
    pub progress: Option<ProgressWatch>,
    /// Limit for open workspaces; `None` for no limit. Beyond it, the least recently used workspaces close. Workspaces
    /// in use stay open.
    pub open_max: Option<usize>,
    /// Starts the processes that serve mounts; `None` for no mounts.
    #[cfg(feature = "mount")]
    pub mounts: Option<crate::fuse::MountHelper>,
}

impl HubOptions {
    /// The standard tools and rules, with no mounts.
    pub fn new(home: impl Into<PathBuf>) -> Self {
        Self {
            home: home.into(),
            tools: Arc::new(Tools::standard()),
            rules: ShellRules::default(),
            roots: AllowedRoots::default(),
            progress: None,
            open_max: None,
            #[cfg(feature = "mount")]
            mounts: None,
        }
    }
}
