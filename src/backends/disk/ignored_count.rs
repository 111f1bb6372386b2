//! Counts the ignored entries that exceed a limit.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{CWD, FileType, OFlags};
use rustix::io::Errno;

use super::beneath::{context, leads_nowhere, open_directory, open_in};
use super::entries::kind_of;
use super::ignore_rules::{IgnoreRules, is_git};
use super::listing::Lister;
use super::watch::joined;
use crate::engine::path::EntryPath;

impl IgnoreRules {
    /// Counts the ignored files and directories that would be recorded without the limits. A left-out directory counts
    /// as one. Build products and dependencies do not count.
    pub fn beyond_limits(&self, is_recorded: impl Fn(&EntryPath) -> bool) -> io::Result<u64> {
        let root = open_in(CWD, self.directory(), OFlags::PATH | OFlags::DIRECTORY)
            .map_err(context("open", &self.directory().display().to_string()))?;
        let (mut lister, mut count) = (Lister::new(), 0);
        let mut left = vec![(Vec::new(), self.above_root())];
        while let Some((directory, above)) = left.pop() {
            let handle = match open_directory(root.as_fd(), &directory, OFlags::RDONLY) {
                Ok(handle) => handle,
                Err(Errno::ACCESS) => continue,
                Err(error) if leads_nowhere(error) => continue,
                Err(error) => return Err(context("read", &String::from_utf8_lossy(&directory))(error)),
            };
            let rules = self.enter(&above, handle.as_fd(), &directory);
            let listed = lister.each(handle.as_fd(), |name, stat| {
                let path = joined(&directory, name.to_bytes());
                let is_directory = kind_of(stat) == FileType::Directory;
                let is_ignored = self.is_ignored(&rules, &path, is_directory);
                let is_out = is_ignored && !self.is_kept(&path, is_directory);
                if is_git(&path) {
                    return Ok(());
                }
                if is_out && !EntryPath::from_bytes(&path).is_ok_and(|path| is_recorded(&path)) {
                    count += u64::from(self.is_wanted(&path, is_directory));
                } else if is_directory {
                    left.push((path, rules.entered(is_ignored)));
                }
                Ok(())
            });
            match listed {
                Err(Errno::ACCESS) | Ok(()) => {}
                Err(error) => return Err(context("read", &String::from_utf8_lossy(&directory))(error)),
            }
        }
        Ok(count)
    }
}
