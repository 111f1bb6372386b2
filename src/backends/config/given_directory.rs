//! Checks of a user's directory: a session there must never record or change a store's own files.

use std::path::{Path, PathBuf};

use super::WorkspaceSpec;
use crate::backends::UnusableDirectory;
use crate::backends::disk::{entries_in, overlap, resolved};
use crate::engine::store::is_data_directory;

/// The number of directories that are searched for other stores, nearest first.
const SEARCHED: usize = 10_000;

impl WorkspaceSpec {
    /// Checks that a new session may use its directory: no home, root or data directory, and none above or below one.
    ///
    /// # Errors
    /// [`UnusableDirectory`] with the reason.
    #[doc(hidden)]
    pub fn check_new_directory(&self, home: &Path) -> Result<(), UnusableDirectory> {
        let Some(directory) = self.named_directory().map(resolved) else { return Ok(()) };
        let refused = |why: &str| Err(UnusableDirectory { directory: directory.clone(), why: why.to_owned() });
        let is_home = std::env::var_os("HOME").is_some_and(|home| resolved(Path::new(&home)) == directory);
        if is_home || directory.parent().is_none() {
            return refused("it is a home or root directory; use a project's directory");
        }
        self.check_directory(home)?;
        match store_below(&directory) {
            None => Ok(()),
            Some(store) => refused(&format!("the data directory {} is there; use another directory", store.display())),
        }
    }

    /// Checks that a user's directory and data directories do not contain each other. Other data directories below it
    /// are not searched.
    #[doc(hidden)]
    pub fn check_directory(&self, home: &Path) -> Result<(), UnusableDirectory> {
        let Some(directory) = self.named_directory().map(resolved) else { return Ok(()) };
        if overlap(&directory, home) || directory.ancestors().any(is_data_directory) {
            let why = "the data directory is there; use a separate directory".to_owned();
            return Err(UnusableDirectory { directory, why });
        }
        Ok(())
    }
}

/// Searches for a data directory below a directory, without following links.
fn store_below(directory: &Path) -> Option<PathBuf> {
    let mut level = vec![directory.to_owned()];
    let mut searched = 0;
    while !level.is_empty() && searched < SEARCHED {
        searched += level.len();
        // An unreadable directory can't be recorded either.
        let entries = level.iter().flat_map(|directory| entries_in(directory).unwrap_or_default());
        let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path());
        level = below.collect();
        if let Some(store) = level.iter().find(|directory| is_data_directory(directory)) {
            return Some(store.clone());
        }
    }
    None
}
