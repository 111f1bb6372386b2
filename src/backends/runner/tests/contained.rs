//! The runner as the first process of a namespace, as in a container.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use super::*;

const TOKEN: &[u8] = b"0123456789abcdef-token";

/// A runner in its own process namespace, as an unprivileged user.
struct Container {
    // Dropped before the process that waits for it.
    _first: First,
    _process: Killed,
    directory: tempfile::TempDir,
    runner: Runner,
}

/// The namespace's first process as seen from here, killed at the end of a test.
struct First(u32);

impl Drop for First {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-9", &self.0.to_string()]).status();
    }
}

fn child_of(parent: u32) -> Option<u32> {
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
        fields.split(' ').nth(1) == Some(&parent.to_string())
    })
}

/// Starts a container; `None`, with the test skipped, if namespaces are not available.
fn container() -> Option<Container> {
    let possible =
        Command::new("unshare").args(["--pid", "--fork", "--mount-proc", "true"]).stderr(Stdio::null()).status();
    if !possible.is_ok_and(|status| status.success()) {
        skip("no process namespace can be made");
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    for (name, mode) in [("", 0o755), ("private", 0o777), ("workspace", 0o777)] {
        std::fs::create_dir_all(path(name)).unwrap();
        std::fs::set_permissions(path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }
    std::fs::write(path("runner"), RUNNER).unwrap();
    std::fs::set_permissions(path("runner"), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(path("private/socket.token"), TOKEN).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.arg(path("runner")).arg("serve").arg(path("private/socket")).arg(path("workspace"));
    let process = Killed(command.env("SECRET", "of the runner").stdout(Stdio::null()).spawn().unwrap());
    let mut runner = None;
    eventually("the runner answers", || {
        runner = Runner::connect(&path("private/socket"), TOKEN, None, Duration::from_secs(20)).ok();
        runner.is_some()
    });
    let runner = runner.unwrap();
    let first = child_of(process.0.id()).unwrap();
    // Only the namespace's first process is accepted as the peer.
    let known = Runner::connect(&path("private/socket"), TOKEN, Some(first), Duration::from_secs(20)).unwrap();
    known.ping().unwrap();
    Some(Container { _process: process, _first: First(first), directory, runner })
}

/// Skips if namespaces are not available, which is a failure in CI.
macro_rules! container {
    () => {
        match container() {
            Some(container) => container,
            None => return eprintln!("skipped: no process namespace can be made here"),
        }
    };
}

#[test]
fn runner_is_init_without_privileges() {
    let container = container!();
    let script = "grep -E 'NoNewPrivs|^Uid' /proc/self/status; cat /proc/1/environ; ls /proc/1/fd; tr '\\0' ' ' < /proc/1/cmdline";
    let ran = run(&container.runner, &shell(script)).unwrap();
    let socket = container.directory.path().join("private/socket");
    assert!(ran.stdout.contains("NoNewPrivs:\t1"), "{ran:?}");
    assert!(ran.stdout.contains("Uid:\t65534\t65534"), "{ran:?}");
    assert!(ran.stdout.contains(&format!("serve {}", socket.display())), "{ran:?}");
    assert!(!ran.stdout.contains("SECRET") && ran.stderr.matches("Permission denied").count() == 2, "{ran:?}");
    assert!(!container.directory.path().join("private/socket.token").exists());
}

#[test]
fn runner_without_a_seccomp_profile_reports_other_sockets() {
    let container = container!();
    assert!(!container.runner.has_few_sockets());
}

#[test]
fn runner_cannot_be_killed_or_reached_from_inside() {
    let container = container!();
    let socket = container.directory.path().join("private/socket");
    // Even with the token, a peer from inside is dropped before its request is read.
    let peer = format!(
        "import socket; s = socket.socket(socket.AF_UNIX); s.connect({:?})\n\
         try: s.sendall(bytes([14 + {length}, 0, 0, 0, 1]) + b'foldrun\\n' + bytes([1, 0, {length}, 0, 0, 0]) + {token:?}.encode())\n\
         except OSError: pass\n\
         try: print(s.recv(100))\n\
         except OSError: print(b'')",
        socket.to_str().unwrap(),
        length = TOKEN.len() + 1 - 1,
        token = std::str::from_utf8(TOKEN).unwrap(),
    );
    assert_eq!(run(&container.runner, &spec(&["python3", "-c", &peer])).unwrap().stdout, "b''\n");
    let script = "for s in TERM INT HUP QUIT KILL STOP USR1 CHLD SEGV PIPE; do kill -$s 1; done; echo tried";
    assert_eq!(run(&container.runner, &shell(script)).unwrap().stdout, "tried\n");
    // sigqueue lets the sender choose the reported sender: process 0.
    let forged = "import ctypes, struct; info = struct.pack('iiii', 15, 0, -1, 0) + struct.pack('ii', 0, 0) + bytes(104); \
                  print(ctypes.CDLL(None).syscall(129, 1, 15, info))";
    assert_eq!(run(&container.runner, &spec(&["python3", "-c", forged])).unwrap().stdout, "0\n");
    // A descriptor that reports to process 1 by any signal: the kernel sends it, without a sender.
    let reported = "import fcntl, os, socket, struct; a, b = socket.socketpair(); f = a.fileno()\n\
                    fcntl.fcntl(f, fcntl.F_SETOWN, 1); fcntl.fcntl(f, 10, 15)\n\
                    fcntl.fcntl(f, fcntl.F_SETFL, fcntl.fcntl(f, fcntl.F_GETFL) | os.O_ASYNC); print(b.send(b'x'))";
    assert_eq!(run(&container.runner, &spec(&["python3", "-c", reported])).unwrap().stdout, "1\n");
    container.runner.ping().unwrap();
    let killed = run(&container.runner, &shell("sleep 1000 & kill -9 -1; sleep 5")).unwrap();
    assert_eq!(killed.ended.survivors, 0);
    container.runner.ping().unwrap();
}

#[test]
fn runner_refuses_wrong_token_and_process() {
    let container = container!();
    let socket = container.directory.path().join("private/socket");
    let connect = |token: &[u8], process| Runner::connect(&socket, token, process, Duration::from_secs(5));
    assert!(matches!(connect(b"0123456789abcdef-tokem", None), Err(RunnerError::Token(_))));
    assert!(matches!(connect(b"", None), Err(RunnerError::Token(_))));
    assert!(matches!(connect(TOKEN, Some(1)), Err(RunnerError::Stranger { expected: 1, .. })));
    let runner = connect(TOKEN, None).unwrap();
    runner.ping().unwrap();
    assert!(!format!("{runner:?}").contains("token"));
    let link = container.directory.path().join("link");
    std::os::unix::fs::symlink(&socket, &link).unwrap();
    let linked = Runner::connect(&link, TOKEN, None, Duration::from_secs(5));
    assert!(matches!(linked, Err(RunnerError::Connect { .. })), "{linked:?}");
}

#[test]
fn runner_missing_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let missing = Runner::connect(&socket, TOKEN, None, Duration::from_millis(50));
    assert!(missing.unwrap_err().to_string().contains("no runner answers at"));
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    assert!(UnixStream::connect(&socket).is_err());
    assert!(matches!(
        Runner::connect(&socket, TOKEN, None, Duration::from_millis(50)),
        Err(RunnerError::Connect { .. })
    ));
}

#[test]
fn runner_reaps_orphans_and_kills_survivors() {
    let container = container!();
    // More orphaned processes than may remain at a time.
    let script = "for i in $(seq 200); do (true &) ; done; setsid sh -c '(setsid sleep 1000 &)'; echo $(ls -d /proc/[0-9]* | wc -l)";
    for _ in 0..3 {
        run(&container.runner, &shell(script)).unwrap();
        let left = run(&container.runner, &shell("echo /proc/[0-9]*")).unwrap().stdout;
        assert_eq!(left.split_whitespace().count(), 2, "{left}");
    }
}

#[test]
fn runner_timeout_ends_fork_bomb() {
    let container = container!();
    // It refills itself up to a limit, each process in its own session, and ignores SIGTERM.
    let bomb = "import os, signal, time\n\
                signal.signal(signal.SIGTERM, signal.SIG_IGN)\n\
                print('begun', flush=True)\n\
                while True:\n\
                \x20   try: forked = os.fork()\n\
                \x20   except OSError: forked = 1\n\
                \x20   if forked == 0: os.setsid()\n\
                \x20   else: time.sleep(0.001)\n";
    let mut command = spec(&["prlimit", "--nproc=100", "python3", "-c", bomb]);
    command.timeout = Some(Duration::from_secs(1));
    command.grace = Duration::from_millis(100);
    let ran = run(&container.runner, &command).unwrap();
    assert!(ran.ended.timed_out && ran.ended.survivors == 0, "{ran:?}");
    let left = run(&container.runner, &shell("echo /proc/[0-9]*")).unwrap().stdout;
    assert_eq!(left.split_whitespace().count(), 2, "{left}");
}

#[test]
fn runner_refuses_to_serve_unless_init() {
    let directory = tempfile::tempdir().unwrap();
    let runner = directory.path().join("runner");
    std::fs::write(&runner, RUNNER).unwrap();
    std::fs::set_permissions(&runner, std::fs::Permissions::from_mode(0o755)).unwrap();
    // Another test's new process may briefly hold the file open for writing.
    let mut output = None;
    eventually("the program is started", || {
        output = Command::new(&runner).args(["serve", "/nowhere/socket", "/"]).output().ok();
        output.is_some()
    });
    let output = output.unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("process 1"));
}

#[test]
fn runner_gives_terminals_as_unprivileged_user() {
    let container = container!();
    let spec = RunSpec { terminal: Some(crate::backends::WindowSize::default()), ..shell("stty size; test -t 0") };
    let ran = run(&container.runner, &spec).unwrap();
    assert_eq!((ran.stdout.as_str(), ran.ended.exit_code), ("24 80\r\n", Some(0)), "{ran:?}");
}

#[test]
fn runner_opens_sockets_in_its_network() {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream, UdpSocket};
    let container = container!();
    let open = |kind, port| container.runner.socket(SocketRequest { kind, address: [127, 0, 0, 1], port });
    let listener = TcpListener::from(open(SocketKind::Listen, 0).unwrap());
    let port = listener.local_addr().unwrap().port();
    let mut one = TcpStream::from(open(SocketKind::Connect, port).unwrap());
    let (mut other, _) = listener.accept().unwrap();
    one.write_all(b"through").unwrap();
    drop(one);
    let mut read = String::new();
    other.read_to_string(&mut read).unwrap();
    assert_eq!(read, "through");
    assert!(UdpSocket::from(open(SocketKind::Datagram, 0).unwrap()).local_addr().unwrap().port() != 0);
    let taken = open(SocketKind::Listen, port).unwrap_err();
    assert!(matches!(taken, RunnerError::Io { errno: 98, .. }), "{taken}");
    drop((listener, other));
    let refused = open(SocketKind::Connect, port).unwrap_err();
    assert!(matches!(refused, RunnerError::Io { errno: 111, .. }), "{refused}");
    // A server may listen on IPv6 only; not every machine has it.
    if let Ok(listener) = TcpListener::bind("[::1]:0") {
        open(SocketKind::Connect, listener.local_addr().unwrap().port()).unwrap();
    }
    container.runner.ping().unwrap();
}
