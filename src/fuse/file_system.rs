//! The file system of a mount, which answers the kernel's requests.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use bytes::Bytes;
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs,
    Request,
};

use super::inodes::{Inodes, MountNode, ROOT};
use super::moments::{FoundMoment, Moments, Root, ViewKey};
use super::mounted_store::MountedStore;
use super::tree_view::{TreeView, ViewedFiles, system_time};
use crate::engine::clock::Timestamp;
use crate::engine::event::{Node, Special};
use crate::engine::id::Digest;
use crate::engine::lock::lock;
use crate::engine::path::{EntryPath, MAX_SEGMENT_BYTES};
use crate::engine::session::error::SessionError;
use crate::engine::store::StoreError;
use crate::reducers::Entry;

/// The cache time of answers that never change, or that foldspace invalidates when they change.
const LASTING: Duration = Duration::from_secs(1 << 30);
/// The cache time of names and directories that may change without a notification in time.
const BRIEF: Duration = Duration::from_secs(1);
const BLOCK: u32 = 4096;
/// Limits for recent contents: their number, and their bytes. A single content may be larger.
const RECENT: usize = 16;
const RECENT_BYTES: usize = 64 << 20;

/// A callback for the reason why files can't be read; `None` once they can be read again.
pub(super) type TellTrouble = Box<dyn Fn(Option<&str>) + Send + Sync>;

pub(super) struct ServedMount {
    pub(super) store: MountedStore,
    /// True if the root has hidden directories.
    has_moments: bool,
    inodes: Mutex<Inodes>,
    views: Mutex<BTreeMap<ViewKey, Weak<TreeView>>>,
    last_view: AtomicU64,
    contents: Mutex<RecentContents>,
    open: Mutex<OpenDirectories>,
    /// The time of the mount, for directories that are not in a session.
    since: Timestamp,
    owner: (u32, u32),
    trouble: Mutex<Option<String>>,
    tell: TellTrouble,
}

/// The entries of a directory when it was opened.
type ListedEntries = Arc<[(Vec<u8>, MountNode)]>;

#[derive(Default)]
struct OpenDirectories {
    last: u64,
    by_number: BTreeMap<u64, ListedEntries>,
}

/// The contents that were read last: the kernel reads a large file in many pieces.
#[derive(Default)]
struct RecentContents {
    /// The latest is last.
    list: VecDeque<(Digest, Bytes)>,
    bytes: usize,
}

impl RecentContents {
    fn get(&self, digest: &Digest) -> Option<Bytes> {
        self.list.iter().rev().find(|(known, _)| known == digest).map(|(_, bytes)| bytes.clone())
    }

    fn add(&mut self, digest: Digest, bytes: Bytes) {
        self.bytes += bytes.len();
        self.list.push_back((digest, bytes));
        while self.list.len() > RECENT || self.bytes > RECENT_BYTES && self.list.len() > 1 {
            let oldest = self.list.pop_front();
            self.bytes -= oldest.map_or(0, |(_, bytes)| bytes.len());
        }
    }
}

impl ServedMount {
    /// Opens the view of the mount's root.
    pub(super) fn open(
        store: MountedStore,
        (root, has_moments): (ViewKey, bool),
        tell: TellTrouble,
    ) -> Result<Arc<Self>, SessionError> {
        let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let mounted = Self {
            inodes: Mutex::default(),
            views: Mutex::default(),
            last_view: AtomicU64::default(),
            contents: Mutex::default(),
            open: Mutex::default(),
            since: store.sessions().clock().now(),
            store,
            has_moments,
            owner,
            trouble: Mutex::default(),
            tell,
        };
        let root = mounted.view(root)?;
        lock(&mounted.inodes).look_up(MountNode::Entry(root, EntryPath::root()), None);
        Ok(Arc::new(mounted))
    }

