//! The runner, its socket and its files, from inside.

use std::os::unix::fs::MetadataExt;

use foldspace::{ContainerStarted, PodmanOptions, ShellCommand, unwatched};

use crate::rig::{Rig, named};

const RUN: &str = "/run/foldspace";

fn rig() -> Option<Rig> {
    Rig::podman(|options| options)
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
fn it_does_not_talk_to_commands() {
    let Some(rig) = rig() else { return };
    assert_eq!(rig.python(CONNECTS).stdout(), "1\nclosed");
    let tokens = rig.printed("find /run/foldspace -name '*token*'; grep -rl token /run/foldspace/door || true");
    assert_eq!(tokens, "");
}

#[test]
fn it_can_t_be_killed_or_stopped() {
    let Some(rig) = rig() else { return };
    let made = rig.ok("true").of::<ContainerStarted>();
    for signal in ["TERM", "KILL", "STOP", "INT", "HUP", "SEGV", "USR1", "CHLD"] {
        rig.sh(&format!("kill -{signal} 1"));
    }
    assert_eq!(rig.ok("echo alive").stdout(), "alive");
    assert_eq!(named(&rig.name()), [made[0].id.clone()], "it is the same container");
}

#[test]
fn its_program_can_t_be_replaced() {
    let Some(rig) = rig() else { return };
    for command in ["rm -f runner", "mv runner other", "cp /bin/true runner", "echo x > runner", "chmod u+w runner"] {
        assert_ne!(rig.sh(&format!("cd {RUN} && {command}")).exit_code(), 0, "{command}");
    }
    for command in ["mv scripts other", "rmdir scripts", "ln -s /tmp scripts/x", "mv door other"] {
        assert_ne!(rig.sh(&format!("cd {RUN} && {command}")).exit_code(), 0, "{command}");
    }
}

const IMPOSTOR: &str = "
import glob, os, socket, stat
for path in glob.glob('/run/foldspace/door/*'):
    os.remove(path)
    s = socket.socket(socket.AF_UNIX); s.bind(path); s.listen(1)
    print(path)
";

/// More commands at once than there are connections, right at the shell.
fn at_once(rig: &Rig, count: usize) -> Vec<Result<i32, foldspace::ShellError>> {
    let shell = rig.dispatcher().workspace().shell().unwrap();
    rig.runtime.block_on(async {
        let command = || ShellCommand::shell("sleep 0.3; exit 7");
        let all: Vec<_> =
            (0..count).map(|_| tokio::spawn(shell.execute(command(), unwatched(), Default::default()))).collect();
        let mut ended = Vec::new();
        for one in all {
            ended.push(one.await.unwrap().map(|result| result.exit_code));
        }
        ended
    })
}

#[test]
fn nobody_poses_as_it() {
    let Some(rig) = rig() else { return };
    assert_ne!(rig.python(IMPOSTOR).stdout(), "");
    for ended in at_once(&rig, 4) {
        // What can't connect says so, and nobody believes the impostor.
        assert!(matches!(ended, Ok(7) | Err(foldspace::ShellError::Unavailable { .. })), "{ended:?}");
    }
    rig.ok("rm -f /run/foldspace/door/*");
    for ended in at_once(&rig, 4) {
        assert!(matches!(ended, Ok(7) | Err(foldspace::ShellError::Unavailable { .. })), "{ended:?}");
    }
    assert_eq!(rig.ok("echo still here").stdout(), "still here");
    rig.verify();
}

/// The library writes with more rights than a command has: it must not do so through a command's links.
#[test]
fn what_is_planted_before_a_restart_is_not_written_through() {
    let Some(rig) = Rig::podman(|options| PodmanOptions { idle_seconds: 1, ..options }) else { return };
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
    let shell = rig.dispatcher().workspace().shell().unwrap();
    let script = ShellCommand::script("/bin/sh", "exit 5\n");
    let ended = rig.runtime.block_on(shell.execute(script, unwatched(), Default::default())).unwrap();
    assert_eq!(ended.exit_code, 5);
    let after = std::fs::metadata(&victim).unwrap();
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "as it was");
    assert_eq!((before.uid(), before.mode(), before.mtime_nsec()), (after.uid(), after.mode(), after.mtime_nsec()));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "nothing was put beside it");
    rig.verify();
}
