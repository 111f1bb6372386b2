//! The proxy of the recorded network beside direct connections, on loopback.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use foldspace_network::network::{ContainerSocket, NetworkProxy, NetworkRules, SocketOpener};

use super::Size;
use crate::sample::{micros, quantile};
use crate::table::{Table, against, number};

/// The size of a buffer of the client and of the server.
const BUFFER: usize = 128 << 10;

/// Starts a server that sends as many bytes as a client asks for.
fn server() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let at = listener.local_addr()?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || send(stream));
        }
    });
    Ok(at)
}

fn send(mut stream: TcpStream) -> std::io::Result<()> {
    let mut asked = [0; 8];
    stream.read_exact(&mut asked)?;
    let (bytes, mut left) = (vec![7; BUFFER], u64::from_le_bytes(asked));
    while left > 0 {
        let part = left.min(BUFFER as u64);
        stream.write_all(&bytes[..part as usize])?;
        left -= part;
    }
    Ok(())
}

fn proxy() -> Result<(NetworkProxy, SocketAddr)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let (at, listener) = (listener.local_addr()?, Mutex::new(Some(listener)));
    let open: SocketOpener = Arc::new(move |asked| match asked {
        ContainerSocket::Datagram(_) => Ok(OwnedFd::from(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?)),
        ContainerSocket::Listen(_) => {
            let listener = listener.lock().ok().and_then(|mut listener| listener.take());
            listener.map(OwnedFd::from).ok_or_else(|| std::io::Error::other("there is one listener"))
        }
    });
    let rules = NetworkRules { allow: vec!["127.0.0.1".parse()?], ..NetworkRules::default() };
    Ok((NetworkProxy::start(open, rules, Arc::new(|_| ()))?, at))
}

/// Connects, through a proxy if there is one.
fn connect(server: SocketAddr, proxy: Option<SocketAddr>) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(proxy.unwrap_or(server))?;
    stream.set_nodelay(true)?;
    if proxy.is_some() {
        write!(stream, "CONNECT {server} HTTP/1.1\r\nhost: {server}\r\n\r\n")?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            head.extend(byte);
        }
        ensure!(head.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&head));
    }
    Ok(stream)
}

/// Returns the time to connect and to receive this many bytes.
fn received(server: SocketAddr, proxy: Option<SocketAddr>, bytes: u64) -> Result<Duration> {
    let start = Instant::now();
    let mut stream = connect(server, proxy)?;
    stream.write_all(&bytes.to_le_bytes())?;
    let (mut buffer, mut left) = (vec![0; BUFFER], bytes);
    while left > 0 {
        let read = stream.read(&mut buffer)?;
        ensure!(read > 0, "{left} bytes are missing");
        left -= read as u64;
    }
    Ok(start.elapsed())
}

/// # Errors
/// A socket fails.
pub fn report(size: Size) -> Result<Vec<Table>> {
    let (bytes, rounds, connections) = match size {
        Size::Full => (1 << 30, 9, 5000),
        Size::Quick => (64 << 20, 3, 200),
    };
    let (server, (_proxy, at)) = (server()?, proxy()?);
    let in_turn = |bytes, rounds: usize| -> Result<(Vec<Duration>, Vec<Duration>)> {
        let (mut direct, mut proxied) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            direct.push(received(server, None, bytes)?);
            proxied.push(received(server, Some(at), bytes)?);
        }
        Ok((direct, proxied))
    };
    let mut table = Table::new("The recorded network", &["on loopback", "direct", "proxied", "to the bar"]);
    let middle = |mut times: Vec<Duration>| quantile(&mut times, 0.5).context("no times");
    let (direct, proxied) = in_turn(bytes, rounds)?;
    let (direct, proxied) = (middle(direct)?, middle(proxied)?);
    let rate = |time: Duration| number(bytes as f64 / time.as_secs_f64() / 1e9);
    let ratio = direct.as_secs_f64() / proxied.as_secs_f64();
    table.row([
        "GB/s of one connection (bar 0.7 of direct)".to_owned(),
        rate(direct),
        rate(proxied),
        against(ratio, 0.7, true),
    ]);
    let (direct, proxied) = in_turn(1, connections)?;
    let (direct, proxied) = (micros(middle(direct)?), micros(middle(proxied)?));
    let more = against((proxied - direct) / 1000.0, 1.0, false);
    table.row(["µs to connect and receive a byte (bar 1 ms more)".to_owned(), number(direct), number(proxied), more]);
    Ok(vec![table])
}
