//! The program itself as its clients have it: over HTTP, and over the pipes of a model's client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::disk::Scratch;

/// How long the program may take to do what it was asked.
const SERVER_REPLY_LIMIT: Duration = Duration::from_secs(60);

/// Where the program is: `FOLDSPACE_PROGRAM`, or beside this one.
///
/// # Errors
/// When it is in neither place.
pub fn program() -> Result<PathBuf> {
    if let Some(program) = std::env::var_os("FOLDSPACE_PROGRAM") {
        return Ok(program.into());
    }
    let own = std::env::current_exe()?;
    let beside = own.ancestors().map(|at| at.join("foldspace")).find(|at| at.is_file());
    beside.context("there is no `foldspace` beside this program: build it, or set FOLDSPACE_PROGRAM")
}

/// `foldspace serve` on a port of this machine, with a store of its own. It ends with this.
pub struct Served {
    child: Child,
    address: String,
    token: String,
    scratch: Scratch,
    /// It says more, and would end where nobody could read that.
    _told: BufReader<ChildStdout>,
}

impl Served {
    /// Starts it.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start() -> Result<Self> {
        Self::of(&program()?)
    }

    /// Starts that program.
    ///
    /// # Errors
    /// When it does not start.
    pub fn of(program: &Path) -> Result<Self> {
        Self::launch(program, Scratch::new("served")?, &["serve", "--http", "127.0.0.1:0"])
    }

    /// Starts a host of that name, which shares a store with others; all show this token.
    ///
    /// # Errors
    /// When it does not start.
    pub fn host(store: &str, name: &str, token: &str) -> Result<Self> {
        let scratch = Scratch::new("host")?;
        std::fs::write(scratch.path().join("token"), token)?;
        let free = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let (place, at) = (free.to_string(), format!("http://{free}"));
        let file = scratch.path().join("token").display().to_string();
        let serve = ["serve", "--http", &place, "--at", &at, "--host", name, "--token-file", &file];
        Self::launch(&program()?, scratch, &[&["--store", store], &serve[..]].concat())
    }

    fn launch(program: &Path, scratch: Scratch, arguments: &[&str]) -> Result<Self> {
        let mut command = Command::new(program);
        command.arg("--data").arg(scratch.path().join("data")).args(arguments);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut told = BufReader::new(child.stdout.take().context("no output")?);
        let address = loop {
            let mut line = String::new();
            ensure!(told.read_line(&mut line)? > 0, "the server ended");
            if let Some(address) = line.strip_prefix("serving on http://") {
                break address.trim().to_owned();
            }
        };
        let token = match scratch.path().join("token") {
            given if given.exists() => given,
            _ => scratch.path().join("data/http.token"),
        };
        let since = Instant::now();
        let token = loop {
            match std::fs::read_to_string(&token) {
                Ok(token) if !token.is_empty() => break token.trim().to_owned(),
                _ if since.elapsed() > SERVER_REPLY_LIMIT => bail!("the server wrote no token"),
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        Ok(Self { child, address, token, scratch, _told: told })
    }

    /// Where the store is.
    pub fn data(&self) -> PathBuf {
        self.scratch.path().join("data")
    }

    /// Kills it, as a crash would.
    ///
    /// # Errors
    /// When it has ended already.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Connects to it.
    ///
    /// # Errors
    /// When nobody listens.
    pub fn connect(&self) -> Result<Line> {
        let stream = TcpStream::connect(&self.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SERVER_REPLY_LIMIT))?;
        Ok(Line { stream, token: self.token.clone(), read: Vec::new() })
    }

    /// Bytes of memory that it has.
    ///
    /// # Errors
    /// The system does not report it.
    pub fn memory(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let kib: u64 = line.split_whitespace().next().context("no number")?.parse()?;
        Ok(kib << 10)
    }

    /// The processor time that it has used, in steps of 10 ms.
    ///
    /// # Errors
    /// The system does not report it.
    pub fn processor(&self) -> Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let (_, fields) = stat.rsplit_once(") ").context("no name")?;
        let ticks: u64 = fields.split(' ').skip(11).take(2).map(str::parse::<u64>).sum::<Result<_, _>>()?;
        Ok(Duration::from_millis(10 * ticks))
    }

    /// Tells it to end, and waits for that. The store is there as long as this is.
    ///
    /// # Errors
    /// When it ends otherwise than well.
    pub fn end(&mut self) -> Result<()> {
        let id = rustix::process::Pid::from_raw(i32::try_from(self.child.id())?).context("no process")?;
        rustix::process::kill_process(id, rustix::process::Signal::TERM)?;
        let status = self.child.wait()?;
        ensure!(status.success(), "the server ended with {status}");
        Ok(())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A request as it goes over the wire, so that the same one can be sent again and again.
pub struct Request(Vec<u8>);

/// A connection that is kept open.
pub struct Line {
    stream: TcpStream,
    token: String,
    read: Vec<u8>,
}

impl Line {
    /// A request with a body, or none.
    pub fn request(&self, method: &str, path: &str, body: Option<&Value>) -> Request {
        let (token, body) = (&self.token, body.map(Value::to_string).unwrap_or_default());
        let head = format!("{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {token}\r\n");
        let rest = format!("content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        Request((head + &rest).into_bytes())
    }

    /// A tool call.
    pub fn call(&self, session: &str, tool: &str, params: Value) -> Request {
        let body = json!({ "tool": tool, "params": params });
        self.request("POST", &format!("/v1/sessions/{session}/calls"), Some(&body))
    }

    /// Sends a request, and gives status and body of the answer.
    ///
    /// # Errors
    /// When the connection breaks.
    pub fn exchange(&mut self, request: &Request) -> Result<(u16, &[u8])> {
        self.stream.write_all(&request.0)?;
        self.read.clear();
        let mut piece = [0; 16 << 10];
        loop {
            let count = self.stream.read(&mut piece)?;
            ensure!(count > 0, "the server closed the connection");
            self.read.extend_from_slice(&piece[..count]);
            let Some(head) = self.read.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
            let text = String::from_utf8_lossy(&self.read[..head]).to_ascii_lowercase();
            let length = text.lines().find_map(|line| line.strip_prefix("content-length:")).unwrap_or("0");
            let end = head + 4 + length.trim().parse::<usize>()?;
            if self.read.len() >= end {
                let status = text.get(9..12).context("no status")?.parse()?;
                return Ok((status, &self.read[head + 4..end]));
            }
        }
    }

    /// The same for a document.
    ///
    /// # Errors
    /// When it is refused.
    pub fn ask(&mut self, request: &Request) -> Result<Value> {
        let (status, body) = self.exchange(request)?;
        ensure!((200..300).contains(&status), "{status}: {}", String::from_utf8_lossy(body));
        Ok(if body.is_empty() { Value::Null } else { serde_json::from_slice(body)? })
    }

    /// The same for a tool call that succeeds, which is looked at no further; gives how long it took.
    ///
    /// # Errors
    /// When it does not succeed.
    pub fn timed(&mut self, request: &Request) -> Result<Duration> {
        let start = Instant::now();
        let (status, body) = self.exchange(request)?;
        let took = start.elapsed();
        let is_ok = status == 200 && body.windows(13).any(|part| part == br#""status":"ok""#);
        ensure!(is_ok, "{status}: {}", String::from_utf8_lossy(body));
        Ok(took)
    }

    /// Reads the lines of an answer that does not end.
    ///
    /// # Errors
    /// When the connection breaks.
    pub fn stream(mut self, request: &Request) -> Result<impl Iterator<Item = std::io::Result<String>> + use<>> {
        self.stream.write_all(&request.0)?;
        Ok(BufReader::new(self.stream).lines())
    }
}

/// `foldspace mcp` on its standard streams, with a store of its own. It ends with this.
pub struct Piped {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    sent: u64,
    line: String,
    scratch: Arc<Scratch>,
}

impl Piped {
    /// Starts it, and greets it as a client does.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn start() -> Result<Self> {
        Self::of(&program()?, &[])
    }

    /// Starts that program, with options for its session.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn of(program: &Path, options: &[&str]) -> Result<Self> {
        Self::with(program, options, Arc::new(Scratch::new("piped")?))
    }

    /// Another one for the same session, which the one has that was called first.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn beside(&self) -> Result<Self> {
        Self::with(&program()?, &[], Arc::clone(&self.scratch))
    }

    fn with(program: &Path, options: &[&str], scratch: Arc<Scratch>) -> Result<Self> {
        let mut command = Command::new(program);
        command.arg("--data").arg(scratch.path()).args(["mcp", "--session", "bench"]).args(options);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut piped = Self::over(child, scratch)?;
        let client = json!({ "name": "bench", "version": "1" });
        let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
        piped.ask("initialize", &hello)?;
        piped.to.write_all(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n")?;
        Ok(piped)
    }

    /// A program that says again what it is told: the least that a message to another process and back can take.
    ///
    /// # Errors
    /// When there is none.
    pub fn echo() -> Result<Self> {
        let child = Command::new("cat").arg("-u").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        Self::over(child, Arc::new(Scratch::new("echo")?))
    }

    fn over(mut child: Child, scratch: Arc<Scratch>) -> Result<Self> {
        let (to, from) = (child.stdin.take().context("no input")?, child.stdout.take().context("no output")?);
        Ok(Self { child, to, from: BufReader::new(from), sent: 0, line: String::new(), scratch })
    }

    fn exchange(&mut self, message: &str) -> Result<Duration> {
        let start = Instant::now();
        self.to.write_all(message.as_bytes())?;
        self.line.clear();
        ensure!(self.from.read_line(&mut self.line)? > 0, "the program ended");
        Ok(start.elapsed())
    }

    fn ask(&mut self, method: &str, params: &Value) -> Result<Duration> {
        self.sent += 1;
        let mut message = json!({ "jsonrpc": "2.0", "id": self.sent, "method": method, "params": params }).to_string();
        message.push('\n');
        let took = self.exchange(&message)?;
        let is_answer = self.line.contains(&format!("\"id\":{}", self.sent)) && self.line.contains("\"result\":");
        ensure!(is_answer && !self.line.contains("\"isError\":true"), "{}", self.line);
        Ok(took)
    }

    /// Makes a tool call, and gives how long it took.
    ///
    /// # Errors
    /// When it fails.
    pub fn call(&mut self, tool: &str, arguments: Value) -> Result<Duration> {
        self.ask("tools/call", &json!({ "name": tool, "arguments": arguments }))
    }

    /// Has a message of so many bytes said again.
    ///
    /// # Errors
    /// When it is not.
    pub fn said_again(&mut self, bytes: usize) -> Result<Duration> {
        let message = "x".repeat(bytes.saturating_sub(1)) + "\n";
        self.exchange(&message)
    }

    /// Bytes of the last answer.
    pub fn answered(&self) -> usize {
        self.line.len()
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        // Told to end it takes its container along.
        let id = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        let told = id.map(|id| rustix::process::kill_process(id, rustix::process::Signal::TERM));
        if !matches!(told, Some(Ok(()))) {
            drop(self.child.kill());
        }
        drop(self.child.wait());
    }
}
