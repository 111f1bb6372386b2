//! The recorded network of a container: what its commands reach, what is recorded, and what they can't get around.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use foldspace::Recorded;
use foldspace::backends::{ContainerNetwork, NetworkRules, PodmanOptions};
use foldspace::event::{CallStatus, NetworkConnection};
use foldspace::reducers::Network;
use serde_json::json;

use crate::rig::{Rig, Step, eventually};

/// A server of this machine that answers each request with `hello`, or sends it to another address.
fn server(to: Option<String>) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = [0; 4096];
            drop(stream.read(&mut head));
            drop(match &to {
                None => write!(stream, "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nhello"),
                Some(to) => write!(stream, "HTTP/1.1 302 Found\r\nlocation: {to}\r\nconnection: close\r\n\r\n"),
            });
        }
    });
    at
}

fn with(allow: &[&str], deny: &[&str]) -> Option<Rig> {
    let read = |patterns: &[&str]| patterns.iter().map(|pattern| pattern.parse().unwrap()).collect();
    let rules = NetworkRules { allow: read(allow), deny: read(deny), ..Default::default() };
    Rig::container(|options| PodmanOptions { network: ContainerNetwork::Recorded(rules), ..options })
}

const GET: &str = "
import sys, urllib.request
for url in sys.argv[1:]:
    try: print(urllib.request.urlopen(url, timeout=20).read().decode())
    except Exception as error: print('error:', error, getattr(error, 'read', lambda: b'')().decode())
";

/// Gets addresses one after the other, through the proxy even if they are on loopback.
fn get(rig: &Rig, urls: &[&str]) -> Step {
    let command = [&["env", "-u", "no_proxy", "-u", "NO_PROXY", "python3", "-c", GET], urls].concat();
    rig.call("shell_execute", json!({ "command": command }))
}

fn connections(rig: &Rig) -> Vec<NetworkConnection> {
    let all = rig.session().events(1, 1_000_000).unwrap();
    all.iter().filter_map(Recorded::typed).map(|event| event.unwrap().event).collect()
}

fn printed(step: &Step) -> String {
    step.outcome.result["stdout"].as_str().unwrap().to_owned()
}

#[test]
fn network_reaches_allowed_hosts_and_records_each_connection() {
    let (own, port) = (server(None), server(None).port());
    let name = format!("localhost:{}", own.port());
    let Some(rig) = with(&[&name], &["x.example.com"]) else { return };
    let step = get(&rig, &[&format!("http://{name}/"), &format!("http://127.0.0.1:{port}/"), "http://x.example.com/"]);
    let shown = printed(&step);
    let lines: Vec<&str> = shown.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(lines[0], "hello", "{shown}");
    let refused = format!("foldspace refused a connection to 127.0.0.1:{port}: it is not among the allowed hosts");
    assert!(lines[1].ends_with(&refused), "{shown}");
    assert!(
        lines[2].ends_with("foldspace refused a connection to x.example.com:80: x.example.com is denied"),
        "{shown}"
    );
    let note = format!(
        "the network refused connections: 127.0.0.1:{port} (it is not among the allowed hosts); \
         x.example.com:80 (x.example.com is denied)"
    );
    assert_eq!(step.outcome.result["note"], note);
    assert!(step.outcome.text.ends_with(&format!("[note: {note}]")), "{}", step.outcome.text);

    let events = connections(&rig);
    let seen: Vec<_> =
        events.iter().map(|one| (one.host.as_str(), one.port, one.by.as_str(), one.outcome.as_str())).collect();
    let expected = [
        ("localhost", own.port(), "http", "closed"),
        ("127.0.0.1", port, "http", "refused"),
        ("x.example.com", 80, "http", "refused"),
    ];
    assert_eq!(seen, expected);
    assert!(events[0].sent > 50 && events[0].received > 40 && events[0].micros > 0, "{events:?}");
    assert!(!events[0].address.is_empty() && events[1].address.is_empty(), "{events:?}");
    let state = rig.session().state().unwrap();
    let network = state.slice::<Network>().unwrap();
    assert_eq!((network.hosts[&name].connections, network.hosts["x.example.com:80"].refused), (1, 1));
    rig.verify();
}

#[test]
fn network_is_there_for_programs_that_know_no_proxy() {
    let own = server(None);
    let Some(rig) = with(&[&format!("localhost:{}", own.port()), "*.example.com"], &["x.example.com"]) else { return };
    let names = "getent ahosts a.example.com | head -n 1; getent hosts x.example.com other.example || echo none";
    let shown = rig.printed(names);
    assert!(shown.starts_with("127.64.0.1 ") && shown.ends_with("none"), "{shown}");
    // `localhost` itself is in the container's own list of hosts.
    let program = format!(
        "import socket\nstream = socket.create_connection(('localhost.', {}), 20)\nstream.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n')\n\
         print(stream.recv(4096), end='')",
        own.port()
    );
    let step = rig.call("shell_execute", json!({ "command": ["python3", "-c", program] }));
    assert!(printed(&step).contains("hello") || printed(&step).is_empty(), "{}", step.outcome.text);
    let events = connections(&rig);
    let refused: Vec<&str> =
        events.iter().filter(|one| one.outcome == "refused").map(|one| one.host.as_str()).collect();
    assert_eq!(refused, ["x.example.com", "other.example"]);
    // Its own servers are reached without the proxy.
    let serve = "python3 -m http.server 8080 & sleep 0.3; for n in 1 2 3 4 5 6 7 8 9; do python3 -c \"$0\" http://127.0.0.1:8080/ && break; sleep 0.3; done; kill $!";
    let step = rig.call("shell_execute", json!({ "command": ["bash", "-c", serve, GET] }));
    assert!(printed(&step).contains("Directory listing"), "{}", step.outcome.text);
    assert!(connections(&rig).iter().all(|one| one.port != 8080), "{:?}", connections(&rig));
}

