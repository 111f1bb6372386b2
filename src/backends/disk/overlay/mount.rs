//! Detached overlay mounts: they exist only by a handle.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, FsPickFlags, MountAttrFlags, fsconfig_create, fsconfig_reconfigure, fsconfig_set_fd,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, fspick,
};

use crate::backends::disk::dir_xattrs::Forms;

const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(5);

/// The kind of extended attributes that hold an overlay's metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Notes {
    /// Attributes that only the machine's root may write.
    Trusted,
    /// Attributes that any owner may write, as needed in a user namespace.
    User,
}

pub(super) struct Layers<'a> {
    /// The topmost first.
    pub(super) lower: &'a [BorrowedFd<'a>],
    pub(super) upper: BorrowedFd<'a>,
    pub(super) work: BorrowedFd<'a>,
}

impl Notes {
    pub(super) fn on(directory: BorrowedFd<'_>) -> Self {
        match rustix::fs::fsetxattr(directory, "trusted.overlay.probe", b"", XattrFlags::empty()) {
            Ok(()) => Self::Trusted,
            Err(_) => Self::User,
        }
    }

    pub(super) fn forms(self) -> Forms {
        let redirect = match self {
            Self::Trusted => "trusted.overlay.redirect",
            Self::User => "user.overlay.redirect",
        };
        Forms::Overlay { opaque: self.opaque(), redirect }
    }

    pub(super) fn opaque(self) -> &'static str {
        match self {
            Self::Trusted => "trusted.overlay.opaque",
            Self::User => "user.overlay.opaque",
        }
    }
}

/// Mounts an overlay. It exists until its last handle is closed and its last attached mount is removed.
pub(super) fn mount(layers: &Layers<'_>, notes: Notes) -> io::Result<OwnedFd> {
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).map_err(|error| failure("open", error, None))?;
    let configured = configure(&context, layers, notes).and_then(|()| fsconfig_create(&context));
    configured.map_err(|error| failure("configure", error, Some(&context)))?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
        .map_err(|error| failure("mount", error, Some(&context)))
}

fn configure(context: &OwnedFd, layers: &Layers<'_>, notes: Notes) -> Result<(), Errno> {
    fsconfig_set_string(context, "source", "foldspace")?;
    for layer in layers.lower {
        fsconfig_set_fd(context, "lowerdir+", layer)?;
    }
    fsconfig_set_fd(context, "upperdir", layers.upper)?;
    fsconfig_set_fd(context, "workdir", layers.work)?;
    fsconfig_set_string(context, "index", "off")?;
    fsconfig_set_string(context, "metacopy", "off")?;
    match notes {
        Notes::Trusted => fsconfig_set_string(context, "redirect_dir", "on")?,
        Notes::User => fsconfig_set_flag(context, "userxattr")?,
    }
    // Nothing is synced: the journal has every content.
    fsconfig_set_flag(context, "volatile")
}

/// Forbids writes to an overlay, also through mounts that processes still use. Fails while a file is open for writing.
pub(super) fn freeze(mount: &OwnedFd) -> io::Result<()> {
    for _ in 1..TRIES {
        match reconfigure(mount, "ro") {
            // A process that is being started may have copies of this process's open files for a moment.
            Err(Errno::BUSY) => std::thread::sleep(PAUSE),
            other => return other.map_err(|error| failure("freeze", error, None)),
        }
    }
    reconfigure(mount, "ro").map_err(|error| failure("freeze", error, None))
}

/// Allows writes again.
pub(super) fn thaw(mount: &OwnedFd) {
    if let Err(error) = reconfigure(mount, "rw") {
        tracing::error!(%error, "failed to make an overlay writable again");
    }
}

fn reconfigure(mount: &OwnedFd, flag: &str) -> Result<(), Errno> {
    let context = fspick(mount, c"", FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_EMPTY_PATH)?;
    fsconfig_set_flag(&context, flag)?;
    fsconfig_reconfigure(&context)
}

/// Returns the error with the kernel's explanation.
fn failure(what: &str, error: Errno, context: Option<&OwnedFd>) -> io::Error {
    let mut said = Vec::new();
    let mut buffer = [0; 1024];
    while let Some(context) = context {
        let Ok(length @ 1..) = rustix::io::read(context, &mut buffer) else { break };
        said.push(String::from_utf8_lossy(&buffer[..length]).trim_end().to_owned());
    }
    let error = io::Error::from(error);
    let said = if said.is_empty() { String::new() } else { format!(" ({})", said.join("; ")) };
    io::Error::new(error.kind(), format!("cannot {what} an overlay: {error}{said}"))
}
