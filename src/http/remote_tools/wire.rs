//! Messages between a server and a program with tools: a line of JSON each.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use schemars::Schema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

use crate::engine::event::CommandLine;
use crate::engine::id::{Seq, SessionId};
use crate::engine::path::EntryPath;
use crate::tools::{Effect, ToolContext};

/// The path that upgrades a connection to this protocol, and the protocol's name.
pub(super) const REGISTER: (&str, &str) = ("/v1/tools/register", "foldspace-tools");
/// The most bytes of a message.
pub(super) const MESSAGE_MAX: usize = 32 << 20;
/// The most tools of a program.
pub(super) const TOOLS_MAX: usize = 64;
/// The most bytes of a tool's description and schemas.
pub(super) const OFFER_MAX: usize = 64 << 10;

/// The body of the request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RegisterRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) session: Option<String>,
    pub(super) tools: Vec<ToolOffer>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ToolOffer {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) effect: Effect,
    pub(super) params: Schema,
    pub(super) output: Schema,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) limit_ms: Option<u64>,
}

/// A message from the server; `id` is the number of the call on this connection.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToProgram {
    Call(CallMessage),
    /// The reply to a request: either `ok` or `error`.
    Reply {
        id: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ok: Option<Value>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// Cancels the call.
    Cancel {
        id: u64,
    },
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CallMessage {
    pub(super) id: u64,
    pub(super) tool: String,
    pub(super) params: Value,
    pub(super) session: SessionId,
    pub(super) session_name: String,
    pub(super) agent: String,
    pub(super) call: Seq,
    pub(super) limit_ms: u64,
}

impl CallMessage {
    /// Describes a call, without its number, tool and parameters.
    pub(super) fn of(context: &ToolContext) -> Self {
        let session = context.session();
        Self {
            id: 0,
            tool: String::new(),
            params: Value::Null,
            session: session.id(),
            session_name: session.name().to_owned(),
            agent: session.agent().to_string(),
            call: context.call(),
            limit_ms: u64::try_from(context.remaining().as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// A message from the program.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum ToServer {
    Ask { id: u64, ask: ToolRequest },
    Done { id: u64, result: Value, text: Option<String> },
    Failed { id: u64, message: String },
}

impl ToServer {
    pub(super) fn id(&self) -> u64 {
        match self {
            Self::Ask { id, .. } | Self::Done { id, .. } | Self::Failed { id, .. } => *id,
        }
    }
}

/// A request of a tool to its workspace.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum ToolRequest {
    Read { path: String },
    Write { path: String, contents: EncodedBytes },
    Remove { path: String },
    List { below: String },
    Run(RunCommand),
    Record { kind: String, version: u16, payload: EncodedBytes },
    Show { text: String },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RunCommand {
    pub(super) command: CommandLine,
    #[serde(default)]
    pub(super) cwd: String,
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) stdin: Option<EncodedBytes>,
    #[serde(default)]
    pub(super) timeout_ms: Option<u64>,
}

/// Bytes: as text if they are UTF-8, else in base64.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum EncodedBytes {
    Text(String),
    Base64(String),
}

impl EncodedBytes {
    pub(super) fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Base64(STANDARD.encode(bytes)),
        }
    }

    pub(super) fn bytes(self) -> Result<Bytes, base64::DecodeError> {
        match self {
            Self::Text(text) => Ok(text.into()),
            Self::Base64(text) => Ok(STANDARD.decode(text)?.into()),
        }
    }
}

/// An entry of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteEntry {
    /// Its path.
    pub path: EntryPath,
    /// `file`, `directory`, `symlink` or `special`.
    pub node: String,
    /// The size of a file in bytes; 0 for any other entry.
    pub size: u64,
}

/// The result of a command that a tool ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteRun {
    /// 0 for success; 127 if the program was not found.
    pub exit_code: i32,
    /// Standard output as text, at most 1 MiB; of longer output the beginning and the end.
    pub stdout: String,
    /// Standard error, likewise.
    pub stderr: String,
    /// True if it exceeded its time limit.
    pub timed_out: bool,
    /// True if part of the output is missing here.
    pub truncated: bool,
}

/// Serializes a message; fails if it is over the size limit.
pub(super) fn line(message: &impl Serialize) -> Result<Bytes, String> {
    let mut line = serde_json::to_vec(message).map_err(|error| error.to_string())?;
    if line.len() > MESSAGE_MAX {
        return Err(format!("a message has {} bytes; the limit is {MESSAGE_MAX}", line.len()));
    }
    line.push(b'\n');
    Ok(line.into())
}

/// Reads a message; `None` at the end.
pub(super) async fn next<T: serde::de::DeserializeOwned>(
    reader: &mut (impl AsyncBufRead + Unpin),
) -> Result<Option<T>, String> {
    let mut line = Vec::new();
    let read = reader.take(MESSAGE_MAX as u64 + 1).read_until(b'\n', &mut line).await;
    read.map_err(|error| error.to_string())?;
    match line.pop() {
        None => Ok(None),
        Some(b'\n') => serde_json::from_slice(&line).map(Some).map_err(|error| format!("invalid message: {error}")),
        Some(_) if line.len() >= MESSAGE_MAX => Err(format!("a message is over the limit of {MESSAGE_MAX} bytes")),
        Some(_) => Ok(None),
    }
}
