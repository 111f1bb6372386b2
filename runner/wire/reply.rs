//! The runner's answers.

use super::bytes::{Rest, put_bytes, put_list};
use super::{MAX_FRAME, Malformed, OUTPUT, frame};

/// An answer of the runner. All except `Started`, `Output` and `Taken` end a request. `Started` has the process id of a
/// command with more input, as the runner sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RunnerReply<'a> {
    Welcome { version: u16, pid: u32, features: u32 },
    Started { pid: u32 },
    Output { stream: OutputStreamKind, bytes: &'a [u8] },
    Taken { bytes: u32 },
    Ended(Ended),
    Done,
    Found { path: Option<&'a [u8]> },
    Env { variables: Vec<&'a [u8]> },
    Failed { kind: RunFailure, errno: i32, message: &'a [u8] },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum OutputStreamKind {
    Stdout,
    Stderr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Ended {
    pub(crate) exit_code: Option<u8>,
    pub(crate) signal: Option<u8>,
    pub(crate) timed_out: bool,
    pub(crate) cancelled: bool,
    /// The last signal that the runner sent to end it: 15 or 9. `None` if it sent none.
    pub(crate) sent: Option<u8>,
    pub(crate) leftovers: u32,
    /// The number of killed processes that did not die: the kernel holds them.
    pub(crate) survivors: u32,
    pub(crate) duration_us: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunFailure {
    Version,
    Token,
    /// A frame is malformed, too long or out of turn; the connection ends.
    Protocol,
    Invalid,
    Busy,
    Cwd,
    Spawn,
    Outside,
    /// The system refused a file operation; `errno` says why.
    Io,
    /// The answer is too large for one frame.
    TooLarge,
}

impl RunnerReply<'_> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        frame(out, |out| match self {
            Self::Welcome { version, pid, features } => {
                out.push(128);
                out.extend_from_slice(&version.to_le_bytes());
                out.extend_from_slice(&pid.to_le_bytes());
                out.extend_from_slice(&features.to_le_bytes());
            }
            Self::Output { stream, bytes } => {
                out.extend_from_slice(&[OUTPUT, *stream as u8]);
                out.extend_from_slice(bytes);
            }
            Self::Ended(ended) => {
                out.push(130);
                ended.encode(out);
            }
            Self::Done => out.push(131),
            Self::Found { path } => {
                out.extend_from_slice(&[132, u8::from(path.is_some())]);
                put_bytes(out, path.unwrap_or_default());
            }
            Self::Env { variables } => {
                out.push(133);
                put_list(out, variables);
            }
            Self::Taken { bytes } => {
                out.push(134);
                out.extend_from_slice(&bytes.to_le_bytes());
            }
            Self::Started { pid } => {
                out.push(135);
                out.extend_from_slice(&pid.to_le_bytes());
            }
            Self::Failed { kind, errno, message } => {
                out.extend_from_slice(&[255, *kind as u8]);
                out.extend_from_slice(&errno.to_le_bytes());
                put_bytes(out, message);
            }
        });
    }
}

impl<'a> RunnerReply<'a> {
    pub(crate) fn decode(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut rest = Rest(body);
        let reply = match rest.u8()? {
            128 => Self::Welcome { version: rest.u16()?, pid: rest.u32()?, features: rest.u32()? },
            OUTPUT => {
                let stream = match rest.u8()? {
                    0 => OutputStreamKind::Stdout,
                    1 => OutputStreamKind::Stderr,
                    _ => return Err(Malformed("unknown output stream")),
                };
                Self::Output { stream, bytes: rest.take(rest.0.len())? }
            }
            130 => Self::Ended(Ended::decode(&mut rest)?),
            131 => Self::Done,
            132 => {
                let (known, path) = (rest.flag()?, rest.bytes()?);
                Self::Found { path: known.then_some(path) }
            }
            133 => Self::Env { variables: rest.list(MAX_FRAME)? },
            134 => Self::Taken { bytes: rest.u32()? },
            135 => Self::Started { pid: rest.u32()? },
            255 => {
                let kind = RunFailure::decode(rest.u8()?)?;
                Self::Failed { kind, errno: rest.u32()?.cast_signed(), message: rest.bytes()? }
            }
            _ => return Err(Malformed("unknown kind of answer")),
        };
        rest.end(reply)
    }
}

impl Ended {
    fn encode(&self, out: &mut Vec<u8>) {
        for value in [self.exit_code, self.signal, self.sent] {
            out.extend_from_slice(&[u8::from(value.is_some()), value.unwrap_or(0)]);
        }
        out.extend_from_slice(&[u8::from(self.timed_out), u8::from(self.cancelled)]);
        out.extend_from_slice(&self.leftovers.to_le_bytes());
        out.extend_from_slice(&self.survivors.to_le_bytes());
        out.extend_from_slice(&self.duration_us.to_le_bytes());
    }

    fn decode(rest: &mut Rest<'_>) -> Result<Self, Malformed> {
        let mut small = || {
            let (known, value) = (rest.flag()?, rest.u8()?);
            Ok(known.then_some(value))
        };
        let (exit_code, signal, sent) = (small()?, small()?, small()?);
        let (timed_out, cancelled) = (rest.flag()?, rest.flag()?);
        let (leftovers, survivors, duration_us) = (rest.u32()?, rest.u32()?, rest.u64()?);
        Ok(Self { exit_code, signal, timed_out, cancelled, sent, leftovers, survivors, duration_us })
    }
}

impl RunFailure {
    fn decode(byte: u8) -> Result<Self, Malformed> {
        use RunFailure::*;
        let known = [Version, Token, Protocol, Invalid, Busy, Cwd, Spawn, Outside, Io, TooLarge];
        known.into_iter().find(|kind| *kind as u8 == byte).ok_or(Malformed("unknown kind of failure"))
    }
}
