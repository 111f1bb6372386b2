//! Requests of foldspace.

use super::bytes::{Rest, put_bytes, put_list};
use super::{MAGIC, MAX_WORDS, Malformed, frame};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RunnerRequest<'a> {
    Hello {
        version: u16,
        token: &'a [u8],
    },
    Run(RunRequest<'a>),
    /// Ends the connection's running command; without one it means nothing.
    Cancel,
    Which {
        program: &'a [u8],
        path: &'a [u8],
    },
    Env,
    Ping,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunRequest<'a> {
    /// Its directory, below the root; no link leads out of it.
    pub(crate) cwd: &'a [u8],
    pub(crate) argv: Vec<&'a [u8]>,
    /// `NAME=value` each; the command has these and no others.
    pub(crate) env: Vec<&'a [u8]>,
    pub(crate) stdin: &'a [u8],
    /// Zero for none.
    pub(crate) timeout_ms: u32,
    /// Between SIGTERM and SIGKILL.
    pub(crate) grace_ms: u32,
    pub(crate) discard_output: bool,
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
        });
    }
}

impl<'a> RunnerRequest<'a> {
    pub(crate) fn decode(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut rest = Rest(body);
        let request = match rest.u8()? {
            1 => {
                if rest.take(MAGIC.len())? != MAGIC {
                    return Err(Malformed("the greeting is not foldspace's"));
                }
                Self::Hello { version: rest.u16()?, token: rest.bytes()? }
            }
            2 => Self::Run(RunRequest::decode(&mut rest)?),
            3 => Self::Cancel,
            5 => Self::Which { program: rest.bytes()?, path: rest.bytes()? },
            6 => Self::Env,
            12 => Self::Ping,
            _ => return Err(Malformed("the request's kind is unknown")),
        };
        rest.end(request)
    }
}

impl<'a> RunRequest<'a> {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.discard_output));
        put_bytes(out, self.cwd);
        put_list(out, &self.argv);
        put_list(out, &self.env);
        put_bytes(out, self.stdin);
        out.extend_from_slice(&self.timeout_ms.to_le_bytes());
        out.extend_from_slice(&self.grace_ms.to_le_bytes());
    }

    fn decode(rest: &mut Rest<'a>) -> Result<Self, Malformed> {
        let (discard_output, cwd) = (rest.flag()?, rest.bytes()?);
        let (argv, env, stdin) = (rest.list(MAX_WORDS)?, rest.list(MAX_WORDS)?, rest.bytes()?);
        Ok(Self { cwd, argv, env, stdin, timeout_ms: rest.u32()?, grace_ms: rest.u32()?, discard_output })
    }
}
