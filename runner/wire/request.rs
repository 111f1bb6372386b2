//! foldspace's requests.

use super::bytes::{Rest, put_bytes, put_length, put_list, put_optional};
use super::{MAGIC, MAX_LIMITS, MAX_WORDS, Malformed, frame};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RunnerRequest<'a> {
    Hello {
        version: u16,
        token: &'a [u8],
    },
    Run(RunRequest<'a>),
    /// Ends the connection's running command. Ignored without one.
    Cancel,
    /// Bytes for the running command. Ignored without one, like the next three.
    Input(&'a [u8]),
    EndInput,
    Resize(TerminalWindow),
    /// Sends a signal to the running command's first process and its group.
    Signal(u8),
    Which {
        program: &'a [u8],
        path: &'a [u8],
    },
    Env,
    Ping,
    /// Opens a socket in the container's network. The descriptor comes with the answer.
    Socket(SocketRequest),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SocketRequest {
    pub(crate) kind: SocketKind,
    pub(crate) address: [u8; 4],
    pub(crate) port: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SocketKind {
    /// A TCP connection to the address.
    Connect,
    /// A TCP socket that listens at the address.
    Listen,
    /// A UDP socket bound to the address.
    Datagram,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunRequest<'a> {
    /// Its directory below the root, which no link leads out of.
    pub(crate) cwd: &'a [u8],
    pub(crate) argv: Vec<&'a [u8]>,
    /// `NAME=value` each; the complete environment.
    pub(crate) env: Vec<&'a [u8]>,
    pub(crate) stdin: &'a [u8],
    /// Zero for no limit.
    pub(crate) timeout_ms: u32,
    /// The time between SIGTERM and SIGKILL.
    pub(crate) grace_ms: u32,
    pub(crate) discard_output: bool,
    /// True to merge its standard error into its standard output.
    pub(crate) merge_output: bool,
    /// The size of its terminal. `None` for pipes.
    pub(crate) terminal: Option<TerminalWindow>,
    /// True if more input follows `stdin`, until `EndInput`.
    pub(crate) is_fed: bool,
    pub(crate) surroundings: CallerSurroundings<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TerminalWindow {
    pub(crate) rows: u16,
    pub(crate) columns: u16,
}

/// Settings that a command gets from the requesting process instead of the runner.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CallerSurroundings<'a> {
    pub(crate) umask: Option<u32>,
    pub(crate) nice: Option<i32>,
    /// Each resource's number, soft limit and hard limit.
    pub(crate) limits: Vec<(u32, u64, u64)>,
    /// The path of a control group's `cgroup.procs` file; empty for none.
    pub(crate) cgroup: &'a [u8],
}

impl RunnerRequest<'_> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        frame(out, |out| match self {
            Self::Hello { version, token } => {
                out.push(1);
                out.extend_from_slice(MAGIC);
                out.extend_from_slice(&version.to_le_bytes());
                put_bytes(out, token);
            }
            Self::Run(run) => {
                out.push(2);
                run.encode(out);
            }
            Self::Cancel => out.push(3),
            Self::Which { program, path } => {
                out.push(5);
                put_bytes(out, program);
                put_bytes(out, path);
            }
            Self::Env => out.push(6),
            Self::Ping => out.push(12),
            Self::Input(bytes) => {
                out.push(13);
                put_bytes(out, bytes);
            }
            Self::EndInput => out.push(14),
            Self::Resize(window) => {
                out.push(15);
                window.encode(out);
            }
            Self::Signal(number) => out.extend_from_slice(&[16, *number]),
            Self::Socket(SocketRequest { kind, address, port }) => {
                out.extend_from_slice(&[17, *kind as u8]);
                out.extend_from_slice(address);
                out.extend_from_slice(&port.to_le_bytes());
            }
        });
    }
}

