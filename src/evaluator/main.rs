//! Evaluates Python for the process that started this one. Limits itself, and answers until its parent is gone.

mod interpreter;
mod interpreter_files;
mod json_values;
mod statistics;

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use foldspace_evaluator::{EvalRequest, EvaluatorHello, MEMORY_MAX, read_frame, write_frame};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The maximum size of a file that the process may write: it writes no files.
const FILE_MAX: u64 = 0;
/// The maximum number of open files: the files that it starts with.
const FILES_MAX: u64 = 8;
const PROCESSES_MAX: u64 = 0;

fn main() -> ExitCode {
    match answer_all() {
        Ok(()) => ExitCode::SUCCESS,
        // Its parent sees the connection close, and discards this process's standard error.
        Err(_) => ExitCode::FAILURE,
    }
}

fn answer_all() -> std::io::Result<()> {
    let stdin: OwnedFd = std::os::fd::AsFd::as_fd(&std::io::stdin()).try_clone_to_owned()?;
    let mut parent = UnixStream::from(stdin);
    for (resource, most) in [
        (Resource::Data, MEMORY_MAX),
        (Resource::Core, 0),
        (Resource::Fsize, FILE_MAX),
        (Resource::Nofile, FILES_MAX),
        (Resource::Nproc, PROCESSES_MAX),
    ] {
        lower(resource, most)?;
    }
    write_frame(&mut parent, &EvaluatorHello::own())?;
    loop {
        let request: EvalRequest = match read_frame(&mut parent) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
            read => read?,
        };
        bound_processor(request.limit_millis)?;
        write_frame(&mut parent, &interpreter::evaluate(request))?;
    }
}

fn lower(resource: Resource, most: u64) -> std::io::Result<()> {
    let current = getrlimit(resource).maximum.unwrap_or(u64::MAX);
    let most = Some(most.min(current));
    Ok(setrlimit(resource, Rlimit { current: most, maximum: most })?)
}

/// Sets a processor limit, so that running code ends even if the parent is gone.
fn bound_processor(limit_millis: u64) -> std::io::Result<()> {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime).tv_sec;
    let current = u64::try_from(used).unwrap_or(0) + limit_millis.div_ceil(1000) + 2;
    let maximum = getrlimit(Resource::Cpu).maximum;
    Ok(setrlimit(Resource::Cpu, Rlimit { current: Some(maximum.map_or(current, |most| most.min(current))), maximum })?)
}
