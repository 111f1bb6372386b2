//! Host directories to copy into the workspace.

use std::path::PathBuf;

use foldspace::backends::HostPath;
use foldspace::tools::{AllowedRoots, MountSpec};

use crate::cli::Failure;

/// The options for mounts.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct MountArgs {
    /// Copies a directory or a file into the workspace, to PATH or into its root, if the workspace is still empty
    #[arg(long = "mount", value_name = "SOURCE[:PATH]")]
    mounts: Vec<String>,
    /// Copies only files that match; may be given several times
    #[arg(long = "mount-include", value_name = "GLOB", requires = "mounts")]
    include: Vec<String>,
    /// Leaves out entries that match, and everything below such a directory; may be given several times
    #[arg(long = "mount-exclude", value_name = "GLOB", requires = "mounts")]
    exclude: Vec<String>,
    /// Copies nothing if a directory has more than N bytes
    #[arg(long = "mount-max-bytes", value_name = "N", requires = "mounts")]
    max_bytes: Option<u64>,
    /// Allows mounts only below DIR; may be given several times [default: the directories of --mount]
    ///
    /// FOLDSPACE_MOUNT_ROOTS (directories separated by colons), if set, replaces this option.
    #[arg(long = "allow-root", value_name = "DIR")]
    roots: Vec<PathBuf>,
}

fn fence() -> Option<Vec<PathBuf>> {
    let fence = std::env::var_os("FOLDSPACE_MOUNT_ROOTS").filter(|roots| !roots.is_empty())?;
    Some(std::env::split_paths(&fence).filter(|path| !path.as_os_str().is_empty()).collect())
}

/// Returns the directories that mounts must be below, from the environment or the options. Fails if both are set.
pub(in crate::cli) fn allowed_roots(given: &[PathBuf]) -> Result<Option<Vec<PathBuf>>, Failure> {
    match fence() {
        Some(_) if !given.is_empty() => {
            let what = "--allow-root can't be combined with FOLDSPACE_MOUNT_ROOTS";
            Err(Failure::usage(what).with_hint("leave out --allow-root, or unset FOLDSPACE_MOUNT_ROOTS"))
        }
        Some(fence) => Ok(Some(fence)),
        None => Ok((!given.is_empty()).then(|| given.to_vec())),
    }
}

#[derive(Default)]
pub(in crate::cli) struct Chosen {
    pub(in crate::cli) specs: Vec<MountSpec>,
    pub(in crate::cli) roots: AllowedRoots,
}

impl Chosen {
    pub(in crate::cli) fn named_roots(&self) -> Vec<HostPath> {
        self.roots.paths().iter().cloned().map(HostPath).collect()
    }
}

impl MountArgs {
    pub(in crate::cli) fn chosen(&self) -> Result<Chosen, Failure> {
        let specs: Result<Vec<MountSpec>, Failure> = self.mounts.iter().map(|text| self.spec(text)).collect();
        let specs = specs?;
        let named = || specs.iter().map(|spec| spec.host_path.clone()).collect();
        let roots = allowed_roots(&self.roots)?.unwrap_or_else(named);
        Ok(Chosen { roots: AllowedRoots::new(roots)?, specs })
    }

    fn spec(&self, text: &str) -> Result<MountSpec, Failure> {
        let mut spec = MountSpec::parse(text)?;
        // Relative to the current directory, not to the owner's.
        spec.host_path = std::path::absolute(&spec.host_path)
            .map_err(|error| Failure::io("find", spec.host_path.display(), &error))?;
        spec.include_glob.clone_from(&self.include);
        spec.exclude_glob.clone_from(&self.exclude);
        spec.max_bytes = self.max_bytes;
        Ok(spec)
    }
}
