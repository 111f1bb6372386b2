//! Answers to requests that start no process.

use std::fs::{File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};

use crate::connection::HostConnection;
use crate::exec::candidates;
use crate::files::{CommandRoot, Refused};
use crate::sockets;
use crate::wire::{MAX_FRAME, RunFailure, RunnerReply, RunnerRequest};

pub(crate) struct Answerer {
    pub(crate) root: CommandRoot,
    pub(crate) token: Vec<u8>,
    pub(crate) null: File,
    pub(crate) oom: OomBias,
    pub(crate) features: u32,
}

impl Answerer {
    /// Returns true if the token is right. The time that this takes does not reveal how many bytes match.
    pub(crate) fn knows(&self, token: &[u8]) -> bool {
        let differing = self.token.iter().zip(token).fold(0, |differing, (one, other)| differing | (one ^ other));
        self.token.len() == token.len() && differing == 0
    }

    pub(crate) fn answer(&self, request: &RunnerRequest<'_>, connection: &mut HostConnection) {
        if let RunnerRequest::Socket(asked) = request {
            return match sockets::open(asked) {
                Ok(socket) => connection.pass(&socket),
                Err(refused) => connection.fail(&refused),
            };
        }
        let out = connection.out();
        let answered = match request {
            RunnerRequest::Which { program, path } => self.which(program, path, out),
            RunnerRequest::Env => self.env(out),
            RunnerRequest::Ping => {
                RunnerReply::Done.encode(out);
                Ok(())
            }
            // Arrived after the command had ended.
            RunnerRequest::Cancel
            | RunnerRequest::Input(_)
            | RunnerRequest::EndInput
            | RunnerRequest::Resize(_)
            | RunnerRequest::Signal(_) => Ok(()),
            RunnerRequest::Hello { .. } | RunnerRequest::Run(_) | RunnerRequest::Socket(_) => {
                return connection.refuse(RunFailure::Protocol, "duplicate greeting");
            }
        };
        if let Err(refused) = answered {
            connection.fail(&refused);
        }
    }

    fn which(&self, program: &[u8], path: &[u8], out: &mut Vec<u8>) -> Result<(), Refused> {
        if program.is_empty() {
            return Err(Refused::new(RunFailure::Invalid, "the program name is empty"));
        }
        let candidates = candidates(program, path)?;
        let executable = |candidate: &&std::ffi::CString| {
            let path = self.root.path.join(std::ffi::OsStr::from_bytes(candidate.as_bytes()));
            std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
        };
        let found = candidates.iter().find(executable);
        RunnerReply::Found { path: found.map(|path| path.as_bytes()) }.encode(out);
        Ok(())
    }

    fn env(&self, out: &mut Vec<u8>) -> Result<(), Refused> {
        let join = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            [name.as_bytes(), b"=", value.as_bytes()].concat()
        };
        let variables: Vec<Vec<u8>> = std::env::vars_os().map(join).collect();
        if variables.iter().map(|variable| variable.len() + 4).sum::<usize>() > MAX_FRAME / 2 {
            return Err(Refused::new(RunFailure::TooLarge, "the environment is too large for one answer"));
        }
        let variables = variables.iter().map(Vec::as_slice).collect();
        RunnerReply::Env { variables }.encode(out);
        Ok(())
    }
}

/// Makes the kernel's OOM killer prefer commands to the runner, which has to report their end.
pub(crate) struct OomBias(Option<(File, i32)>);

/// The increase of a command's `oom_score_adj`, which is at most 1000.
const BIAS: i32 = 300;

impl OomBias {
    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// Opens the runner's score. Call it before `forbid_inspection`: afterwards even the runner can't open it.
    pub(crate) fn new() -> Self {
        let own = std::fs::read_to_string("/proc/self/oom_score_adj").ok().and_then(|text| text.trim().parse().ok());
        let file = OpenOptions::new().write(true).open("/proc/self/oom_score_adj").ok();
        Self(file.zip(own))
    }

    /// Calls `start` with the bias, which a process started by it inherits. Then restores the runner's score.
    pub(crate) fn biased<T>(&self, start: impl FnOnce() -> T) -> T {
        let set = |value: i32| {
            if let Some((file, _)) = &self.0 {
                // If the system refuses it, everything works without the bias.
                let _ = file.write_at(value.to_string().as_bytes(), 0);
            }
        };
        let own = self.0.as_ref().map_or(0, |(_, own)| *own);
        set(own.saturating_add(BIAS).min(1000));
        let started = start();
        set(own);
        started
    }
}
