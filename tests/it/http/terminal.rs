//! Calls over a websocket, whose command gets input as it comes.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use foldspace::WorkspaceSpec;
use foldspace::backends::HostOptions;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::rig::{Server, TOKEN, eventually};

/// A client at the other end of a command.
struct Client(WebSocketStream<TcpStream>);

impl Client {
    async fn begin(served: &Server, first: Value) -> Self {
        let headers = [("authorization", format!("Bearer {TOKEN}"))];
        let mut client = Self(connect(served, "work", &headers).await.unwrap());
        client.send(first).await;
        client
    }

    async fn send(&mut self, message: Value) {
        self.0.send(Message::text(message.to_string())).await.unwrap();
    }

    async fn type_in(&mut self, keys: &str) {
        self.0.send(Message::binary(keys.as_bytes().to_vec())).await.unwrap();
    }

    /// Reads on until standard output has shown a text.
    async fn wait_for(&mut self, text: &str) {
        let mut shown = String::new();
        while !shown.contains(text) {
            match self.0.next().await.unwrap().unwrap() {
                Message::Binary(bytes) => shown.push_str(&String::from_utf8_lossy(&bytes)),
                message => assert!(!message.is_close(), "{text:?} was not shown: {shown}"),
            }
        }
    }

    /// Reads on until an event of that name, and gives it.
    async fn event(&mut self, name: &str) -> Value {
        loop {
            let message = self.0.next().await.unwrap_or_else(|| panic!("there is no {name}")).unwrap();
            if let Message::Text(text) = message {
                let event: Value = serde_json::from_str(&text).unwrap();
                if !event[name].is_null() {
                    return event[name].clone();
                }
                let ends = ["outcome", "problem"].iter().any(|end| !event[end].is_null());
                assert!(!ends, "{event} came, and no {name}");
            }
        }
    }
}

