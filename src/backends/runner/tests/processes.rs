//! A command's environment, and its end.

use std::os::unix::fs::PermissionsExt;

use super::wire::MAX_STDIN;
use super::*;

#[test]
fn command_returns_streams_and_code() {
    let world = World::new();
    let ran = run(&world.runner, &shell("echo one; echo two >&2; echo three; exit 7")).unwrap();
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("one\nthree\n", "two\n"));
    assert_eq!((ran.ended.exit_code, ran.ended.signal, ran.ended.sent), (Some(7), None, None));
    assert!(!ran.ended.timed_out && !ran.ended.cancelled);
    assert!(ran.ended.duration_us > 0);
    assert_eq!((ran.ended.leftovers, ran.ended.survivors), (0, 0));
}

#[test]
fn command_environment_is_the_given_one() {
    let world = World::new();
    let mut command = spec(&["/usr/bin/env"]);
    command.env = vec![("ONLY".into(), "this = that".into())];
    assert_eq!(run(&world.runner, &command).unwrap().stdout, "ONLY=this = that\n");
}

#[test]
fn command_starts_with_clean_process_state() {
    let world = World::new();
    let script = "import os, signal; print(signal.pthread_sigmask(0, []), os.listdir('/proc/self/fd')); \
                  print(*[s for s in range(1, 32) if s not in (9, 19) and signal.getsignal(s) == signal.SIG_IGN]); \
                  print(os.getpid() == os.getsid(0) == os.getpgid(0))";
    let ran = run(&world.runner, &spec(&["/usr/bin/python3", "-c", script])).unwrap();
    // Python itself ignores SIGPIPE and SIGXFSZ, and has the listed directory open.
    assert_eq!(ran.stdout, "set() ['0', '1', '2', '3']\n13 25\nTrue\n", "{}", ran.stderr);
}

#[test]
fn command_stdin_arrives_whole() {
    let world = World::new();
    let mut command = shell("cat");
    assert_eq!(run(&world.runner, &command).unwrap().stdout, "");
    command.stdin = (0..MAX_STDIN).map(|at| b'a' + (at % 26) as u8).collect();
    assert_eq!(run(&world.runner, &command).unwrap().stdout.as_bytes(), command.stdin);
    command.stdin.push(b'x');
    assert!(matches!(run(&world.runner, &command), Err(RunnerError::Invalid(_))));
}

#[test]
fn command_ignoring_stdin_is_not_awaited() {
    let world = World::new();
    // The input does not fit into a pipe.
    let closes = "import os; os.close(0); print('closed')";
    let ignores = "print('x' * 300000)";
    for (script, length) in [(closes, 7), (ignores, 300_001)] {
        let mut command = spec(&["python3", "-c", script]);
        command.stdin = vec![b'.'; MAX_STDIN];
        let ran = run(&world.runner, &command).unwrap();
        assert_eq!((ran.stdout.len(), ran.stderr.as_str(), ran.ended.exit_code), (length, "", Some(0)));
    }
}

#[test]
fn command_timeout_terminates_and_keeps_output() {
    let world = World::new();
    let mut command = shell("echo begun; sleep 1000; echo never");
    command.timeout = Some(Duration::from_millis(300));
    let ran = run(&world.runner, &command).unwrap();
    assert_eq!(ran.stdout, "begun\n");
    assert!(ran.ended.timed_out);
    assert_eq!((ran.ended.exit_code, ran.ended.signal, ran.ended.sent), (None, Some(15), Some(15)));
    assert_eq!(ran.ended.survivors, 0);
}

#[test]
fn command_ignoring_sigterm_is_killed() {
    let world = World::new();
    let mut command = shell("trap '' TERM; echo begun; while :; do sleep 1000; done");
    command.timeout = Some(Duration::from_millis(300));
    command.grace = Duration::from_millis(200);
    let ran = run(&world.runner, &command).unwrap();
    assert_eq!(ran.stdout, "begun\n");
    assert!(ran.ended.timed_out);
    assert_eq!((ran.ended.signal, ran.ended.sent, ran.ended.survivors), (Some(9), Some(9), 0));
}

#[test]
fn command_may_clean_up_on_sigterm() {
    let world = World::new();
    let mut command = shell("trap 'echo tidied; exit 3' TERM; echo begun; sleep 1000 & wait");
    command.timeout = Some(Duration::from_millis(300));
    let ran = run(&world.runner, &command).unwrap();
    assert_eq!(ran.stdout, "begun\ntidied\n");
    assert_eq!((ran.ended.exit_code, ran.ended.timed_out, ran.ended.sent), (Some(3), true, Some(15)));
}

