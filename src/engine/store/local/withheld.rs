//! Contents that stay on this machine. Each is a file outside of the journal, so that no export or copy has it.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use bytes::Bytes;

use super::super::{Result, StoreError};
use crate::engine::Digest;

/// Directory of the files in a store.
const DIRECTORY: &str = "withheld";

/// Writes a content, readable for its owner only.
#[expect(clippy::disallowed_methods, reason = "the store is where files are")]
pub(super) fn put(store: &Path, digest: &Digest, bytes: &[u8]) -> Result<()> {
    let directory = store.join(DIRECTORY);
    let path = directory.join(digest.to_string());
    if get(store, digest)?.is_some() {
        return Ok(());
    }
    let begun = path.with_extension("new");
    let write = || {
        if !directory.exists() {
            DirBuilder::new().mode(0o700).create(&directory)?;
            fs::File::open(store)?.sync_all()?;
        }
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&begun)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&begun, &path)?;
        fs::File::open(&directory)?.sync_all()
    };
    write().map_err(StoreError::io("write", &path))
}

/// Reads a content. `None` if it is missing or damaged.
#[expect(clippy::disallowed_methods, reason = "the store is where files are")]
pub(in crate::engine::store) fn get(store: &Path, digest: &Digest) -> Result<Option<Bytes>> {
    let path = store.join(DIRECTORY).join(digest.to_string());
    match fs::read(&path) {
        Ok(bytes) => Ok(digest.is_of(&bytes).then(|| Bytes::from(bytes))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::io("read", &path)(error)),
    }
}

/// Lists the digests of all contents.
#[expect(clippy::disallowed_methods, reason = "the store is where files are")]
pub(super) fn all(store: &Path) -> Result<BTreeSet<Digest>> {
    let directory = store.join(DIRECTORY);
    let failed = StoreError::io("list", &directory);
    let entries = match fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        Err(error) => return Err(failed(error)),
    };
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// Removes a content.
#[expect(clippy::disallowed_methods, reason = "the store is where files are")]
pub(super) fn remove(store: &Path, digest: &Digest) -> Result<()> {
    let path = store.join(DIRECTORY).join(digest.to_string());
    fs::remove_file(&path).map_err(StoreError::io("remove", &path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test damages a file")]
    fn withheld_content_that_was_damaged_is_written_again() {
        let store = tempfile::tempdir().unwrap();
        let (bytes, digest) = (b"TOKEN=1\n", Digest::of(b"TOKEN=1\n"));
        put(store.path(), &digest, bytes).unwrap();
        fs::write(store.path().join(DIRECTORY).join(digest.to_string()), b"").unwrap();
        assert_eq!(get(store.path(), &digest).unwrap(), None);
        put(store.path(), &digest, bytes).unwrap();
        assert_eq!(get(store.path(), &digest).unwrap().as_deref(), Some(&bytes[..]));
    }
}