async fn connect(
    served: &Server,
    session: &str,
    headers: &[(&'static str, String)],
) -> Result<WebSocketStream<TcpStream>, u16> {
    let address = served.address;
    let url = format!("ws://{address}/v1/sessions/{session}/terminal");
    let mut request = url.into_client_request().unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    match tokio_tungstenite::client_async(request, TcpStream::connect(address).await.unwrap()).await {
        Ok((stream, _)) => Ok(stream),
        Err(Error::Http(response)) => Err(response.status().as_u16()),
        Err(error) => panic!("{error}"),
    }
}

async fn with_host() -> Server {
    let served = Server::begin().await;
    let spec = WorkspaceSpec::Host(HostOptions::default());
    drop(served.face.hub().create(Some("work".to_owned()), &spec, &[]).await.unwrap());
    served
}

fn shell(command: &str, tty: bool) -> Value {
    json!({ "tool": "shell_execute", "params": { "command": command, "tty": tty }, "auto_confirm": true })
}

#[tokio::test(flavor = "multi_thread")]
async fn websocket_needs_token_origin_and_session() {
    let served = with_host().await;
    let token = ("authorization", format!("Bearer {TOKEN}"));
    let refused = async |session, headers: &[_]| connect(&served, session, headers).await.err();
    assert_eq!(refused("work", &[]).await, Some(401));
    assert_eq!(refused("work", &[("authorization", format!("Bearer {TOKEN}0"))]).await, Some(401));
    assert_eq!(refused("work", &[token.clone(), ("origin", "http://evil.example".to_owned())]).await, Some(403));
    assert_eq!(refused("none", std::slice::from_ref(&token)).await, Some(404));
    let own = ("origin", format!("http://{}", served.address));
    assert_eq!(refused("work", &[token, own]).await, None);
    let plain = served.ask("GET", "/v1/sessions/work/terminal", None).await;
    assert_eq!((plain.status, &plain.json()["kind"]), (400, &json!("bad_request")));
}

/// The header by which a page shows a token.
pub(super) fn by_protocol(token: &str) -> (&'static str, String) {
    let token = URL_SAFE_NO_PAD.encode(token);
    ("sec-websocket-protocol", format!("foldspace.terminal, foldspace.bearer.{token}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn websocket_of_a_page_shows_its_token_by_a_subprotocol() {
    let served = with_host().await;
    let url = format!("ws://{}/v1/sessions/work/terminal", served.address);
    let mut request = url.into_client_request().unwrap();
    let (name, value) = by_protocol(TOKEN);
    request.headers_mut().insert(name, value.parse().unwrap());
    let stream = TcpStream::connect(served.address).await.unwrap();
    let (stream, response) = tokio_tungstenite::client_async(request, stream).await.unwrap();
    assert_eq!(response.headers()[name], "foldspace.terminal", "the token does not come back");
    drop(stream);
    let own = ("origin", format!("http://{}", served.address));
    let refused = async |headers: &[_]| connect(&served, "work", headers).await.err();
    assert_eq!(refused(&[by_protocol(TOKEN), own.clone()]).await, None);
    assert_eq!(refused(&[by_protocol("another-token-of-someone"), own.clone()]).await, Some(401));
    assert_eq!(refused(&[by_protocol(""), own]).await, Some(401));
    let wrong = ("authorization", "Bearer another-token-of-someone".to_owned());
    assert_eq!(refused(&[by_protocol(TOKEN), wrong]).await, Some(401), "a header goes before it");
    let twice = ("sec-websocket-protocol", format!("{0}, {0}", by_protocol(TOKEN).1));
    assert_eq!(refused(&[twice]).await, Some(401));
    assert_eq!(refused(&[by_protocol(TOKEN), ("origin", "http://evil.example".to_owned())]).await, Some(403));
    let (name, value) = by_protocol(TOKEN);
    assert_eq!(served.ask_tcp("/v1/sessions", &[(name, &value)]).await.status, 401, "for websockets only");
}

#[tokio::test(flavor = "multi_thread")]
async fn websocket_gives_screens_and_takes_keys() {
    let served = with_host().await;
    let script =
        "stty -echo; printf '\\033[?1h\\033[?2004hready\\033[6n'; head -c 24 | od -An -c | tr -d ' \\n'; stty size";
    let window = json!({ "rows": 5, "columns": 60 });
    let first = json!({ "call": shell(script, true), "window": window, "screen": true });
    let mut client = Client::begin(&served, first).await;
    let screen = client.event("screen").await;
    assert_eq!((&screen["size"], &screen["rows"]["0"][0]["text"]), (&window, &json!("ready")), "{screen}");
    client.send(json!({ "resize": { "rows": 6, "columns": 70 } })).await;
    client.send(json!({ "key": { "name": "ArrowUp" } })).await;
    client.send(json!({ "paste": "a\nb" })).await;
    client.send(json!({ "key": { "name": "d", "ctrl": true } })).await;
    client.send(json!({ "key": { "name": "d", "ctrl": true } })).await;
    let (mut shown, mut size) = (Value::Null, Value::Null);
    let outcome = loop {
        let Some(Ok(Message::Text(text))) = client.0.next().await else { continue };
        let event: Value = serde_json::from_str(&text).unwrap();
        if !event["screen"]["rows"].is_null() {
            (shown, size) = (
                event["screen"].clone(),
                if event["screen"]["size"].is_null() { size } else { event["screen"]["size"].clone() },
            );
        }
        if !event["outcome"].is_null() {
            break event["outcome"].clone();
        }
    };
    assert_eq!((&outcome["status"], &size), (&json!("ok"), &json!({ "rows": 6, "columns": 70 })), "{outcome} {shown}");
    let said = outcome["result"]["stdout"].as_str().unwrap();
    assert!(said.contains("033[1;6R033OA033[200~a\\nb033[201~"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn websocket_into_a_copy_leaves_no_trace() {
    let served = with_host().await;
    served.write("work", "a.txt").await;
    let before = served.ask("GET", "/v1/sessions/work", None).await.json()["events"].as_u64().unwrap();
    served.write("work", "b.txt").await;
    let events = served.ask("GET", "/v1/sessions/work", None).await.json()["events"].clone();
    let mut client =
        Client::begin(&served, json!({ "call": shell("ls; pwd; rm a.txt; read x", true), "copy_at": before })).await;
    assert_eq!(client.event("begun").await["call"], 0);
    client.wait_for("a.txt\r\n/").await;
    client.type_in("\n").await;
    let outcome = client.event("outcome").await;
    assert_eq!((&outcome["status"], &outcome["result"]["exit_code"]), (&json!("ok"), &json!(0)), "{outcome}");
    let mut asks = Client::begin(&served, json!({ "call": shell("sleep 1000", true), "copy_at": before })).await;
    asks.event("begun").await;
    drop(asks);
    let now = served.ask("GET", "/v1/sessions/work", None).await.json();
    assert_eq!((&now["events"], now["children"].as_array().map_or(0, Vec::len)), (&events, 0));
    assert_eq!(served.ask("GET", "/v1/sessions/work/files/a.txt", None).await.status, 200);
    for (call, why) in [
        (json!({ "tool": "ls" }), "shell_execute can"),
        (
            json!({ "tool": "shell_execute", "params": { "command": "less /etc/passwd", "tty": true } }),
            "nothing allows",
        ),
    ] {
        let mut client = Client::begin(&served, json!({ "call": call, "copy_at": before })).await;
        let problem = client.event("problem").await;
        assert!(problem["detail"].as_str().unwrap().contains(why), "{problem}");
    }
    let throwaways = served.face.hub().options().home.join("probes");
    let left = || std::fs::read_dir(&throwaways).map_or(0, Iterator::count);
    eventually("the copies are removed", || left() == 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn websocket_drives_a_terminal() {
    let served = with_host().await;
    let window = json!({ "rows": 40, "columns": 120 });
    let script = "stty size; trap 'stty size' WINCH; echo ready; while read word; do echo \"<$word>\"; done; exit 6";
    let mut client = Client::begin(&served, json!({ "call": shell(script, true), "window": window })).await;
    assert!(client.event("begun").await["call"].is_u64());
    client.wait_for("40 120\r\nready\r\n").await;
    client.type_in("typed\n").await;
    client.wait_for("<typed>\r\n").await;
    client.send(json!({ "resize": { "rows": 10, "columns": 20 } })).await;
    client.type_in("\n").await;
    client.wait_for("10 20\r\n").await;
    client.send(json!({ "end_input": true })).await;
    let outcome = client.event("outcome").await;
    assert_eq!((&outcome["status"], &outcome["result"]["exit_code"]), (&json!("ok"), &json!(6)), "{outcome}");
    assert!(matches!(client.0.next().await, Some(Ok(Message::Close(_))) | None));
}

#[tokio::test(flavor = "multi_thread")]
async fn websocket_streams_input_without_a_terminal() {
    let served = with_host().await;
    let mut client =
        Client::begin(&served, json!({ "call": shell("read a; echo $a; echo err >&2; cat", false) })).await;
    client.type_in("one\n").await;
    client.wait_for("one\n").await;
    assert_eq!(client.event("output").await, json!({ "stream": "stderr", "text": "err\n" }));
    client.type_in("rest").await;
    client.send(json!({ "end_input": true })).await;
    client.wait_for("rest").await;
    assert_eq!(client.event("outcome").await["result"]["stdout"], "one\nrest");
}

#[tokio::test(flavor = "multi_thread")]
async fn websocket_call_is_judged_and_asked_about_first() {
    let served = with_host().await;
    let mut client = Client::begin(&served, json!({ "call": shell("rm -rf /", true) })).await;
    let outcome = client.event("outcome").await;
    assert!(outcome["text"].as_str().unwrap().contains("not allowed"), "{outcome}");
    let params = json!({ "command": "less -f /dev/null", "tty": true });
    let mut client = Client::begin(&served, json!({ "call": { "tool": "shell_execute", "params": params } })).await;
    let question = client.event("question").await;
    assert_eq!(question["programs"], json!(["less"]), "{question}");
    let answer = format!("/v1/sessions/work/calls/{}/answer", question["call"]);
    served.ask("POST", &answer, Some(&json!({ "answer": "once" }))).await;
    client.wait_for("END").await;
    client.type_in("q").await;
    assert_eq!(client.event("outcome").await["result"]["exit_code"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn websocket_that_closes_or_talks_nonsense_hangs_up() {
    let served = with_host().await;
    let mut client = Client::begin(&served, json!({ "window": 5 })).await;
    assert_eq!(client.event("problem").await["kind"], "unusable");
    for nonsense in [true, false] {
        let mut client = Client::begin(&served, json!({ "call": shell("echo begun; sleep 1000", true) })).await;
        let call = client.event("begun").await["call"].clone();
        client.wait_for("begun").await;
        match nonsense {
            true => {
                client.send(json!({ "resise": {} })).await;
                assert_eq!(client.event("outcome").await["status"], "interrupted");
            }
            false => drop(client),
        }
        let path = format!("/v1/sessions/work/calls/{call}");
        let mut known = Value::Null;
        for _ in 0..1000 {
            known = served.ask("GET", &path, None).await.json();
            if known["status"] != "running" {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        assert_eq!(known["status"], "interrupted", "{known}");
    }
}
