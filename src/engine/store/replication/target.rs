//! The object storage of a copy.

use std::fs::{File, OpenOptions, Permissions, set_permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::aws::AmazonS3ConfigKey::{AccessKeyId, Endpoint, Region, S3Endpoint, Token};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, RetryConfig, UpdateVersion};

use super::error::{CopyResult, ReplicationError, cause};
use super::manifest::{self, CopiedPiece, CopyManifest};
use crate::engine::Digest;
use crate::engine::store::StoreError;
use crate::engine::store::journal::disk::{JournalDisk, OsDisk};

const MANIFEST: &str = "manifest";
const PIECES: &str = "pieces";
/// Maximum bytes of an object, which is read as a whole.
const OBJECT_MAX: u64 = 256 << 20;
/// Attempts to read an object, and the pause after the first attempt; each further pause is twice as long.
const TRIES: u32 = 6;
const PAUSE: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 200 });

/// The place of a copy: the manifest and the pieces under one prefix.
pub(super) struct CopyTarget {
    pub(super) url: String,
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    /// Directory of the copy, if it is local. A lock file in it replaces conditional writes, which file systems lack.
    directory: Option<PathBuf>,
    /// Text about the credentials for errors; empty if they are set.
    keys: &'static str,
}

impl CopyTarget {
    /// Opens the storage at `s3://BUCKET/PREFIX` or `file://DIRECTORY`, and creates the directory with private pieces.
    /// The environment configures S3.
    pub(super) fn open(url: &str) -> CopyResult<Self> {
        if let Some(directory) = directory_of(url) {
            let pieces = directory.join(PIECES);
            let made =
                OsDisk.create_dir(&pieces).and_then(|()| set_permissions(&pieces, Permissions::from_mode(0o700)));
            made.map_err(StoreError::io("create", &pieces))?;
        }
        Self::open_existing(url)
    }

    pub(super) fn open_existing(given: &str) -> CopyResult<Self> {
        let url = given.trim_end_matches('/').to_owned();
        let wrong = |what: String| ReplicationError::Address { url: given.to_owned(), what };
        if let Some(directory) = directory_of(&url) {
            if !directory.is_dir() {
                return Err(ReplicationError::NoCopy(url));
            }
            let store = LocalFileSystem::new_with_prefix(directory).map_err(|error| wrong(error.to_string()))?;
            let (store, directory) = (Arc::new(store.with_fsync(true)), Some(directory.to_owned()));
            return Ok(Self { url, store, prefix: Path::default(), directory, keys: "" });
        }
        let opened = open_s3(given).map_err(wrong)?;
        Ok(Self { url, store: opened.store, prefix: opened.prefix, directory: None, keys: opened.keys })
    }

    #[cfg(test)]
    pub(super) fn of(store: Arc<dyn ObjectStore>) -> Self {
        Self { url: "memory://".to_owned(), store, prefix: Path::default(), directory: None, keys: "" }
    }

    fn piece_path(&self, name: &str) -> Path {
        self.prefix.clone().join(PIECES).join(name)
    }

    fn manifest_path(&self) -> Path {
        self.prefix.clone().join(MANIFEST)
    }

    fn failed(&self, action: &'static str, name: &str) -> impl FnOnce(Error) -> ReplicationError + use<> {
        let (name, url) = (name.to_owned(), format!("{}{}", self.url, self.keys));
        move |source| ReplicationError::Storage { action, name, url, source: Arc::new(source) }
    }

    pub(super) fn damaged(&self, problem: String) -> ReplicationError {
        ReplicationError::Damaged { url: self.url.clone(), problems: vec![problem] }
    }

    pub(super) async fn put(&self, name: String, bytes: Vec<u8>) -> CopyResult<CopiedPiece> {
        let piece = CopiedPiece { bytes: bytes.len() as u64, digest: Digest::of(&bytes), name };
        let payload = PutPayload::from(Bytes::from(bytes));
        let path = self.piece_path(&piece.name);
        self.store.put(&path, payload).await.map_err(self.failed("write", &piece.name))?;
        self.make_private(&path)?;
        Ok(piece)
    }

