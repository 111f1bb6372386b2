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
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value, json};

use crate::rig::{Program, Running, WAIT_LIMIT};

impl Program {
    /// The program and a directory of files.
    fn with_files() -> Self {
        let program = Self::new();
        std::fs::create_dir(program.files()).unwrap();
        program
    }

    /// Where a workspace of `--backend host` may be.
    fn files(&self) -> PathBuf {
        self.path("files")
    }

    /// The names of the sessions.
    fn sessions(&self) -> Vec<String> {
        let output = self.output(&["--json", "sessions"]);
        let sessions: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let sessions = sessions.as_array().cloned().unwrap_or_default();
        sessions.iter().map(|session| session["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Starts the server and says nothing yet.
    fn start(&self, arguments: &[&str]) -> McpClient {
        self.start_in(&self.path("."), arguments)
    }

    fn start_in(&self, directory: &Path, arguments: &[&str]) -> McpClient {
        let mut command = self.command(&[&["mcp"], arguments].concat());
        let child = command
            .current_dir(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut child = Running(child);
        let (tell, told) = channel();
        let stdout = child.0.stdout.take().unwrap();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                let message: Value = serde_json::from_str(&line.unwrap()).unwrap();
                if tell.send(message).is_err() {
                    return;
                }
            }
        });
        let input = child.0.stdin.take();
        McpClient { child, input, told, last_id: 0, aside: Vec::new() }
    }

    /// Starts the server for a client that can show forms or not.
    fn client_that(&self, can: Value, arguments: &[&str]) -> McpClient {
        let mut client = self.start(arguments);
        let client_info = json!({ "name": "Test Client", "version": "1" });
        let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": can, "clientInfo": client_info });
        let answer = client.ask("initialize", hello);
        assert_eq!(answer["result"]["protocolVersion"], "2025-11-25");
        client.notify("notifications/initialized", json!({}));
        client
    }

    fn client(&self, arguments: &[&str]) -> McpClient {
        self.client_that(json!({}), arguments)
    }

    /// A client whose workspace is the directory of files, on this machine.
    fn on_host(&self, arguments: &[&str]) -> McpClient {
        let files = self.files().to_string_lossy().into_owned();
        self.client(&[&["--backend", "host", "--dir", &files], arguments].concat())
    }
}

/// A client of a server of its own.
struct McpClient {
    child: Running,
    input: Option<ChildStdin>,
    told: Receiver<Value>,
    last_id: u64,
    /// What came while an answer was waited for.
    aside: Vec<Value>,
}

impl McpClient {
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
        self.told.recv_timeout(WAIT_LIMIT).expect("the server says nothing")
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
        assert!(self.child.0.wait().unwrap().success());
    }
}

fn write(path: &str, content: &str) -> Value {
    json!({ "file_path": path, "content": content })
}
