//! Connections to the outside: resolved, checked, counted, reported.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::recording::HttpAnswers;
use super::report::{ConnectionOutcome, ConnectionReport, NetworkReport, ReportSink};
use super::rules::{HostRefusal, canonical};
use super::state::{OutsidePlace, Proxy};

/// Time limit for a name to be resolved, and for a connection to be made.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// Reports a connection when it is dropped.
pub(crate) struct Reporting {
    sink: ReportSink,
    begun: Instant,
    report: ConnectionReport,
}

impl Drop for Reporting {
    fn drop(&mut self) {
        let report = ConnectionReport { duration: self.begun.elapsed(), ..self.report.clone() };
        (self.sink)(NetworkReport::Connection(report));
    }
}

/// A connection to the outside.
pub(crate) struct Outside {
    _place: OutsidePlace,
    // Before the stream: its end is reported when others see it.
    counting: Reporting,
    stream: TcpStream,
}

/// The host that a command reaches, or the recording in its place.
pub(crate) enum Destination {
    Outside(Box<Outside>),
    Recording(HttpAnswers),
}

impl Outside {
    /// Waits until the host sends something, or closes the connection.
    pub(crate) async fn speaks(&self) {
        drop(self.stream.readable().await);
    }
}

impl Proxy {
    /// Reports a name that the rules refuse.
    pub(crate) fn refuse_name(&self, name: &str) {
        let reason = self.rules().check_name(name, 443).err().map(|reason| reason.to_string()).unwrap_or_default();
        let report = ConnectionReport { outcome: ConnectionOutcome::Refused(reason), ..report(name, 0, "name") };
        (self.sink)(NetworkReport::Connection(report));
    }

    /// Reports what the recording can't answer.
    pub(crate) fn refuse_offline(&self, host: &str, port: u16, why: &str) {
        let outcome = ConnectionOutcome::Refused(format!("offline: {why}"));
        (self.sink)(NetworkReport::Connection(ConnectionReport { outcome, ..report(host, port, "http") }));
    }

    /// Reaches a host for a command: connects to it or, offline, finds the recording.
    pub(crate) async fn reach(
        &self,
        host: &str,
        port: u16,
        by: &'static str,
    ) -> Result<Destination, ConnectionOutcome> {
        let Some(answers) = self.answers() else {
            return Ok(Destination::Outside(Box::new(self.connect(host, port, by).await?)));
        };
        self.rules().check_name(host, port).map_err(|reason| {
            let outcome = ConnectionOutcome::Refused(reason.to_string());
            (self.sink)(NetworkReport::Connection(ConnectionReport {
                outcome: outcome.clone(),
                ..report(host, port, by)
            }));
            outcome
        })?;
        Ok(Destination::Recording(answers))
    }

    /// Connects to a host, if the rules allow it. The name is resolved once, so only checked addresses are used. The error
    /// is the outcome of the failed attempt.
    async fn connect(&self, host: &str, port: u16, by: &'static str) -> Result<Outside, ConnectionOutcome> {
        let report = report(host, port, by);
        let mut counting = Reporting { sink: Arc::clone(&self.sink), begun: started(), report };
        match self.dial(host, port).await {
            Ok((stream, address, place)) => {
                counting.report.address = Some(address);
                Ok(Outside { _place: place, stream, counting })
            }
            Err(outcome) => {
                counting.report.outcome = outcome.clone();
                Err(outcome)
            }
        }
    }

    async fn dial(&self, host: &str, port: u16) -> Result<(TcpStream, IpAddr, OutsidePlace), ConnectionOutcome> {
        let refused = |reason: HostRefusal| ConnectionOutcome::Refused(reason.to_string());
        let failed = ConnectionOutcome::Failed;
        let rules = self.rules();
        rules.check_name(host, port).map_err(refused)?;
        let name = canonical(host).map_err(refused)?;
        let addresses = match name.parse::<IpAddr>() {
            Ok(address) => vec![address],
            Err(_) => {
                let resolved = tokio::time::timeout(TIME_LIMIT, tokio::net::lookup_host((name.as_str(), port))).await;
                let resolved = resolved.map_err(|_| failed("its name was not resolved in time".to_owned()))?;
                let resolved = resolved.map_err(|error| failed(format!("its name was not resolved: {error}")))?;
                resolved.map(|address| address.ip()).collect()
            }
        };
        if addresses.is_empty() {
            return Err(failed("its name has no address".to_owned()));
        }
        let allowed = rules.check(&name, port, &addresses).map_err(refused)?;
        let place = self.outside_place().await.ok_or_else(|| failed("too many connections are open".to_owned()))?;
        let mut last = String::new();
        for address in allowed {
            let connected = tokio::time::timeout(TIME_LIMIT, TcpStream::connect(SocketAddr::new(address, port))).await;
            match connected {
                Ok(Ok(stream)) => {
                    // Whoever connects decides when to send.
                    drop(stream.set_nodelay(true));
                    return Ok((stream, address, place));
                }
                Ok(Err(error)) => last = error.to_string(),
                Err(_) => last = format!("no answer within {} s", TIME_LIMIT.as_secs()),
            }
        }
        Err(failed(last))
    }
}

fn report(host: &str, port: u16, by: &'static str) -> ConnectionReport {
    ConnectionReport {
        host: host.chars().take(300).collect(),
        port,
        address: None,
        by,
        outcome: ConnectionOutcome::Closed,
        sent: 0,
        received: 0,
        duration: Duration::ZERO,
    }
}

#[expect(clippy::disallowed_methods, reason = "only the duration is reported")]
pub(crate) fn started() -> Instant {
    Instant::now()
}

impl AsyncRead for Outside {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        let count = (into.filled().len() - before) as u64;
        self.counting.report.received += count;
        read
    }
}

impl AsyncWrite for Outside {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(count)) = written {
            self.counting.report.sent += count as u64;
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// The size of a buffer for each direction of a connection.
const BUFFER: usize = 64 << 10;

/// Copies bytes in both directions until both ends are closed.
pub(crate) async fn join(
    mut inside: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    mut outside: Box<Outside>,
) {
    if let Err(error) = tokio::io::copy_bidirectional_with_sizes(&mut inside, &mut outside, BUFFER, BUFFER).await {
        tracing::debug!(%error, "a connection of a container broke");
    }
}
