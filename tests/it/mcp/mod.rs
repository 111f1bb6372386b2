//! The MCP server as clients meet it: the real program, over its standard streams.

mod asking;
mod bad_input;
mod bisecting;
mod config;
mod fuzz;
mod life;
mod live;
mod orchestrate;
mod order;
mod over_http;
mod over_http_calls;
mod resources;
mod together;
mod tools;

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

/// Longer than anything here takes, however slow the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

/// A directory for data and files, and an environment with nothing of this machine in it.
struct World(tempfile::TempDir);

impl World {
    fn new() -> Self {
        let world = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir(world.files()).unwrap();
        world
    }

    /// Where a workspace of `--backend host` may be.
    fn files(&self) -> PathBuf {
        self.0.path().join("files")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_foldspace"));
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("TZ", "UTC");
        command.env("HOME", self.0.path().join("home")).env("FOLDSPACE_DATA", self.0.path().join("data"));
        command.env("CONTAINER_HOST", "unix:///nowhere").current_dir(self.0.path()).args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).stdin(Stdio::null()).output().unwrap()
    }

    /// What a command prints as JSON, one value a line.
    fn lines(&self, arguments: &[&str]) -> Vec<Value> {
        let output = self.run(&[&["--json"], arguments].concat());
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The names of the sessions.
    fn sessions(&self) -> Vec<String> {
        let output = self.run(&["--json", "sessions"]);
        let sessions: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let sessions = sessions.as_array().cloned().unwrap_or_default();
        sessions.iter().map(|session| session["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Starts the server and says nothing yet.
    fn start(&self, arguments: &[&str]) -> Client {
        let mut command = self.command(&[&["mcp"], arguments].concat());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (tell, told) = channel();
        let stdout = child.stdout.take().unwrap();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                let message: Value = serde_json::from_str(&line.unwrap()).unwrap();
                if tell.send(message).is_err() {
                    return;
                }
            }
        });
        let input = child.stdin.take();
        Client { child, input, told, last_id: 0, aside: Vec::new() }
    }

    /// Starts the server for a client that can show forms or not.
    fn client_that(&self, can: Value, arguments: &[&str]) -> Client {
        let mut client = self.start(arguments);
        let client_info = json!({ "name": "Test Client", "version": "1" });
        let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": can, "clientInfo": client_info });
        let answer = client.ask("initialize", hello);
        assert_eq!(answer["result"]["protocolVersion"], "2025-11-25");
        client.notify("notifications/initialized", json!({}));
        client
    }

    fn client(&self, arguments: &[&str]) -> Client {
        self.client_that(json!({}), arguments)
    }

    /// A client whose workspace is the world's directory of files, on this machine.
    fn on_host(&self, arguments: &[&str]) -> Client {
        let files = self.files().to_string_lossy().into_owned();
        self.client(&[&["--backend", "host", "--dir", &files], arguments].concat())
    }
}

/// A client of a server of its own.
struct Client {
    child: Child,
    input: Option<ChildStdin>,
    told: Receiver<Value>,
    last_id: u64,
    /// What came while an answer was waited for.
    aside: Vec<Value>,
}

impl Client {
    fn say_raw(&mut self, bytes: &[u8]) {
        let input = self.input.as_mut().unwrap();
        input.write_all(bytes).unwrap();
        input.flush().unwrap();
    }

    fn say(&mut self, message: &Value) {
        self.say_raw(format!("{message}\n").as_bytes());
    }

    fn notify(&mut self, method: &str, params: Value) {
        self.say(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    /// Sends a request and gives its id.
    fn request(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        self.say(&json!({ "jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params }));
        self.last_id
    }

    /// The next message.
    fn next(&mut self) -> Value {
        self.told.recv_timeout(PATIENCE).expect("the server says nothing")
    }

    /// The next message that fits; others are put aside.
    fn wait_for(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.aside.iter().position(&fits) {
            return self.aside.remove(at);
        }
        loop {
            let message = self.next();
            if fits(&message) {
                return message;
            }
            self.aside.push(message);
        }
    }

    fn answer(&mut self, id: u64) -> Value {
        self.wait_for(|message| message["id"] == id && message.get("method").is_none())
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params);
        self.answer(id)
    }

    /// Calls a tool and gives its result.
    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.ask("tools/call", json!({ "name": tool, "arguments": arguments }));
        assert!(answer.get("error").is_none(), "{tool}: {answer}");
        answer["result"].clone()
    }

    /// Calls a tool that must do well, and gives its structured content.
    fn done(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], false, "{tool}: {result}");
        result["structuredContent"].clone()
    }

    /// Calls a tool that must fail, and gives what it says.
    fn failed(&mut self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], true, "{tool}: {result}");
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// Says no more, and waits for the server's end.
    fn leave(mut self) {
        self.input = None;
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn write(path: &str, content: &str) -> Value {
    json!({ "file_path": path, "content": content })
}
