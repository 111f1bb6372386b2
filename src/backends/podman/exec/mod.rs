//! Commands through the engine's own exec: slower, for containers in which the resident runner can't run.
//!
//! What differs from the runner: a command costs some requests to the engine; an exit code of 129 to 192 is taken for
//! a signal, because the engine does not tell the two apart; standard input is a file; there is no clock in the
//! container, so that a command outlives a foldspace that is killed until `foldspace gc` removes the container; and
//! a process that has left its parent and its session is ended with whichever command ends next, if it is younger.

mod crowd;
mod frames;
mod run;
mod session;

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};
use rustix::io::Errno;
use tempfile::NamedTempFile;

use super::engine::{RUN, WORKSPACE};
use super::requests::Requests;
use crate::backends::executor::{Executor, NotRun};
use crate::backends::runner::{Cancel, Directory, Ended, OutputStreamKind, RunSpec};
use crowd::ExecCrowd;
use session::ExecSession;

/// The first process of a container without a runner. It waits for children, those that others have left too: what
/// only sleeps would keep every process that has ended. Signals from inside do not reach it without a handler.
pub(crate) const FIRST_PROCESS: [&str; 3] = ["/bin/sh", "-c", "while :; do sleep 86400 & wait $!; done"];
/// How long a question to a program of the container may take.
const SHORT: Duration = Duration::from_secs(20);
/// Between asking it to end and ending it.
const GRACE: Duration = Duration::from_secs(1);
/// Looks that the kernel may give up, because something was renamed meanwhile.
const RACES_MAX: usize = 8;
/// Looks a program up as a shell does.
const WHICH: &str = "case $1 in */*) if [ -f \"$1\" ] && [ -x \"$1\" ]; then printf %s \"$1\"; fi; exit;; esac
IFS=:; set -f
for d in $2; do f=${d:-.}/$1; if [ -f \"$f\" ] && [ -x \"$f\" ]; then printf %s \"$f\"; exit; fi; done";

/// Runs commands in one container through the engine.
pub(crate) struct EngineExec {
    requests: Requests,
    container: String,
    crowd: ExecCrowd,
    /// Where standard input lies: as this program sees it, and as commands do.
    inputs: (PathBuf, PathBuf),
}

impl EngineExec {
    /// For a container that runs, by its id and its first process on this machine.
    pub(crate) fn new(requests: Requests, container: &str, first: i32, inputs: (PathBuf, PathBuf)) -> io::Result<Self> {
        Ok(Self { requests, container: container.to_owned(), crowd: ExecCrowd::of(first)?, inputs })
    }

    /// What the kernel says of a process that the engine starts in the workspace, as that process sees it.
    pub(crate) fn status(&self) -> Result<String, NotRun> {
        self.ask(["cat", "/proc/self/status"].map(OsString::from).to_vec())
    }

    /// Tells whether the runner, where it can be executed at all, can make sockets that lead past the network.
    pub(crate) fn makes_other_sockets(&self) -> bool {
        let said = self.ask(vec![format!("{RUN}/runner").into(), "sockets".into()]);
        said.is_ok_and(|said| said.trim_end() == "other")
    }

    /// Runs a program of the container that must succeed, and gives what it printed.
    fn ask(&self, argv: Vec<OsString>) -> Result<String, NotRun> {
        let spec = RunSpec {
            argv,
            directory: Directory::Below(PathBuf::new()),
            env: vec![("PATH".into(), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into())],
            stdin: Vec::new(),
            timeout: SHORT,
            grace: GRACE,
            discard_output: false,
        };
        let mut printed = Vec::new();
        let ended = self.run(&spec, &mut |_, bytes| printed.extend_from_slice(bytes), &Cancel::never())?;
        let printed = String::from_utf8_lossy(&printed).into_owned();
        match ended.exit_code {
            Some(0) => Ok(printed),
            code => Err(NotRun::Failed(format!("a program of the image ended with {code:?}: {}", printed.trim_end()))),
        }
    }

    /// The directory as commands name it, when no link leads it out of the workspace.
    fn directory(&self, directory: &Directory) -> Result<String, NotRun> {
        let path = match directory {
            Directory::At(path) => return text(path.as_os_str()),
            Directory::Below(path) => path,
        };
        let cannot = |why: &dyn std::fmt::Display| {
            NotRun::Invalid(format!("a command cannot start in {:?}: {why}", path.to_string_lossy()))
        };
        let root = format!("/proc/{}/root{WORKSPACE}", self.crowd.first());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = open(root, flags, Mode::empty());
        let root = root.map_err(|error| NotRun::Lost(format!("the container's workspace can't be opened: {error}")))?;
        if path.as_os_str().is_empty() {
            return Ok(WORKSPACE.to_owned());
        }
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let mut opened = Err(Errno::AGAIN);
        for _ in 0..RACES_MAX {
            opened = openat2(&root, path, flags, Mode::empty(), resolve);
            if !matches!(opened, Err(Errno::AGAIN)) {
                break;
            }
        }
        opened.map_err(|error| match error {
            Errno::XDEV => cannot(&"it leads out of the workspace"),
            other => cannot(&io::Error::from(other)),
        })?;
        text(Path::new(WORKSPACE).join(path).as_os_str())
    }

    /// A file with what a command reads; none where it reads nothing. It is gone when it is dropped.
    fn input(&self, stdin: &[u8]) -> io::Result<Option<NamedTempFile>> {
        use std::os::unix::fs::PermissionsExt;
        if stdin.is_empty() {
            return Ok(None);
        }
        let permissions = std::fs::Permissions::from_mode(0o444);
        let mut builder = tempfile::Builder::new();
        let mut file = builder.prefix("stdin-").permissions(permissions).tempfile_in(&self.inputs.0)?;
        file.write_all(stdin)?;
        file.flush()?;
        Ok(Some(file))
    }
}

impl Executor for EngineExec {
    fn run(
        &self,
        spec: &RunSpec,
        output: &mut dyn FnMut(OutputStreamKind, &[u8]),
        cancel: &Cancel,
    ) -> Result<Ended, NotRun> {
        let failed = |error: io::Error| NotRun::Failed(format!("the engine's exec failed: {error}"));
        let directory = self.directory(&spec.directory)?;
        let input = self.input(&spec.stdin).map_err(failed)?;
        let name = input.as_ref().and_then(|file| file.path().file_name());
        let line = command_line(spec, name.map(|name| self.inputs.1.join(name)).as_deref())?;
        // Its own, so that no slow reader of one command's output holds up another.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let ended = runtime.block_on(async {
            let session = ExecSession::make(&self.requests, &self.container, &line, &directory).await?;
            run::run(&self.crowd, session, spec, output, cancel).await
        });
        runtime.shutdown_background();
        ended
    }

    fn which(&self, program: &OsStr, path: &OsStr) -> Result<Option<PathBuf>, NotRun> {
        let argv = ["/bin/sh".as_ref(), "-c".as_ref(), WHICH.as_ref(), "sh".as_ref(), program, path];
        let found = self.ask(argv.map(OsStr::to_owned).to_vec())?;
        Ok(Some(found).filter(|found| !found.is_empty()).map(PathBuf::from))
    }

    /// The first process's. What is no UTF-8 can't be given to a command through the engine.
    fn variables(&self) -> Result<Vec<OsString>, NotRun> {
        #[expect(clippy::disallowed_methods, reason = "the kernel tells of processes in files")]
        let read = std::fs::read(format!("/proc/{}/environ", self.crowd.first()));
        let bytes =
            read.map_err(|error| NotRun::Lost(format!("the container's environment can't be read: {error}")))?;
        let all = bytes.split(|byte| *byte == 0).filter(|variable| std::str::from_utf8(variable).is_ok());
        Ok(all.filter(|variable| !variable.is_empty()).map(|variable| OsString::from_vec(variable.to_vec())).collect())
    }

    fn is_alive(&self) -> bool {
        self.crowd.is_alive()
    }
}

