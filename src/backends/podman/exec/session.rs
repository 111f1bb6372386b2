//! One exec of the engine: made, started, looked at.

use std::time::Duration;

use futures_util::io::{AsyncRead, AsyncWrite};
use podman_api::Error;
use serde::Deserialize;
use serde_json::json;

use crate::backends::executor::NotRun;
use crate::backends::podman::requests::{Requests, within};

/// How long the engine may take to answer.
const ANSWER: Duration = Duration::from_secs(15);

/// An exec that the engine knows.
pub(crate) struct ExecSession<'a> {
    requests: &'a Requests,
    id: String,
}

/// What the engine tells of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ExecState {
    pub(crate) running: bool,
    /// The number of its first process on the engine's machine; 0 when it does not run.
    pub(crate) pid: i32,
    pub(crate) exit_code: i32,
}

#[derive(Deserialize)]
struct CreatedExec {
    #[serde(rename = "Id")]
    id: String,
}

impl<'a> ExecSession<'a> {
    pub(crate) async fn make(
        requests: &'a Requests,
        container: &str,
        line: &[String],
        directory: &str,
    ) -> Result<Self, NotRun> {
        let asked = json!({
            "AttachStdin": false,
            "AttachStdout": true,
            "AttachStderr": true,
            "Cmd": line,
            "WorkingDir": directory,
        });
        let endpoint = format!("/libpod/containers/{container}/exec");
        let made: CreatedExec =
            within(ANSWER, requests.post(&endpoint, &asked)).await.map_err(|error| refused(&error))?;
        Ok(Self { requests, id: made.id })
    }

    /// Starts it and gives its streams, which are interleaved.
    pub(crate) async fn start(&self) -> Result<impl AsyncRead + AsyncWrite + Unpin + use<>, NotRun> {
        let endpoint = format!("/libpod/exec/{}/start", self.id);
        let started = within(ANSWER, self.requests.stream(&endpoint, &json!({ "Detach": false }))).await;
        started.map(Box::pin).map_err(|error| refused(&error))
    }

    pub(crate) async fn look(&self) -> Result<ExecState, NotRun> {
        let looked = within(ANSWER, self.requests.get(&format!("/libpod/exec/{}/json", self.id))).await;
        looked.map_err(|error| refused(&error))
    }
}

/// What the engine says when it does not do it.
fn refused(error: &Error) -> NotRun {
    let what = format!("the engine's exec failed: {error}");
    match error {
        // The container is gone, or it does not run.
        Error::Fault { code, .. } if matches!(code.as_u16(), 404 | 409) => NotRun::Lost(what),
        Error::Fault { message, .. } if message.contains("chdir") => NotRun::Invalid(what),
        Error::Fault { message, .. } if !message.contains("running containers") => NotRun::Failed(what),
        _ => NotRun::Lost(what),
    }
}
