//! The resident runner: runs commands for foldspace, as the first process of a container or as a child on the host.
//!
//! `docs/RUNNER.md` describes its protocol and guarantees. It uses only std and is linked statically, so that it runs
//! in any image.
#![deny(unsafe_code)]

mod answer;
mod connection;
mod crowd;
mod exec;
mod feed;
mod files;
mod processes;
mod server;
mod sockets;
mod spawn;
mod streams;
mod sys;
#[expect(dead_code, reason = "only foldspace writes requests and reads answers")]
mod wire;

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use answer::{Answerer, OomBias};
use files::CommandRoot;
use server::{Gate, RunnerServer};
use wire::FEW_SOCKETS;

const USAGE: &str = "usage: runner serve SOCKET ROOT (as process 1), or runner host ROOT (a child of foldspace)";

/// The maximum size of a token in bytes.
const MAX_TOKEN: u64 = 256;

fn main() -> ExitCode {
    sys::close_inherited();
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let done = match arguments.as_slice() {
        [mode, socket, root] if mode == "serve" => serve(Path::new(socket), root.into()),
        [mode, root] if mode == "host" => host(root.into()),
        _ => Err(io::Error::other(USAGE)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            drop(writeln!(io::stderr(), "foldspace runner: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn serve(socket: &Path, root: PathBuf) -> io::Result<()> {
    if std::process::id() != 1 {
        return Err(io::Error::other("`serve` works only as process 1 of a container; start it without an init"));
    }
    let signals = sys::take_signals()?;
    let oom = OomBias::new();
    sys::forbid_new_privileges()?;
    sys::forbid_inspection()?;
    let token = take_token(socket)?;
    match fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(named("remove", socket, &error)),
        _ => {}
    }
    let listener = UnixListener::bind(socket).map_err(|error| named("listen at", socket, &error))?;
    // The host's user may differ from this process's user. The socket's directory protects the socket.
    fs::set_permissions(socket, Permissions::from_mode(0o666)).map_err(|error| named("chmod", socket, &error))?;
    listener.set_nonblocking(true)?;
    let features = if sys::makes_other_sockets() { 0 } else { FEW_SOCKETS };
    let answerer = Answerer { root: CommandRoot { path: root }, token, null: null()?, oom, features };
    RunnerServer::new(Gate::Listener(listener), signals, answerer).serve()
}

/// Serves as a child on the host. Standard input is a socket to the parent; it closes when the parent dies.
fn host(root: PathBuf) -> io::Result<()> {
    let signals = sys::take_signals()?;
    let control = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    control.set_nonblocking(true)?;
    sys::adopt_orphans()?;
    let (token, oom) = (Vec::new(), OomBias::none());
    let answerer = Answerer { root: CommandRoot { path: root }, token, null: null()?, oom, features: 0 };
    RunnerServer::new(Gate::Parent(control), signals, answerer).serve()
}

/// Reads the token and removes its file, before any command could read it.
fn take_token(socket: &Path) -> io::Result<Vec<u8>> {
    let mut path = socket.as_os_str().to_owned();
    path.push(".token");
    let path = Path::new(&path);
    let mut token = Vec::new();
    let file = File::open(path).map_err(|error| named("read", path, &error))?;
    file.take(MAX_TOKEN).read_to_end(&mut token).map_err(|error| named("read", path, &error))?;
    fs::remove_file(path).map_err(|error| named("remove", path, &error))?;
    match token.len() {
        16.. => Ok(token),
        _ => Err(io::Error::other(format!("the token in {} has fewer than 16 bytes", path.display()))),
    }
}

fn null() -> io::Result<File> {
    let path = Path::new("/dev/null");
    OpenOptions::new().read(true).write(true).open(path).map_err(|error| named("open", path, &error))
}

fn named(doing: &str, path: &Path, error: &io::Error) -> io::Error {
    io::Error::other(format!("cannot {doing} {}: {error}", path.display()))
}
