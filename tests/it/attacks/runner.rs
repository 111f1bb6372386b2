//! The runner, its socket and its files, from inside.

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use foldspace::backends::{PodmanOptions, Shell, ShellCommand, ShellError, unwatched};
use foldspace::event::ContainerStarted;

use crate::rig::{Rig, named};

const RUN: &str = "/run/foldspace";

fn rig() -> Option<Rig> {
    Rig::container(|options| options)
}

const CONNECTS: &str = "
import glob, os, socket, stat
found = [p for p in glob.glob('/run/foldspace/**', recursive=True) if stat.S_ISSOCK(os.stat(p).st_mode)]
print(len(found))
s = socket.socket(socket.AF_UNIX)
s.connect(found[0])
s.settimeout(5)
try:
    s.sendall(b'\\0' * 64)
    print('answered' if s.recv(100) else 'closed')
except OSError as e:
    print('closed')
";

#[test]
fn runner_refuses_commands_as_clients() {
    let Some(rig) = rig() else { return };
    assert_eq!(rig.python(CONNECTS).stdout(), "1\nclosed");
    // The token was in a file beside the socket, and nothing else is ever there.
    assert_eq!(rig.printed("ls -A /run/foldspace/door"), "socket");
}

#[test]
fn runner_ignores_signals_from_container() {
    let Some(rig) = rig() else { return };
    let made = rig.ok("true").of::<ContainerStarted>();
    for signal in ["TERM", "KILL", "STOP", "INT", "HUP", "SEGV", "USR1", "CHLD"] {
        rig.sh(&format!("kill -{signal} 1"));
    }
    assert_eq!(rig.ok("echo alive").stdout(), "alive");
    assert_eq!(named(&rig.name()), [made[0].id.clone()], "it is the same container");
}

#[test]
fn runner_program_cannot_be_replaced() {
    let Some(rig) = rig() else { return };
    for command in ["rm -f runner", "mv runner other", "cp /bin/true runner", "echo x > runner", "chmod u+w runner"] {
        assert_ne!(rig.sh(&format!("cd {RUN} && {command}")).exit_code(), 0, "{command}");
    }
    for command in ["mv scripts other", "rmdir scripts", "ln -s /tmp scripts/x", "mv door other"] {
        assert_ne!(rig.sh(&format!("cd {RUN} && {command}")).exit_code(), 0, "{command}");
    }
}

/// Takes the runner's place at its socket, answers all that comes as the runner would, that every command ended
/// with 9, and notes who came and what was heard.
const IMPOSTOR: &str = "
import os, socket, struct, threading
path = '/run/foldspace/door/socket'
os.remove(path)
s = socket.socket(socket.AF_UNIX)
s.bind(path)
s.listen(64)
def frame(kind, body):
    return struct.pack('<IB', len(body) + 1, kind) + body
welcome = frame(128, struct.pack('<HII', 1, 1, 0))
ended = frame(130, bytes([1, 9, 0, 0, 0, 0, 0, 0]) + bytes(40))
answers = {1: welcome, 2: ended, 6: frame(133, struct.pack('<II', 0, 0)), 12: frame(131, bytes(4))}
# Open already: the workspace is taken from a container that is given up.
came, heard = (open('/workspace/' + name, 'ab', 0) for name in ('came', 'heard'))
def serve(peer):
    while True:
        said = peer.recv(65536)
        if not said: return
        heard.write(said)
        peer.sendall(answers.get(said[4], answers[12]))
open('/workspace/ready', 'w').close()
while True:
    peer, _ = s.accept()
    came.write(b'x')
    threading.Thread(target=serve, args=(peer,), daemon=True).start()
";

/// Commands at once, right at the shell: more than there are connections that nobody uses.
async fn at_once(shell: &Arc<dyn Shell>, count: usize) -> Vec<Result<i32, ShellError>> {
    let command = || ShellCommand::shell("sleep 0.3; exit 7");
    let all: Vec<_> =
        (0..count).map(|_| tokio::spawn(shell.execute(command(), unwatched(), Default::default()))).collect();
    let mut ended = Vec::new();
    for one in all {
        ended.push(one.await.unwrap().map(|result| result.exit_code));
    }
    ended
}

