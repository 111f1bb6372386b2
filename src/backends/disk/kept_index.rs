//! The stat index of a plain directory, stored in a file for later processes.
//!
//! The file is a cache: on any inconsistency everything is read. It is not synced, and is valid until the next boot.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, OFlags};

use super::beneath::{failed, open_in};
use super::entries::make_private;
use super::file_stat::FileStat;
use super::index::{IndexedEntry, IndexedListing, NONE, StatIndex};
use super::listing::look_at;
use super::overlay::boot_id;
use crate::backends::KeptAt;
use crate::engine::clock::Timestamp;
use crate::engine::id::SessionId;

const MAGIC: &[u8] = b"foldspace stat index 1\n";
const DIGEST_BYTES: usize = 32;
/// The maximum size of a file that is read: about eight million entries.
const BYTES_MAX: u64 = 1 << 30;
const FRESH: u8 = 1;
const LINKED: u8 = 2;
const WITH_LISTING: u8 = 4;

/// The file with the index of one session's directory.
#[derive(Debug)]
pub(crate) struct KeptIndex {
    path: PathBuf,
}

impl KeptIndex {
    /// Creates a handle; the file need not exist.
    pub(crate) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Reads the stored index of the open directory `root`; `None` if it is missing or invalid.
    pub(super) fn read(&self, root: impl AsFd) -> Option<(KeptAt, StatIndex)> {
        let read = || {
            let mut bytes = Vec::new();
            let file = open_in(CWD, self.path.as_path(), OFlags::RDONLY).map_err(failed("open", &self.path))?;
            File::from(file).take(BYTES_MAX).read_to_end(&mut bytes)?;
            Ok::<_, io::Error>((bytes, bound_to(root)?))
        };
        match read() {
            Ok((bytes, bound)) => decode(&bytes, &bound),
            Err(error) => {
                tracing::debug!(%error, "no stat index is stored; reading every file");
                None
            }
        }
    }

    /// Stores the index of the open directory `root`.
    #[expect(clippy::disallowed_methods, reason = "the index is the backend's own file")]
    pub(super) fn write(&self, root: impl AsFd, at: &KeptAt, index: &StatIndex) -> io::Result<()> {
        let bytes = encode(&bound_to(root)?, at, index);
        make_private(self.path.parent().unwrap_or_else(|| Path::new("/")))?;
        let begun = self.path.with_extension("new");
        File::options().write(true).create(true).truncate(true).mode(0o600).open(&begun)?.write_all(&bytes)?;
        std::fs::rename(&begun, &self.path)
    }
}

/// Returns the validity of an index: this boot of the machine, and this directory.
fn bound_to(root: impl AsFd) -> io::Result<Vec<u8>> {
    let mut bound = boot_id()?;
    bound.extend_from_slice(&FileStat::of(&look_at(root)?).to_bytes()[..FileStat::ENTRY_BYTES]);
    Ok(bound)
}

/// Lists directories in the order of their entries in their parents, which makes their numbers implicit.
fn encode(bound: &[u8], at: &KeptAt, index: &StatIndex) -> Vec<u8> {
    let mut body = at.session.as_bytes().to_vec();
    body.extend_from_slice(&at.seq.to_le_bytes());
    body.extend_from_slice(&at.time.0.to_le_bytes());
    let mut order = vec![0];
    let mut next = 0;
    while let Some(listing) = order.get(next).and_then(|number| index.listings.get(*number as usize)) {
        next += 1;
        body.push(u8::from(listing.doubtful));
        body.extend_from_slice(&u32::try_from(listing.entries.len()).unwrap_or(u32::MAX).to_le_bytes());
        for (number, entry) in listing.entries.iter().enumerate() {
            let has_listing = (entry.child as usize) < index.listings.len();
            if has_listing {
                order.push(entry.child);
            }
            let flags = [(entry.fresh, FRESH), (entry.is_linked, LINKED), (has_listing, WITH_LISTING)];
            body.push(flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, bit)| bit).sum());
            body.extend_from_slice(&entry.stamp.to_bytes());
            let name = listing.name(number);
            body.extend_from_slice(&u16::try_from(name.len()).unwrap_or(u16::MAX).to_le_bytes());
            body.extend_from_slice(name);
        }
    }
    let digest = blake3::hash(&body);
    [MAGIC, bound, digest.as_bytes(), &body].concat()
}

