//! Checks of the guarantees of every backend, for your own backend too.
//!
//! [`check_shell`] checks a [`Shell`]. [`check_workspace`] checks the files of a [`Workspace`] and its
//! [`ChangeDetector`](crate::backends::ChangeDetector), if it has one. Both return a [`ComplianceReport`] with one
//! [`ComplianceCheck`] per guarantee, and neither panics. They run on any tokio runtime with time enabled and take at
//! most a minute. They use the workspace's directory `foldspace-compliance`, and remove it before and afterwards. A
//! shell needs `/bin/sh` and the usual small programs: `cat`, `head`, `mkfifo`, `mv`, `setsid`, ...
//!
//! ```no_run
//! # use foldspace_backends as foldspace;
//! use std::sync::Arc;
//! use foldspace::backends::compliance::{Means, check_shell, check_workspace};
//! use foldspace::{HostWorkspace, Workspace, backends::HostOptions};
//!
//! # async fn checked() -> Result<(), Box<dyn std::error::Error>> {
//! let directory = tempfile::tempdir()?;
//! let files = directory.path().join("files");
//! let workspace: Arc<dyn Workspace> = Arc::new(HostWorkspace::open(&files, &HostOptions::default())?);
//! let report = check_workspace(Arc::clone(&workspace), Means::Processes).await;
//! assert!(report.passed(), "{report}");
//! if let Some(shell) = workspace.unrecorded_shell() {
//!     let report = check_shell(shell, Means::Processes).await;
//!     assert!(report.passed(), "{report}");
//! }
//! # Ok(())
//! # }
//! ```

mod canned;
mod commands;
mod disk;
mod endings;
mod environment;
mod files;
mod forking;
mod output;
mod project;
mod refusals;
mod report;
mod rig;
mod survivors;

use std::sync::Arc;

use super::{Shell, Workspace};

pub use canned::canned_answers;
pub use forking::Fork;
pub use report::{CheckOutcome, ComplianceCheck, ComplianceReport};

use files::FileRig;
use forking::ForkRig;
use rig::{Rig, Suite};

/// The kind of a shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means {
    /// Commands run as processes, on the workspace's files.
    Processes,
    /// Commands are answered from [`canned_answers`], and change nothing.
    Canned,
}

/// Checks a shell.
///
/// A shell that answers from a list, such as a mock, needs [`canned_answers`] first; checks that need real processes do
/// not apply to it.
pub async fn check_shell(shell: Arc<dyn Shell>, means: Means) -> ComplianceReport {
    let backend = shell.properties().backend_name;
    let mut suite = Suite::new(backend, Rig::new(shell, means));
    suite.rig().clear().await;
    commands::check(&mut suite).await;
    environment::check(&mut suite).await;
    output::check(&mut suite).await;
    refusals::check(&mut suite).await;
    endings::check(&mut suite).await;
    survivors::check(&mut suite).await;
    suite.rig().clear().await;
    suite.finish()
}

/// Checks a workspace's files: the changes applied to them, and the changes of commands that a
/// [`ChangeDetector`](crate::backends::ChangeDetector) finds.
///
/// `means` is the kind of the workspace's shell, if it has one. Nothing else may use the workspace during the checks.
pub async fn check_workspace(workspace: Arc<dyn Workspace>, means: Means) -> ComplianceReport {
    let backend = workspace.backend_name();
    let mut suite = Suite::new(backend, FileRig::new(workspace, means));
    suite.rig().clear().await;
    project::check(&mut suite).await;
    disk::check(&mut suite).await;
    suite.rig().clear().await;
    suite.finish()
}

/// Checks the files of a workspace's children, and that neither sees the other's changes.
///
/// `fork` creates a child on each call: of the given workspace, or of an earlier child. The caller removes their
/// remains. The checks do not apply to a workspace that can't share its files.
pub async fn check_forks(workspace: Arc<dyn Workspace>, fork: Fork, means: Means) -> ComplianceReport {
    let backend = workspace.backend_name();
    let mut suite = Suite::new(backend, ForkRig { files: FileRig::new(workspace, means), fork });
    suite.rig().files.clear().await;
    suite.check("fork-files", "a child has the files, and none has changed", forking::files).await;
    suite.check("fork-apart", "neither sees the other's changes", forking::apart).await;
    suite.check("fork-nested", "a grandchild keeps the files when the child is closed", forking::nested).await;
    suite.rig().files.clear().await;
    suite.finish()
}
