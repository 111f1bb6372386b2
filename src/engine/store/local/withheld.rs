//! Contents that stay on this machine: each in a file outside of the journal, which exports and copies leave out.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::engine::Digest;
use crate::engine::store::journal::disk::{JournalDisk, OsDisk, read_whole};
use crate::engine::store::{Result, StoreError};

/// Directory of these files in a store.
const DIRECTORY: &str = "withheld";
/// Extension of unfinished files.
const UNFINISHED: &str = "new";

fn path_of(store: &Path, digest: &Digest) -> PathBuf {
    store.join(DIRECTORY).join(digest.to_string())
}

/// Writes a content, readable only for its owner.
pub(super) fn put(store: &Path, digest: &Digest, bytes: &[u8]) -> Result<()> {
    if get(store, digest)?.is_some() {
        return Ok(());
    }
    let (directory, path) = (store.join(DIRECTORY), path_of(store, digest));
    let unfinished = path.with_extension(UNFINISHED);
    let write = || {
        OsDisk.create_dir(&directory)?;
        let file = OsDisk.create(&unfinished)?;
        file.write_all_at(bytes, 0)?;
        file.sync_all()?;
        OsDisk.rename(&unfinished, &path)?;
        OsDisk.sync_dir(&directory)
    };
    write().map_err(StoreError::io("write", &path))
}

/// Reads a content. `None` if it is missing or damaged.
pub(in crate::engine::store) fn get(store: &Path, digest: &Digest) -> Result<Option<Bytes>> {
    let path = path_of(store, digest);
    match read_whole(&OsDisk, &path) {
        Ok(bytes) => Ok(digest.is_of(&bytes).then(|| Bytes::from(bytes))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::io("read", &path)(error)),
    }
}

/// Lists the digests of all contents, and the files left by interrupted writes.
pub(super) fn all(store: &Path) -> Result<(BTreeSet<Digest>, Vec<PathBuf>)> {
    let directory = store.join(DIRECTORY);
    let mut files = match OsDisk.list(&directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        listed => listed.map_err(StoreError::io("list", &directory))?,
    };
    let contents = files.iter().filter_map(|path| path.file_name()?.to_str()?.parse().ok()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == UNFINISHED));
    Ok((contents, files))
}

/// Removes a content.
pub(super) fn remove(store: &Path, digest: &Digest) -> Result<()> {
    let path = path_of(store, digest);
    OsDisk.remove(&path).map_err(StoreError::io("remove", &path))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the tests damage files and leave unfinished ones")]
mod tests {
    use std::fs;

    use super::*;
    use crate::engine::store::{LocalStore, LocalStoreOptions};

    #[test]
    fn withheld_content_that_was_damaged_is_written_again() {
        let store = tempfile::tempdir().unwrap();
        let (bytes, digest) = (b"TOKEN=1\n", Digest::of(b"TOKEN=1\n"));
        put(store.path(), &digest, bytes).unwrap();
        fs::write(path_of(store.path(), &digest), b"").unwrap();
        assert_eq!(get(store.path(), &digest).unwrap(), None);
        put(store.path(), &digest, bytes).unwrap();
        assert_eq!(get(store.path(), &digest).unwrap().as_deref(), Some(&bytes[..]));
    }

    #[test]
    fn withheld_content_whose_write_was_interrupted_is_collected() {
        let store = tempfile::tempdir().unwrap();
        drop(LocalStore::open(store.path(), LocalStoreOptions::default()).unwrap());
        put(store.path(), &Digest::of(b"x"), b"x").unwrap();
        let left = path_of(store.path(), &Digest::of(b"TOKEN=1\n")).with_extension(UNFINISHED);
        fs::write(&left, b"TOK").unwrap();
        let collect = |rehearse| LocalStore::collect(store.path(), rehearse).unwrap();
        let planned = collect(true);
        assert!((planned.leftovers, planned.contents) == (1, 1) && left.exists(), "{planned:?}");
        assert_eq!(collect(false), planned);
        assert_eq!(all(store.path()).unwrap(), Default::default());
    }
}
