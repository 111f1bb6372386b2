//! Hosts that send nothing to a host which has not proved that it has their token, and what a forged one can get.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::jetstream::Context;
use serde_json::{Value, json};
use tokio::task::block_in_place;

use crate::hosts::{Host, TOKEN, begin_session};
use crate::rig::Cluster;
use crate::writers::STREAM;

const NONCE: &str = "00000000000000000000000000000000";

/// A step between hosts, as docs/FORMAT.md has it.
struct Step<'a> {
    token: &'a str,
    from: &'a str,
    to: &'a str,
    at: &'a str,
    asked: &'a str,
    answered: &'a str,
}

impl Step<'_> {
    fn proof(&self, step: &str, request: [&str; 2]) -> String {
        let Self { token, from, to, at, asked, answered } = self;
        let words = json!(["hosts", step, from, to, at, asked, answered, request]).to_string();
        blake3::keyed_hash(blake3::hash(token.as_bytes()).as_bytes(), words.as_bytes()).to_string()
    }
}

/// Sends a request to an address; returns the status and the whole answer.
pub(crate) fn send(place: &str, head: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(place).unwrap();
    write!(stream, "{head}Host: {place}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// Answers of a forged host to a question.
#[derive(Clone)]
enum Answer {
    /// Health only, without a proof.
    Health,
    WrongProof,
    /// That of a real host, to which it passes the question on.
    Relayed(String),
    /// The right one: it has the token.
    Right,
}

/// A host of nobody's that notes what it is sent, under an entry on the cluster that anybody there can write.
struct ForgedHost {
    at: String,
    heads: Arc<Mutex<Vec<String>>>,
    answer: Arc<Mutex<Answer>>,
}

impl ForgedHost {
    fn begin() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = format!("http://{}", listener.local_addr().unwrap());
        let (heads, answer) = (Arc::<Mutex<Vec<String>>>::default(), Arc::new(Mutex::new(Answer::Health)));
        let host = Self { at, heads, answer };
        let (at, heads, answer) = (host.at.clone(), Arc::clone(&host.heads), Arc::clone(&host.answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (at, heads, answer) = (at.clone(), Arc::clone(&heads), answer.lock().unwrap().clone());
                std::thread::spawn(move || serve(stream, &at, &heads, &answer));
            }
        });
        host
    }

    /// Says on the cluster that it is there and has a session, until the test ends.
    async fn claim(&self, context: &Context, session: &str) {
        let run = format!("{NONCE}.{NONCE}");
        let hosts = context.get_key_value(format!("{STREAM}-hosts")).await.unwrap();
        let owners = context.get_key_value(format!("{STREAM}-owners")).await.unwrap();
        let (words, session) = (json!({ "run": run, "at": self.at }).to_string(), session.to_owned());
        hosts.put("evil", words.clone().into()).await.unwrap();
        let owner = json!({ "host": "evil", "run": run, "epoch": 70, "is_released": false, "is_ready": true });
        owners.put(session, owner.to_string().into()).await.unwrap();
        tokio::spawn(async move {
            while hosts.put("evil", words.clone().into()).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
        });
    }

    fn take_heads(&self) -> Vec<String> {
        std::mem::take(&mut self.heads.lock().unwrap())
    }
}

/// Answers all requests of a connection.
fn serve(stream: TcpStream, at: &str, heads: &Mutex<Vec<String>>, answer: &Answer) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut stream = stream;
    loop {
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if line == "\r\n" {
                break;
            }
            length = header(&line, "content-length").map_or(length, |value| value.trim().parse().unwrap());
            head += &line;
        }
        reader.read_exact(&mut vec![0; length]).ok()?;
        heads.lock().unwrap().push(head.clone());
        let asked = header(&head, "foldspace-ask").map(str::to_owned);
        let proof = match (asked, answer) {
            (Some(_), Answer::WrongProof) => format!("foldspace-answer: {NONCE} {}\r\n", "0".repeat(64)),
            (Some(asked), Answer::Relayed(place)) => {
                let (_, told) = send(place, &format!("GET /healthz HTTP/1.1\r\nfoldspace-ask: {asked}\r\n"));
                header(&told, "foldspace-answer")
                    .map_or_else(String::new, |told| format!("foldspace-answer: {told}\r\n"))
            }
            (Some(asked), Answer::Right) => {
                let mut words = asked.split(' ');
                let (from, asked) = (words.next()?, words.next()?);
                let step = Step { token: TOKEN, from, to: "evil", at, asked, answered: NONCE };
                format!("foldspace-answer: {NONCE} {}\r\n", step.proof("answer", ["", ""]))
            }
            _ => String::new(),
        };
        write!(stream, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n{proof}\r\n{{}}")
            .ok()?;
    }
}

