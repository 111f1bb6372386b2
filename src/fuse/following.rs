//! A served mount, and the thread that follows its sessions.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use fuser::{BackgroundSession, Config, INodeNo, MountOption, Notifier};

use super::error::FuseError;
use super::file_system::{PastFileSystem, ServedMount, TellTrouble};
use super::inodes::{MountNode, ROOT};
use super::moments::ViewKey;
use super::mount_point::{self, FILE_SYSTEM};
use super::mounted_store::MountedStore;
use super::tree_view::TreeView;
use crate::engine::path::EntryPath;
use crate::engine::session::error::SessionError;
use crate::engine::store::StoreError;
use crate::engine::subscription::Filter;
use crate::reducers::Change;

/// Threads that answer the kernel.
const THREADS: usize = 4;
/// The interval of checks for new events, without a notification.
const PAUSE: Duration = Duration::from_millis(250);

/// A mount that this process serves until an unmount, or until its session or store is removed.
pub(super) struct PastMount {
    served: BackgroundSession,
    /// Ends when the session or the store is removed.
    follower: JoinHandle<()>,
}

impl PastMount {
    pub(super) fn begin(
        store: MountedStore,
        (root, has_moments): (ViewKey, bool),
        directory: &Path,
        tell: TellTrouble,
    ) -> Result<Self, FuseError> {
        let session = root.session;
        let mounted = ServedMount::open(store, (root, has_moments), tell)?;
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::RO,
            MountOption::NoSuid,
            MountOption::NoDev,
            MountOption::DefaultPermissions,
            MountOption::FSName(FILE_SYSTEM.to_owned()),
            MountOption::Subtype(FILE_SYSTEM.to_owned()),
        ];
        config.n_threads = Some(THREADS);
        let failed = || FuseError::io("mount", directory);
        let served = fuser::Session::new(PastFileSystem(Arc::clone(&mounted)), directory, &config).map_err(failed())?;
        let follower = Follower {
            mounted: Arc::downgrade(&mounted),
            notifier: served.notifier(),
            session,
            directory: directory.to_owned(),
        };
        let served = served.spawn().map_err(failed())?;
        let thread = std::thread::Builder::new().name("foldspace-follow".to_owned());
        let follower = thread.spawn(move || follower.run()).map_err(failed())?;
        Ok(Self { served, follower })
    }

    /// Waits until it is unmounted, or its session or store is removed.
    ///
    /// # Errors
    /// A failure of the connection to the kernel, which also ends the mount.
    pub(super) fn wait(self) -> io::Result<()> {
        while !self.served.guard.is_finished() {
            // Other mount namespaces may have copies of the mount, which the end of this process ends.
            if self.follower.is_finished() {
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
        self.served.join()
    }
}

/// The thread that notifies the kernel of changes.
struct Follower {
    mounted: Weak<ServedMount>,
    notifier: Notifier,
    session: crate::engine::id::SessionId,
    directory: PathBuf,
}

impl Follower {
    /// Runs until the mount ends.
    fn run(self) {
        while let Some(mounted) = self.mounted.upgrade() {
            mounted.store.renew();
            let followed = self.follow(&mounted);
            let is_gone = matches!(followed, Err(SessionError::Store(StoreError::NoSession(_))));
            if is_gone || !mounted.store.directory().is_dir() {
                if let Err(error) = mount_point::detach(&self.directory) {
                    tracing::warn!(%error, "failed to unmount after the session or the store was removed");
                }
                return;
            }
            if let Err(error) = followed {
                tracing::debug!(%error, "failed to read new events");
            }
            self.pause(&mounted);
        }
    }

    /// Waits for a new event of the session, at most `PAUSE`.
    fn pause(&self, mounted: &ServedMount) {
        let waited = mounted.store.session(self.session).and_then(|session| {
            let mut subscription = session.subscribe(session.head()? + 1, Filter::all());
            Ok(subscription.next_within(PAUSE)?)
        });
        if waited.is_err() {
            std::thread::sleep(PAUSE);
        }
    }

    fn follow(&self, mounted: &ServedMount) -> Result<(), SessionError> {
        mounted.store.session(self.session)?.head()?;
        for view in mounted.present() {
            let followed = mounted.store.session(view.key.session).and_then(|session| view.follow(&session));
            match followed {
                Ok(changes) => self.tell(mounted, &view, &changes),
                Err(SessionError::Store(StoreError::NoSession(_))) if view.key.session != self.session => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Notifies the kernel of changes. The caller must hold no lock: the kernel may first need other answers.
    fn tell(&self, mounted: &ServedMount, view: &Arc<TreeView>, changes: &[Change]) {
        let node = |path: EntryPath| MountNode::Entry(Arc::clone(view), path);
        for change in changes {
            let path = change.path();
            let is_directory =
                matches!(change.sides(), (Some(before), Some(after)) if before.is_directory() && after.is_directory());
            let own = mounted.inodes().number(&node(path.clone())).filter(|_| is_directory);
            let parent = mounted.inodes().number(&node(path.parent().unwrap_or_else(EntryPath::root)));
            // The kernel may have dropped the inode, which is no failure.
            if let Some(own) = own {
                drop(self.notifier.inval_inode(INodeNo(own), -1, 0));
            }
            if let Some(parent) = parent {
                if !is_directory {
                    drop(self.notifier.inval_entry(INodeNo(parent), OsStr::from_bytes(path.name())));
                }
                drop(self.notifier.inval_inode(INodeNo(parent), 0, 0));
            }
        }
        if !changes.is_empty() {
            drop(self.notifier.inval_inode(INodeNo(ROOT), -1, 0));
        }
    }
}
