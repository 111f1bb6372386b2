//! One session for a client that reconnects for each call.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use foldspace::backends::{STARTED, process_stat};
use foldspace::event::Digest;

use crate::cli::{Failure, Globals, files, open, output};

/// The time within which another connection of the same parent causes a note.
const SOON: Duration = Duration::from_secs(60);

#[derive(Debug, clap::Args)]
pub(super) struct StickyArgs {
    /// Continues the session of this directory and parent process, for clients that connect for each call
    #[arg(long, conflicts_with = "session")]
    pub(super) sticky: bool,
    /// Uses a separate session for each KEY, such as a thread or a user of the parent
    #[arg(long, value_name = "KEY", requires = "sticky")]
    pub(super) sticky_key: Option<String>,
}

/// The process that started this one, with its directory and key.
pub(super) struct Parent {
    directory: PathBuf,
    digest: Digest,
}

impl Parent {
    pub(super) fn of_this(key: Option<&str>) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::io("find", "the process that started this one", &error);
        let directory = std::env::current_dir().map_err(failed)?;
        let process = std::os::unix::process::parent_id();
        // A parent in another process namespace is not visible.
        let started = process_stat(process).ok().and_then(|stat| stat.into_iter().nth(STARTED)).unwrap_or_default();
        let mut told = directory.as_os_str().as_bytes().to_vec();
        told.extend(format!("\0{process}\0{started}\0{}", key.unwrap_or_default()).bytes());
        Ok(Self { directory, digest: Digest::of(&told) })
    }

    /// Returns the name of its session: the allowed characters of the directory's name, and a part of a digest.
    pub(super) fn session(&self) -> String {
        let name = self.directory.file_name().unwrap_or(OsStr::new("")).to_string_lossy();
        let is_fit = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let name: String = name.chars().filter(is_fit).skip_while(|c| !c.is_ascii_alphanumeric()).take(60).collect();
        let name = if name.is_empty() { "sticky" } else { &name };
        format!("{name}-{}", self.id())
    }

    fn id(&self) -> String {
        self.digest.to_string().chars().take(8).collect()
    }

    /// Prints a note if the same parent has just connected before, since each connection starts a session.
    #[expect(clippy::disallowed_methods, reason = "a note of processes is not part of the store")]
    pub(super) fn tell_of_another(&self, globals: &Globals) {
        let Ok(data) = open::directory(globals) else { return };
        let notes = data.join("mcp-parents");
        let note = notes.join(self.id());
        let is_recent = |path: &Path| {
            let age = path.metadata().and_then(|known| known.modified()).map(|at| at.elapsed().unwrap_or_default());
            age.is_ok_and(|age| age < SOON)
        };
        if is_recent(&note) {
            output::note(
                "this process has just connected before, and each connection starts a new session; --sticky continues \
                 the same one",
            );
        }
        // Without the file only the note is missing.
        if files::make_private(&notes).is_ok() {
            let _ = files::write(&note, |_| Ok(()));
        }
        for old in std::fs::read_dir(&notes).into_iter().flatten().flatten().map(|entry| entry.path()) {
            if !is_recent(&old) {
                let _ = std::fs::remove_file(old);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parent(directory: &str) -> Parent {
        Parent { directory: directory.into(), digest: Digest::of(directory.as_bytes()) }
    }

    #[test]
    fn sticky_session_is_named_after_its_directory() {
        let name = parent("/home/me/my project").session();
        assert!(name.starts_with("myproject-") && name.len() == "myproject-".len() + 8, "{name}");
        for odd in ["/", "/\u{e4}", "/-x", "/..."] {
            assert!(foldspace::NewSession::named(parent(odd).session()).check().is_ok(), "{odd}");
        }
        let (one, other) = (Parent::of_this(Some("a")).unwrap(), Parent::of_this(Some("b")).unwrap());
        assert_ne!(one.session(), other.session());
        assert_eq!(one.session(), Parent::of_this(Some("a")).unwrap().session());
    }
}
