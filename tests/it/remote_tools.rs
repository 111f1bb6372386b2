//! Tools that another program registers at a server, and which are called back.

use std::time::Duration;

use foldspace::event::{CommandLine, DeleteEntry, WriteFile};
use foldspace::http::{
    CallRequest, ClientError, HttpClient, RegisteredTools, RemoteCommand, RemoteContext, RemoteTools, ServerStatus,
};
use foldspace::tools::Effect;
use foldspace::{Event, Tool, ToolError, ToolOutcome};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;

use crate::rig::{Server, TOKEN, WAIT_LIMIT, eventually_async};

/// Does what its parameters say, and tells when it begins and when it is dropped.
struct Steered {
    told: mpsc::UnboundedSender<&'static str>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Step {
    Write(String, String),
    WriteBig(usize),
    Read(String),
    Remove(String),
    List(String),
    Run(String),
    Note(String),
    Forge,
    GiveUp(String),
    Show(String),
    Fail(String),
    Panic,
    Hang,
}

#[derive(Deserialize, JsonSchema)]
struct Steps {
    steps: Vec<Step>,
}

#[derive(Serialize, JsonSchema)]
struct Said {
    said: Vec<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Noted {
    note: String,
}

impl Event for Noted {
    const KIND: &'static str = "Noted";
}

struct Dropped(mpsc::UnboundedSender<&'static str>);

impl Drop for Dropped {
    fn drop(&mut self) {
        let _ = self.0.send("dropped");
    }
}

async fn take(step: Step, context: &mut RemoteContext) -> Result<String, ToolError> {
    Ok(match step {
        Step::Write(path, text) => context.write(&path, text).await.map(|()| path)?,
        Step::WriteBig(bytes) => context.write("big", vec![b'x'; bytes]).await.map(|()| "big".to_owned())?,
        Step::Read(path) => String::from_utf8_lossy(&context.read(&path).await?).into_owned(),
        Step::Remove(path) => context.remove(&path).await.map(|()| path)?,
        Step::List(below) => {
            let entries = context.list(&below).await?.into_iter();
            entries.map(|entry| format!("{} {} {}", entry.path, entry.node, entry.size)).collect::<Vec<_>>().join(", ")
        }
        Step::Run(text) => context.run(RemoteCommand::new(CommandLine::Shell(text))).await?.stdout,
        Step::Note(note) => context.record(&Noted { note }).await.map(|()| String::new())?,
        Step::Forge => {
            let path = foldspace::EntryPath::lookup("forged")?;
            context.record(&DeleteEntry { path }).await.map(|()| String::new())?
        }
        Step::GiveUp(command) => {
            let run = context.run(RemoteCommand::new(CommandLine::Shell(command)));
            assert!(tokio::time::timeout(Duration::from_millis(50), run).await.is_err());
            String::new()
        }
        Step::Show(text) => context.show(&text).await.map(|()| text)?,
        Step::Fail(why) => return Err(ToolError::new(why)),
        Step::Panic => panic!("as it was told"),
        Step::Hang => std::future::pending().await,
    })
}

async fn follow(steps: Steps, context: &mut RemoteContext) -> Result<Said, ToolError> {
    let mut said = Vec::new();
    for step in steps.steps {
        said.push(take(step, context).await?);
    }
    Ok(Said { said })
}

impl Tool<RemoteContext> for Steered {
    const NAME: &'static str = "steered";
    const DESCRIPTION: &'static str = "Does what it is told.";
    const EFFECT: Effect = Effect::Destructive;
    type Params = Steps;
    type Output = Said;

    async fn call(&self, context: &mut RemoteContext, params: Steps) -> Result<Said, ToolError> {
        let _ = self.told.send("begun");
        let _dropped = Dropped(self.told.clone());
        follow(params, context).await
    }
}

/// The same, but it only reads.
struct Looking;

impl Tool<RemoteContext> for Looking {
    const NAME: &'static str = "looking";
    const DESCRIPTION: &'static str = "Does what it is told, if that changes nothing.";
    const EFFECT: Effect = Effect::ReadOnly;
    type Params = Steps;
    type Output = Said;

    async fn call(&self, context: &mut RemoteContext, params: Steps) -> Result<Said, ToolError> {
        follow(params, context).await
    }
}

type Told = mpsc::UnboundedReceiver<&'static str>;

fn tools() -> (RemoteTools, Told) {
    let (told, hear) = mpsc::unbounded_channel();
    (RemoteTools::new().with(Steered { told }).unwrap().with(Looking).unwrap(), hear)
}

/// A server with a session on the host and one in memory, and a program that has registered its tools in all sessions.
async fn world() -> (Server, RegisteredTools, Told) {
    let served = Server::begin().await;
    let files = served.directory.path().join("files");
    std::fs::create_dir(&files).unwrap();
    let host = json!({ "name": "demo", "backend": "host", "options": { "directory": files } });
    let begun = served.ask("POST", "/v1/sessions", Some(&host)).await;
    assert_eq!(begun.status, 201, "{begun:?}");
    served.session("other").await;
    let (tools, told) = tools();
    let registered = served.client().register_tools(&tools, None).await.unwrap();
    (served, registered, told)
}

async fn call_tool(served: &Server, tool: &str, steps: Value, more: Value) -> ToolOutcome {
    let mut call = json!({ "tool": tool, "params": { "steps": steps }, "agent": "tester" });
    call.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let call: CallRequest = serde_json::from_value(call).unwrap();
    served.client().call("demo", &call, |_| ()).await.unwrap()
}

async fn call(served: &Server, steps: Value) -> ToolOutcome {
    call_tool(served, "steered", steps, json!({})).await
}

fn said(outcome: &ToolOutcome) -> Value {
    assert!(outcome.is_ok(), "{outcome:?}");
    outcome.result["said"].clone()
}

fn kinds(served: &Server, outcome: &ToolOutcome) -> Vec<String> {
    let session = served.face.hub().sessions().find("demo").unwrap().id;
    let session = served.face.hub().sessions().session(session).unwrap();
    let events = session.events(outcome.call, 1000).unwrap().into_iter();
    let of_call = events.filter(|event| event.call == Some(outcome.call));
    of_call.map(|event| event.event.kind.to_string()).collect()
}

async fn names(served: &Server, path: &str) -> Vec<String> {
    let listed = served.ask("GET", path, None).await.json();
    listed.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

fn refusal(refused: Result<RegisteredTools, ClientError>) -> String {
    match refused {
        Err(ClientError::Refused(problem)) => problem.detail,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn remote_tool_acts_and_is_recorded() {
    let (served, _registered, _told) = world().await;
    let steps = json!([{ "write": ["a/b.txt", "one"] }, { "read": "a/b.txt" }, { "list": "/" }, { "note": "n" }]);
    let outcome = call(&served, steps).await;
    assert_eq!(said(&outcome), json!(["a/b.txt", "one", "a directory 0, a/b.txt file 3", ""]));
    assert_eq!(kinds(&served, &outcome), ["CallStarted", WriteFile::KIND, "Noted", "CallFinished"]);
    let file = served.directory.path().join("files/a/b.txt");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "one");
    let outcome = call(&served, json!([{ "remove": "a" }])).await;
    assert_eq!(kinds(&served, &outcome), ["CallStarted", DeleteEntry::KIND, "CallFinished"]);
    assert!(!file.exists());
    let shown = served.ask("GET", &format!("/v1/sessions/demo/calls/{}", outcome.call), None).await.json();
    assert_eq!((&shown["tool"], &shown["agent"]), (&"steered".into(), &"tester".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn remote_tool_runs_commands_under_the_policy() {
    let (served, _registered, _told) = world().await;
    let steps = json!([{ "write": ["in.txt", "in\n"] }, { "run": "uname > os.txt; cat in.txt; echo out > out.txt" }, { "read": "out.txt" }]);
    let call = json!({ "tool": "steered", "params": { "steps": steps } });
    let refused = served.ask("POST", "/v1/sessions/demo/calls", Some(&call)).await.json();
    assert!(refused["text"].as_str().unwrap().contains("nothing allows"), "{refused}");
    assert!(!served.directory.path().join("files/in.txt").exists());
    let outcome = call_tool(&served, "steered", steps, json!({ "auto_confirm": true })).await;
    assert_eq!(said(&outcome), json!(["in.txt", "in\n", "out\n"]));
    let recorded = kinds(&served, &outcome);
    for kind in ["CommandDecided", "CommandResult", "WriteFile"] {
        assert!(recorded.iter().any(|known| known == kind), "{kind}: {recorded:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn question_given_up_is_not_the_next_ones_answer() {
    let (served, _registered, _told) = world().await;
    let steps = json!([{ "write": ["a.txt", "one"] }, { "give_up": "sleep 0.3" }, { "read": "a.txt" }]);
    let outcome = call_tool(&served, "steered", steps, json!({ "auto_confirm": true })).await;
    assert_eq!(said(&outcome), json!(["a.txt", "", "one"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn remote_tool_failing_changes_no_file() {
    let (served, _registered, _told) = world().await;
    said(&call(&served, json!([{ "write": ["kept.txt", "old"] }])).await);
    for (last, why) in [
        (json!({ "fail": "it is Monday" }), "it is Monday"),
        (json!("panic"), "the tool failed: it panicked"),
        (json!({ "read": "nothing" }), "/nothing does not exist"),
        (json!({ "write": ["../out", "x"] }), "are not allowed"),
        (json!("forge"), "a program records only its own event kinds"),
    ] {
        let steps = json!([{ "write": ["kept.txt", "new"] }, { "write": ["new.txt", "x"] }, { "note": "n" }, last]);
        let outcome = call(&served, steps).await;
        assert!(!outcome.is_ok() && outcome.text.contains(why), "{why}: {outcome:?}");
        assert_eq!(kinds(&served, &outcome), ["CallStarted", "CallFinished"]);
    }
    let files = served.directory.path().join("files");
    assert_eq!(std::fs::read_to_string(files.join("kept.txt")).unwrap(), "old");
    assert!(!files.join("new.txt").exists());
    let odd = call_tool(&served, "steered", json!("no list"), json!({})).await;
    assert!(odd.text.starts_with("invalid parameters for steered"), "{odd:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn remote_tool_that_reads_changes_nothing() {
    let (served, _registered, _told) = world().await;
    said(&call(&served, json!([{ "write": ["a.txt", "one"] }])).await);
    let look = call_tool(&served, "looking", json!([{ "read": "a.txt" }, { "show": "seen" }]), json!({})).await;
    assert_eq!(said(&look), json!(["one", "seen"]));
    for step in [json!({ "write": ["a.txt", "x"] }), json!({ "remove": "a.txt" }), json!({ "run": "true" })] {
        let outcome = call_tool(&served, "looking", json!([step]), json!({ "auto_confirm": true })).await;
        assert!(outcome.text.contains("read-only"), "{outcome:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn program_that_ends_fails_its_call() {
    let (served, registered, mut told) = world().await;
    let steps = json!([{ "write": ["new.txt", "x"] }, "hang"]);
    let (outcome, ()) = tokio::join!(call(&served, steps), async {
        assert_eq!(told.recv().await, Some("begun"));
        drop(registered);
    });
    assert!(outcome.text.contains("ended before it answered"), "{outcome:?}");
    assert!(!served.directory.path().join("files/new.txt").exists());
    assert_eq!(told.recv().await, Some("dropped"));
    let gone = call(&served, json!([])).await;
    assert!(gone.text.starts_with("tool \"steered\" not found"), "{gone:?}");
    assert_eq!(names(&served, "/v1/tools").await.len(), 17);
}

#[tokio::test(flavor = "multi_thread")]
async fn program_that_hangs_keeps_no_call() {
    let (served, _registered, mut told) = world().await;
    let outcome = call_tool(&served, "steered", json!(["hang"]), json!({ "timeout_seconds": 0.2 })).await;
    assert!(outcome.text.contains("its time limit"), "{outcome:?}");
    assert_eq!((told.recv().await, told.recv().await), (Some("begun"), Some("dropped")));
    let cancel = async {
        assert_eq!(told.recv().await, Some("begun"));
        let status: ServerStatus = served.client().get("/v1/server").await.unwrap();
        served.client().cancel("demo", status.calls[0].call).await.unwrap();
    };
    let (outcome, ()) = tokio::join!(call(&served, json!(["hang"])), cancel);
    assert_eq!(outcome.text, "the call was cancelled");
    assert_eq!(told.recv().await, Some("dropped"));
    said(&call(&served, json!([{ "write": ["after.txt", "x"] }])).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn registered_names_must_be_free() {
    let (served, registered, _told) = world().await;
    let client = served.client();
    let (same, _hear) = tools();
    for session in [None, Some("demo")] {
        let why = refusal(client.register_tools(&same, session).await);
        assert_eq!(why, "another program has already registered the tool looking");
    }
    drop(registered);
    eventually_async("its tools are gone", async || names(&served, "/v1/tools").await.len() == 17).await;
    // In two sessions they do not meet.
    let _demo = client.register_tools(&same, Some("demo")).await.unwrap();
    let _other = client.register_tools(&same, Some("other")).await.unwrap();
    assert_eq!(names(&served, "/v1/tools").await.len(), 17);
    assert_eq!(names(&served, "/v1/tools?session=demo").await[17..], ["looking", "steered"]);
    assert!(refusal(client.register_tools(&same, None).await).contains("already"));
    assert!(refusal(client.register_tools(&same, Some("nothing")).await).contains("nothing"));
}

fn offer(name: &str) -> Value {
    let schema = json!({ "type": "object" });
    json!({ "name": name, "description": "d", "effect": "read_only", "params": schema, "output": schema })
}

async fn registering(client: &HttpClient, tools: &[Value]) -> Result<foldspace::http::UpgradedStream, ClientError> {
    client.upgrade("/v1/tools/register", "foldspace-tools", &json!({ "tools": tools })).await
}

#[tokio::test(flavor = "multi_thread")]
async fn registrations_have_limits() {
    let served = Server::begin().await;
    let client = served.client();
    let many: Vec<Value> = (0..65).map(|number| offer(&format!("tool_{number}"))).collect();
    let (mut long, mut flat) = (offer("long"), offer("flat"));
    long["description"] = "x".repeat(65 << 10).into();
    flat["params"] = json!({ "type": "string" });
    for (tools, why) in [
        (vec![], "1 to 64 tools"),
        (many.clone(), "1 to 64 tools"),
        (vec![long], "the limit is 65536"),
        (vec![flat], "\"type\": \"object\""),
        (vec![offer("read_file")], "tool read_file already exists"),
        (vec![offer("session_merge")], "tool session_merge already exists"),
        (vec![offer("two"), offer("two")], "registered twice"),
        (vec![offer("no name")], "letters, digits and underscores"),
        (vec![json!({ "name": "x" })], "missing field"),
    ] {
        match registering(&client, &tools).await {
            Err(ClientError::Refused(problem)) => assert!(problem.detail.contains(why), "{why}: {problem:?}"),
            other => panic!("{why}: {:?}", other.map(drop)),
        }
    }
    drop(registering(&client, &many[..64]).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn program_without_manners_is_disconnected() {
    let (served, _registered, _told) = world().await;
    let ask = r#"{"ask":{"id":1,"ask":{"list":{"below":"/"}}}}"#;
    let burst = format!("{ask}\n").repeat(100);
    for (number, bad) in ["no JSON\n", "{\"done\":{}}\n", "{\"surprise\":{\"id\":1}}\n", &burst].into_iter().enumerate()
    {
        let mut stream = registering(&served.client(), &[offer(&format!("bad_{number}"))]).await.unwrap();
        let calling = async {
            let call = json!({ "tool": format!("bad_{number}") });
            served.ask("POST", "/v1/sessions/demo/calls", Some(&call)).await.json()
        };
        let answering = async {
            let mut call = String::new();
            BufReader::new(&mut stream).read_line(&mut call).await.unwrap();
            assert_eq!(serde_json::from_str::<Value>(&call).unwrap()["call"]["id"], 1);
            stream.write_all(bad.as_bytes()).await.unwrap();
            let mut rest = Vec::new();
            // It ends, perhaps with what was written unread.
            let _ = tokio::time::timeout(WAIT_LIMIT, stream.read_to_end(&mut rest)).await.expect("still connected");
        };
        let (outcome, ()) = tokio::join!(calling, answering);
        let text = outcome["text"].as_str().unwrap();
        assert!(text.contains("ended before it answered"), "{bad:.40}: {outcome}");
    }
    said(&call(&served, json!([])).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn message_over_the_limit_is_an_error() {
    let (served, _registered, _told) = world().await;
    let big = served.directory.path().join("files/big.txt");
    std::fs::write(&big, vec![b'x'; 33 << 20]).unwrap();
    let outcome = call(&served, json!([{ "read": "big.txt" }])).await;
    assert!(outcome.text.starts_with("the answer is over the limit"), "{:.200}", outcome.text);
    let outcome = call(&served, json!([{ "write_big": 33 << 20 }])).await;
    assert!(outcome.text.starts_with("a message has 34"), "{:.200}", outcome.text);
    said(&call(&served, json!([{ "write_big": 31 << 20 }])).await);
}

#[tokio::test]
async fn tools_over_tcp_are_refused() {
    let served = Server::begin().await;
    let stream = tokio::net::TcpStream::connect(served.address).await.unwrap();
    let bearer = format!("Bearer {TOKEN}");
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("connection", "upgrade"),
        ("upgrade", "foldspace-tools"),
        ("host", "localhost"),
    ];
    let body = json!({ "tools": [offer("x")] }).to_string().into();
    let io = hyper_util::rt::TokioIo::new(stream);
    let sent = crate::rig::sent(io, "POST", "/v1/tools/register", body, &headers).await;
    let answer = crate::rig::taken(sent).await;
    assert_eq!((answer.status, &answer.json()["kind"]), (403, &"forbidden".into()), "{answer:?}");
    assert_eq!(names(&served, "/v1/tools").await.len(), 17);
}

/// An MCP client of a server over the same hub, in the session `demo`.
struct Mcp {
    lines: tokio::io::Lines<BufReader<tokio::io::ReadHalf<tokio::io::DuplexStream>>>,
    write: tokio::io::WriteHalf<tokio::io::DuplexStream>,
    asked: u64,
}

impl Mcp {
    async fn begin(served: &Server) -> Self {
        let options = foldspace::mcp::McpOptions { session: Some("demo".to_owned()), ..Default::default() };
        let server = foldspace::mcp::McpServer::new(served.face.hub().clone(), options);
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (input, output) = tokio::io::split(theirs);
        tokio::spawn(async move { server.serve(input, output, Default::default()).await });
        let (read, write) = tokio::io::split(ours);
        let mut client = Self { lines: BufReader::new(read).lines(), write, asked: 0 };
        let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
        let told = client.ask("initialize", hello).await;
        assert_eq!(told["result"]["capabilities"]["tools"]["listChanged"], true, "{told}");
        client.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        client
    }

    async fn say(&mut self, message: &Value) {
        self.write.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn next(&mut self) -> Value {
        let line = tokio::time::timeout(WAIT_LIMIT, self.lines.next_line()).await.unwrap().unwrap();
        serde_json::from_str(&line.unwrap()).unwrap()
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.asked += 1;
        self.say(&json!({ "jsonrpc": "2.0", "id": self.asked, "method": method, "params": params })).await;
        let mut told = self.next().await;
        while told["id"] != self.asked {
            told = self.next().await;
        }
        told
    }

    async fn names(&mut self) -> Vec<String> {
        let listed = self.ask("tools/list", json!({})).await;
        let tools = listed["result"]["tools"].as_array().unwrap();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mcp_client_sees_and_calls_remote_tools() {
    let (served, registered, _told) = world().await;
    let mut client = Mcp::begin(&served).await;
    assert_eq!(client.names().await[17..], ["looking", "steered"]);
    let call = |steps: Value| json!({ "name": "steered", "arguments": { "steps": steps } });
    let done = client.ask("tools/call", call(json!([{ "write": ["m.txt", "mcp"] }]))).await;
    assert_eq!(done["result"]["structuredContent"], json!({ "said": ["m.txt"] }), "{done}");
    assert_eq!(std::fs::read_to_string(served.directory.path().join("files/m.txt")).unwrap(), "mcp");
    let metrics = served.ask("GET", "/metrics", None).await.body;
    assert!(String::from_utf8_lossy(&metrics).contains("tool=\"steered\""), "it counts under its name");
    let failed = client.ask("tools/call", call(json!([{ "fail": "no" }]))).await;
    assert_eq!((&failed["result"]["isError"], &failed["result"]["content"][0]["text"]), (&true.into(), &"no".into()));
    drop(registered);
    let told = client.next().await;
    assert_eq!(told["method"], "notifications/tools/list_changed");
    assert_eq!(client.names().await.len(), 17);
    let _elsewhere = served.client().register_tools(&tools().0, Some("other")).await.unwrap();
    assert_eq!(client.names().await.len(), 17, "they are another session's");
    assert_eq!(client.ask("tools/call", call(json!([]))).await["error"]["code"], -32602, "no such tool");
}

#[tokio::test(flavor = "multi_thread")]
async fn server_that_ends_lets_calls_end() {
    let (served, registered, mut told) = world().await;
    let steps = json!(["hang"]);
    let (outcome, ()) = tokio::join!(call(&served, steps), async {
        assert_eq!(told.recv().await, Some("begun"));
        served.face.end();
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(told.try_recv().is_err(), "it has its time");
        served.face.hub().cancel_calls();
    });
    assert_eq!(outcome.text, "the call was cancelled");
    tokio::time::timeout(WAIT_LIMIT, registered.closed()).await.expect("the program hears of the end");
}