impl<'a> RunnerRequest<'a> {
    pub(crate) fn decode(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut rest = Rest(body);
        let request = match rest.u8()? {
            1 => {
                if rest.take(MAGIC.len())? != MAGIC {
                    return Err(Malformed("not a greeting of foldspace"));
                }
                Self::Hello { version: rest.u16()?, token: rest.bytes()? }
            }
            2 => Self::Run(RunRequest::decode(&mut rest)?),
            3 => Self::Cancel,
            5 => Self::Which { program: rest.bytes()?, path: rest.bytes()? },
            6 => Self::Env,
            12 => Self::Ping,
            13 => Self::Input(rest.bytes()?),
            14 => Self::EndInput,
            15 => Self::Resize(TerminalWindow::decode(&mut rest)?),
            16 => Self::Signal(rest.u8()?),
            17 => {
                let kind = match rest.u8()? {
                    0 => SocketKind::Connect,
                    1 => SocketKind::Listen,
                    2 => SocketKind::Datagram,
                    _ => return Err(Malformed("unknown kind of socket")),
                };
                Self::Socket(SocketRequest { kind, address: rest.array()?, port: rest.u16()? })
            }
            _ => return Err(Malformed("unknown kind of request")),
        };
        rest.end(request)
    }
}

impl<'a> RunRequest<'a> {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[u8::from(self.discard_output), u8::from(self.merge_output)]);
        put_bytes(out, self.cwd);
        put_list(out, &self.argv);
        put_list(out, &self.env);
        put_bytes(out, self.stdin);
        out.extend_from_slice(&self.timeout_ms.to_le_bytes());
        out.extend_from_slice(&self.grace_ms.to_le_bytes());
        out.extend_from_slice(&[u8::from(self.is_fed), u8::from(self.terminal.is_some())]);
        if let Some(window) = self.terminal {
            window.encode(out);
        }
        self.surroundings.encode(out);
    }

    fn decode(rest: &mut Rest<'a>) -> Result<Self, Malformed> {
        let (discard_output, merge_output, cwd) = (rest.flag()?, rest.flag()?, rest.bytes()?);
        let (argv, env, stdin) = (rest.list(MAX_WORDS)?, rest.list(MAX_WORDS)?, rest.bytes()?);
        let (timeout_ms, grace_ms) = (rest.u32()?, rest.u32()?);
        let is_fed = rest.flag()?;
        let terminal = if rest.flag()? { Some(TerminalWindow::decode(rest)?) } else { None };
        let surroundings = CallerSurroundings::decode(rest)?;
        Ok(Self {
            cwd,
            argv,
            env,
            stdin,
            timeout_ms,
            grace_ms,
            discard_output,
            merge_output,
            terminal,
            is_fed,
            surroundings,
        })
    }
}

impl TerminalWindow {
    fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.rows.to_le_bytes());
        out.extend_from_slice(&self.columns.to_le_bytes());
    }

    fn decode(rest: &mut Rest<'_>) -> Result<Self, Malformed> {
        Ok(Self { rows: rest.u16()?, columns: rest.u16()? })
    }
}

impl<'a> CallerSurroundings<'a> {
    fn encode(&self, out: &mut Vec<u8>) {
        put_optional(out, self.umask);
        put_optional(out, self.nice.map(i32::cast_unsigned));
        put_length(out, self.limits.len());
        for (resource, soft, hard) in &self.limits {
            out.extend_from_slice(&resource.to_le_bytes());
            out.extend_from_slice(&soft.to_le_bytes());
            out.extend_from_slice(&hard.to_le_bytes());
        }
        put_bytes(out, self.cgroup);
    }

    fn decode(rest: &mut Rest<'a>) -> Result<Self, Malformed> {
        let (umask, nice) = (rest.optional()?, rest.optional()?.map(u32::cast_signed));
        let count = rest.u32()?;
        if count > MAX_LIMITS {
            return Err(Malformed("a list is too long"));
        }
        let limits = (0..count).map(|_| Ok((rest.u32()?, rest.u64()?, rest.u64()?))).collect::<Result<_, _>>()?;
        Ok(Self { umask, nice, limits, cgroup: rest.bytes()? })
    }
}
