//! Containers in which the resident runner does not run: the same through the engine, and it is said.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use foldspace::{
    ContainerStarted, OutputStream, OverlayUse, PodmanOptions, PodmanWorkspace, RunnerUse, ShellCommand, unwatched,
};

use crate::rig::Rig;

fn rig() -> Option<Rig> {
    Rig::podman(|options| PodmanOptions { runner: RunnerUse::Never, ..options })
}

fn started(rig: &Rig) -> ContainerStarted {
    let state = rig.session().state().unwrap();
    state.slice::<PodmanWorkspace>().unwrap().container.clone().unwrap()
}

#[test]
fn engine_exec_records_changes_with_command() {
    for overlay in [OverlayUse::Auto, OverlayUse::Never] {
        let with = |options| PodmanOptions { runner: RunnerUse::Never, overlay, ..options };
        let Some(rig) = Rig::podman(with) else { return };
        let step = rig.ok("mkdir d && echo one > d/a && ln -s a d/l && chmod +x d/a && echo done");
        assert_eq!((step.stdout(), step.paths().0), ("done", vec!["d/a".to_owned(), "d/l".to_owned()]));
        let events = step.of::<ContainerStarted>();
        assert_eq!((events.len(), events[0].runner), (1, false));
        assert!(!events[0].without_runner.is_empty());
        assert_eq!(started(&rig), events[0]);
        rig.call("write_file", serde_json::json!({ "file_path": "d/b", "content": "two\n" }));
        let step = rig.sh("cat d/b; rm -r d; exit 3");
        assert_eq!((step.exit_code(), step.stdout(), step.paths().1), (3, "two", vec!["d".to_owned()]));
        rig.verify();
    }
}

#[test]
fn engine_exec_confines_as_the_runner() {
    let Some(rig) = rig() else { return };
    for process in ["self", "1"] {
        let text = rig.printed(&format!("cat /proc/{process}/status"));
        let line = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}:"))).unwrap();
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        for name in ["Uid", "Gid"] {
            assert_eq!(line(name), "65534 65534 65534 65534", "{name} of {process}");
        }
        for name in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(line(name), "0000000000000000", "{name} of {process}");
        }
        assert_eq!((line("NoNewPrivs"), line("Seccomp")), ("1".to_owned(), "2".to_owned()), "{process}");
    }
}

#[test]
fn engine_exec_leaves_processes_of_other_commands() {
    let Some(rig) = rig() else { return };
    let shell = rig.dispatcher().workspace().shell().unwrap();
    let waiting = "sleep 600 & child=$!; echo begun; while ! test -e go; do sleep 0.05; done; \
                   kill -0 $child && echo alive";
    let result = rig.runtime.block_on(async {
        let (begun, mut is_begun) = tokio::sync::mpsc::unbounded_channel();
        let watch = std::sync::Arc::new(move |_: OutputStream, _: &[u8]| begun.send(()).unwrap_or_default());
        let first = tokio::spawn(shell.execute(ShellCommand::shell(waiting), watch, Default::default()));
        is_begun.recv().await.unwrap();
        for text in ["sleep 600 & true", "(setsid sleep 600 &) ; touch go"] {
            let other = shell.execute(ShellCommand::shell(text), unwatched(), Default::default()).await.unwrap();
            assert!(other.success(), "{other:?}");
        }
        first.await.unwrap().unwrap()
    });
    assert_eq!(&result.stdout.kept[..], b"begun\nalive\n", "{result:?}");
    // The first process has one, too.
    assert_eq!(rig.printed("cat /proc/[0-9]*/comm | grep -c '^sleep$'"), "1");
}

#[test]
fn engine_exec_reaps_ended_processes() {
    let Some(rig) = rig() else { return };
    rig.ok("for i in 1 2 3 4 5 6 7 8 9; do (sh -c 'sleep 0 &' &); done; sleep 0.2");
    let is_left = "cat /proc/[0-9]*/stat 2>/dev/null | grep -q ') Z 1 '";
    rig.ok(&format!("i=0; while {is_left}; do i=$((i+1)); test $i -lt 200 || exit 9; sleep 0.05; done"));
}

#[test]
fn engine_exec_counts_output_over_limit() {
    let Some(rig) = rig() else { return };
    let shell = rig.dispatcher().workspace().shell().unwrap();
    let command = ShellCommand {
        keep: 1000,
        timeout: Some(Duration::from_secs(300)),
        ..ShellCommand::shell("head -c 100000000 /dev/zero; head -c 5000000 /dev/zero >&2; printf END")
    };
    let result = rig.runtime.block_on(shell.execute(command, unwatched(), Default::default())).unwrap();
    assert_eq!((result.stdout.bytes, result.stderr.bytes), (100_000_003, 5_000_000));
    assert!(result.stdout.kept.ends_with(b"END") && result.stdout.kept.len() <= 1000);
}

/// Makes an image for another architecture of what runs here, and gives its name.
fn foreign_image(rig: &Rig) -> String {
    rig.ok("for f in /bin/sh /usr/bin/env /bin/sleep /bin/cat /bin/uname; do echo $f; readlink -f $f; \
         ldd $f | grep -o '/[^ ]*'; done | sort -u > list; \
         tar -chf root.tar -C / $(sed 's,^/,,' list)");
    let tar = std::fs::read(rig.root().join("root.tar")).unwrap();
    let name = format!("localhost/foldspace-foreign-{}", rig.name());
    let arch = if cfg!(target_arch = "x86_64") { "arm64" } else { "amd64" };
    let request = format!(
        "POST /v4.0.0/libpod/images/import?reference={name}&architecture={arch} HTTP/1.1\r\nHost: d\r\n\
         Content-Type: application/x-tar\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        tar.len()
    );
    let url = std::env::var("CONTAINER_HOST").unwrap();
    let mut stream = UnixStream::connect(url.strip_prefix("unix://").unwrap()).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    stream.write_all(&tar).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    name
}

#[test]
fn engine_exec_is_used_for_foreign_architecture() {
    let Some(maker) = Rig::podman(|options| options) else { return };
    let image = foreign_image(&maker);
    let rig = Rig::podman(|options| PodmanOptions { image: image.clone(), ..options }).unwrap();
    let step = rig.ok("echo x > f");
    assert_eq!(step.paths().0, ["f"]);
    let started = started(&rig);
    assert!(!started.runner && started.without_runner.contains("the image is for"), "{started:?}");
    drop(rig);
    let removed = crate::rig::podman(async |podman| podman.images().get(&image).remove().await);
    assert!(removed.is_ok(), "{removed:?}");
}