    /// Makes a file accessible only to its owner: it was created with this process's umask.
    fn make_private(&self, path: &Path) -> CopyResult<()> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let file = directory.join(path.as_ref());
        set_permissions(&file, Permissions::from_mode(0o600)).map_err(StoreError::io("close", &file))?;
        Ok(())
    }

    /// Reads a piece and checks it; retries if the storage fails or truncates it.
    pub(super) async fn get(&self, piece: &CopiedPiece) -> CopyResult<Bytes> {
        let path = self.piece_path(&piece.name);
        let checked = || async {
            let (bytes, _) = self.read(&path, &piece.name).await?;
            if bytes.len() as u64 == piece.bytes && piece.digest.is_of(&bytes) {
                return Ok(bytes);
            }
            Err(self.damaged(format!("{} does not match its digest", piece.name)))
        };
        patiently(checked).await
    }

    async fn read(&self, path: &Path, name: &str) -> CopyResult<(Bytes, UpdateVersion)> {
        let found = self.store.get(path).await.map_err(self.failed("read", name))?;
        let version = UpdateVersion { e_tag: found.meta.e_tag.clone(), version: found.meta.version.clone() };
        if found.meta.size > OBJECT_MAX {
            return Err(self.damaged(format!("{name} has {} bytes; the limit is {OBJECT_MAX}", found.meta.size)));
        }
        let bytes = found.bytes().await.map_err(self.failed("read", name))?;
        Ok((bytes, version))
    }

    pub(super) async fn delete(&self, name: &str) -> CopyResult<()> {
        match self.store.delete(&self.piece_path(name)).await {
            Err(Error::NotFound { .. }) => Ok(()),
            deleted => deleted.map_err(self.failed("delete", name)),
        }
    }

    /// Returns the names and lengths of all pieces.
    pub(super) async fn list(&self) -> CopyResult<Vec<(String, u64)>> {
        let prefix = self.prefix.clone().join(PIECES);
        let found: Vec<_> = self.store.list(Some(&prefix)).try_collect().await.map_err(self.failed("list", PIECES))?;
        let named = found.iter().filter_map(|meta| Some((meta.location.filename()?.to_owned(), meta.size)));
        Ok(named.collect())
    }

    /// Checks that the address can be listed.
    pub(super) async fn reach(&self) -> CopyResult<()> {
        self.store.list(Some(&self.prefix)).try_next().await.map(drop).map_err(self.failed("list", PIECES))
    }

    /// Returns the manifest, and its version for a later swap. `None` if the manifest is missing.
    pub(super) async fn manifest(&self) -> CopyResult<Option<(CopyManifest, UpdateVersion)>> {
        let path = self.manifest_path();
        let wrong = |what: String| self.damaged(format!("the manifest can't be read: {what}"));
        let (bytes, version) = match patiently(|| self.read(&path, MANIFEST)).await {
            Err(error) if error.is_missing() => return Ok(None),
            read => read?,
        };
        let manifest: CopyManifest = manifest::decode(&bytes).map_err(wrong)?;
        if manifest.format != manifest::FORMAT {
            return Err(wrong(format!("its format is {}; this program reads {}", manifest.format, manifest::FORMAT)));
        }
        if let Some(problem) = manifest.problem() {
            return Err(self.damaged(format!("the manifest is invalid: {problem}")));
        }
        Ok(Some((manifest, version)))
    }

    /// Replaces the manifest of version `before`, or creates it. Fails with [`ReplicationError::Conflict`] if the
    /// stored manifest has another version.
    pub(super) async fn swap(
        &self,
        manifest: &CopyManifest,
        before: Option<UpdateVersion>,
    ) -> CopyResult<UpdateVersion> {
        let swapped = self.try_swap(manifest, before).await;
        let Err(error) = swapped else { return swapped };
        // The manifest may have been written, and only the answer lost.
        match self.manifest().await {
            Ok(Some((found, version))) if found == *manifest => Ok(version),
            _ => Err(error),
        }
    }

    async fn try_swap(&self, manifest: &CopyManifest, before: Option<UpdateVersion>) -> CopyResult<UpdateVersion> {
        let path = self.manifest_path();
        let conflict = || ReplicationError::Conflict { url: self.url.clone() };
        let _locked = self.directory.as_deref().map(locked).transpose()?;
        let mode = match (before, &self.directory) {
            (None, _) => PutMode::Create,
            (Some(before), None) => PutMode::Update(before),
            (Some(before), Some(_)) => {
                match self.store.head(&path).await {
                    Ok(found) if found.e_tag == before.e_tag => {}
                    Ok(_) | Err(Error::NotFound { .. }) => return Err(conflict()),
                    Err(error) => return Err(self.failed("read", MANIFEST)(error)),
                }
                PutMode::Overwrite
            }
        };
        let payload = PutPayload::from(Bytes::from(manifest::encode(manifest)));
        let options = PutOptions { mode, ..PutOptions::default() };
        match self.store.put_opts(&path, payload, options).await {
            Ok(put) => self.make_private(&path).map(|()| put.into()),
            Err(Error::Precondition { .. } | Error::AlreadyExists { .. }) => Err(conflict()),
            Err(error) => match self.failed("write", MANIFEST)(error) {
                error if error.is_missing() => Err(conflict()),
                error => Err(error),
            },
        }
    }
}