#[test]
fn command_stopped_is_ended() {
    let world = World::new();
    let mut command = shell("kill -STOP $$");
    command.timeout = Some(Duration::from_millis(200));
    let ran = run(&world.runner, &command).unwrap();
    assert_eq!((ran.ended.timed_out, ran.ended.signal), (true, Some(15)));
}

#[test]
fn command_cancelled_leaves_runner_working() {
    let world = World::new();
    let cancel = Cancel::new().unwrap();
    let mut seen = Vec::new();
    let mut output = |_: OutputStreamKind, bytes: &[u8]| {
        seen.extend_from_slice(bytes);
        cancel.cancel();
    };
    let ended = world.runner.run(&shell("echo begun; sleep 1000"), &mut output, &cancel).unwrap();
    assert_eq!((ended.cancelled, ended.timed_out, ended.signal, ended.sent), (true, false, Some(15), Some(15)));
    assert_eq!(seen, b"begun\n");
    assert_eq!(run(&world.runner, &shell("echo next")).unwrap().stdout, "next\n");
}

#[test]
fn command_cancelled_before_start_ends() {
    let world = World::new();
    let cancel = Cancel::new().unwrap();
    cancel.cancel();
    let ended = world.runner.run(&shell("sleep 1000"), &mut |_, _| (), &cancel).unwrap();
    assert!(ended.cancelled);
}

/// Leaves a process without its first thread, and with a child in its own session.
const HEADLESS: &str = "setsid python3 -c 'import ctypes, os, threading, time\n\
    pid = os.getpid()\n\
    def stay():\n\
    \x20   while open(\"/proc/%d/stat\" % pid).read().split()[2] != \"Z\": time.sleep(0.01)\n\
    \x20   if os.fork() == 0: os.setsid()\n\
    \x20   else: open(\"pid\", \"w\").write(str(pid))\n\
    \x20   time.sleep(1000)\n\
    threading.Thread(target=stay).start()\n\
    ctypes.CDLL(None).pthread_exit(None)' & while [ ! -s pid ]; do :; done";

/// Ways to leave a process behind; each writes its pid into a file.
const ESCAPES: [&str; 6] = [
    "sleep 1000 & echo $! > pid",
    "(sleep 1000 & echo $! > pid) & wait",
    "setsid sh -c 'echo $$ > pid; exec sleep 1000' & while [ ! -s pid ]; do :; done",
    "setsid sh -c '(sh -c \"echo \\$\\$ > pid; exec setsid sleep 1000\" &) &'; while [ ! -s pid ]; do :; done",
    "trap '' TERM HUP; setsid sh -c 'echo $$ > pid; while :; do sleep 1; done' & while [ ! -s pid ]; do :; done",
    HEADLESS,
];

#[test]
fn command_leaves_no_processes() {
    for escape in ESCAPES {
        let world = World::new();
        let ran = run(&world.runner, &shell(&format!("{escape}\necho left"))).unwrap();
        assert_eq!((ran.stdout.as_str(), ran.ended.exit_code), ("left\n", Some(0)), "{escape}");
        assert!(ran.ended.leftovers >= 1 && ran.ended.survivors == 0, "{escape}: {ran:?}");
        let pid = std::fs::read_to_string(world.root().join("pid")).unwrap().trim().parse().unwrap();
        assert!(!lives(pid), "{escape}");
    }
}

#[test]
fn command_leaves_no_processes_forked_at_its_end() {
    let world = World::new();
    let script = "(sleep 1000 & echo $! > pid-$$; (setsid sleep 1000 & echo $! > pid-$$) &) &";
    // During another command, leftovers are identified in another way.
    for beside in [false, true] {
        let cancel = Cancel::new().unwrap();
        std::thread::scope(|scope| {
            if beside {
                scope.spawn(|| world.runner.run(&shell("sleep 1000"), &mut |_, _| (), &cancel).unwrap());
            }
            for _ in 0..100 {
                let ran = run(&world.runner, &shell(script)).unwrap();
                assert_eq!((ran.ended.exit_code, ran.ended.survivors), (Some(0), 0));
            }
            for entry in std::fs::read_dir(world.root()).unwrap() {
                let pid = std::fs::read_to_string(entry.unwrap().path()).unwrap();
                assert!(pid.is_empty() || !lives(pid.trim().parse().unwrap()), "{pid}");
            }
            cancel.cancel();
        });
    }
}