/// Returns true for the end of a command that the runner reported: its exit code, or the signal that ends it when another
/// command can't reach the runner and has the container replaced.
fn is_honest(ended: &Result<i32, ShellError>) -> bool {
    matches!(ended, Ok(7 | 137) | Err(ShellError::Unavailable { .. }))
}

/// Lets commands come while the impostor serves the socket; gives how many connections it saw.
fn imposture(rig: &Rig) -> usize {
    rig.ok("rm -f ready came heard");
    let (shell, root) = (rig.tool_runner().workspace().unrecorded_shell().unwrap(), rig.root());
    let mut impostor = ShellCommand::shell("exec python3 -");
    impostor.stdin = IMPOSTOR.into();
    let impostor = rig.runtime.spawn(shell.execute(impostor, unwatched(), Default::default()));
    crate::rig::eventually("the impostor listens", || root.join("ready").exists() || impostor.is_finished());
    assert!(root.join("ready").exists(), "{impostor:?}");
    // What can't reach the runner says so, or has a container made again; nobody believes the impostor.
    for ended in rig.runtime.block_on(at_once(&shell, 4)) {
        assert!(is_honest(&ended), "{ended:?}");
    }
    impostor.abort();
    assert_eq!(rig.ok("echo still here").stdout(), "still here");
    // Not a byte was said to it, least of all the token.
    assert_eq!(rig.printed("wc -c < heard"), "0");
    rig.printed("wc -c < came").parse().unwrap()
}

#[test]
fn runner_cannot_be_impersonated() {
    let Some(rig) = rig() else { return };
    // It may be gone before it has seen who came; one that was not asked would show nothing.
    let came: usize = (0..5).map(|_| imposture(&rig)).find(|came| *came > 0).unwrap_or(0);
    assert!(came > 0, "nobody asked the impostor");
    rig.verify();
}

#[test]
fn runner_socket_missing_costs_only_its_container() {
    let Some(rig) = rig() else { return };
    rig.ok("rm -f /run/foldspace/door/*");
    let shell = rig.tool_runner().workspace().unrecorded_shell().unwrap();
    for ended in rig.runtime.block_on(at_once(&shell, 4)) {
        assert!(is_honest(&ended), "{ended:?}");
    }
    assert_eq!(rig.ok("echo still here").stdout(), "still here");
    rig.verify();
}

/// The library writes with more rights than a command has: it must not do so through a command's links.
#[test]
fn runner_restart_does_not_write_through_planted_links() {
    let Some(rig) = Rig::container(|options| PodmanOptions { idle_seconds: 1, ..options }) else { return };
    let directory = tempfile::tempdir().unwrap();
    let victim = directory.path().join("victim");
    std::fs::write(&victim, "as it was").unwrap();
    let before = std::fs::metadata(&victim).unwrap();
    let shown = victim.display();
    let plant = format!(
        "cd {RUN}; for d in . door; do for f in socket.token door/socket.token scripts; do \
         rm -rf $d/$f; ln -s {shown} $d/$f; done; ln -s {} $d/scripts; done; true",
        directory.path().display()
    );
    rig.unchecked(&plant);
    super::container::until_stopped(&rig);
    let started = rig.unchecked("true").of::<ContainerStarted>();
    assert!(started.len() == 1 && !started[0].created, "{started:?}");
    let shell = rig.tool_runner().workspace().unrecorded_shell().unwrap();
    let script = ShellCommand::script("/bin/sh", "exit 5\n");
    let ended = rig.runtime.block_on(shell.execute(script, unwatched(), Default::default())).unwrap();
    assert_eq!(ended.exit_code, 5);
    let after = std::fs::metadata(&victim).unwrap();
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "as it was");
    assert_eq!((before.uid(), before.mode(), before.mtime_nsec()), (after.uid(), after.mode(), after.mtime_nsec()));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "nothing was put beside it");
    rig.verify();
}
