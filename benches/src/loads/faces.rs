//! Tool calls over MCP's pipes and over HTTP, beside a message to another process and back.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;

use super::Size;
use crate::disk::{Bare, Scratch};
use crate::sample::{median, micros, quantile};
use crate::served::{Line, Piped, Request, Served};
use crate::table::{Table, against, number};

/// Bytes of the file that is read.
const FILE: usize = 1 << 10;
/// Bytes of the commit that a call ends with, about.
const RECORDED: usize = 480;
/// Connections at once, as the target says.
const CONNECTIONS: usize = 32;

/// A server over pipes, with a file in its workspace, and the least that such a server could take.
pub struct Pipes {
    ours: Piped,
    /// Another server for the same session, which passes its calls on to the first.
    beside: Piped,
    echo: Piped,
}

impl Pipes {
    /// Starts both.
    ///
    /// # Errors
    /// When they do not start.
    pub fn start() -> Result<Self> {
        let (mut ours, echo) = (Piped::start()?, Piped::echo()?);
        ours.call("write_file", json!({ "file_path": "file.txt", "content": "x".repeat(FILE) }))?;
        Ok(Self { beside: ours.beside()?, ours, echo })
    }

    /// Reads the file.
    ///
    /// # Errors
    /// When that fails.
    pub fn read(&mut self) -> Result<Duration> {
        self.ours.call("read_file", json!({ "file_path": "file.txt" }))
    }

    /// Has the file read by the first server through the second.
    ///
    /// # Errors
    /// When that fails.
    pub fn read_beside(&mut self) -> Result<Duration> {
        self.beside.call("read_file", json!({ "file_path": "file.txt" }))
    }

    /// Has as many bytes said again as the last answer had.
    ///
    /// # Errors
    /// When that fails.
    pub fn limit(&mut self) -> Result<Duration> {
        self.echo.said_again(self.ours.answered().max(2))
    }
}

/// A server over HTTP, with a file in a memory workspace.
pub struct Sockets {
    served: Served,
    line: Line,
    read: Request,
    health: Request,
    written: u64,
}

impl Sockets {
    /// Starts it.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start() -> Result<Self> {
        let served = Served::start()?;
        let mut line = served.connect()?;
        line.ask(&line.request("POST", "/v1/sessions", Some(&json!({ "name": "bench" }))))?;
        line.timed(&line.call("bench", "write_file", json!({ "file_path": "file.txt", "content": "x".repeat(FILE) })))?;
        let read = line.call("bench", "read_file", json!({ "file_path": "file.txt" }));
        let health = line.request("GET", "/healthz", None);
        Ok(Self { served, line, read, health, written: 0 })
    }

    /// Reads the file.
    ///
    /// # Errors
    /// When that fails.
    pub fn read(&mut self) -> Result<Duration> {
        self.line.timed(&self.read)
    }

    /// Writes a new file.
    ///
    /// # Errors
    /// When that fails.
    pub fn write(&mut self) -> Result<Duration> {
        self.written += 1;
        let params = json!({ "file_path": format!("{:02}/{:05}.txt", self.written % 100, self.written), "content": "x".repeat(FILE) });
        self.line.timed(&self.line.call("bench", "write_file", params))
    }

    /// Asks for something that takes no work.
    ///
    /// # Errors
    /// When that fails.
    pub fn health(&mut self) -> Result<Duration> {
        let start = Instant::now();
        self.line.exchange(&self.health)?;
        Ok(start.elapsed())
    }

    /// Reads the file over many connections, or asks for something that takes no work; gives how many answers came in
    /// a second, and how long each took.
    ///
    /// # Errors
    /// When one fails.
    pub fn many(&self, passed: Duration, is_read: bool) -> Result<(f64, Vec<Duration>)> {
        let count = AtomicU64::new(0);
        let start = Instant::now();
        let times = std::thread::scope(|scope| {
            let one = || -> Result<Vec<Duration>> {
                let mut line = self.served.connect()?;
                let mut times = Vec::new();
                while start.elapsed() < passed {
                    let asked = Instant::now();
                    match is_read {
                        true => drop(line.timed(&self.read)?),
                        false => drop(line.exchange(&self.health)?.0),
                    }
                    times.push(asked.elapsed());
                    count.fetch_add(1, Ordering::Relaxed);
                }
                Ok(times)
            };
            let threads: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(one)).collect();
            let ended = threads.into_iter().map(|thread| thread.join().ok().context("a thread panicked")?);
            ended.collect::<Result<Vec<_>>>()
        })?;
        let rate = count.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64();
        Ok((rate, times.concat()))
    }
}