fn decode(bytes: &[u8], bound: &[u8]) -> Option<(KeptAt, StatIndex)> {
    let rest = bytes.strip_prefix(MAGIC)?.strip_prefix(bound)?;
    let (digest, body) = rest.split_at_checked(DIGEST_BYTES)?;
    if blake3::hash(body) != *<&[u8; DIGEST_BYTES]>::try_from(digest).ok()? {
        return None;
    }
    let mut rest = body;
    let session = SessionId::from_bytes(take(&mut rest)?);
    let seq = u64::from_le_bytes(take(&mut rest)?);
    let time = Timestamp(i64::from_le_bytes(take(&mut rest)?));
    let (mut listings, mut listed) = (Vec::new(), 1);
    while listings.len() < listed {
        listings.push(listing(&mut rest, &mut listed)?);
    }
    rest.is_empty().then_some((KeptAt { session, seq, time }, StatIndex { listings }))
}

fn listing(rest: &mut &[u8], listed: &mut usize) -> Option<IndexedListing> {
    let [doubtful] = take(rest)?;
    let mut listing = IndexedListing { doubtful: doubtful != 0, ..IndexedListing::default() };
    for _ in 0..u32::from_le_bytes(take(rest)?) {
        let [flags] = take(rest)?;
        let stamp = FileStat::from_bytes(take(rest)?);
        let name_bytes = u16::from_le_bytes(take(rest)?);
        let (name, after) = rest.split_at_checked(name_bytes.into())?;
        *rest = after;
        let mut child = NONE;
        if flags & WITH_LISTING != 0 {
            child = u32::try_from(*listed).ok()?;
            *listed += 1;
        }
        let known = IndexedEntry::new(stamp, child, flags & FRESH != 0);
        listing.push(name, known.linked(flags & LINKED != 0));
    }
    Some(listing)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> StatIndex {
        let stamp = |size: u8| FileStat::from_bytes([size; FileStat::BYTES]);
        let mut listings = [IndexedListing::default(), IndexedListing::default(), IndexedListing::default()];
        listings[0].push(b"directory", IndexedEntry::new(stamp(1), 2, false));
        listings[0].push(b"\xff\n", IndexedEntry::new(stamp(2), NONE, true).linked(true));
        listings[2].push(b"below", IndexedEntry::new(stamp(3), NONE, false));
        listings[2].doubtful = true;
        StatIndex { listings: listings.into() }
    }

    fn at() -> KeptAt {
        KeptAt { session: SessionId::from_bytes([7; 16]), seq: 12, time: Timestamp(34) }
    }

    #[test]
    fn kept_index_reads_as_written() {
        let bytes = encode(b"here", &at(), &index());
        let (read_at, read) = decode(&bytes, b"here").unwrap();
        assert_eq!((read_at, read.listings.len()), (at(), 2), "a listing without a parent is left out");
        let (top, below) = (&read.listings[0], &read.listings[1]);
        assert_eq!((top.name(0), top.name(1), below.name(0)), (&b"directory"[..], &b"\xff\n"[..], &b"below"[..]));
        assert_eq!((top.entries[0].child, top.entries[1].child, below.doubtful), (1, NONE, true));
        assert_eq!((top.entries[1].fresh, top.entries[1].is_linked, top.entries[0].fresh), (true, true, false));
        assert_eq!(below.entries[0].stamp, index().listings[2].entries[0].stamp);
        assert_eq!(encode(b"here", &read_at, &read), bytes);
    }

    #[test]
    fn kept_index_damaged_or_of_another_directory_is_none() {
        let bytes = encode(b"here", &at(), &index());
        assert!(decode(&bytes, b"there").is_none());
        for cut in 0..bytes.len() {
            assert!(decode(&bytes[..cut], b"here").is_none(), "{cut}");
            let mut flipped = bytes.clone();
            flipped[cut] ^= 1;
            assert!(decode(&flipped, b"here").is_none(), "{cut}");
        }
        assert!(decode(&[&bytes[..], b"x"].concat(), b"here").is_none());
    }

    /// With a valid digest, which accidental damage never has.
    #[test]
    fn kept_index_of_nonsense_does_not_panic() {
        let bytes = encode(b"", &at(), &index());
        let body = &bytes[MAGIC.len() + DIGEST_BYTES..];
        for place in 32..body.len() {
            for value in [0, 1, 4, 127, 255] {
                let mut body = body.to_vec();
                body[place] = value;
                let bytes = [MAGIC, blake3::hash(&body).as_bytes(), &body].concat();
                if let Some((at, index)) = decode(&bytes, b"") {
                    assert_eq!(encode(b"", &at, &index).len(), bytes.len(), "{place} {value}");
                }
            }
        }
    }
}
