//! SOCKS 5 (RFC 1928): connections by name or by address, without authentication.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::intercept::relay;
use super::report::ConnectionOutcome;
use super::state::{ClientPlace, Proxy};

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const NONE_ACCEPTABLE: u8 = 0xff;
const CONNECT: u8 = 1;

const DONE: u8 = 0;
const NOT_ALLOWED: u8 = 2;
const UNREACHABLE: u8 = 4;
const NO_SUCH_COMMAND: u8 = 7;

/// Time limit for a client to ask.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) async fn serve(mut stream: TcpStream, proxy: &Arc<Proxy>, place: &ClientPlace) {
    let asked = match tokio::time::timeout(PATIENCE, asked(&mut stream)).await {
        Ok(Ok(Some(asked))) => asked,
        Ok(Ok(None)) => return,
        Ok(Err(error)) => return tracing::debug!(%error, "a SOCKS client sent an invalid request"),
        Err(_) => return,
    };
    match proxy.reach(&asked.0, asked.1, "socks").await {
        Ok(reached) => {
            place.leave();
            if answer(&mut stream, DONE).await.is_ok() {
                relay(proxy, stream, reached, &asked.0, asked.1).await;
            }
        }
        Err(outcome) => {
            let is_refusal = matches!(outcome, ConnectionOutcome::Refused(_));
            let code = if is_refusal { NOT_ALLOWED } else { UNREACHABLE };
            drop(answer(&mut stream, code).await);
        }
    }
}

/// Reads the greeting and the request. Returns the host and the port; `None` after another request was refused.
async fn asked(stream: &mut TcpStream) -> io::Result<Option<(String, u16)>> {
    let [version, count] = read(stream).await?;
    let mut methods = vec![0; count.into()];
    stream.read_exact(&mut methods).await?;
    if version != VERSION || !methods.contains(&NO_AUTHENTICATION) {
        stream.write_all(&[VERSION, NONE_ACCEPTABLE]).await?;
        return Ok(None);
    }
    stream.write_all(&[VERSION, NO_AUTHENTICATION]).await?;
    let [_, command, _, kind] = read(stream).await?;
    let host = match kind {
        1 => Ipv4Addr::from(read::<4>(stream).await?).to_string(),
        4 => Ipv6Addr::from(read::<16>(stream).await?).to_string(),
        3 => {
            let [length] = read(stream).await?;
            let mut name = vec![0; length.into()];
            stream.read_exact(&mut name).await?;
            String::from_utf8_lossy(&name).into_owned()
        }
        _ => return Err(io::Error::other(format!("kind of address {kind}"))),
    };
    let port = u16::from_be_bytes(read(stream).await?);
    if command != CONNECT {
        answer(stream, NO_SUCH_COMMAND).await?;
        return Ok(None);
    }
    Ok(Some((host, port)))
}

async fn read<const N: usize>(stream: &mut TcpStream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

async fn answer(stream: &mut TcpStream, code: u8) -> io::Result<()> {
    // The address of the connection is of no use inside.
    stream.write_all(&[VERSION, code, 0, 1, 0, 0, 0, 0, 0, 0]).await
}
