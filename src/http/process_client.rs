//! A process's output, as a client follows it.

use crate::http::client::{CallEvent, ClientError, HttpClient, ResponseStream, call_event};
use crate::tools::processes::ProcessDocument;

/// The output of a process, from the beginning of what is retained.
pub struct ProcessEvents {
    events: ResponseStream,
    /// The bytes to come, to end before the process does.
    left: Option<u64>,
}

impl HttpClient {
    /// Follows the output of a process until its end, or only what it has printed so far.
    pub async fn follow_process(
        &self,
        session: &str,
        process: u64,
        to_end: bool,
    ) -> Result<ProcessEvents, ClientError> {
        let place = format!("/v1/sessions/{session}/processes/{process}");
        let left = match to_end {
            true => None,
            false => {
                let now: ProcessDocument = self.get(&place).await?;
                Some(now.stdout_bytes + now.stderr_bytes)
            }
        };
        Ok(ProcessEvents { events: self.events(&format!("{place}/output")).await?, left })
    }
}

impl ProcessEvents {
    /// Waits for the next output, or the number of bytes that are no longer retained; `None` at the end.
    ///
    /// # Errors
    /// [`ClientError`], if the server goes away.
    pub async fn next(&mut self) -> Result<Option<CallEvent>, ClientError> {
        while self.left != Some(0)
            && let Some(event) = self.events.next().await?.filter(|event| event.name != "ended")
        {
            let Some(known) = call_event(&event)? else { continue };
            let passed = match &known {
                CallEvent::Output { bytes, .. } => bytes.len() as u64,
                CallEvent::Missed(bytes) => *bytes,
                _ => 0,
            };
            self.left = self.left.map(|left| left.saturating_sub(passed));
            return Ok(Some(known));
        }
        Ok(None)
    }
}
