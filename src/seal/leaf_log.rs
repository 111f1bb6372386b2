//! The append-only log of a store's seals: the file `seals/leaves` in the data directory, with one line per leaf. Each
//! leaf is a sealed state of a session.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::checkpoint::Checkpoint;
use super::merkle::{self, TreeHash};
use super::note::SignedNote;
use super::{IntegrityError, NoteVerifier};
use crate::engine::id::{Digest, Seq, SessionId};

const LEAVES: &str = "leaves";
const CHECKPOINT: &str = "checkpoint";

/// Returns the directory of the seals in a data directory.
pub fn seals_of(data: &Path) -> PathBuf {
    data.join("seals")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeafKind {
    /// The session had this chain at this position.
    Session,
    /// The session, last sealed like this, was removed.
    Removed,
    /// The session no longer has the chain that was sealed last.
    Changed,
}

/// Leaf of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SealLeaf {
    pub(super) kind: LeafKind,
    pub(super) session: SessionId,
    pub(super) seq: Seq,
    pub(super) chain: Digest,
}

impl SealLeaf {
    pub(super) fn hash(&self) -> TreeHash {
        merkle::leaf_hash(self.to_string().as_bytes())
    }
}

impl fmt::Display for SealLeaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, session, seq, chain } = self;
        let kind = match kind {
            LeafKind::Session => "session",
            LeafKind::Removed => "removed",
            LeafKind::Changed => "changed",
        };
        write!(f, "{kind} {session} {seq} {chain}")
    }
}

impl FromStr for SealLeaf {
    type Err = IntegrityError;

    fn from_str(line: &str) -> Result<Self, IntegrityError> {
        let malformed = || IntegrityError::Malformed(format!("leaf: {line:.80}"));
        let read = || {
            let mut words = line.split(' ').skip(1);
            let (session, seq) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            let chain = words.next()?.parse().ok()?;
            let kinds = [LeafKind::Session, LeafKind::Removed, LeafKind::Changed];
            // Another spelling would have another hash.
            kinds.map(|kind| Self { kind, session, seq, chain }).into_iter().find(|leaf| leaf.to_string() == line)
        };
        read().ok_or_else(malformed)
    }
}

/// Seals of one session since its last change or removal: positions, chains, and indexes of the leaves.
#[derive(Debug, Clone, Default)]
pub(super) struct SealedSession {
    pub(super) seals: Vec<(Seq, Digest, usize)>,
    pub(super) is_removed: bool,
}

/// The log, read and locked.
pub(super) struct LeafLog {
    directory: PathBuf,
    /// Locked while it is open.
    file: File,
    /// Bytes of whole lines.
    bytes: u64,
    pub(super) leaves: Vec<SealLeaf>,
    hashes: Vec<TreeHash>,
}

