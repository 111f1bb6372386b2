//! Lines to a client that may not read them.

use std::io::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

/// Time that a client that is given up may read nothing before nothing more is written to it.
const STALL: Duration = Duration::from_secs(1);

pub(super) struct LineWriter<W> {
    output: Arc<Mutex<W>>,
    /// Gone, or given up. Until then the client may take its time.
    gone: CancellationToken,
    /// Nothing more is written: a line may have been cut.
    over: CancellationToken,
}

impl<W> Clone for LineWriter<W> {
    fn clone(&self) -> Self {
        Self { output: Arc::clone(&self.output), gone: self.gone.clone(), over: self.over.clone() }
    }
}

impl<W: AsyncWrite + Unpin> LineWriter<W> {
    pub(super) fn new(output: W, gone: CancellationToken) -> Self {
        Self { output: Arc::new(Mutex::new(output)), gone, over: CancellationToken::new() }
    }

    /// Writes a message. A client that can't be written to is gone.
    pub(super) async fn write(&self, message: &impl serde::Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        let written = self.write_line(&line).await;
        if written.is_err() {
            self.gone.cancel();
        }
        written
    }

    async fn write_line(&self, mut line: &[u8]) -> Result<()> {
        let mut output = self.output.lock().await;
        while !line.is_empty() {
            match self.unless_over(output.write(line)).await? {
                0 => return Err(ErrorKind::WriteZero.into()),
                written => line = &line[written..],
            }
        }
        self.unless_over(output.flush()).await
    }

    /// Runs a step, unless the client is given up and does not read.
    async fn unless_over<T>(&self, step: impl Future<Output = Result<T>>) -> Result<T> {
        let unread = || Error::new(ErrorKind::TimedOut, "the client does not read");
        if self.over.is_cancelled() {
            return Err(unread());
        }
        let stalled = async {
            self.gone.cancelled().await;
            tokio::time::sleep(STALL).await;
        };
        tokio::select! {
            biased;
            done = step => done,
            () = self.over.cancelled() => Err(unread()),
            () = stalled => {
                self.over.cancel();
                Err(unread())
            }
        }
    }

    pub(super) async fn close(&self) -> Result<()> {
        self.gone.cancel();
        self.over.cancel();
        let closing = async { self.output.lock().await.shutdown().await };
        tokio::time::timeout(STALL, closing).await.unwrap_or_else(|elapsed| Err(elapsed.into()))
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
        assert!(waiting.await.unwrap().is_err(), "nothing is written behind a line that was cut");
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
