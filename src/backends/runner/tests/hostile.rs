//! Peers that vanish, stall or send nonsense, and a runner that dies.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;

use super::wire::{
    CallerSurroundings, MAX_CONNECTIONS, MAX_FRAME, MAX_INPUT, RunFailure, RunRequest, RunnerReply, RunnerRequest,
    VERSION, frame_length,
};
use super::*;

/// A raw connection, without the client.
fn raw(world: &World) -> UnixStream {
    match &world.runner.shared.origin {
        RunnerOrigin::Host(child) => child.connect().unwrap(),
        RunnerOrigin::Container(_) => unreachable!(),
    }
}

pub(super) fn send(stream: &mut UnixStream, request: &RunnerRequest<'_>) {
    let mut frame = Vec::new();
    request.encode(&mut frame);
    stream.write_all(&frame).unwrap();
}

pub(super) fn receive(stream: &mut UnixStream) -> Vec<u8> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut body = vec![0; frame_length(&length).unwrap()];
    stream.read_exact(&mut body).unwrap();
    body
}

/// Returns the failure that the runner sends before it closes.
fn last_words(stream: &mut UnixStream) -> RunFailure {
    let body = receive(stream);
    let Ok(RunnerReply::Failed { kind, .. }) = RunnerReply::decode(&body) else { panic!("{body:?}") };
    let mut rest = Vec::new();
    assert_eq!(stream.read_to_end(&mut rest).unwrap_or(0), 0);
    kind
}

fn greeted(world: &World) -> UnixStream {
    let mut stream = raw(world);
    send(&mut stream, &RunnerRequest::Hello { version: VERSION, token: b"" });
    assert!(matches!(RunnerReply::decode(&receive(&mut stream)), Ok(RunnerReply::Welcome { version: VERSION, .. })));
    stream
}

/// Receives the next frame that is neither `Started` nor `Taken`.
fn receive_further(stream: &mut UnixStream) -> Vec<u8> {
    loop {
        let body = receive(stream);
        match RunnerReply::decode(&body) {
            Ok(RunnerReply::Started { .. } | RunnerReply::Taken { .. }) => {}
            _ => return body,
        }
    }
}

fn running<'a>(script: &'a [u8]) -> RunnerRequest<'a> {
    RunnerRequest::Run(RunRequest {
        cwd: b"",
        argv: vec![b"/bin/sh", b"-c", script],
        env: vec![b"PATH=/usr/bin:/bin"],
        stdin: b"",
        timeout_ms: 0,
        grace_ms: 60_000,
        discard_output: false,
        merge_output: false,
        terminal: None,
        is_fed: true,
        surroundings: CallerSurroundings::default(),
    })
}

#[test]
fn runner_refuses_more_input_than_may_wait() {
    let world = World::new();
    let mut stream = greeted(&world);
    send(&mut stream, &running(b"sleep 1000"));
    // One part fits into the pipe, and another part may wait.
    for _ in 0..2 {
        send(&mut stream, &RunnerRequest::Input(&[b'x'; MAX_INPUT]));
    }
    send(&mut stream, &RunnerRequest::Input(b"x"));
    let answer = receive_further(&mut stream);
    let refused = RunnerReply::decode(&answer);
    assert!(matches!(refused, Ok(RunnerReply::Failed { kind: RunFailure::Protocol, .. })), "{refused:?}");
}

#[test]
fn runner_drops_strangers_with_reason() {
    let world = World::new();
    let first: [(&[u8], RunFailure); 5] = [
        (&[0, 0, 0, 0], RunFailure::Protocol),
        (&[0xff; 8], RunFailure::Protocol),
        (&[1, 0, 0, 0, 12], RunFailure::Protocol),
        (&[1, 0, 0, 0, 77], RunFailure::Protocol),
        (b"GET / HTTP/1.1\r\n\r\n", RunFailure::Protocol),
    ];
    for (bytes, failure) in first {
        let mut stream = raw(&world);
        stream.write_all(bytes).unwrap();
        assert_eq!(last_words(&mut stream), failure, "{bytes:?}");
    }
    for (version, token, failure) in [
        (VERSION + 1, &b""[..], RunFailure::Version),
        (0, b"", RunFailure::Version),
        (VERSION, b"wrong", RunFailure::Token),
    ] {
        let mut stream = raw(&world);
        send(&mut stream, &RunnerRequest::Hello { version, token });
        assert_eq!(last_words(&mut stream), failure);
    }
    let mut silent = raw(&world);
    // It is dropped after a time-out, without a reply.
    assert_eq!(silent.read_to_end(&mut Vec::new()).unwrap_or(0), 0);
    world.runner.ping().unwrap();
}

