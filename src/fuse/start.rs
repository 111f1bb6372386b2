//! The process that serves a mount, and its start.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};

use super::error::{FuseError, MOUNTS_MAX};
use super::following::PastMount;
use super::moments::ViewKey;
use super::mount_point::{automatic, check_machine, discard, prepare};
use super::mount_record::{MountDocument, MountRecord, mounts, turn};
use super::mounted_store::MountedStore;
use crate::engine::id::Seq;
use crate::engine::lock::lock;
use crate::engine::registry::Registry;
use crate::engine::session::Session;

/// A mount to start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MountRequest {
    /// The position; `None` to follow the present.
    pub at: Option<Seq>,
    /// True for the hidden directories `.at`, `.call` and `.sessions` in its root.
    pub all: bool,
    /// The directory, empty or new. By default one in the user's runtime directory, which equal mounts share.
    pub directory: Option<PathBuf>,
}

/// The starter of processes that serve mounts.
#[derive(Debug, Clone)]
pub struct MountHelper {
    /// The program `foldspace`.
    pub program: PathBuf,
    /// The data directory.
    pub data: PathBuf,
}

/// The argument of a process that serves a mount.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MountWork {
    /// The mount, without a process.
    #[serde(flatten)]
    mount: MountDocument,
    /// True to remove the directory after an unmount.
    is_made: bool,
}

/// The message of such a process at its start.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum MountWords {
    Ready(MountDocument),
    Failed(String),
}

impl MountHelper {
    /// Mounts a session's files, and returns once they can be read. Without a directory, an equal mount is shared.
    ///
    /// # Errors
    /// [`FuseError`], such as a missing FUSE, an unusable directory or too many mounts.
    pub fn start(&self, session: &Session, new: &MountRequest) -> Result<MountDocument, FuseError> {
        if let Some(seq) = new.at {
            session.commit_end(seq)?;
        }
        check_machine()?;
        let name = session.name().to_owned();
        let wanted = match &new.directory {
            Some(directory) => directory.clone(),
            None => automatic(&name, session.id(), (new.at, new.all))?,
        };
        let _turn = turn(&self.data)?;
        // This also unmounts mounts that killed processes left.
        let known = mounts(&self.data)?;
        let count = known.len();
        let is_automatic = new.directory.is_none();
        if is_automatic
            && let Ok(place) = wanted.canonicalize()
            && let Some(mount) = known.into_iter().find(|mount| mount.directory == place)
        {
            return Ok(mount);
        }
        if count >= MOUNTS_MAX {
            return Err(FuseError::TooMany);
        }
        let (directory, is_made) = prepare(&wanted, &self.data)?;
        let is_made = is_made || is_automatic;
        let MountRequest { at, all, .. } = *new;
        let mount = MountDocument {
            directory: directory.clone(),
            session: session.id(),
            name,
            at,
            all,
            process: 0,
            trouble: None,
        };
        self.run(&MountWork { mount, is_made }).inspect_err(|_| discard(&directory, is_made))
    }

    #[expect(clippy::disallowed_methods, reason = "a mount outlives the process that requested it")]
    fn run(&self, work: &MountWork) -> Result<MountDocument, FuseError> {
        let failed = || FuseError::io("start", &self.program);
        let text = serde_json::to_string(work).map_err(io::Error::other).map_err(failed())?;
        let mut command = Command::new(&self.program);
        command.arg("--data").arg(&self.data).args(["mount", "--work", &text]).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(failed())?;
        let said = child.stdout.take().map(io::read_to_string).transpose().map_err(failed())?.unwrap_or_default();
        match serde_json::from_str(&said) {
            Ok(MountWords::Ready(mount)) => {
                // Without a wait, the process would remain a zombie.
                drop(std::thread::Builder::new().name("foldspace-mount".to_owned()).spawn(move || child.wait()));
                Ok(mount)
            }
            Ok(MountWords::Failed(message)) => {
                drop(child.wait());
                Err(FuseError::Helper(message))
            }
            Err(_) => {
                drop(child.wait());
                Err(FuseError::Helper("the process that serves the mount ended before it was ready".to_owned()))
            }
        }
    }
}

impl MountWork {
    /// Returns the directory of the mount.
    pub fn directory(&self) -> &Path {
        &self.mount.directory
    }

    /// Serves the mount until it is unmounted. `say` passes a message to the process that started this one.
    ///
    /// # Errors
    /// [`FuseError`]; `say` also reports a failed start.
    pub fn serve(self, data: &Path, registry: Arc<Registry>, say: impl FnOnce(&str)) -> Result<(), FuseError> {
        let begun = self.begin(data, registry);
        let words = match &begun {
            Ok((_, mount)) => MountWords::Ready(mount.clone()),
            // The texts of other programs may end with an empty line.
            Err(error) => MountWords::Failed(error.to_string().trim_end().to_owned()),
        };
        say(&serde_json::to_string(&words).unwrap_or_default());
        let ended = begun?.0.wait();
        // The data directory may be gone.
        let _turn = turn(data).ok();
        discard(self.directory(), self.is_made);
        ended.map_err(FuseError::io("serve", self.directory()))
    }

    fn begin(&self, data: &Path, registry: Arc<Registry>) -> Result<(PastMount, MountDocument), FuseError> {
        let mount = MountDocument { process: std::process::id(), ..self.mount.clone() };
        let record = Arc::new(Mutex::new(MountRecord::create(data, mount.clone())?));
        let told = Arc::clone(&record);
        let tell = move |trouble: Option<&str>| lock(&told).tell(trouble);
        let root = (ViewKey { session: mount.session, at: mount.at, via: None }, mount.all);
        let store = MountedStore::open(data, registry)?;
        let begun = PastMount::begin(store, root, self.directory(), Box::new(tell))?;
        let mount = lock(&record).publish()?;
        Ok((begun, mount))
    }
}