#[test]
fn network_has_no_way_around_its_rules() {
    let inner = server(None);
    let redirect = server(Some(format!("http://localhost:{}/", inner.port())));
    let around = format!("127.0.0.1:{}", redirect.port());
    let Some(rig) = with(&["*", &around], &[]) else { return };
    let port = inner.port();
    // Each leads to this machine, to its metadata service, or to another private place.
    let hosts = [
        "localhost",
        "127.0.0.1",
        "127.1",
        "0.0.0.0",
        "2130706433",
        "0x7f000001",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "169.254.169.254",
        "10.0.0.1",
        "[fd00::1]",
        "user@127.0.0.1",
    ];
    let urls: Vec<String> = hosts.iter().map(|host| format!("http://{host}:{port}/")).collect();
    let step = get(&rig, &urls.iter().map(String::as_str).collect::<Vec<_>>());
    let shown = printed(&step);
    assert!(!shown.contains("hello") && shown.matches("error:").count() == hosts.len(), "{shown}");
    let events = connections(&rig);
    assert!(events.iter().all(|one| one.outcome != "closed" && one.address.is_empty()), "{events:?}");
    // An allowed server can't send a program elsewhere.
    let shown = printed(&get(&rig, &[&format!("http://{around}/")]));
    assert!(shown.contains("its address 127.0.0.1 is private") || shown.contains("is private"), "{shown}");

    // Without the proxy there is only the container's own loopback.
    let program = format!(
        "import socket\nfor family, kind, to in [(2, 1, ('127.0.0.1', {port})), (2, 1, ('10.255.255.53', 53)), (2, 2, ('10.255.255.53', 53)),\n\
         \x20   (2, 2, ('1.1.1.1', 53)), (10, 1, ('2606:4700::1111', 443)), (2, 3, ('1.1.1.1', 0))]:\n\
         \x20   try:\n\x20       made = socket.socket(family, kind); made.settimeout(3); made.connect(to); made.send(b'x')\n\
         \x20       print('reached', to)\n\x20   except OSError as error: print('not', error)"
    );
    let shown = printed(&rig.call("shell_execute", json!({ "command": ["python3", "-c", program] })));
    assert!(!shown.contains("reached") && shown.lines().count() == 6, "{shown}");
    let interfaces = rig.printed("ls /sys/class/net");
    assert_eq!(interfaces, "lo");
}

#[test]
fn network_serves_many_connections_and_much_data() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || {
                let mut stream = stream.unwrap();
                let mut size = [0; 4];
                if stream.read_exact(&mut size).is_ok() {
                    drop(std::io::copy(&mut std::io::repeat(7).take(u32::from_le_bytes(size).into()), &mut stream));
                }
            });
        }
    });
    let Some(rig) = with(&["127.0.0.1"], &[]) else { return };
    let program = format!(
        "import socket, threading\ndone = []\ndef get(size):\n\
         \x20   stream = socket.create_connection(('127.0.0.2', 3128)); read = stream.makefile('rb')\n\
         \x20   stream.sendall(b'CONNECT 127.0.0.1:{0} HTTP/1.1\\r\\nhost: 127.0.0.1:{0}\\r\\n\\r\\n')\n\
         \x20   while read.readline().strip(): pass\n\
         \x20   stream.sendall(size.to_bytes(4, 'little')); count = 0\n\
         \x20   while part := read.read1(1 << 20): count += len(part)\n\
         \x20   done.append(count == size)\n\
         get(256 << 20)\n\
         for _ in range(15):\n\
         \x20   threads = [threading.Thread(target=get, args=[1000]) for _ in range(100)]\n\
         \x20   [one.start() for one in threads]; [one.join() for one in threads]\n\
         print(len(done), all(done))",
        at.port()
    );
    let step = rig.call("shell_execute", json!({ "command": ["python3", "-c", program], "timeout_seconds": 120 }));
    assert_eq!(
        (printed(&step).as_str(), step.outcome.status),
        ("1501 True\n", CallStatus::Ok),
        "{}",
        step.outcome.text
    );
    // The end of the last ones is seen after the command's.
    eventually("all are recorded", || connections(&rig).iter().map(|one| one.count).sum::<u64>() == 1501);
    let events = connections(&rig);
    // From a thousand on, equal ones are counted.
    assert!(events.len() <= 1100, "{}", events.len());
    assert_eq!(events.iter().map(|one| one.received).sum::<u64>(), (256 << 20) + 1_500_000);
}
