//! A disk in memory that loses unsynced data at a power cut, and that fails as planned.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::random::Random;
use crate::engine::store::disk::{DiskFile, JournalDisk};

/// Bytes that a disk writes atomically.
const SECTOR: usize = 512;

/// Failure, counted in writing operations from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    /// Nothing happens any more, from that operation on.
    PowerOff(u64),
    /// Writes and syncs fail from that operation on, for so many operations.
    Broken(u64, u64),
    /// Writes that need space fail from that operation on, for so many operations.
    Full(u64, u64),
    /// That read fails.
    Unreadable(u64),
}

/// Lie of a disk: data that it reports as durable is not. It proves that the simulation finds such faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lie {
    None,
    /// A sync of a directory does nothing.
    Names,
    /// A sync of a file makes durable what the previous sync should have.
    Late,
    /// A sync of a file makes everything durable but the last write.
    AllButTheLast,
}

/// A simulated disk; clones are the same disk.
#[derive(Clone)]
pub(crate) struct SimulatedDisk(Arc<Mutex<State>>);

#[derive(Clone)]
struct State {
    random: Random,
    files: Vec<Inode>,
    directories: BTreeSet<PathBuf>,
    names: BTreeMap<PathBuf, Entry>,
    durable: BTreeMap<PathBuf, Entry>,
    /// Name changes that no sync of their directory has made durable, in order.
    renamed: Vec<Renamed>,
    fault: Fault,
    lie: Lie,
    writes: u64,
    reads: u64,
    is_off: bool,
    /// Incremented at a power cut: files that were open are gone.
    epoch: u64,
    /// The directory of the store, with the index on a real disk; and true if the index's absence is durable.
    root: PathBuf,
    index_is_gone: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    Directory,
    File(usize),
}

/// Names of one directory that change together.
#[derive(Clone)]
struct Renamed {
    directory: PathBuf,
    entries: Vec<(PathBuf, Option<Entry>)>,
}

#[derive(Clone, Default)]
struct Inode {
    bytes: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<Change>,
    /// Number of unsynced changes that the last sync should have made durable.
    promised: usize,
}

#[derive(Clone)]
enum Change {
    Write(usize, Vec<u8>),
    Length(usize),
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Write(at, written) => {
                if bytes.len() < at + written.len() {
                    bytes.resize(at + written.len(), 0);
                }
                bytes[*at..at + written.len()].copy_from_slice(written);
            }
            Self::Length(length) => bytes.resize(*length, 0),
        }
    }

    /// Splits a write at the boundaries of sectors.
    fn sectors(self) -> Vec<Self> {
        let Self::Write(mut at, bytes) = self else { return vec![self] };
        let mut rest = &bytes[..];
        let mut parts = Vec::new();
        while !rest.is_empty() {
            let (part, later) = rest.split_at((SECTOR - at % SECTOR).min(rest.len()));
            parts.push(Self::Write(at, part.to_vec()));
            (at, rest) = (at + part.len(), later);
        }
        parts
    }
}

impl Inode {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.bytes);
        self.unsynced.push(change);
    }

    fn sync(&mut self, lie: Lie) {
        let count = self.unsynced.len();
        let last = self.unsynced.iter().rposition(|change| matches!(change, Change::Write(..)));
        let synced = match lie {
            Lie::Late => self.promised,
            Lie::AllButTheLast => last.unwrap_or(count),
            Lie::None | Lie::Names => count,
        };
        self.unsynced.drain(..synced).for_each(|change| change.apply(&mut self.durable));
        self.promised = self.unsynced.len();
    }

    /// Makes some of the unsynced sectors durable, and drops the others.
    fn tear(&mut self, random: &mut Random) {
        self.promised = 0;
        let parts: Vec<Change> = self.unsynced.drain(..).flat_map(Change::sectors).collect();
        let count = parts.len();
        let kept: Box<dyn FnMut(usize) -> bool> = match random.index(4) {
            0 => Box::new(|_| false),
            1 => Box::new(|_| true),
            2 => {
                let cut = random.index(count + 1);
                Box::new(move |at| at < cut)
            }
            _ => {
                let mut random = random.clone();
                Box::new(move |_| random.once_in(2))
            }
        };
        random.next();
        let mut kept = kept;
        parts.into_iter().enumerate().filter(|(at, _)| kept(*at)).for_each(|(_, part)| part.apply(&mut self.durable));
    }
}

