use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU16;

use foldspace::http::{ClientError, HttpClient};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};

use super::interrupt::Signals;
use super::{Failure, Globals, Out, OwnerClient, open, output};

/// Makes a port of a session's container available on this machine
///
/// Connections to the printed address go to the port until Ctrl-C. Nothing else of the container's network can be
/// reached, and a container needs no network for it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foldspace open demo 8000                 http://127.0.0.1:8000/
  foldspace open demo 8000 --at 127.0.0.1:9000")]
pub(super) struct OpenPort {
    /// The session, by name or by the beginning of its id
    session: String,
    /// The port in the container
    port: NonZeroU16,
    /// The address to listen at [default: 127.0.0.1 and the same port, or a free one if that is in use]
    #[arg(long, value_name = "ADDR:PORT")]
    at: Option<SocketAddr>,
}

impl OpenPort {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        super::block_on(async {
            let owner = OwnerClient::of_existing(globals).await?;
            let session = open::reading(globals)?.find(&self.session)?.session.id().to_string();
            let served = self.serve(&owner.client, session, out).await;
            owner.end().await;
            served
        })?
    }

    async fn serve(&self, client: &HttpClient, session: String, out: &mut Out) -> Result<(), Failure> {
        // A session without a container is refused now.
        match client.open_port(&session, self.port.get()).await {
            Err(ClientError::Refused(problem)) if problem.hint.is_some() => output::note(&problem.detail),
            other => drop(other?),
        }
        let mut signals = Signals::listen();
        let listener = self.listen().await?;
        let at = listener.local_addr().map_err(|error| Failure::io("read", "the listener's address", &error))?;
        let (port, name) = (self.port, &self.session);
        let told = json!({ "address": at, "url": format!("http://{at}/"), "port": port });
        out.go_live()?;
        out.show(&told, |out| out.line(format!("http://{at}/ is port {port} of {name}; Ctrl-C ends it")))?;
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => drop(tokio::spawn(pass_on(client.clone(), session.clone(), port, stream))),
                    Err(error) => return Err(Failure::io("accept", "a connection", &error)),
                },
                _ = signals.next() => return Ok(()),
            }
        }
    }

    async fn listen(&self) -> Result<TcpListener, Failure> {
        let same = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), self.port.get());
        let at = self.at.unwrap_or(same);
        match TcpListener::bind(at).await {
            Err(error) if self.at.is_none() => {
                tracing::debug!(%error, %at, "a free port is used instead");
                let free = SocketAddr::new(same.ip(), 0);
                TcpListener::bind(free).await.map_err(|error| Failure::io("listen at", free.to_string(), &error))
            }
            listener => listener.map_err(|error| Failure::io("listen at", at.to_string(), &error)),
        }
    }
}

/// Forwards a connection to the port, or closes it if the port refuses it.
async fn pass_on(client: HttpClient, session: String, port: NonZeroU16, mut stream: TcpStream) {
    match client.open_port(&session, port.get()).await {
        Ok(mut port) => drop(tokio::io::copy_bidirectional(&mut stream, &mut port).await),
        Err(error) => output::note(&error.to_string()),
    }
}