    pub(super) fn inodes(&self) -> std::sync::MutexGuard<'_, Inodes> {
        lock(&self.inodes)
    }

    /// Returns the views in use that follow the present.
    pub(super) fn present(&self) -> Vec<Arc<TreeView>> {
        let mut views = lock(&self.views);
        views.retain(|_, view| view.strong_count() > 0);
        let present = views.iter().filter(|(key, _)| key.at.is_none());
        present.filter_map(|(_, view)| view.upgrade()).collect()
    }

    fn view(&self, key: ViewKey) -> Result<Arc<TreeView>, SessionError> {
        if let Some(view) = lock(&self.views).get(&key).and_then(Weak::upgrade) {
            return Ok(view);
        }
        let id = self.last_view.fetch_add(1, Ordering::Relaxed);
        let opened = Arc::new(TreeView::open(id, key.clone(), &self.store.session(key.session)?)?);
        let mut views = lock(&self.views);
        // Another thread may have opened it.
        if let Some(view) = views.get(&key).and_then(Weak::upgrade) {
            return Ok(view);
        }
        views.insert(key, Arc::downgrade(&opened));
        Ok(opened)
    }

    /// Reads from the store, and again if it has a new owner. Reports a failure as the mount's trouble.
    pub(super) fn read<T>(&self, read: impl Fn() -> Result<T, SessionError>) -> Result<T, Errno> {
        let outcome = read().or_else(|error| if self.store.renew() { read() } else { Err(error) });
        match outcome {
            Ok(found) => {
                self.trouble(None);
                Ok(found)
            }
            Err(SessionError::Store(StoreError::NoSession(_))) => Err(Errno::ENOENT),
            Err(SessionError::Store(StoreError::NoContent(_))) => Err(Errno::ENODATA),
            Err(error) => {
                self.trouble(Some(&error.to_string()));
                Err(Errno::EIO)
            }
        }
    }

    fn trouble(&self, reason: Option<&str>) {
        let mut known = lock(&self.trouble);
        if known.as_deref() != reason {
            *known = reason.map(str::to_owned);
            (self.tell)(reason);
        }
    }

    fn inode(&self, number: INodeNo) -> Result<(MountNode, Option<Entry>), Errno> {
        lock(&self.inodes).get(number.0).ok_or(Errno::ESTALE)
    }

    fn node(&self, number: INodeNo) -> Result<MountNode, Errno> {
        Ok(self.inode(number)?.0)
    }

    /// Finds a name in a directory.
    fn find(&self, parent: &MountNode, name: &[u8]) -> Result<Option<MountNode>, Errno> {
        if name.len() > MAX_SEGMENT_BYTES {
            return Err(Errno::ENAMETOOLONG);
        }
        match parent {
            MountNode::Entry(view, path) => {
                if path.is_root()
                    && let Some(moments) = self.moments(view, name)
                {
                    return Ok(Some(MountNode::Moments(moments)));
                }
                let path = path.join(name).map_err(|_| Errno::EINVAL)?;
                let is_there = view.shown().files.get(&path).is_some();
                Ok(is_there.then(|| MountNode::Entry(Arc::clone(view), path)))
            }
            MountNode::Moments(moments) => {
                let find = || match moments.find(&self.store.sessions(), name)? {
                    None => Ok(None),
                    Some(FoundMoment::Directory(moments)) => Ok(Some(MountNode::Moments(moments))),
                    Some(FoundMoment::View(key)) => Ok(Some(MountNode::Entry(self.view(key)?, EntryPath::root()))),
                };
                self.read(find)
            }
        }
    }

    /// Finds a hidden directory in the root of a view.
    fn moments(&self, view: &TreeView, name: &[u8]) -> Option<Moments> {
        let is_top = match &view.key.via {
            None if self.has_moments => true,
            Some((Moments::Sessions, _)) => false,
            _ => return None,
        };
        Moments::at_root(Root { view: view.id, session: view.key.session }, is_top, name)
    }

    /// Lists a directory.
    fn list(&self, directory: &MountNode) -> Result<ListedEntries, Errno> {
        match directory {
            MountNode::Entry(view, path) => {
                let files = view.shown().files;
                let node = |path: &EntryPath| MountNode::Entry(Arc::clone(view), path.clone());
                let children = files.children(path).filter(|(path, _)| path.name().len() <= MAX_SEGMENT_BYTES);
                Ok(children.map(|(path, _)| (path.name().to_vec(), node(path))).collect())
            }
            MountNode::Moments(moments) => {
                let names = self.read(|| moments.names(&self.store.sessions()))?;
                let mut found = Vec::new();
                for name in names {
                    let at = self.find(directory, name.as_bytes())?;
                    found.extend(at.map(|node| (name.into_bytes(), node)));
                }
                Ok(found.into())
            }
        }
    }

    fn contents(&self, number: INodeNo) -> Result<Bytes, Errno> {
        let (node, entry) = self.inode(number)?;
        let MountNode::Entry(view, _) = node else { return Err(Errno::EISDIR) };
        match entry.map(|entry| entry.node) {
            Some(Node::File { incomplete: true, .. }) => Err(Errno::ENODATA),
            Some(Node::File { content, .. }) => {
                if let Some(recent) = lock(&self.contents).get(&content) {
                    return Ok(recent);
                }
                let bytes = self.read(|| self.store.session(view.key.session)?.content(&content))?;
                lock(&self.contents).add(content, bytes.clone());
                Ok(bytes)
            }
            Some(_) => Err(Errno::EINVAL),
            None => Err(Errno::EISDIR),
        }
    }

    /// Counts a lookup, and returns the attributes with the inode number. The caller takes the count back if the kernel
    /// does not get them.
    fn look_up(&self, node: MountNode) -> Result<FileAttr, Errno> {
        let node = Self::one_name(node);
        let entry = Self::entry_of(&node)?;
        let number = self.inodes().look_up(node.clone(), entry.as_ref());
        self.attributes(number, &node, entry.as_ref()).inspect_err(|_| self.inodes().forget(number, 1))
    }

    /// Returns the present entry of a node; `None` for a directory.
    fn entry_of(node: &MountNode) -> Result<Option<Entry>, Errno> {
        let MountNode::Entry(view, path) = node else { return Ok(None) };
        if path.is_root() {
            return Ok(None);
        }
        let files = view.shown().files;
        let entry = files.get(path).ok_or(Errno::ENOENT)?;
        Ok((!entry.is_directory()).then(|| entry.clone()))
    }

    /// Returns the attributes of an inode with this entry; `None` for a directory.
    fn attributes(&self, number: u64, node: &MountNode, entry: Option<&Entry>) -> Result<FileAttr, Errno> {
        let blank = |kind, perm, time| FileAttr {
            ino: INodeNo(number),
            size: 0,
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind,
            perm,
            nlink: 1,
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: BLOCK,
            flags: 0,
        };
        let MountNode::Entry(view, path) = node else {
            return Ok(blank(FileType::Directory, 0o555, system_time(self.since)));
        };
        let ViewedFiles { files, time, .. } = view.shown();
        if path.is_root() {
            return Ok(blank(FileType::Directory, 0o755, system_time(time)));
        }
        let entry = entry.or_else(|| files.get(path)).ok_or(Errno::ESTALE)?;
        let perm = entry.node.mode().map_or(0o777, |mode| mode.bits() as u16);
        let size = match &entry.node {
            Node::Symlink { target } => target.len() as u64,
            _ => entry.size(),
        };
        Ok(FileAttr {
            size,
            blocks: size.div_ceil(512),
            crtime: system_time(entry.created_at),
            nlink: u32::try_from(files.names(path).len().max(1)).unwrap_or(u32::MAX),
            ..blank(file_type(entry), perm, system_time(entry.updated_at))
        })
    }

    /// Returns true for an entry of the past, which never changes.
    fn is_settled(node: &MountNode) -> bool {
        matches!(node, MountNode::Entry(view, _) if view.key.at.is_some())
    }

    /// Returns how long the kernel may use the attributes of a node, and its name.
    fn lasting(node: &MountNode, attributes: &FileAttr) -> (Duration, Duration) {
        match node {
            MountNode::Entry(_, path) if Self::is_settled(node) && !path.is_root() => (LASTING, LASTING),
            _ if attributes.kind == FileType::Directory => (BRIEF, BRIEF),
            _ => (LASTING, BRIEF),
        }
    }

    /// Returns the node that all hard links of a file share, so that they have one inode.
    fn one_name(node: MountNode) -> MountNode {
        let MountNode::Entry(view, path) = &node else { return node };
        let files = view.shown().files;
        match files.first_name(path) {
            Some(first) => MountNode::Entry(Arc::clone(view), first.clone()),
            None => node,
        }
    }

    fn open_directory(&self, number: INodeNo) -> Result<(FileHandle, FopenFlags), Errno> {
        let node = self.node(number)?;
        let lasts = Self::is_settled(&node);
        let cached = FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE;
        let flags = if lasts { cached } else { FopenFlags::empty() };
        let entries = self.list(&node)?;
        let mut open = lock(&self.open);
        open.last += 1;
        let handle = open.last;
        open.by_number.insert(handle, entries);
        Ok((FileHandle(handle), flags))
    }
}