#[test]
fn command_timeout_leaves_no_processes() {
    for escape in ESCAPES {
        let world = World::new();
        let mut command = shell(&format!("{escape}\nsleep 1000"));
        command.timeout = Some(Duration::from_secs(1));
        command.grace = Duration::from_millis(200);
        let ran = run(&world.runner, &command).unwrap();
        assert!(ran.ended.timed_out && ran.ended.survivors == 0, "{escape}: {ran:?}");
        let pid = std::fs::read_to_string(world.root().join("pid")).unwrap().trim().parse().unwrap();
        assert!(!lives(pid), "{escape}");
    }
}

#[test]
fn command_survivors_exclude_other_commands() {
    let world = World::new();
    // A daemon of the long command: orphaned, in its own session.
    let daemon = "setsid sh -c '(sh -c \"echo \\$\\$ > daemon; exec setsid sleep 1000\" &) &'; \
                  while [ ! -s daemon ]; do :; done; echo up; while [ ! -e done ]; do sleep 0.02; done; \
                  kill -0 $(cat daemon) && echo still up";
    std::thread::scope(|scope| {
        let (up, is_up) = std::sync::mpsc::channel();
        let runner = &world.runner;
        let long = scope.spawn(move || {
            let mut stdout = Vec::new();
            let mut output = |_: OutputStreamKind, bytes: &[u8]| {
                stdout.extend_from_slice(bytes);
                let _ = up.send(());
            };
            runner.run(&shell(daemon), &mut output, &Cancel::never()).unwrap();
            String::from_utf8(stdout).unwrap()
        });
        is_up.recv().unwrap();
        let short = run(&world.runner, &shell(&format!("{}\ntouch done", ESCAPES[3]))).unwrap();
        let left: u32 = std::fs::read_to_string(world.root().join("pid")).unwrap().trim().parse().unwrap();
        assert!(short.ended.leftovers >= 1 && !lives(left));
        assert_eq!(long.join().unwrap(), "up\nstill up\n");
    });
    let daemon = std::fs::read_to_string(world.root().join("daemon")).unwrap().trim().parse().unwrap();
    assert!(!lives(daemon));
}

#[test]
fn command_not_found_is_a_result() {
    let world = World::new();
    std::fs::write(world.root().join("plain"), "text").unwrap();
    let executable = std::fs::Permissions::from_mode(0o755);
    for (name, content) in [("nonsense", "no program"), ("no-interpreter", "#!/nowhere/at/all\n")] {
        std::fs::write(world.root().join(name), content).unwrap();
        std::fs::set_permissions(world.root().join(name), executable.clone()).unwrap();
    }
    let expected = [
        ("no-such-program", 127, "no-such-program: not found\n"),
        ("./no-such-program", 127, "./no-such-program: not found\n"),
        ("./no-interpreter", 127, "./no-interpreter: not found\n"),
        ("./plain", 126, "./plain: Permission denied (os error 13)\n"),
        ("/", 126, "/: Permission denied (os error 13)\n"),
        ("./nonsense", 126, "./nonsense: Exec format error (os error 8)\n"),
    ];
    for (program, code, message) in expected {
        let ran = run(&world.runner, &spec(&[program])).unwrap();
        assert_eq!((ran.ended.exit_code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(code), "", message));
    }
    let empty: [&[&str]; 2] = [&[], &[""]];
    for argv in empty {
        assert!(matches!(run(&world.runner, &spec(argv)), Err(RunnerError::Invalid(_))));
    }
    assert!(matches!(run(&world.runner, &spec(&["a\0b"])), Err(RunnerError::Invalid(_))));
}

#[test]
fn command_directory_outside_root_is_refused() {
    let world = World::new();
    let outside = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(world.root().join("a/b")).unwrap();
    std::os::unix::fs::symlink("a/b", world.root().join("inside")).unwrap();
    std::os::unix::fs::symlink(outside.path(), world.root().join("outside")).unwrap();
    std::os::unix::fs::symlink("/proc/self/cwd", world.root().join("magic")).unwrap();
    std::fs::write(world.root().join("file"), "").unwrap();
    let at = |path: &str| {
        let mut command = spec(&["pwd", "-P"]);
        command.directory = path.into();
        run(&world.runner, &command)
    };
    let real = world.root().canonicalize().unwrap();
    for (path, place) in [("", ""), ("/", ""), ("a/b", "a/b"), ("inside", "a/b"), ("a/../a", "a")] {
        assert_eq!(
            at(path).unwrap().stdout.trim_end().trim_end_matches('/'),
            real.join(place).to_str().unwrap().trim_end_matches('/')
        );
    }
    for path in ["..", "a/../..", "outside", "magic", "missing", "file"] {
        assert!(matches!(at(path), Err(RunnerError::Directory(_))), "{path}");
    }
}