/// Two hosts, and the id of a session on the first one.
fn hosts(cluster: &Cluster) -> (Host, Host, String) {
    let (one, other) = (Host::start(cluster, "one", &[0, 1, 2]), Host::start(cluster, "other", &[0, 1, 2]));
    begin_session(&one);
    let listed: Value = serde_json::from_slice(&one.run(&["sessions", "--json"]).stdout).unwrap();
    let listed = listed.as_array().map_or(&listed, |listed| &listed[0]);
    let session = ["session", "id"].iter().find_map(|name| listed[name].as_str()).unwrap().to_owned();
    (one, other, session)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_host_gets_no_token_and_is_not_believed() {
    let Some(cluster) = Cluster::start() else { return };
    let (one, other, session) = hosts(&cluster);
    let (context, evil) = (cluster.connect(0).await, ForgedHost::begin());
    evil.claim(&context, &session).await;
    for (answer, why) in [
        (Answer::Health, "does not prove that it has the token"),
        (Answer::WrongProof, "its proof is wrong"),
        (Answer::Relayed(one.place.clone()), "does not prove that it has the token"),
    ] {
        *evil.answer.lock().unwrap() = answer;
        let call = block_in_place(|| other.run(&["exec", "work", "--", "echo", "secret"]));
        assert!(!call.status.success(), "{call:?}");
        let refused = String::from_utf8_lossy(&call.stderr).into_owned();
        assert!(refused.contains("host evil at") && refused.contains("is not trusted"), "{refused}");
        assert!(refused.contains(why), "{refused}");
        let heads = evil.take_heads();
        assert!(!heads.is_empty());
        for head in heads {
            assert!(head.starts_with("GET /healthz HTTP/1.1\r\n"), "{head}");
            assert!(!head.contains(TOKEN) && !head.to_lowercase().contains("authorization"), "{head}");
            for place in [&one.place, &other.place] {
                let asked = header(&head, "foldspace-ask").unwrap();
                let (status, told) = send(place, &format!("GET /healthz HTTP/1.1\r\nfoldspace-ask: {asked}\r\n"));
                assert_eq!(
                    (status, header(&told, "foldspace-answer")),
                    (403, None),
                    "a question is for its host only: {told}"
                );
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_with_the_token_gets_a_credential_for_one_request_only() {
    let Some(cluster) = Cluster::start() else { return };
    let (one, other, session) = hosts(&cluster);
    let (context, evil) = (cluster.connect(0).await, ForgedHost::begin());
    evil.claim(&context, &session).await;
    *evil.answer.lock().unwrap() = Answer::Right;
    let protocols =
        "Sec-WebSocket-Protocol: foldspace.terminal, foldspace.bearer.dG9rZW4tb2YtYWxsLWhvc3RzLW9mLXRlc3Rz\r\n";
    let request = format!(
        "GET /v1/sessions/{session}/files/first HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\nUpgrade: websocket\r\n{protocols}"
    );
    block_in_place(|| send(&other.place, &request));
    let sent = evil.take_heads();
    let credential = header(&sent[1], "authorization").unwrap();
    for head in &sent {
        assert!(!head.contains(TOKEN) && !head.contains("bearer") && !head.contains("Bearer"), "{head}");
    }
    assert_eq!(header(&sent[1], "sec-websocket-protocol"), Some("foldspace.terminal"));
    for place in [&one.place, &other.place] {
        let again = format!("GET /v1/sessions/{session}/files/first HTTP/1.1\r\nAuthorization: {credential}\r\n");
        assert_eq!(send(place, &again).0, 401, "it is for another host");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credential_of_host_is_good_once_and_for_its_request() {
    let Some(cluster) = Cluster::start() else { return };
    let one = Host::start(&cluster, "one", &[0, 1, 2]);
    let at = format!("http://{}", one.place);
    let right = Step { token: TOKEN, from: "other", to: "one", at: &at, asked: NONCE, answered: "" };
    let ask = |step: &Step<'_>, from: &str| {
        let proof = step.proof("ask", ["", ""]);
        send(&one.place, &format!("GET /healthz HTTP/1.1\r\nfoldspace-ask: {from} {NONCE} {proof}\r\n"))
    };
    for (wrong, from) in [
        (Step { token: "another-token-of-tests", ..right }, "other"),
        (Step { to: "two", ..right }, "other"),
        (Step { at: "http://127.0.0.1:1", ..right }, "other"),
        (Step { ..right }, "third"),
    ] {
        let (status, told) = ask(&wrong, from);
        assert_eq!((status, header(&told, "foldspace-answer")), (403, None), "{told}");
    }
    let request = |method: &str, path: &str, credential: &str| {
        send(&one.place, &format!("{method} {path} HTTP/1.1\r\nAuthorization: {credential}\r\n")).0
    };
    for (method, path, status) in
        [("GET", "/v1/server", 200), ("GET", "/v1/sessions", 401), ("POST", "/v1/server", 401)]
    {
        let (_, told) = ask(&right, "other");
        let (answered, proof) = header(&told, "foldspace-answer").unwrap().split_once(' ').unwrap();
        let step = Step { answered, ..right };
        assert_eq!(proof, step.proof("answer", ["", ""]));
        let credential = format!("Foldspace-Host {answered} {}", step.proof("request", ["GET", "/v1/server"]));
        assert_eq!(request(method, path, &credential), status, "{method} {path}");
        assert_eq!(request("GET", "/v1/server", &credential), 401, "it was used");
    }
    for shown in ["Foldspace-Host", "Foldspace-Host x", "Foldspace-Host  ", "Foldspace-Host x y"] {
        assert_eq!(request("GET", "/v1/server", shown), 401, "{shown}");
    }
    let health = send(&one.place, "GET /healthz HTTP/1.1\r\nfoldspace-ask: x\r\n");
    assert_eq!(health.0, 403, "{}", health.1);
    assert_eq!(send(&one.place, "GET /healthz HTTP/1.1\r\n").0, 200);
}