fn file_type(entry: &Entry) -> FileType {
    match entry.node {
        Node::File { .. } => FileType::RegularFile,
        Node::Symlink { .. } => FileType::Symlink,
        Node::Directory { .. } => FileType::Directory,
        Node::Special { special: Special::Fifo } => FileType::NamedPipe,
        Node::Special { special: Special::Socket } => FileType::Socket,
        // Device numbers are not recorded, and the mount allows no devices.
        Node::Special { special: Special::Device } => FileType::CharDevice,
    }
}

/// The implementation of FUSE's requests.
pub(super) struct PastFileSystem(pub(super) Arc<ServedMount>);

impl Filesystem for PastFileSystem {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let needed = InitFlags::FUSE_DO_READDIRPLUS;
        config.add_capabilities(needed).map_err(|_| io::Error::other("this kernel's FUSE is too old"))?;
        for wanted in [InitFlags::FUSE_PARALLEL_DIROPS, InitFlags::FUSE_CACHE_SYMLINKS] {
            // Without it, the kernel only sends more requests.
            let _ = config.add_capabilities(wanted);
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let mounted = &*self.0;
        let found = mounted.node(parent).and_then(|parent| Ok((mounted.find(&parent, name.as_bytes())?, parent)));
        match found {
            Ok((Some(node), _)) => match mounted.look_up(node.clone()) {
                Ok(attributes) => {
                    let (attribute_time, name_time) = ServedMount::lasting(&node, &attributes);
                    reply.entry_with_ttls(&attribute_time, &name_time, &attributes, Generation(0));
                }
                Err(error) => reply.error(error),
            },
            // Inode number 0 makes the kernel cache that the name does not exist.
            Ok((None, parent @ MountNode::Entry(..))) if ServedMount::is_settled(&parent) => {
                match mounted.attributes(0, &parent, None) {
                    Ok(attributes) => reply.entry(&LASTING, &attributes, Generation(0)),
                    Err(error) => reply.error(error),
                }
            }
            Ok((None, _)) => reply.error(Errno::ENOENT),
            Err(error) => reply.error(error),
        }
    }

