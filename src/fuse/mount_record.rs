//! The records of mounts in the data directory: a locked file per mount, so that any process can list them.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::FuseError;
use super::mount_point;
use crate::engine::id::{Seq, SessionId};

const RECORDS: &str = "mounts";
const TURN: &str = "turn";
const RECORD_MAX: u64 = 64 << 10;

/// A mount: the files of a session as a read-only directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Mount")]
pub struct MountDocument {
    /// The directory.
    pub directory: PathBuf,
    /// The session.
    #[schemars(with = "String")]
    pub session: SessionId,
    /// The session's name.
    pub name: String,
    /// The position; null for a mount that follows the present.
    pub at: Option<Seq>,
    /// True if its root has the hidden directories `.at`, `.call` and `.sessions`.
    pub all: bool,
    /// The process that serves it.
    pub process: u32,
    /// The reason why its files can't be read; null if they can be.
    pub trouble: Option<String>,
}

/// A record as it is stored.
#[derive(Serialize, Deserialize)]
struct StoredRecord {
    #[serde(flatten)]
    mount: MountDocument,
    /// The mount's device in the kernel's list: the directory may have another mount later.
    device: String,
}

/// The record of a mount that this process serves. `publish` lists it, and dropping removes it.
pub(super) struct MountRecord {
    file: File,
    path: PathBuf,
    stored: StoredRecord,
}

impl MountRecord {
    pub(super) fn create(data: &Path, mount: MountDocument) -> Result<Self, FuseError> {
        let path = records_of(data)?.join(format!("{}.new", mount.process));
        let failed = || FuseError::io("create", &path);
        let file = open(&path, true).map_err(failed())?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| failed()(error.into()))?;
        Ok(Self { file, path, stored: StoredRecord { mount, device: String::new() } })
    }

    /// Lists the mounted directory, and returns the mount.
    #[expect(clippy::disallowed_methods, reason = "records are not part of the store")]
    pub(super) fn publish(&mut self) -> Result<MountDocument, FuseError> {
        let directory = &self.stored.mount.directory;
        let gone = || FuseError::NotMounted(directory.clone());
        self.stored.device = mount_point::mounted_at(directory).and_then(|found| found.own).ok_or_else(gone)?;
        let path = self.path.with_extension("json");
        self.write().and_then(|()| std::fs::rename(&self.path, &path)).map_err(FuseError::io("write", &path))?;
        self.path = path;
        Ok(self.stored.mount.clone())
    }

    /// Records the reason why files can't be read; `None` if they can be.
    pub(super) fn tell(&mut self, trouble: Option<&str>) {
        self.stored.mount.trouble = trouble.map(str::to_owned);
        let shown = self.stored.mount.directory.display();
        if let Some(trouble) = trouble {
            tracing::warn!(trouble, directory = %shown, "files can't be read");
        }
        if let Err(error) = self.write() {
            tracing::debug!(%error, directory = %shown, "failed to update the record of the mount");
        }
    }

    fn write(&self) -> io::Result<()> {
        let text = serde_json::to_vec(&self.stored)?;
        let mut file = &self.file;
        file.rewind()?;
        file.write_all(&text)?;
        file.set_len(text.len() as u64)
    }
}

impl Drop for MountRecord {
    #[expect(clippy::disallowed_methods, reason = "the record belongs to this process")]
    fn drop(&mut self) {
        // After a failure, the next listing removes it.
        drop(std::fs::remove_file(&self.path));
    }
}

#[expect(clippy::disallowed_methods, reason = "records are not part of the store")]
fn open(path: &Path, creates: bool) -> io::Result<File> {
    OpenOptions::new().read(true).write(creates).create(creates).truncate(false).mode(0o600).open(path)
}

fn records_of(data: &Path) -> Result<PathBuf, FuseError> {
    let records = data.join(RECORDS);
    match std::fs::create_dir(&records) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(FuseError::io("create", &records)(error)),
        _ => Ok(records),
    }
}

/// Locks the start of mounts and the removal of their directories while the file is open.
pub(super) fn turn(data: &Path) -> Result<File, FuseError> {
    let path = records_of(data)?.join(TURN);
    let file = open(&path, true).map_err(FuseError::io("create", &path))?;
    flock(&file, FlockOperation::LockExclusive).map_err(|error| FuseError::io("lock", &path)(error.into()))?;
    Ok(file)
}

/// Lists the mounts of a data directory, sorted by directory. Unmounts mounts that killed processes left.
///
/// # Errors
/// Failures to read the records.
#[expect(clippy::disallowed_methods, reason = "records are not part of the store")]
pub fn mounts(data: &Path) -> Result<Vec<MountDocument>, FuseError> {
    let records = data.join(RECORDS);
    let found = match std::fs::read_dir(&records) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        found => found.map_err(FuseError::io("read", &records))?,
    };
    let paths = found.flatten().map(|entry| entry.path());
    let listed = paths.filter(|path| path.extension().is_some_and(|ending| ending == "json"));
    let mut known: Vec<_> = listed.filter_map(|path| served(&path)).collect();
    known.sort_by(|one, other| one.directory.cmp(&other.directory));
    Ok(known)
}

/// Reads a record; `None` if its mount or its process has ended. Removes the leftovers of an ended process.
#[expect(clippy::disallowed_methods, reason = "the record of a process that has ended")]
fn served(path: &Path) -> Option<MountDocument> {
    let mut file = open(path, false).ok()?;
    let is_served = flock(&file, FlockOperation::NonBlockingLockShared).is_err();
    let mut text = Vec::new();
    (&mut file).take(RECORD_MAX).read_to_end(&mut text).ok()?;
    let stored: Option<StoredRecord> = serde_json::from_slice(&text).ok();
    let mounted = stored.filter(|stored| {
        mount_point::mounted_at(&stored.mount.directory).is_some_and(|found| found.own.as_ref() == Some(&stored.device))
    });
    if is_served {
        return mounted.map(|stored| stored.mount);
    }
    if let Some(StoredRecord { mount, .. }) = mounted
        && let Err(error) = mount_point::detach(&mount.directory)
    {
        tracing::warn!(%error, "failed to unmount the mount of a killed process");
    }
    drop(std::fs::remove_file(path));
    None
}
