//! Contents that are read from git repositories while these have them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::Mutex;

use bytes::Bytes;

use super::super::{Result, StoreError, git_command};
use crate::engine::Digest;
use crate::engine::lock::lock;

/// The file of a store that lists git directories, one per line.
const LIST: &str = "git-repositories";
/// `git cat-file` option for the contents of blobs.
const CONTENTS: &str = "--batch";
/// `git cat-file` option for the sizes of blobs.
const SIZES: &str = "--batch-check";
/// Maximum bytes of a blob.
const BLOB_MAX: u64 = 1 << 30;

/// Git repositories to read contents from that the store lacks.
#[derive(Debug)]
pub(in crate::engine::store) struct BorrowedContents {
    list: PathBuf,
    /// One process for each repository and option.
    readers: Mutex<BTreeMap<(PathBuf, &'static str), BlobReader>>,
}

impl BorrowedContents {
    /// Reads the list of a store.
    pub(in crate::engine::store) fn of(store: &Path) -> Self {
        Self { list: store.join(LIST), readers: Mutex::default() }
    }

    /// Adds a repository to the list, if it is not in it.
    #[expect(clippy::disallowed_methods, reason = "the list is a file of the store")]
    pub(in crate::engine::store) fn add(&self, git_directory: &Path) -> Result<()> {
        let failed = StoreError::io("write", &self.list);
        let line = git_directory.as_os_str().as_bytes();
        if line.contains(&b'\n') {
            return Err(failed(io::Error::other("the path of a repository contains a line break")));
        }
        if self.repositories().iter().any(|known| known == git_directory) {
            return Ok(());
        }
        let write = || {
            let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(&self.list)?;
            file.write_all(&[line, b"\n"].concat())?;
            file.sync_all()
        };
        write().map_err(failed)
    }

    /// Returns a content from one of the repositories.
    pub(super) fn content(&self, digest: &Digest) -> Option<Bytes> {
        self.ask(digest, CONTENTS, |bytes| digest.is_of(&bytes).then(|| Bytes::from(bytes)))
    }

    /// Returns true if one of the repositories has a content, without reading it.
    pub(super) fn has(&self, digest: &Digest) -> bool {
        self.ask(digest, SIZES, |_| Some(())).is_some()
    }

    fn ask<T>(&self, digest: &Digest, what: &'static str, take: impl Fn(Vec<u8>) -> Option<T>) -> Option<T> {
        digest.git_blob()?;
        let mut readers = lock(&self.readers);
        // A running process could still read a removed repository, but a later one could not.
        for repository in self.repositories().into_iter().filter(|place| place.join("objects").exists()) {
            let place = (repository, what);
            let mut read = || {
                let reader = match readers.remove(&place) {
                    Some(reader) => reader,
                    None => BlobReader::start(&place.0, what)?,
                };
                let (reader, bytes) = reader.read(digest)?;
                readers.insert(place.clone(), reader);
                Ok::<_, io::Error>(bytes)
            };
            match read() {
                Ok(Some(bytes)) => {
                    if let Some(taken) = take(bytes) {
                        return Some(taken);
                    }
                }
                Ok(None) => {}
                Err(error) => {
                    let repository = place.0.display();
                    tracing::debug!(%error, %repository, "failed to read a borrowed content from a repository");
                }
            }
        }
        None
    }

    /// Returns the git directories of the list.
    #[expect(clippy::disallowed_methods, reason = "the list is a file of the store")]
    pub(in crate::engine::store) fn repositories(&self) -> Vec<PathBuf> {
        let listed = std::fs::read(&self.list).unwrap_or_default();
        let lines = listed.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| PathBuf::from(OsStr::from_bytes(line))).collect()
    }
}

/// A running `git cat-file`.
#[derive(Debug)]
struct BlobReader {
    process: Child,
    has_contents: bool,
    ask: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl BlobReader {
    fn start(git_directory: &Path, what: &str) -> io::Result<Self> {
        let mut git = git_command();
        git.current_dir("/").arg("--git-dir").arg(git_directory);
        git.args(["cat-file", what]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = git.spawn()?;
        let (ask, answers) = (process.stdin.take(), process.stdout.take());
        let answers = BufReader::new(answers.ok_or_else(|| io::Error::other("git has no output pipe"))?);
        Ok(Self { process, has_contents: what == CONTENTS, ask, answers })
    }

    /// Reads a blob, or only checks that it exists. `None` if the repository lacks it. An error ends the process.
    fn read(mut self, digest: &Digest) -> io::Result<(Self, Option<Vec<u8>>)> {
        let odd = || io::Error::new(io::ErrorKind::InvalidData, "unexpected answer from git");
        let ask = self.ask.as_mut().ok_or_else(odd)?;
        writeln!(ask, "{}", &digest.to_string()[..40])?;
        let mut head = String::new();
        self.answers.read_line(&mut head)?;
        let mut words = head.split_whitespace().skip(1);
        let length = match (words.next(), words.next().and_then(|word| word.parse::<u64>().ok())) {
            (Some("missing"), _) => return Ok((self, None)),
            (Some("blob"), Some(length)) if length <= BLOB_MAX => length,
            _ => return Err(odd()),
        };
        let mut bytes = Vec::new();
        if !self.has_contents {
            return Ok((self, Some(bytes)));
        }
        // A line feed follows.
        (&mut self.answers).take(length + 1).read_to_end(&mut bytes)?;
        match bytes.pop() {
            Some(b'\n') if bytes.len() as u64 == length => Ok((self, Some(bytes))),
            _ => Err(odd()),
        }
    }
}

impl Drop for BlobReader {
    fn drop(&mut self) {
        // Closing its input ends it; the kill is for a process that hangs.
        self.ask = None;
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