#[test]
fn runner_request_out_of_turn_ends_connection() {
    let world = World::new();
    let mut stream = greeted(&world);
    send(&mut stream, &running(b"echo $$; exec sleep 1000"));
    let body = receive_further(&mut stream);
    let Ok(RunnerReply::Output { bytes, .. }) = RunnerReply::decode(&body) else { panic!("{body:?}") };
    let pid = std::str::from_utf8(bytes).unwrap().trim().parse().unwrap();
    assert!(lives(pid));
    send(&mut stream, &RunnerRequest::Ping);
    assert_eq!(last_words(&mut stream), RunFailure::Protocol);
    eventually("the command is killed", || !lives(pid));
    let mut stream = greeted(&world);
    stream.write_all(&u32::try_from(MAX_FRAME + 1).unwrap().to_le_bytes()).unwrap();
    assert_eq!(last_words(&mut stream), RunFailure::Protocol);
    let mut stream = greeted(&world);
    send(&mut stream, &RunnerRequest::Cancel);
    send(&mut stream, &RunnerRequest::Ping);
    assert_eq!(RunnerReply::decode(&receive(&mut stream)), Ok(RunnerReply::Done));
}

#[test]
fn runner_cancel_of_ended_command_does_nothing() {
    let world = World::new();
    let mut stream = greeted(&world);
    // It fills all buffers up to a peer that does not read, and ends.
    let fill = b"echo $$ > pid; exec python3 -c 'import os, time\n\
        os.set_blocking(1, False)\n\
        idle = 0\n\
        while idle < 30:\n\
        \x20   try: idle = 0 * os.write(1, bytes(4096))\n\
        \x20   except BlockingIOError: idle += 1; time.sleep(0.01)\n'";
    send(&mut stream, &running(fill));
    let pid = world.root().join("pid");
    eventually("the command runs", || std::fs::read_to_string(&pid).is_ok_and(|pid| pid.ends_with('\n')));
    let pid = std::fs::read_to_string(&pid).unwrap();
    eventually("the command has ended", || !Path::new("/proc").join(pid.trim()).exists());
    send(&mut stream, &RunnerRequest::Cancel);
    let ended = loop {
        let body = receive_further(&mut stream);
        match RunnerReply::decode(&body) {
            Ok(RunnerReply::Output { .. }) => {}
            Ok(RunnerReply::Ended(ended)) => break ended,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((ended.exit_code, ended.cancelled, ended.sent), (Some(0), false, None));
}

#[test]
fn runner_peer_gone_kills_its_command() {
    let world = World::new();
    let mut stream = greeted(&world);
    send(&mut stream, &running(b"trap '' TERM; setsid sleep 1000 & echo $! $$; wait; wait; sleep 1000"));
    let body = receive_further(&mut stream);
    let Ok(RunnerReply::Output { bytes, .. }) = RunnerReply::decode(&body) else { panic!("{body:?}") };
    let pids: Vec<u32> =
        std::str::from_utf8(bytes).unwrap().split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    drop(stream);
    eventually("both are killed", || !pids.iter().any(|&pid| lives(pid)));
    assert_eq!(run(&world.runner, &shell("echo next")).unwrap().stdout, "next\n");
}

#[test]
fn runner_limits_connections() {
    let world = World::new();
    let own = 1;
    let mut open: Vec<_> = (own..MAX_CONNECTIONS).map(|_| greeted(&world)).collect();
    let mut refused = raw(&world);
    assert_eq!(last_words(&mut refused), RunFailure::Busy);
    world.runner.ping().unwrap();
    open.truncate(3);
    eventually("a connection is free again", || {
        let mut stream = raw(&world);
        send(&mut stream, &RunnerRequest::Hello { version: VERSION, token: b"" });
        matches!(RunnerReply::decode(&receive(&mut stream)), Ok(RunnerReply::Welcome { .. }))
    });
}

#[test]
fn runner_slow_reader_takes_bounded_memory() {
    let world = World::new();
    let wanted: u64 = 1 << 30;
    let status = format!("/proc/{}/status", world.runner.process().unwrap());
    let peak = || {
        let text = std::fs::read_to_string(&status).unwrap();
        let line = text.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    let (mut bytes, mut frames) = (0, 0_u64);
    let mut output = |_: OutputStreamKind, read: &[u8]| {
        bytes += read.len() as u64;
        frames += 1;
        if frames % 1000 == 1 {
            // A slow reader, which blocks the runner.
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let command = shell(&format!("head -c {wanted} /dev/zero"));
    world.runner.run(&command, &mut output, &Cancel::never()).unwrap();
    assert_eq!(bytes, wanted);
    assert!(peak() < 8 * 1024, "{} KiB", peak());
}

#[test]
fn runner_blocked_reader_stops_no_timeout() {
    let world = World::new();
    let mut command = shell("cat /dev/zero");
    command.timeout = Some(Duration::from_millis(300));
    let (wanted, go_on) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| {
            let mut first = true;
            let mut output = move |_: OutputStreamKind, _: &[u8]| {
                if std::mem::take(&mut first) {
                    let _ = go_on.recv();
                }
            };
            world.runner.run(&command, &mut output, &Cancel::never()).unwrap()
        });
        for _ in 0..20 {
            assert_eq!(run(&world.runner, &shell("echo other")).unwrap().stdout, "other\n");
        }
        let runner = world.runner.process().unwrap();
        let children = || std::fs::read_to_string(format!("/proc/{runner}/task/{runner}/children")).unwrap();
        eventually("the command was ended", || children().is_empty());
        drop(wanted);
        let ended = slow.join().unwrap();
        assert!(ended.signal.is_some());
    });
}

#[test]
fn runner_stopped_is_noticed() {
    let world = World::new();
    let signal = |name: &str| {
        let id = world.runner.process().unwrap().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    };
    let mut command = shell("true");
    (command.timeout, command.grace) = (Some(Duration::from_millis(100)), Duration::ZERO);
    signal("-STOP");
    let ran = run(&world.runner, &command);
    signal("-CONT");
    assert!(matches!(ran, Err(RunnerError::LostUnderCommand(ended)) if ended.timed_out), "{ran:?}");
    assert_eq!(run(&world.runner, &shell("echo next")).unwrap().stdout, "next\n");
}

#[test]
fn runner_death_fails_every_caller() {
    let world = World::new();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| run(&world.runner, &shell("echo $$ > pid; exec sleep 1000")));
        eventually("the command runs", || {
            std::fs::read_to_string(world.root().join("pid")).is_ok_and(|pid| pid.ends_with('\n'))
        });
        Command::new("kill").args(["-9", &world.runner.process().unwrap().to_string()]).status().unwrap();
        let ran = waiting.join().unwrap();
        let killed = |ended: Ended| ended.signal == Some(9) && !ended.timed_out;
        assert!(matches!(ran, Err(RunnerError::LostUnderCommand(ended)) if killed(ended)), "{ran:?}");
    });
    let pid = std::fs::read_to_string(world.root().join("pid")).unwrap().trim().parse().unwrap();
    eventually("the command died with it", || !lives(pid));
    assert!(!world.runner.is_alive());
    assert!(matches!(world.runner.ping(), Err(RunnerError::Gone(_))));
    assert!(matches!(run(&world.runner, &shell("true")), Err(RunnerError::Gone(_))));
}