impl LeafLog {
    /// Opens the log for appending. Waits until other processes close it.
    #[expect(clippy::disallowed_methods, reason = "the seals are files of the data directory")]
    pub(super) fn append_to(data: &Path) -> Result<Self, IntegrityError> {
        let directory = seals_of(data);
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory);
        made.map_err(IntegrityError::io(&directory))?;
        let path = directory.join(LEAVES);
        let file = File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = file.and_then(|file| file.lock().map(|()| file)).map_err(IntegrityError::io(&path))?;
        Self::of(directory, file)
    }

    /// Reads the log. Fails with [`IntegrityError::Io`] before the first seal.
    #[expect(clippy::disallowed_methods, reason = "the seals are files of the data directory")]
    pub(super) fn read(data: &Path) -> Result<Self, IntegrityError> {
        let directory = seals_of(data);
        let path = directory.join(LEAVES);
        let file = File::open(&path).and_then(|file| file.lock_shared().map(|()| file));
        Self::of(directory, file.map_err(IntegrityError::io(&path))?)
    }

    fn of(directory: PathBuf, mut file: File) -> Result<Self, IntegrityError> {
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(IntegrityError::io(directory.join(LEAVES)))?;
        // A line without an end was not written completely, so no checkpoint covers it.
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        let leaves = whole.lines().map(str::parse).collect::<Result<Vec<SealLeaf>, _>>()?;
        let hashes = leaves.iter().map(SealLeaf::hash).collect();
        Ok(Self { directory, file, bytes: whole.len() as u64, leaves, hashes })
    }

    /// Appends leaves durably.
    pub(super) fn append(&mut self, leaves: &[SealLeaf]) -> Result<(), IntegrityError> {
        let lines: String = leaves.iter().map(|leaf| format!("{leaf}\n")).collect();
        let (file, end) = (&mut self.file, self.bytes);
        let mut write = || {
            file.set_len(end)?;
            file.seek(SeekFrom::Start(end))?;
            file.write_all(lines.as_bytes())?;
            file.sync_all()
        };
        write().map_err(IntegrityError::io(self.directory.join(LEAVES)))?;
        self.bytes += lines.len() as u64;
        self.leaves.extend_from_slice(leaves);
        self.hashes.extend(leaves.iter().map(SealLeaf::hash));
        Ok(())
    }

    /// Returns the checkpoint of all leaves.
    pub(super) fn checkpoint(&self, origin: &str) -> Checkpoint {
        let root = merkle::root(&self.hashes);
        Checkpoint { origin: origin.to_owned(), size: self.hashes.len() as u64, root }
    }

    /// Stores the signed checkpoint.
    #[expect(clippy::disallowed_methods, reason = "the seals are files of the data directory")]
    pub(super) fn put_checkpoint(&self, note: &str) -> Result<(), IntegrityError> {
        let path = self.directory.join(CHECKPOINT);
        let write = || {
            let mut file = tempfile::NamedTempFile::new_in(&self.directory)?;
            file.write_all(note.as_bytes())?;
            file.as_file().sync_all()?;
            file.persist(&path).map_err(|error| error.error)?;
            File::options().read(true).open(&self.directory)?.sync_all()
        };
        write().map_err(IntegrityError::io(&path))
    }

    /// Returns the last stored checkpoint, if the key signed it, and the hashes of its leaves.
    #[expect(clippy::disallowed_methods, reason = "the seals are files of the data directory")]
    pub(super) fn last_checkpoint(&self, key: &NoteVerifier) -> Result<Option<(String, &[TreeHash])>, IntegrityError> {
        let path = self.directory.join(CHECKPOINT);
        let note = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(IntegrityError::io(&path))?,
        };
        let checkpoint = match Checkpoint::signed_by(&SignedNote::parse(&note)?, key) {
            // It is from another key's log.
            Err(IntegrityError::Unsigned(_)) => return Ok(None),
            checkpoint => checkpoint?,
        };
        let covered = self.covered(&checkpoint)?;
        Ok(Some((note, covered)))
    }

    /// Returns the hashes of the leaves that a checkpoint covers. Fails with [`IntegrityError::Differs`].
    pub(super) fn covered(&self, checkpoint: &Checkpoint) -> Result<&[TreeHash], IntegrityError> {
        let size = usize::try_from(checkpoint.size).unwrap_or(usize::MAX);
        let covered = self.hashes.get(..size).filter(|leaves| merkle::root(leaves) == checkpoint.root);
        covered.ok_or_else(|| {
            IntegrityError::Differs(format!("seals/{LEAVES} lacks the {} leaves of the checkpoint", checkpoint.size))
        })
    }

    /// Returns the sessions in the first `size` leaves.
    pub(super) fn sessions(&self, size: usize) -> BTreeMap<SessionId, SealedSession> {
        let mut sessions = BTreeMap::<SessionId, SealedSession>::new();
        for (index, leaf) in self.leaves.iter().enumerate().take(size) {
            let known = sessions.entry(leaf.session).or_default();
            if leaf.kind == LeafKind::Session {
                known.seals.push((leaf.seq, leaf.chain, index));
            } else {
                known.seals.clear();
            }
            known.is_removed = leaf.kind == LeafKind::Removed;
        }
        sessions
    }
}