fn error(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

const EIO: i32 = 5;
const ENOENT: i32 = 2;
const ENOSPC: i32 = 28;

impl State {
    /// Counts a changing operation; returns an error if it fails.
    fn write_step(&mut self, needs_space: bool) -> io::Result<()> {
        self.writes += 1;
        let at = self.writes;
        match self.fault {
            Fault::PowerOff(from) if at >= from => self.is_off = true,
            Fault::Broken(from, count) if (from..from + count).contains(&at) => return Err(error(EIO)),
            Fault::Full(from, count) if needs_space && (from..from + count).contains(&at) => return Err(error(ENOSPC)),
            _ => {}
        }
        if self.is_off { Err(error(EIO)) } else { Ok(()) }
    }

    fn read_step(&mut self) -> io::Result<()> {
        self.reads += 1;
        let fails = self.is_off || self.fault == Fault::Unreadable(self.reads);
        if fails { Err(error(EIO)) } else { Ok(()) }
    }

    fn name(&mut self, entries: Vec<(PathBuf, Option<Entry>)>) {
        let directory = entries[0].0.parent().unwrap_or(Path::new("/")).to_owned();
        put(&mut self.names, &entries);
        self.renamed.push(Renamed { directory, entries });
    }

    fn file(&self, path: &Path) -> io::Result<usize> {
        match self.names.get(path) {
            Some(Entry::File(file)) => Ok(*file),
            Some(Entry::Directory) => Err(error(21)),
            None => Err(error(ENOENT)),
        }
    }
}

fn put(names: &mut BTreeMap<PathBuf, Entry>, entries: &[(PathBuf, Option<Entry>)]) {
    for (path, entry) in entries {
        match entry {
            Some(entry) => names.insert(path.clone(), *entry),
            None => names.remove(path),
        };
    }
}

impl SimulatedDisk {
    /// Creates a disk with one directory.
    pub(crate) fn new(seed: u64, root: &Path) -> Self {
        let state = State {
            random: Random(seed),
            files: Vec::new(),
            directories: root.ancestors().map(Path::to_owned).collect(),
            names: BTreeMap::new(),
            durable: BTreeMap::new(),
            renamed: Vec::new(),
            fault: Fault::None,
            lie: Lie::None,
            writes: 0,
            reads: 0,
            is_off: false,
            epoch: 0,
            root: root.to_owned(),
            index_is_gone: false,
        };
        Self(Arc::new(Mutex::new(state)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the disk lie from now on.
    pub(super) fn lie(&self, lie: Lie) {
        self.state().lie = lie;
    }

    /// Returns another disk with the same contents.
    pub(super) fn copied(&self) -> Self {
        Self(Arc::new(Mutex::new(self.state().clone())))
    }

    /// Plans a fault; the count of operations restarts.
    pub(super) fn plan(&self, fault: Fault) {
        let mut state = self.state();
        (state.fault, state.writes, state.reads) = (fault, 0, 0);
    }

    /// Turns the power off and on again: unsynced data survives in part, or not at all.
    pub(super) fn cut_power(&self) {
        let mut guard = self.state();
        let state = &mut *guard;
        state.files.iter_mut().for_each(|file| file.tear(&mut state.random));
        let changes = std::mem::take(&mut state.renamed);
        let in_order = state.random.once_in(2);
        let cut = state.random.index(changes.len() + 1);
        for (at, change) in changes.into_iter().enumerate() {
            if if in_order { at < cut } else { state.random.once_in(2) } {
                put(&mut state.durable, &change.entries);
            }
        }
        let there: Vec<PathBuf> = state.durable.keys().cloned().collect();
        for path in there {
            // The contents of a directory are lost with its name.
            let is_lost = path.parent().is_none_or(|above| {
                !state.directories.contains(above) && state.durable.get(above) != Some(&Entry::Directory)
            });
            if is_lost {
                state.durable.remove(&path);
            }
        }
        state.names = state.durable.clone();
        for file in &mut state.files {
            file.bytes = file.durable.clone();
        }
        (state.fault, state.is_off) = (Fault::None, false);
        state.epoch += 1;
    }

    /// Returns true if the removal of the index became durable since the last call: no earlier index comes back.
    pub(super) fn lost_index(&self) -> bool {
        std::mem::take(&mut self.state().index_is_gone)
    }

    /// Returns true if the power is off.
    pub(super) fn is_off(&self) -> bool {
        self.state().is_off
    }

    /// Returns the files of a directory, with their bytes as a reader sees them.
    pub(super) fn files_in(&self, directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
        let state = self.state();
        let files = state.names.iter().filter(|(path, _)| path.parent() == Some(directory));
        let files = files.filter_map(|(path, entry)| match entry {
            Entry::File(file) => Some((path.clone(), state.files[*file].bytes.clone())),
            Entry::Directory => None,
        });
        files.collect()
    }

    /// Puts a durable file on the disk, or removes it.
    pub(crate) fn put(&self, path: &Path, bytes: Option<Vec<u8>>) {
        let mut state = self.state();
        let entry = bytes.map(|bytes| {
            state.files.push(Inode { bytes: bytes.clone(), durable: bytes, ..Inode::default() });
            Entry::File(state.files.len() - 1)
        });
        let entries = [(path.to_owned(), entry)];
        put(&mut state.names, &entries);
        put(&mut state.durable, &entries);
    }

    fn opened(&self, file: usize) -> Box<dyn DiskFile> {
        Box::new(SimulatedFile { disk: self.clone(), file, epoch: self.state().epoch })
    }
}

impl JournalDisk for SimulatedDisk {
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state();
        state.read_step()?;
        let file = state.file(path)?;
        drop(state);
        Ok(self.opened(file))
    }

    fn open_to_write(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.open(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state();
        state.write_step(true)?;
        let file = match state.file(path) {
            Ok(file) => {
                state.files[file].change(Change::Length(0));
                file
            }
            Err(_) => {
                state.files.push(Inode::default());
                let file = state.files.len() - 1;
                state.name(vec![(path.to_owned(), Some(Entry::File(file)))]);
                file
            }
        };
        drop(state);
        Ok(self.opened(file))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        if state.directories.contains(path) || state.names.contains_key(path) {
            return Ok(());
        }
        state.write_step(true)?;
        state.name(vec![(path.to_owned(), Some(Entry::Directory))]);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.write_step(true)?;
        let file = state.file(from)?;
        state.name(vec![(from.to_owned(), None), (to.to_owned(), Some(Entry::File(file)))]);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.write_step(false)?;
        state.file(path)?;
        state.name(vec![(path.to_owned(), None)]);
        Ok(())
    }

    fn exists(&self, path: &Path) -> bool {
        let state = self.state();
        state.directories.contains(path) || state.names.contains_key(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        let mut state = self.state();
        state.read_step()?;
        if !state.directories.contains(directory) && state.names.get(directory) != Some(&Entry::Directory) {
            return Err(error(ENOENT));
        }
        Ok(state.names.keys().filter(|path| path.parent() == Some(directory)).cloned().collect())
    }

    fn sync_dir(&self, directory: &Path) -> io::Result<()> {
        let mut guard = self.state();
        guard.write_step(false)?;
        let state = &mut *guard;
        if state.lie == Lie::Names {
            return Ok(());
        }
        let (synced, kept) = std::mem::take(&mut state.renamed).into_iter().partition(|r| r.directory == directory);
        state.renamed = kept;
        let synced: Vec<Renamed> = synced;
        synced.iter().for_each(|change| put(&mut state.durable, &change.entries));
        state.index_is_gone |= directory == state.root && !directory.join("index").exists();
        Ok(())
    }
}

struct SimulatedFile {
    disk: SimulatedDisk,
    file: usize,
    epoch: u64,
}

impl SimulatedFile {
    fn with<T>(&self, work: impl FnOnce(&mut State, usize) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.disk.state();
        if state.epoch == self.epoch { work(&mut state, self.file) } else { Err(error(EIO)) }
    }

    /// Applies a change; a failing write is applied in part.
    fn changed(&self, change: Change) -> io::Result<()> {
        self.with(|state, file| {
            let stepped = state.write_step(true);
            let change = match (&stepped, change) {
                (Err(_), Change::Write(at, mut bytes)) if !state.is_off => {
                    bytes.truncate(state.random.index(bytes.len() + 1));
                    Change::Write(at, bytes)
                }
                (Err(_), _) => return stepped,
                (Ok(()), change) => change,
            };
            state.files[file].change(change);
            stepped
        })
    }
}

impl DiskFile for SimulatedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.with(|state, file| {
            state.read_step()?;
            let from = usize::try_from(offset).unwrap_or(usize::MAX);
            let rest = state.files[file].bytes.get(from..).unwrap_or_default();
            let most = rest.len().min(buffer.len());
            // Now and then a read is short.
            let count = if most > 1 && state.reads.is_multiple_of(7) { most / 2 } else { most };
            buffer[..count].copy_from_slice(&rest[..count]);
            Ok(count)
        })
    }

    fn read_more(&self, buffer: &mut Vec<u8>, offset: u64) -> io::Result<usize> {
        let room = buffer.capacity() - buffer.len();
        let mut bytes = vec![0; room];
        let count = self.read_at(&mut bytes, offset)?;
        buffer.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.changed(Change::Write(usize::try_from(offset).unwrap_or(usize::MAX), bytes.to_vec()))
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let there = self.with(|state, file| Ok(state.files[file].bytes.len()))?;
        self.changed(Change::Length(length.max(there)))
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.changed(Change::Length(usize::try_from(length).unwrap_or(usize::MAX)))
    }

    fn len(&self) -> io::Result<u64> {
        self.with(|state, file| Ok(state.files[file].bytes.len() as u64))
    }

    /// Leaves the data of a failed sync in the cache, from where it never reaches the disk, as on Linux.
    fn sync_data(&self) -> io::Result<()> {
        self.with(|state, file| {
            let stepped = state.write_step(false);
            match &stepped {
                Ok(()) => state.files[file].sync(state.lie),
                Err(_) if !state.is_off => state.files[file].tear(&mut state.random),
                Err(_) => {}
            }
            stepped
        })
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync_data()
    }
}
