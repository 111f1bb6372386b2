//! File stats, which detect changes of files without reading them.

use rustix::fs::Statx;
use rustix::time::{ClockId, Timespec, clock_gettime};

const SECOND: i64 = 1_000_000_000;
/// The timestamp granularity of file systems that store whole seconds, or only even-numbered ones; in nanoseconds.
const COARSE_WINDOW: i64 = 2 * SECOND;
const KIND_MASK: u32 = 0o170_000;
const DIRECTORY_MODE: u32 = 0o040_000;
/// A character device; number 0:0 marks a deleted entry of an overlay.
const MARK_MODE: u32 = 0o020_000;

/// The part of an entry's stat that changes with the entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileStat {
    device: u64,
    inode: u64,
    size: u64,
    /// Nanoseconds since 1970, as is `changed`.
    modified: i64,
    changed: i64,
    mode: u32,
}

impl FileStat {
    /// The length of its encoding.
    pub(super) const BYTES: usize = 44;
    /// The length of its first part, which identifies the entry and its device.
    pub(super) const ENTRY_BYTES: usize = 16;
    /// An overlay's mark of a deleted entry. All marks share one inode; its times change with each mark.
    const MARK: Self = Self { device: 0, inode: 0, size: 0, modified: 0, changed: 0, mode: MARK_MODE };
    /// Equals the stat of no entry, so that the next scan reports the path.
    pub(super) const UNKNOWN: Self =
        Self { device: u64::MAX, inode: u64::MAX, size: 0, modified: 0, changed: 0, mode: 0 };
    /// The same for a known or possible directory: the next scan reports everything below the path.
    pub(super) const UNKNOWN_BELOW: Self = Self { mode: DIRECTORY_MODE, ..Self::UNKNOWN };

    pub(super) fn of(stat: &Statx) -> Self {
        let mode = u32::from(stat.stx_mode);
        if mode & KIND_MASK == MARK_MODE && (stat.stx_rdev_major, stat.stx_rdev_minor) == (0, 0) {
            return Self::MARK;
        }
        Self {
            device: u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor),
            inode: stat.stx_ino,
            size: stat.stx_size,
            modified: nanos(stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec.into()),
            changed: nanos(stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec.into()),
            mode,
        }
    }

    pub(super) fn is_unknown(&self) -> bool {
        (self.device, self.inode) == (u64::MAX, u64::MAX)
    }

    pub(super) fn is_mark(&self) -> bool {
        *self == Self::MARK
    }

    /// Returns true if both are the same entry of the same kind, even if it has changed.
    pub(super) fn is_same_entry(&self, other: &Self) -> bool {
        self.device == other.device && self.inode == other.inode && self.kind() == other.kind()
    }

    /// Returns true if both have the same permission bits.
    pub(super) fn has_same_mode(&self, other: &Self) -> bool {
        self.mode == other.mode
    }

    /// Returns true if both have the same size, times and mode, regardless of device and inode.
    pub(super) fn has_same_times(&self, other: &Self) -> bool {
        Self { device: self.device, inode: self.inode, ..*other } == *self
    }

    pub(super) fn is_directory(&self) -> bool {
        self.kind() == DIRECTORY_MODE
    }

    /// Returns true if it matches an entry made here. It does not if the file system rounded the time.
    pub(super) fn is_as_made(&self, made: MadeStat) -> bool {
        match made {
            MadeStat::Nothing => false,
            MadeStat::Directory => self.is_directory(),
            MadeStat::Leaf { bytes, modified } => {
                let modified = nanos(modified.tv_sec, modified.tv_nsec);
                !self.is_directory() && (self.size, self.modified) == (bytes, modified)
            }
        }
    }

    /// Returns true if a change after `look` could leave the stat unchanged: file times move in ticks. As with git's
    /// index, the next scan reads such an entry again.
    pub(super) fn is_fresh(&self, look: FileTime) -> bool {
        let window = if self.changed.rem_euclid(SECOND) == 0 { COARSE_WINDOW } else { 0 };
        self.changed.saturating_add(window) >= look.0
    }

    fn kind(&self) -> u32 {
        self.mode & KIND_MASK
    }

    pub(super) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let words = [self.device, self.inode, self.size, self.modified.cast_unsigned(), self.changed.cast_unsigned()];
        for (place, word) in bytes.chunks_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes[40..].copy_from_slice(&self.mode.to_le_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at * 8..at * 8 + 8]);
            u64::from_le_bytes(word)
        };
        let mut mode = [0; 4];
        mode.copy_from_slice(&bytes[40..]);
        Self {
            device: word(0),
            inode: word(1),
            size: word(2),
            modified: word(3).cast_signed(),
            changed: word(4).cast_signed(),
            mode: u32::from_le_bytes(mode),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MadeStat {
    Nothing,
    Directory,
    /// A file or link with this number of bytes and this modification time.
    Leaf {
        bytes: u64,
        modified: Timespec,
    },
}

impl MadeStat {
    /// Describes an entry after a change of only its mode.
    pub(super) fn as_it_is(stat: &Statx) -> Self {
        let modified = Timespec { tv_sec: stat.stx_mtime.tv_sec, tv_nsec: stat.stx_mtime.tv_nsec.into() };
        match FileStat::of(stat).is_directory() {
            true => Self::Directory,
            false => Self::Leaf { bytes: stat.stx_size, modified },
        }
    }
}

/// A moment on the clock that the kernel uses for file times.
#[derive(Debug, Clone, Copy)]
pub(super) struct FileTime(i64);

impl FileTime {
    pub(super) fn now() -> Self {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        Self(nanos(now.tv_sec, now.tv_nsec))
    }
}

/// Wraps, so that times out of range still differ.
fn nanos(seconds: i64, nanos: i64) -> i64 {
    seconds.wrapping_mul(SECOND).wrapping_add(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_of_made_file_compares_nanoseconds() {
        let modified = rustix::time::Timespec { tv_sec: 7, tv_nsec: 123_456_789 };
        let stamp = |modified, size| FileStat { device: 1, inode: 1, size, modified, changed: 0, mode: 0o100_644 };
        let made = MadeStat::Leaf { bytes: 5, modified };
        assert!(stamp(7 * SECOND + 123_456_789, 5).is_as_made(made));
        assert!(!stamp(7 * SECOND, 5).is_as_made(made), "a file system that keeps whole seconds");
        assert!(!stamp(7 * SECOND + 123_456_789, 6).is_as_made(made));
        assert!(!stamp(7 * SECOND + 123_456_789, 5).is_as_made(MadeStat::Directory));
        assert!(!stamp(7 * SECOND + 123_456_789, 5).is_as_made(MadeStat::Nothing));
    }

    #[test]
    fn stat_changed_in_tick_of_scan_is_fresh() {
        let stamp = |changed| FileStat { device: 1, inode: 1, size: 1, modified: 0, changed, mode: 0o100_644 };
        let look = FileTime(10 * SECOND + 7);
        assert!(stamp(10 * SECOND + 7).is_fresh(look));
        assert!(stamp(10 * SECOND + 8).is_fresh(look));
        assert!(!stamp(10 * SECOND + 6).is_fresh(look));
        assert!(!stamp(9 * SECOND + 1).is_fresh(look));
        assert!(stamp(9 * SECOND).is_fresh(look), "the file system may keep whole seconds only");
        assert!(!stamp(8 * SECOND).is_fresh(look));
    }
}
