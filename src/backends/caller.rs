//! The process that requests a command: the attributes its commands inherit on the host, and the check of its access.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::engine::peer::{self, field, proc_bytes, proc_text};

/// The process that requests unsandboxed commands: this one, or another, which is read when it first requests such a
/// command.
///
/// ```
/// # use foldspace_backends as foldspace;
/// use foldspace::backends::HostCaller;
/// assert!(HostCaller::default().process()?.is_none());
/// let other = HostCaller::of(std::process::id(), None);
/// assert_eq!(other.process()?.unwrap().process, std::process::id());
/// # Ok::<(), std::sync::Arc<str>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct HostCaller(Option<Arc<CallerLookup>>);

#[derive(Debug)]
struct CallerLookup {
    process: u32,
    pidfd: Option<OwnedFd>,
    seen: OnceLock<Result<Arc<CallerProcess>, Arc<str>>>,
}

/// The attributes of a process that requests commands, as of the time it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallerProcess {
    /// Its process id.
    pub process: u32,
    /// Its variables, each as `NAME=value`.
    pub environ: Vec<OsString>,
    pub(crate) umask: Option<u32>,
    pub(crate) nice: Option<i32>,
    pub(crate) limits: Vec<(u32, u64, u64)>,
    /// The file that moves processes into its control group; empty if the group is this process's, or unknown.
    pub(crate) cgroup: PathBuf,
}

/// Splits `NAME=value`.
pub fn name_and_value(variable: &OsStr) -> Option<(&OsStr, &OsStr)> {
    let bytes = variable.as_bytes();
    let at = bytes.iter().position(|byte| *byte == b'=').filter(|at| *at > 0)?;
    Some((OsStr::from_bytes(&bytes[..at]), OsStr::from_bytes(&bytes[at + 1..])))
}

impl HostCaller {
    /// Another process, by its id and, if available, a pidfd that stands for it.
    pub fn of(process: u32, pidfd: Option<OwnedFd>) -> Self {
        Self(Some(Arc::new(CallerLookup { process, pidfd, seen: OnceLock::new() })))
    }

    /// Returns the process id.
    pub fn number(&self) -> u32 {
        self.0.as_ref().map_or_else(std::process::id, |lookup| lookup.process)
    }

    /// Returns true if it is this process.
    pub fn is_own(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the process; `None` for this one.
    ///
    /// # Errors
    /// The reason that it may not run commands on the host: it is in another sandbox, which it could escape that way,
    /// or it can't be read.
    pub fn process(&self) -> Result<Option<Arc<CallerProcess>>, Arc<str>> {
        let Some(lookup) = &self.0 else { return Ok(None) };
        lookup.seen.get_or_init(|| lookup.look().map(Arc::new).map_err(|why| refusal(&why))).clone().map(Some)
    }
}

impl CallerLookup {
    fn look(&self) -> Result<CallerProcess, String> {
        peer::check_process(self.process, self.pidfd.as_ref(), |proc| CallerProcess::read(self.process, proc))
    }
}

fn refusal(why: &str) -> Arc<str> {
    let what = "the host's commands and directories are not available to this client of foldspace's owner";
    format!("{what}: {why}; working in-process stays within its own sandbox").into()
}

impl CallerProcess {
    fn read(process: u32, proc: &Path) -> io::Result<Self> {
        let status = proc_text(&proc.join("status"))?;
        let umask = field(&status, "Umask").and_then(|mask| u32::from_str_radix(mask, 8).ok());
        let environ = proc_bytes(&proc.join("environ"))?;
        let environ = environ.split(|byte| *byte == 0).filter(|variable| !variable.is_empty());
        let cgroup = cgroup_of(proc).filter(|group| Some(group) != cgroup_of(Path::new("/proc/self")).as_ref());
        Ok(Self {
            process,
            environ: environ.map(|variable| OsString::from_vec(variable.to_vec())).collect(),
            umask,
            nice: process_stat(process)?.get(17).and_then(|nice| nice.parse().ok()),
            limits: limits_of(&proc_text(&proc.join("limits"))?),
            cgroup: cgroup.unwrap_or_default(),
        })
    }
}

/// Reads a process's stat: its program's name, which may have any characters, then its state, its parent and so on.
#[doc(hidden)]
pub fn process_stat(process: u32) -> io::Result<Vec<String>> {
    let stat = proc_text(Path::new(&format!("/proc/{process}/stat")))?;
    stat_values(&stat).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The index in a stat of the process's start time, in kernel ticks. With the process id it is unique.
#[doc(hidden)]
pub const STARTED: usize = 20;

fn stat_values(stat: &str) -> Option<Vec<String>> {
    let (head, values) = stat.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    Some(std::iter::once(name).chain(values.split_whitespace()).map(str::to_owned).collect())
}

/// Parses the limits: a header line, then one line per limit in numeric order, with names in 26 columns.
fn limits_of(limits: &str) -> Vec<(u32, u64, u64)> {
    let value = |text: &str| if text == "unlimited" { Some(u64::MAX) } else { text.parse().ok() };
    let limit = |(number, line): (u32, &str)| {
        let mut values = line.get(26..)?.split_whitespace();
        Some((number, value(values.next()?)?, value(values.next()?)?))
    };
    (0..).zip(limits.lines().skip(1)).filter_map(limit).collect()
}

fn cgroup_of(proc: &Path) -> Option<PathBuf> {
    let groups = proc_text(&proc.join("cgroup")).ok()?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(Path::new("/sys/fs/cgroup").join(group).join("cgroup.procs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caller_is_read_from_kernel() {
        let own = HostCaller::of(std::process::id(), None).process().unwrap().unwrap();
        assert!(own.environ.iter().any(|variable| variable.to_string_lossy().starts_with("PATH=")));
        assert!(own.umask.is_some() && own.nice.is_some() && own.cgroup.as_os_str().is_empty());
        assert_eq!(own.limits.len(), 16, "{:?}", own.limits);
        assert!(HostCaller::of(0, None).process().unwrap_err().contains("namespace"));
        assert!(HostCaller::of(u32::MAX, None).process().is_err());
    }

    #[test]
    fn kernel_texts_are_understood() {
        let stat = "12 (a ) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 20 -5 1 0";
        let values = stat_values(stat).unwrap();
        assert_eq!((&*values[0], &*values[1], &*values[17]), ("a ) b", "S", "-5"));
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max cpu time              unlimited            7                    seconds   \n";
        assert_eq!(limits_of(limits), [(0, u64::MAX, 7)]);
    }
}