/// Bytes over a connection of this machine and back.
pub struct Echo {
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl Echo {
    /// Connects to a thread that says again what it is told.
    ///
    /// # Errors
    /// When there is no port.
    pub fn start(bytes: usize) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let stream = TcpStream::connect(listener.local_addr()?)?;
        let (mut other, _) = listener.accept()?;
        for stream in [&stream, &other] {
            stream.set_nodelay(true)?;
        }
        std::thread::spawn(move || {
            let mut piece = [0; 16 << 10];
            while let Ok(count @ 1..) = other.read(&mut piece) {
                if other.write_all(&piece[..count]).is_err() {
                    return;
                }
            }
        });
        Ok(Self { stream, bytes: vec![b'x'; bytes] })
    }

    /// Has them said again.
    ///
    /// # Errors
    /// When they are not.
    pub fn exchange(&mut self) -> Result<Duration> {
        let start = Instant::now();
        self.stream.write_all(&self.bytes)?;
        let mut back = vec![0; self.bytes.len()];
        self.stream.read_exact(&mut back)?;
        Ok(start.elapsed())
    }
}

/// Measures each beside the others, in turn.
///
/// # Errors
/// When a call fails.
pub fn report(size: Size) -> Result<Vec<Table>> {
    let (mut pipes, mut sockets, mut echo) = (Pipes::start()?, Sockets::start()?, Echo::start(FILE + 256)?);
    let scratch = Scratch::new("bare")?;
    let mut bare = Bare::new(scratch.path())?;
    let mut times: [Vec<Duration>; 8] = Default::default();
    for round in 0..size.of(5, 50) {
        for _ in 0..100 {
            let taken = [
                bare.write(&[7; RECORDED])?,
                pipes.limit()?,
                pipes.read()?,
                echo.exchange()?,
                sockets.health()?,
                sockets.read()?,
                sockets.write()?,
                pipes.read_beside()?,
            ];
            // The first round only warms up.
            if round > 0 {
                times.iter_mut().zip(taken).for_each(|(times, taken)| times.push(taken));
            }
        }
    }
    let title = "faces: one call at a time, recorded, a memory workspace, a file of 1 KiB (targets: p50 500 us)";
    let mut one = Table::new(title, &["what", "p50 us", "p90 us", "p99 us", "x the way there and back, and the disk"]);
    let middles = times.clone().map(|mut times| quantile(&mut times, 0.5).map_or(f64::NAN, micros));
    let names = [
        "a bare write and fdatasync of what a call records, the limit of the disk",
        "a message to `cat` and back, the limit of pipes",
        "MCP `read_file` over standard input and output",
        "bytes over TCP to a thread and back, the limit of sockets",
        "HTTP `GET /healthz`",
        "HTTP `read_file`",
        "HTTP `write_file`",
        "MCP `read_file`, passed on to the process that has the session",
    ];
    for (at, (name, times)) in names.into_iter().zip(&mut times).enumerate() {
        let mut part = |part| quantile(times, part).map_or(f64::NAN, micros);
        let (middle, way) = (part(0.5), middles[if at < 3 || at == 7 { 1 } else { 3 }]);
        let limit = if [2, 5, 6, 7].contains(&at) { middles[0] + way } else { way };
        let middle = if [2, 5].contains(&at) { against(middle, 500.0, false) } else { number(middle) };
        let ratio = if at == 0 { 1.0 } else { middles[at] / limit };
        one.row([name.to_owned(), middle, number(part(0.9)), number(part(0.99)), number(ratio)]);
    }
    Ok(vec![one, at_once(size, &mut sockets)?])
}

fn at_once(size: Size, sockets: &mut Sockets) -> Result<Table> {
    let title = format!("faces: {CONNECTIONS} connections at once, clients on the same cores (target: 5,000 calls/s)");
    let mut many = Table::new(title, &["what", "answers/s", "p50 us", "p99 us", "of the limit"]);
    let (mut rates, mut all): ([Vec<f64>; 2], [Vec<Duration>; 2]) = Default::default();
    for _ in 0..size.of(1, 5) {
        for (at, is_read) in [false, true].into_iter().enumerate() {
            let (rate, times) = sockets.many(Duration::from_secs(size.of(1, 4)), is_read)?;
            rates[at].push(rate);
            all[at].extend(times);
        }
    }
    let limit = median(&rates[0]);
    for (at, name) in ["`GET /healthz`, the server without work", "`read_file`, recorded"].into_iter().enumerate() {
        let rate = median(&rates[at]);
        let told = if at == 1 { against(rate, 5_000.0, true) } else { number(rate) };
        let mut part = |part| number(quantile(&mut all[at], part).map_or(f64::NAN, micros));
        many.row([name.to_owned(), told, part(0.5), part(0.99), number(rate / limit)]);
    }
    Ok(many)
}
