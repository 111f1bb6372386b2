//! Ports of a session's container: the web servers, or other listeners, that its commands have started.

use std::io;
use std::net::TcpStream;

use super::blocking;
use super::open::OpenSession;
use crate::engine::advice::Advice;
use crate::engine::error::{Diagnostic, ErrorKind};

/// The reason why a port of a session can't be reached.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// No process listens there.
    #[error("nothing listens at port {port} in the container of {session}")]
    Closed {
        /// The name of the session.
        session: String,
        /// The port.
        port: u16,
    },
    /// The session's commands run on the host.
    #[error("commands of {session} run on this machine itself, so its port is http://127.0.0.1:{port}")]
    OnHost {
        /// The name of the session.
        session: String,
        /// The port.
        port: u16,
    },
    /// The session's workspace has no commands.
    #[error("{session} runs no commands, so nothing listens at its port {port}")]
    NoCommands {
        /// The name of the session.
        session: String,
        /// The port.
        port: u16,
    },
    /// The container does not answer.
    #[error("port {port} of {session} can't be reached: {source}")]
    Unreachable {
        /// The name of the session.
        session: String,
        /// The port.
        port: u16,
        /// The reason.
        source: io::Error,
    },
}

impl Diagnostic for PortError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Unreachable { .. } => ErrorKind::Backend,
            _ => ErrorKind::Refused,
        }
    }

    fn advice(&self) -> Option<Advice> {
        let text = "start the server as a background process, so that it outlives its call";
        matches!(self, Self::Closed { .. }).then(|| Advice::text(text))
    }
}

impl OpenSession {
    /// Connects to a TCP port of the session's container, after its services were started again if they had to be.
    ///
    /// # Errors
    /// [`PortError`].
    pub async fn open_port(&self, port: u16) -> Result<TcpStream, PortError> {
        self.tool_runner().start_services().await;
        let (open, session) = (self.clone(), self.session().name().to_owned());
        let stopped = |_| PortError::Unreachable { session, port, source: io::Error::other("the owner ends") };
        blocking(move || open.connect(port)).await.map_err(stopped)?
    }

    /// Connects to a TCP port of the session's container. It blocks, and starts nothing.
    ///
    /// # Errors
    /// [`PortError`].
    pub fn connect(&self, port: u16) -> Result<TcpStream, PortError> {
        let (session, workspace) = (self.session().name().to_owned(), self.tool_runner().workspace());
        let Some(container) = workspace.container() else {
            return Err(match workspace.root() {
                Some(_) => PortError::OnHost { session, port },
                None => PortError::NoCommands { session, port },
            });
        };
        container.connect(port).map_err(|source| match source.kind() {
            io::ErrorKind::ConnectionRefused => PortError::Closed { session, port },
            _ => PortError::Unreachable { session, port, source },
        })
    }
}
