//! Round trips of frames, and random input.

use proptest::prelude::*;

use super::wire::{
    CallerSurroundings, RunFailure, RunRequest, RunnerReply, RunnerRequest, TerminalWindow, frame_length,
};
use super::*;

fn requests() -> Vec<RunnerRequest<'static>> {
    let run = RunRequest {
        cwd: b"a/b",
        argv: vec![b"sh", b"-c", b""],
        env: vec![b"A=B"],
        stdin: b"in",
        timeout_ms: 1,
        grace_ms: u32::MAX,
        discard_output: true,
        merge_output: true,
        terminal: Some(TerminalWindow { rows: 24, columns: 80 }),
        is_fed: true,
        surroundings: CallerSurroundings {
            umask: Some(0o27),
            nice: Some(-3),
            limits: vec![(7, 64, u64::MAX)],
            cgroup: b"/a",
        },
    };
    vec![
        RunnerRequest::Hello { version: 7, token: b"token" },
        RunnerRequest::Run(RunRequest {
            cwd: b"",
            discard_output: false,
            merge_output: false,
            terminal: None,
            is_fed: false,
            argv: vec![],
            surroundings: CallerSurroundings::default(),
            ..run.clone()
        }),
        RunnerRequest::Run(run),
        RunnerRequest::Cancel,
        RunnerRequest::Which { program: b"sh", path: b"/bin" },
        RunnerRequest::Env,
        RunnerRequest::Ping,
        RunnerRequest::Input(b"typed"),
        RunnerRequest::EndInput,
        RunnerRequest::Resize(TerminalWindow { rows: 1, columns: u16::MAX }),
        RunnerRequest::Signal(15),
        RunnerRequest::Socket(SocketRequest { kind: SocketKind::Listen, address: [127, 0, 0, 1], port: 80 }),
    ]
}

fn replies() -> Vec<RunnerReply<'static>> {
    let ended = Ended {
        exit_code: None,
        signal: Some(9),
        timed_out: true,
        cancelled: false,
        sent: Some(15),
        leftovers: 1,
        survivors: 2,
        duration_us: 3,
    };
    vec![
        RunnerReply::Welcome { version: 1, pid: 2, features: 3 },
        RunnerReply::Started { pid: 7 },
        RunnerReply::Output { stream: OutputStreamKind::Stderr, bytes: b"text" },
        RunnerReply::Taken { bytes: 5 },
        RunnerReply::Ended(ended),
        RunnerReply::Done,
        RunnerReply::Found { path: None },
        RunnerReply::Found { path: Some(b"/bin/sh") },
        RunnerReply::Env { variables: vec![b"A=B", b""] },
        RunnerReply::Failed { kind: RunFailure::TooLarge, errno: -1, message: b"why" },
    ]
}

/// Returns the body of a frame after checking its length.
fn body(frame: &[u8]) -> &[u8] {
    assert_eq!(frame_length(frame), Some(frame.len() - 4));
    &frame[4..]
}

#[test]
fn runner_frame_round_trips_exactly() {
    for request in requests() {
        let mut frame = Vec::new();
        request.encode(&mut frame);
        assert_eq!(RunnerRequest::decode(body(&frame)), Ok(request.clone()));
        for end in 4..frame.len() {
            assert!(RunnerRequest::decode(&frame[4..end]).is_err(), "{request:?} cut at {end}");
        }
        frame.push(0);
        assert!(RunnerRequest::decode(&frame[4..]).is_err(), "{request:?}");
    }
    for reply in replies() {
        let mut frame = Vec::new();
        reply.encode(&mut frame);
        assert_eq!(RunnerReply::decode(body(&frame)), Ok(reply));
    }
}

#[test]
fn runner_greeting_of_stranger_is_refused() {
    let mut frame = Vec::new();
    RunnerRequest::Hello { version: 1, token: b"t" }.encode(&mut frame);
    frame[5] ^= 1;
    assert!(RunnerRequest::decode(&frame[4..]).is_err());
}

proptest! {
    #[test]
    fn runner_frame_of_random_bytes_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in any::<u8>()) {
        let _ = RunnerRequest::decode(&bytes);
        let _ = RunnerReply::decode(&bytes);
        let known = [&[kind % 17][..], &bytes].concat();
        let _ = RunnerRequest::decode(&known);
        let known = [&[128 + kind % 9][..], &bytes].concat();
        let _ = RunnerReply::decode(&known);
    }

    #[test]
    fn runner_frame_flipped_byte_is_noticed_or_harmless(which in 0_usize..10, at in any::<prop::sample::Index>(), flip in 1_u8..) {
        let mut frame = Vec::new();
        requests()[which].encode(&mut frame);
        let body = &mut frame[4..];
        let at = at.index(body.len());
        body[at] ^= flip;
        if let Ok(request) = RunnerRequest::decode(body) {
            let mut again = Vec::new();
            request.encode(&mut again);
            prop_assert_eq!(&again[4..], &*body);
        }
    }
}
