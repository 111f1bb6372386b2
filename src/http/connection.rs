//! A connection with timeouts: for the client's first byte, and for stalled writes.

use std::any::Any;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use super::admission::Admission;

/// A stream that fails if the client's first byte does not arrive in time, or a write stalls for too long.
pub(super) struct Impatient<S: 'static> {
    stream: S,
    admission: Arc<Admission>,
    /// Runs until the first byte.
    silent: Option<Pin<Box<Sleep>>>,
    patience: Option<Duration>,
    /// Runs while a write makes no progress.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S: 'static> Impatient<S> {
    pub(super) fn new(
        stream: S,
        admission: Arc<Admission>,
        first: Option<Duration>,
        patience: Option<Duration>,
    ) -> Self {
        let silent = first.map(|first| Box::pin(tokio::time::sleep(first)));
        Self { stream, admission, silent, patience, stalled: None }
    }

    fn judge<T>(&mut self, context: &mut Context<'_>, done: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if done.is_ready() {
            self.stalled = None;
            return done;
        }
        let Some(patience) = self.patience else { return done };
        let deadline = Instant::now() + patience;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        ready!(stalled.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client stopped reading")))
    }
}

/// With no time to linger, closing a TCP socket resets the connection.
impl<S: 'static> Drop for Impatient<S> {
    fn drop(&mut self) {
        if let Some(stream) = (&self.stream as &dyn Any).downcast_ref::<TcpStream>()
            && self.admission.is_reset()
            && let Err(error) = rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO))
        {
            tracing::debug!(%error, "failed to reset a connection");
        }
    }
}

impl<S: AsyncRead + Unpin + 'static> AsyncRead for Impatient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        let Some(silent) = &mut self.silent else { return read };
        if read.is_ready() {
            self.silent = None;
            return read;
        }
        ready!(silent.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client sent nothing")))
    }
}

impl<S: AsyncWrite + Unpin + 'static> AsyncWrite for Impatient<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(context, done)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.judge(context, done)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_flush(context);
        self.judge(context, done)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_shutdown(context);
        self.judge(context, done)
    }
}