/// The command as the engine is to run it: with its variables and no others, which the engine can't do alone.
fn command_line(spec: &RunSpec, input: Option<&Path>) -> Result<Vec<String>, NotRun> {
    let mut line: Vec<String> = Vec::new();
    let mut add = |words: &[&str]| line.extend(words.iter().map(|word| (*word).to_owned()));
    if input.is_some() || spec.discard_output {
        let discard = if spec.discard_output { " >/dev/null 2>&1" } else { "" };
        let input = text(input.map_or(OsStr::new("/dev/null"), Path::as_os_str))?;
        add(&["/bin/sh", "-c", &format!("i=$1; shift; exec \"$@\" <\"$i\"{discard}"), "sh", &input]);
    }
    add(&["env", "-i", "--"]);
    for (name, value) in &spec.env {
        if name.is_empty() || name.as_bytes().contains(&b'=') {
            return Err(NotRun::Invalid(format!("{:?} is no name of a variable", name.to_string_lossy())));
        }
        add(&[&format!("{}={}", text(name)?, text(value)?)]);
    }
    // It would be taken for a variable.
    if spec.argv.first().is_some_and(|program| program.as_bytes().contains(&b'=')) {
        add(&["/bin/sh", "-c", "exec \"$@\"", "sh"]);
    }
    for word in &spec.argv {
        add(&[&text(word)?]);
    }
    Ok(line)
}

/// The engine takes text only.
fn text(word: &OsStr) -> Result<String, NotRun> {
    let invalid = || {
        NotRun::Invalid(format!("{:?} is no UTF-8, and the engine's exec takes no other text", word.to_string_lossy()))
    };
    word.to_str().map(str::to_owned).ok_or_else(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(argv: &[&str], env: &[(&str, &str)]) -> RunSpec {
        RunSpec {
            argv: argv.iter().map(OsString::from).collect(),
            directory: Directory::Below(PathBuf::new()),
            env: env.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect(),
            stdin: Vec::new(),
            timeout: SHORT,
            grace: GRACE,
            discard_output: false,
        }
    }

    #[test]
    fn exec_passes_given_variables_only() {
        let line = command_line(&spec(&["printf", "a b", "$X"], &[("X", "1=2"), ("-i", "")]), None).unwrap();
        assert_eq!(line, ["env", "-i", "--", "X=1=2", "-i=", "printf", "a b", "$X"]);
    }

    #[test]
    fn exec_program_with_equals_sign_is_no_variable() {
        let line = command_line(&spec(&["./a=b", "c"], &[]), None).unwrap();
        assert_eq!(line, ["env", "-i", "--", "/bin/sh", "-c", "exec \"$@\"", "sh", "./a=b", "c"]);
    }

    #[test]
    fn exec_non_utf8_is_refused() {
        let mut wrong = spec(&["true"], &[]);
        wrong.argv.push(OsString::from_vec(vec![0xff]));
        assert!(matches!(command_line(&wrong, None), Err(NotRun::Invalid(_))));
        assert!(matches!(command_line(&spec(&["true"], &[("A=B", "")]), None), Err(NotRun::Invalid(_))));
    }
}