    fn forget(&self, _: &Request, number: INodeNo, lookups: u64) {
        self.0.inodes().forget(number.0, lookups);
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let found = self.0.inode(number).and_then(|(node, entry)| {
            let attributes = self.0.attributes(number.0, &node, entry.as_ref())?;
            Ok((ServedMount::lasting(&node, &attributes).0, attributes))
        });
        match found {
            Ok((lasting, attributes)) => reply.attr(&lasting, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        match self.0.inode(number).map(|(_, entry)| entry.map(|entry| entry.node)) {
            Ok(Some(Node::Symlink { target })) => reply.data(&target),
            Ok(_) => reply.error(Errno::EINVAL),
            Err(error) => reply.error(error),
        }
    }

    /// Lets the kernel open files without requests. Cached pages are valid until foldspace invalidates them.
    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let bytes = match self.0.contents(number) {
            Ok(bytes) => bytes,
            Err(error) => return reply.error(error),
        };
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let until = from.saturating_add(size as usize).min(bytes.len());
        reply.data(&bytes[from..until]);
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.0.open_directory(number) {
            Ok((handle, flags)) => reply.opened(handle, flags),
            Err(error) => reply.error(error),
        }
    }

    fn readdirplus(&self, _: &Request, _: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectoryPlus) {
        let entries = lock(&self.0.open).by_number.get(&handle.0).cloned();
        let Some(entries) = entries else { return reply.error(Errno::EBADF) };
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(entries.len());
        for (at, (name, node)) in (offset + 1..).zip(&entries[from..]) {
            // An entry that was removed since is left out.
            let Ok(attributes) = self.0.look_up(node.clone()) else { continue };
            let (_, name_time) = ServedMount::lasting(node, &attributes);
            let name = OsStr::from_bytes(name);
            let is_full = reply.add(attributes.ino, at, name, &name_time, &attributes, Generation(0));
            if is_full {
                self.0.inodes().forget(attributes.ino.0, 1);
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        lock(&self.0.open).by_number.remove(&handle.0);
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let files = match self.0.node(INodeNo(ROOT)) {
            Ok(MountNode::Entry(view, _)) => view.shown().files.len() as u64,
            _ => 0,
        };
        reply.statfs(0, 0, 0, files, 0, BLOCK, MAX_SEGMENT_BYTES as u32, BLOCK);
    }
}