/// An S3 bucket, and the prefix of its objects.
pub(in crate::engine::store) struct OpenedS3 {
    pub(in crate::engine::store) store: Arc<dyn ObjectStore>,
    pub(in crate::engine::store) prefix: Path,
    /// Text about the credentials for errors; empty if they are set.
    keys: &'static str,
}

/// Opens `s3://BUCKET/PREFIX`; the environment configures S3. Fails with the problem.
pub(in crate::engine::store) fn open_s3(url: &str) -> Result<OpenedS3, String> {
    let place = url.strip_prefix("s3://").ok_or("it is neither s3:// nor file:///")?.trim_end_matches('/');
    let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
    if bucket.is_empty() {
        return Err("the bucket is missing".to_owned());
    }
    // Fails if another part of the program has installed one already.
    drop(rustls::crypto::ring::default_provider().install_default());
    // The caller retries, so that retries are visible.
    let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    let builder = AmazonS3Builder::from_env().with_bucket_name(bucket).with_retry(retry);
    let is_plain = check_settings(&builder, bucket)?;
    let keys = match builder.get_config_value(&AccessKeyId) {
        None => " with this machine's credentials, because AWS_ACCESS_KEY_ID is not set",
        Some(_) => "",
    };
    let store = builder.with_allow_http(is_plain).build().map_err(|error| cause(&error))?;
    let prefix = Path::parse(prefix).map_err(|error| error.to_string())?;
    Ok(OpenedS3 { store: Arc::new(store), prefix, keys })
}

/// Returns true for HTTP without TLS. Fails for settings that would make the client panic.
fn check_settings(builder: &AmazonS3Builder, bucket: &str) -> Result<bool, String> {
    let is_name = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    let is_endpoint = |text: &str| {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:/[]".contains(&byte));
        is_plain && reqwest::Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https"))
    };
    let is_token = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_name(bucket) {
        return Err("a bucket name consists of letters, digits, dots and hyphens".to_owned());
    }
    let setting = |key: &AmazonS3ConfigKey| builder.get_config_value(key);
    let checks = [
        (S3Endpoint, is_endpoint as fn(&str) -> bool, "is not an address such as https://HOST:PORT"),
        (Endpoint, is_endpoint, "is not an address such as https://HOST:PORT"),
        (Region, is_name, "is not a region"),
        (AccessKeyId, is_token, "contains a space or a line break"),
        (Token, is_token, "contains a space or a line break"),
    ];
    for (key, fits, what) in checks {
        if setting(&key).is_some_and(|value| !fits(&value)) {
            return Err(format!("{} {what}", key.as_ref().to_uppercase()));
        }
    }
    let endpoint = setting(&S3Endpoint).or_else(|| setting(&Endpoint)).unwrap_or_default();
    Ok(endpoint.starts_with("http://"))
}

/// Returns the directory of a `file://` address.
pub(super) fn directory_of(url: &str) -> Option<&std::path::Path> {
    url.strip_prefix("file://").filter(|directory| directory.starts_with('/')).map(std::path::Path::new)
}

/// Retries a read until it succeeds, the error is final, or the attempts are used up.
async fn patiently<T, F: Future<Output = CopyResult<T>>>(read: impl Fn() -> F) -> CopyResult<T> {
    let mut tries = 1;
    loop {
        match read().await {
            Err(error) if tries < TRIES && !error.is_decided() => {
                tracing::debug!(%error, "retrying to read an object");
                tokio::time::sleep(PAUSE * 2u32.pow(tries - 1)).await;
                tries += 1;
            }
            read => return read,
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the store accesses files directly")]
fn locked(directory: &std::path::Path) -> CopyResult<File> {
    let path = directory.join("lock");
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
    let locked = file.and_then(|file| file.lock().map(|()| file));
    Ok(locked.map_err(StoreError::io("lock", &path))?)
}
