//! Ports of containers, through the API and E2B's hosts.

use foldspace::backends::{ContainerNetwork, NetworkRules, PodmanOptions};
use foldspace::event::CallStatus;
use foldspace::tools::{CommandPolicy, ShellRules};
use foldspace::{ToolCall, WorkspaceSpec};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::e2b::{E2b, enveloped};
use crate::rig::{Answer, Server, TOKEN, eventually_async};

/// Answers with the head of the request, or upgrades the connection and then sends back all that it receives.
const ECHO: &str = r#"
import socket, threading
listener = socket.create_server(("127.0.0.1", 8000))
def serve(peer):
    head = b""
    while b"\r\n\r\n" not in head:
        head += peer.recv(65536)
    if b"pgrade: echo" in head:
        peer.sendall(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n")
        while part := peer.recv(65536):
            peer.sendall(part)
    else:
        peer.sendall(b"HTTP/1.1 418 Teapot\r\nx-own: yes\r\ncontent-length: %d\r\n\r\n" % len(head) + head)
    peer.close()
while True:
    threading.Thread(target=serve, args=[listener.accept()[0]]).start()
"#;

/// A server with the session `work`, whose container listens at port 8000.
async fn listening(options: PodmanOptions) -> Server {
    let server = Server::begin().await;
    let spec = WorkspaceSpec::Podman(options);
    server.face.hub().create(Some("work".to_owned()), &spec, &[]).await.unwrap();
    let started = json!({ "command": ["python3", "-c", ECHO], "auto_confirm": true });
    let started = server.ask("POST", "/v1/sessions/work/processes", Some(&started)).await;
    assert_eq!(started.status, 201, "{started:?}");
    let host = [("host", "8000-work.localhost"), ("foldspace-token", TOKEN)];
    eventually_async("it listens", async || server.ask_tcp("/", &host).await.status != 424).await;
    server
}

fn text(answer: &Answer) -> String {
    String::from_utf8_lossy(&answer.body).to_lowercase()
}

#[tokio::test(flavor = "multi_thread")]
async fn port_gets_requests_without_the_token() {
    let Some(options) = crate::engine::options() else { return };
    let server = listening(options).await;
    let host = ("host", "8000-work.localhost:9");
    let signed_in = [("authorization", &*format!("Bearer {TOKEN}"))];
    let link = server.ask_tcp("/v1/sessions/work/ports/8000", &signed_in).await.json();
    let (label, own) = (link["label"].as_str().unwrap(), link["token"].as_str().unwrap());
    let cookie = format!("a=1; foldspace-token={own}; foldspace-frame={own}; b=2");
    for shown in [("foldspace-token", TOKEN), ("cookie", &cookie)] {
        let answer = server.ask_tcp("/a/b?c=d", &[host, shown, ("authorization", "Basic abc")]).await;
        assert_eq!((answer.status, answer.header("x-own")), (418, "yes"), "{answer:?}");
        let head = text(&answer);
        assert!(head.starts_with("get /a/b?c=d http/1.1\r\n"), "{head}");
        assert!(head.contains("host: 8000-work.localhost:9\r\n") && head.contains("authorization: basic abc\r\n"));
        assert!(!head.contains(TOKEN) && !head.contains(own), "the port has a token: {head}");
        assert_eq!(head.contains("cookie: a=1; b=2\r\n"), shown.0 == "cookie", "{head}");
    }
    // A browser follows a link with the port's token once, and has it then.
    let sent = server.ask_tcp(&format!("/page?x=1&foldspace-token={own}"), &[host]).await;
    assert_eq!((sent.status, sent.header("location")), (303, "/page?x=1"));
    let cookies: Vec<_> = sent.headers.get_all("set-cookie").iter().map(|cookie| cookie.to_str().unwrap()).collect();
    let ends = ["; Path=/; HttpOnly; SameSite=Lax", "; Path=/; HttpOnly; SameSite=None; Secure; Partitioned"];
    assert!(cookies.len() == 2 && cookies.iter().zip(ends).all(|(cookie, end)| cookie.ends_with(end)), "{cookies:?}");
    let by_id = format!("{label}.box.example");
    assert_eq!(server.ask_tcp("/", &[("host", &by_id), ("foldspace-token", TOKEN)]).await.status, 418);
    // It opens this port only, and the server's token does not belong in an address.
    let cookie = format!("foldspace-token={own}");
    assert_eq!(server.ask_tcp("/", &[("host", "8001-work.localhost"), ("cookie", &cookie)]).await.status, 401);
    let refused = server.ask_tcp(&format!("/?foldspace-token={TOKEN}"), &[host]).await;
    assert_eq!(
        (refused.status, &refused.json()["detail"]),
        (401, &json!("the server's token must not be in the address of a port"))
    );
    let cookie = format!("foldspace-token={TOKEN}");
    assert_eq!(server.ask_tcp("/", &[host, ("cookie", &cookie)]).await.status, 401);
    assert_eq!(server.ask_tcp("/v1/server", &[("authorization", &format!("Bearer {own}"))]).await.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn port_is_refused_without_a_token_a_container_or_a_listener() {
    let Some(options) = crate::engine::options() else { return };
    let server = listening(options).await;
    server.session("memory").await;
    let asked = async |host: &str, path: &str, token: &str| {
        let answer = server.ask_tcp(path, &[("host", host), ("foldspace-token", token)]).await;
        (answer.status, answer.json())
    };
    for (path, token) in [("/", ""), ("/", "wrong"), ("/?foldspace-token=wrong", "")] {
        assert_eq!(asked("8000-work.localhost", path, token).await.0, 401, "{path} {token}");
    }
    let (status, problem) = asked("8001-work.localhost", "/", TOKEN).await;
    assert_eq!((status, &problem["kind"]), (424, &json!("backend")));
    assert_eq!(problem["detail"], "nothing listens at port 8001 in the container of work");
    assert_eq!(problem["hint"], "start the server as a background process, so that it outlives its call");
    let (status, problem) = asked("80-memory.localhost", "/", TOKEN).await;
    assert_eq!(
        (status, &problem["detail"]),
        (424, &json!("memory runs no commands, so nothing listens at its port 80"))
    );
    assert_eq!(asked("80-none.localhost", "/", TOKEN).await.0, 404);
    // A port does not make another host a name of the server.
    assert_eq!(asked("8000-work.evil.example", "/", TOKEN).await.0, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn port_can_upgrade_its_connection() {
    let Some(options) = crate::engine::options() else { return };
    let server = listening(options).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = format!(
        "GET /socket HTTP/1.1\r\nhost: 8000-work.localhost\r\nfoldspace-token: {TOKEN}\r\nconnection: upgrade\r\n\
         upgrade: echo\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut read = vec![0; 4096];
    let length = stream.read(&mut read).await.unwrap();
    assert!(read[..length].starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&read[..length]));
    let sent: Vec<u8> = (0..1_000_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    let (mut from, mut to) = stream.split();
    let mut received = vec![0; sent.len()];
    let (written, _) = tokio::join!(to.write_all(&sent), from.read_exact(&mut received));
    written.unwrap();
    assert!(sent == received);

    let mut tunnel = server
        .client()
        .upgrade("/v1/port", "foldspace-port", &json!({ "session": "work", "port": 8000 }))
        .await
        .unwrap();
    tunnel.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    tunnel.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 418 "), "{answer}");
    for (session, port, detail) in [
        ("work", json!(8001), "nothing listens at port 8001"),
        ("none", json!(1), "no session"),
        ("work", json!(70_000), "invalid parameters"),
    ] {
        let asked = json!({ "session": session, "port": port });
        let error = server.client().upgrade("/v1/port", "foldspace-port", &asked).await.err().unwrap().to_string();
        assert!(error.contains(detail), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn public_port_needs_no_token() {
    let Some(options) = crate::engine::options() else { return };
    let server = listening(PodmanOptions { public_ports: [8000].into(), ..options }).await;
    let asked = async |port: u16| server.ask_tcp("/", &[("host", &format!("{port}-work.localhost"))]).await.status;
    assert_eq!((asked(8000).await, asked(8001).await), (418, 401));
    for (path, own) in [("/v1/sessions", "localhost"), ("/", "8000-none.localhost")] {
        assert_eq!(server.ask_tcp(path, &[("host", own)]).await.status, 401, "{own}{path}");
    }
}

/// Starts the listener in a new sandbox. Its stream stays open, since the command ends with it.
async fn sandbox(e2b: &E2b, network: Value) -> (String, Value, TcpStream) {
    let asked = json!({ "templateID": "base", "timeout": 600, "network": network });
    let made = e2b.control("POST", "/sandboxes", asked).await;
    assert_eq!(made.status, 201, "{made:?}");
    let made = made.json();
    let (id, token) = (made["sandboxID"].as_str().unwrap().to_owned(), made["envdAccessToken"].as_str().unwrap());
    let process = json!({ "cmd": "python3", "args": ["-c", ECHO] });
    let start = enveloped(&json!({ "process": process, "stdin": false }).to_string());
    // The SDKs reach envd at its own host.
    let head = format!(
        "POST /process.Process/Start HTTP/1.1\r\nhost: 49983-{id}.box.example\r\nx-access-token: {token}\r\n\
         content-type: application/connect+json\r\ncontent-length: {}\r\n\r\n",
        start.len()
    );
    let mut stream = TcpStream::connect(e2b.address).await.unwrap();
    stream.write_all(&[head.as_bytes(), &start].concat()).await.unwrap();
    let host = format!("8000-{id}.box.example");
    let shown = ("e2b-traffic-access-token", made["trafficAccessToken"].as_str().unwrap_or_default());
    eventually_async("it listens", async || e2b.raw("GET", "/", "", &[("host", &host), shown]).await.status == 418)
        .await;
    (id, made, stream)
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_of_a_sandbox_are_public_or_have_a_token() {
    let Some(options) = crate::engine::options() else { return };
    let e2b = E2b::begin(WorkspaceSpec::Podman(options), false, false).await;
    let (id, made, _stream) = sandbox(&e2b, Value::Null).await;
    assert_eq!(made["trafficAccessToken"], Value::Null);
    let at = |port: u16, id: &str| format!("{port}-{id}.box.example");
    let answer = e2b.raw("POST", "/x", "body", &[("host", &at(8000, &id))]).await;
    assert_eq!(answer.status, 418, "{answer:?}");
    let closed = e2b.raw("GET", "/", "", &[("host", &at(8001, &id))]).await;
    let told = json!({ "sandboxId": id, "port": 8001, "code": 502,
        "message": "The sandbox is running but port is not open" });
    assert_eq!((closed.status, closed.json()), (502, told));
    let gone = e2b.raw("GET", "/", "", &[("host", &at(8000, "none"))]).await;
    assert_eq!((gone.status, &gone.json()["message"]), (502, &json!("The sandbox was not found")));

    let network = json!({ "allowPublicTraffic": false, "maskRequestHost": "own.example:${PORT}" });
    let (id, made, _stream) = sandbox(&e2b, network).await;
    let token = made["trafficAccessToken"].as_str().unwrap();
    let asked = async |token: &str| {
        e2b.raw("GET", "/", "", &[("host", &at(8000, &id)), ("e2b-traffic-access-token", token)]).await
    };
    for wrong in ["", "0123", made["envdAccessToken"].as_str().unwrap()] {
        assert_eq!(asked(wrong).await.status, 403, "{wrong}");
    }
    let answer = asked(token).await;
    assert!(String::from_utf8_lossy(&answer.body).contains("\r\nHost: own.example:8000\r\n"), "{answer:?}");
    let head = text(&answer);
    assert!(head.contains("host: own.example:8000\r\n") && !head.contains(token), "{head}");

    let metrics = e2b.control("GET", &format!("/sandboxes/{id}/metrics"), Value::Null).await.json();
    assert!(metrics[0]["memUsed"].as_u64() > Some(1 << 20), "{metrics}");
    assert!(metrics[0]["memTotal"].as_u64() >= metrics[0]["memUsed"].as_u64(), "{metrics}");
    assert!(metrics[0]["diskTotal"].as_u64() >= metrics[0]["diskUsed"].as_u64(), "{metrics}");
    let past = e2b.control("GET", &format!("/sandboxes/{id}/metrics?start=1&end=2"), Value::Null).await;
    assert_eq!(past.json(), json!([]));
    let all = e2b.control("GET", &format!("/sandboxes/metrics?sandbox_ids={id},none"), Value::Null).await.json();
    assert!(all["sandboxes"][&id]["memUsed"].as_u64() > Some(0) && all["sandboxes"]["none"].is_null(), "{all}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_of_a_sandbox_bind_its_connections() {
    let Some(options) = crate::engine::options() else { return };
    let network = ContainerNetwork::Recorded(NetworkRules::default());
    let e2b = E2b::begin(WorkspaceSpec::Podman(PodmanOptions { network, ..options }), false, false).await;
    let create = async |network: Value| {
        let asked = json!({ "templateID": "base", "timeout": 600, "network": network });
        e2b.control("POST", "/sandboxes", asked).await
    };
    // The reason why the proxy refuses an address; it fails to reach another one.
    let asked = async |sandbox: &(String, String), host: &str| {
        let program = format!(
            "import socket\nstream = socket.create_connection(('127.0.0.2', 3128))\n\
             stream.sendall(b'CONNECT {host} HTTP/1.1\\r\\nhost: x\\r\\nconnection: close\\r\\n\\r\\n')\n\
             print(stream.makefile().read())"
        );
        e2b.run(sandbox, &["python3", "-c", &program], "").await.unwrap().1
    };
    let made = create(json!({ "denyOut": ["0.0.0.0/0"], "allowOut": ["203.0.113.7", "127.0.0.1"] })).await.json();
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    let sandbox = (text("sandboxID"), text("envdAccessToken"));
    assert!(asked(&sandbox, "8.8.8.8:443").await.contains("it is not among the allowed hosts"));
    assert!(
        asked(&sandbox, "127.0.0.1:1").await.contains("its address 127.0.0.1 is private"),
        "a client opens nothing"
    );
    let update =
        async |rules: Value| e2b.control("PUT", &format!("/sandboxes/{}/network", sandbox.0), rules).await.status;
    assert_eq!(update(json!({ "denyOut": ["8.8.8.0/24"], "allowOut": ["8.8.8.9"] })).await, 204);
    assert!(asked(&sandbox, "8.8.8.8:443").await.contains("8.8.8.0/24 is denied"));
    // They outlive a pause, and come with a fork.
    assert_eq!(e2b.control("POST", &format!("/sandboxes/{}/pause", sandbox.0), json!({})).await.status, 204);
    assert_eq!(e2b.control("POST", &format!("/sandboxes/{}/connect", sandbox.0), json!({})).await.status, 201);
    assert!(asked(&sandbox, "8.8.8.8:443").await.contains("8.8.8.0/24 is denied"));
    let forks = e2b.control("POST", &format!("/sandboxes/{}/fork", sandbox.0), json!({})).await.json();
    let text = |name: &str| forks[0]["sandbox"][name].as_str().unwrap().to_owned();
    assert!(asked(&(text("sandboxID"), text("envdAccessToken")), "8.8.8.8:443").await.contains("8.8.8.0/24 is denied"));
    for (wrong, status) in [
        (json!({ "denyOut": ["a b"] }), 400),
        (json!({ "rules": { "a.example": [] } }), 501),
        (json!({ "egressProxy": { "host": "x" } }), 501),
    ] {
        assert_eq!((create(wrong.clone()).await.status, update(wrong.clone()).await), (status, status), "{wrong}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_sandbox_keeps_its_processes() {
    let Some(options) = crate::engine::options() else { return };
    let e2b = E2b::begin(WorkspaceSpec::Podman(options), false, false).await;
    let (id, made, _stream) = sandbox(&e2b, Value::Null).await;
    let own = (id.clone(), made["envdAccessToken"].as_str().unwrap().to_owned());
    let processes = async || e2b.call(&own, "/process.Process/List", json!({})).await.json()["processes"].clone();
    let asked = async || e2b.raw("GET", "/", "", &[("host", &format!("8000-{id}.box.example"))]).await.status;
    let control = async |verb: &str, body: Value| e2b.control("POST", &format!("/sandboxes/{id}/{verb}"), body).await;
    assert_eq!(asked().await, 418);
    let before = processes().await;
    assert_eq!(before.as_array().map(Vec::len), Some(1), "{before}");
    assert_eq!(control("pause", json!({})).await.status, 204);
    assert_eq!(asked().await, 502, "it is paused");
    assert_eq!(control("connect", json!({})).await.status, 201);
    assert_eq!((processes().await, asked().await), (before, 418));
    // Without its memory, only its files stay.
    assert_eq!(control("pause", json!({ "memory": false })).await.status, 204);
    assert_eq!(control("connect", json!({})).await.status, 201);
    assert_eq!((processes().await, asked().await), (json!([]), 502));
    // Neither a frozen process nor another client's call hinders the end.
    let (id, ..) = sandbox(&e2b, Value::Null).await;
    let control = async |method, verb: &str| e2b.control(method, &format!("/sandboxes/{id}{verb}"), json!({})).await;
    let hub = e2b.server.face.hub();
    let open = hub.open(hub.sessions().find(&id).unwrap().id).await.unwrap();
    let call = json!({ "command": "sleep 600", "timeout_seconds": 600 });
    let open = open.with_shell_rules(ShellRules { policy: CommandPolicy::typed(), ..ShellRules::default() });
    let call = open.call(ToolCall::new("shell_execute", call));
    let (ended, ()) = tokio::join!(call, async {
        assert_eq!(control("POST", "/pause").await.status, 204);
        assert_eq!(control("DELETE", "").await.status, 204);
    });
    assert_eq!(ended.unwrap().status, CallStatus::Interrupted);
    assert_eq!(control("POST", "/connect").await.status, 404);
}