#[test]
fn commands_run_concurrently() {
    let world = World::new();
    std::thread::scope(|scope| {
        let commands: Vec<_> = (0..24)
            .map(|number| {
                let world = &world;
                scope.spawn(move || {
                    let script = format!(
                        "touch up-{number}; while [ ! -e go ]; do sleep 0.02; done; echo {number}; exit {number}"
                    );
                    run(&world.runner, &shell(&script)).unwrap()
                })
            })
            .collect();
        eventually("all commands run at once", || {
            let entries = std::fs::read_dir(world.root()).unwrap();
            entries.filter(|entry| entry.as_ref().unwrap().file_name().as_bytes().starts_with(b"up-")).count() == 24
        });
        world.runner.ping().unwrap();
        std::fs::write(world.root().join("go"), "").unwrap();
        for (number, command) in commands.into_iter().enumerate() {
            let ran = command.join().unwrap();
            assert_eq!((ran.stdout, ran.ended.exit_code), (format!("{number}\n"), Some(number as u8)));
        }
    });
}

#[test]
fn command_discarded_output_goes_nowhere() {
    let world = World::new();
    let mut command = shell("echo one; echo two >&2; no-such-program; exit 4");
    command.discard_output = true;
    let ran = run(&world.runner, &command).unwrap();
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str(), ran.ended.exit_code), ("", "", Some(4)));
}

#[test]
fn command_merged_output_comes_in_order() {
    let world = World::new();
    let merged = |command| RunSpec { merge_output: true, ..command };
    let ran = run(&world.runner, &merged(shell("echo 1; echo 2 >&2; echo 3; echo 4 >&2"))).unwrap();
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("1\n2\n3\n4\n", ""));
    let ran = run(&world.runner, &merged(spec(&["no-such-program"]))).unwrap();
    assert!(ran.stdout.contains("no-such-program") && ran.stderr.is_empty(), "{ran:?}");
    assert_eq!(ran.ended.exit_code, Some(127));
    let ran = run(&world.runner, &RunSpec { discard_output: true, ..merged(shell("echo 1; echo 2 >&2")) }).unwrap();
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("", ""));
}

#[test]
fn command_pipe_held_by_stranger_is_not_awaited() {
    let world = World::new();
    // The write end goes to a foreign process: this one.
    let fifo = world.root().join("out");
    let script = "echo written; mkfifo out; readlink /proc/$$/fd/1 > /dev/null; echo $$ > pid; \
                  while [ ! -e held ]; do sleep 0.02; done";
    std::thread::scope(|scope| {
        let running = scope.spawn(|| run(&world.runner, &shell(script)).unwrap());
        eventually("the command runs", || {
            std::fs::read_to_string(world.root().join("pid")).is_ok_and(|pid| pid.ends_with('\n'))
        });
        let pid = std::fs::read_to_string(world.root().join("pid")).unwrap();
        let held = std::fs::OpenOptions::new().write(true).open(format!("/proc/{}/fd/1", pid.trim())).unwrap();
        std::fs::write(world.root().join("held"), "").unwrap();
        assert_eq!(running.join().unwrap().stdout, "written\n");
        drop(held);
    });
    assert!(fifo.exists());
}

#[test]
fn which_searches_as_a_shell() {
    let world = World::new();
    let which = |program: &str, path: &str| world.runner.which(program.as_ref(), path.as_ref());
    assert_eq!(which("sh", "/nowhere:/bin").unwrap(), Some("/bin/sh".into()));
    assert_eq!(which("/bin/sh", "").unwrap(), Some("/bin/sh".into()));
    assert_eq!(which("no-such-program", "/usr/bin:/bin").unwrap(), None);
    assert_eq!(which("etc", "/").unwrap(), None);
    assert!(matches!(which("", "/bin"), Err(RunnerError::Invalid(_))));
    // Relative paths are searched as by a command that starts in the root.
    std::fs::create_dir(world.root().join("tools")).unwrap();
    for own in ["build.sh", "tools/own"] {
        std::fs::write(world.root().join(own), "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(world.root().join(own), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    assert_eq!(which("./build.sh", "/bin").unwrap(), Some("./build.sh".into()));
    assert_eq!(which("own", "tools:/bin").unwrap(), Some("tools/own".into()));
    for path in ["", "/bin:", ":/bin"] {
        assert_eq!(which("build.sh", path).unwrap(), Some("./build.sh".into()), "{path:?}");
    }
    assert_eq!(which("./own", "tools").unwrap(), None);
}

#[test]
fn variables_of_the_runner_are_told() {
    let world = World::new();
    let path = [b"PATH=", std::env::var_os("PATH").unwrap().as_bytes()].concat();
    assert!(world.runner.variables().unwrap().iter().any(|variable| variable.as_bytes() == path));
}