#[test]
fn runner_last_handle_ends_it() {
    let world = World::new();
    let runner = world.runner.process().unwrap();
    let clone = world.runner.clone();
    let directory = world.directory;
    drop(world.runner);
    clone.ping().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = match &clone.shared.origin {
                RunnerOrigin::Host(child) => child.connect().unwrap(),
                RunnerOrigin::Container(_) => unreachable!(),
            };
            send(&mut stream, &RunnerRequest::Hello { version: VERSION, token: b"" });
            send(&mut stream, &running(b"setsid sleep 1000 & echo $! > pid; exec sleep 1000"));
            eventually("the command runs", || {
                std::fs::read_to_string(directory.path().join("pid")).is_ok_and(|pid| pid.ends_with('\n'))
            });
            std::mem::forget(stream);
        });
    });
    let pid = std::fs::read_to_string(directory.path().join("pid")).unwrap().trim().parse().unwrap();
    assert!(lives(pid));
    drop(clone);
    assert!(!lives(pid));
    // Not even as a zombie.
    assert!(!Path::new(&format!("/proc/{runner}")).exists());
}

#[test]
fn runner_outlives_its_starting_thread() {
    let directory = tempfile::tempdir().unwrap();
    let begin = || (Runner::spawn_on_host(directory.path()).unwrap(), rustix::thread::gettid());
    let (runner, thread) = std::thread::scope(|scope| scope.spawn(begin).join().unwrap());
    let thread = format!("/proc/self/task/{}", thread.as_raw_nonzero());
    eventually("the kernel has ended the thread", || !Path::new(&thread).exists());
    assert!(runner.is_alive());
    assert_eq!(run(&runner, &shell("echo here")).unwrap().stdout, "here\n");
}
