//! Writing of lines to a client that may stall.

use std::io::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

/// Time limit for a stalled client that is being given up; then writing to it stops.
const STALL: Duration = Duration::from_secs(1);

pub(super) struct LineWriter<W> {
    /// `None` once a line may have been cut, since nothing may follow it.
    output: Arc<Mutex<Option<W>>>,
    /// Cancelled when the client is gone or given up. Until then writes have no time limit.
    gone: CancellationToken,
}

impl<W> Clone for LineWriter<W> {
    fn clone(&self) -> Self {
        Self { output: Arc::clone(&self.output), gone: self.gone.clone() }
    }
}

impl<W: AsyncWrite + Unpin> LineWriter<W> {
    pub(super) fn new(output: W, gone: CancellationToken) -> Self {
        Self { output: Arc::new(Mutex::new(Some(output))), gone }
    }

    /// Writes a message. If that fails, the client counts as gone.
    pub(super) async fn write(&self, message: &impl serde::Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        let mut output = self.output.lock().await;
        let written = match output.as_mut() {
            Some(output) => self.write_line(output, &line).await,
            None => Err(ErrorKind::BrokenPipe.into()),
        };
        if written.is_err() {
            *output = None;
            self.gone.cancel();
        }
        written
    }

    async fn write_line(&self, output: &mut W, mut line: &[u8]) -> Result<()> {
        while !line.is_empty() {
            match self.unless_stalled(output.write(line)).await? {
                0 => return Err(ErrorKind::WriteZero.into()),
                written => line = &line[written..],
            }
        }
        self.unless_stalled(output.flush()).await
    }

    /// Runs a step, unless the client is given up and stalls.
    async fn unless_stalled<T>(&self, step: impl Future<Output = Result<T>>) -> Result<T> {
        let stalled = async {
            self.gone.cancelled().await;
            tokio::time::sleep(STALL).await;
        };
        tokio::select! {
            biased;
            done = step => done,
            () = stalled => Err(Error::new(ErrorKind::TimedOut, "the client does not read")),
        }
    }

    pub(super) async fn close(&self) -> Result<()> {
        self.gone.cancel();
        match self.output.lock().await.take() {
            Some(mut output) => self.unless_stalled(output.shutdown()).await,
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn writer_gives_up_blocked_client() {
        let (mut theirs, ours) = tokio::io::duplex(16);
        let writer = LineWriter::new(ours, CancellationToken::new());
        let long = "x".repeat(100);
        let (blocked, waiting) = (writer.clone(), writer.clone());
        let blocked = tokio::spawn(async move { blocked.write(&long).await });
        let mut read = [0; 50];
        theirs.read_exact(&mut read).await.unwrap();
        let waiting = tokio::spawn(async move { waiting.write(&1).await });
        writer.gone.cancel();
        assert!(blocked.await.unwrap().is_err());
        assert!(waiting.await.unwrap().is_err(), "nothing is written after a cut line");
        writer.close().await.unwrap();
    }

    #[tokio::test]
    async fn writer_serves_reader_to_the_end() {
        let (mut theirs, ours) = tokio::io::duplex(16);
        let writer = LineWriter::new(ours, CancellationToken::new());
        writer.gone.cancel();
        let writing = tokio::spawn(async move {
            writer.write(&"x".repeat(100)).await.unwrap();
            writer.close().await
        });
        let mut read = String::new();
        theirs.read_to_string(&mut read).await.unwrap();
        assert_eq!(read, format!("\"{}\"\n", "x".repeat(100)));
        writing.await.unwrap().unwrap();
    }
}
