//! The proxy in this process, with sockets of this machine's loopback in place of a container's.

use std::fmt::Debug;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use simple_dns::{CLASS, Name, Packet, Question, RCODE, TYPE, rdata::RData};

use super::certificates::Authority;
use super::{
    ConnectionOutcome, ConnectionReport, ContainerSocket, HostPattern, HttpReport, NetworkProxy, NetworkReport,
    NetworkRules, RESOLVER,
};

pub(super) struct ProxyRig {
    pub(super) proxy: NetworkProxy,
    at: SocketAddr,
    resolver: SocketAddr,
    /// The listeners of names, by the ports that they were asked for.
    listeners: Arc<Mutex<Vec<(u16, SocketAddr)>>>,
    reports: Arc<Mutex<Vec<ConnectionReport>>>,
    exchanges: Arc<Mutex<Vec<HttpReport>>>,
}

impl ProxyRig {
    fn new(allow: &[&str], deny: &[&str]) -> Self {
        Self::with(NetworkRules { allow: read(allow), deny: read(deny), ..Default::default() }, None)
    }

    pub(super) fn with(rules: NetworkRules, authority: Option<Authority>) -> Self {
        let (listeners, reports): (Arc<Mutex<Vec<_>>>, Arc<Mutex<Vec<_>>>) = Default::default();
        let exchanges: Arc<Mutex<Vec<_>>> = Arc::default();
        let kept = Arc::clone(&exchanges);
        let resolver: Arc<Mutex<Option<SocketAddr>>> = Arc::default();
        let (known, bound, seen) = (Arc::clone(&listeners), Arc::clone(&resolver), Arc::clone(&reports));
        let open = move |asked| {
            Ok(match asked {
                ContainerSocket::Listen(at) => {
                    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
                    known.lock().unwrap().push((at.port(), listener.local_addr()?));
                    OwnedFd::from(listener)
                }
                ContainerSocket::Datagram(at) => {
                    assert_eq!(at, RESOLVER);
                    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
                    *bound.lock().unwrap() = Some(socket.local_addr()?);
                    OwnedFd::from(socket)
                }
            })
        };
        let sink = Arc::new(move |report| match report {
            NetworkReport::Connection(report) => seen.lock().unwrap().push(report),
            NetworkReport::Exchange(report) => kept.lock().unwrap().push(*report),
        });
        let proxy = NetworkProxy::with(Arc::new(open), rules, sink, authority).unwrap();
        let at = listeners.lock().unwrap().remove(0).1;
        let resolver = resolver.lock().unwrap().unwrap();
        Self { proxy, at, resolver, listeners, reports, exchanges }
    }

    pub(super) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.at).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// The answer to bytes that are sent to the proxy, until it closes the connection.
    pub(super) fn told(&self, request: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        drop(stream.read_to_string(&mut answer));
        answer
    }

    pub(super) fn reports(&self, count: usize) -> Vec<ConnectionReport> {
        reported(&self.reports, count)
    }

    pub(super) fn exchanges(&self, count: usize) -> Vec<HttpReport> {
        reported(&self.exchanges, count)
    }

    fn ask(&self, name: &str, kind: TYPE) -> (RCODE, Option<Ipv4Addr>) {
        let mut packet = Packet::new_query(7);
        packet.questions.push(Question::new(Name::new(name).unwrap(), kind.into(), CLASS::IN.into(), false));
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket.send_to(&packet.build_bytes_vec().unwrap(), self.resolver).unwrap();
        let mut answer = [0; 512];
        let length = socket.recv(&mut answer).unwrap();
        let answer = Packet::parse(&answer[..length]).unwrap();
        let address = answer.answers.first().map(|record| match &record.rdata {
            RData::A(data) => Ipv4Addr::from_bits(data.address),
            other => panic!("{other:?}"),
        });
        (answer.rcode(), address)
    }
}

pub(super) fn read(patterns: &[&str]) -> Vec<HostPattern> {
    patterns.iter().map(|pattern| pattern.parse().unwrap()).collect()
}

/// Waits for this many reports.
fn reported<R: Clone + Debug>(reports: &Mutex<Vec<R>>, count: usize) -> Vec<R> {
    for _ in 0..4000 {
        if reports.lock().unwrap().len() >= count {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let reports = reports.lock().unwrap().clone();
    assert!(reports.len() >= count, "{reports:?}");
    reports
}

/// A server that answers each connection with the first line that it receives.
pub(super) fn echo() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut read = BufReader::new(stream.try_clone().unwrap());
                let mut line = String::new();
                drop(read.read_line(&mut line));
                let mut head = String::new();
                while line.starts_with("GET ") && read.read_line(&mut head).unwrap_or(0) > 2 {}
                let body = format!("{line}{head}");
                drop(write!(
                    stream,
                    "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                ));
            });
        }
    });
    at
}

#[test]
fn connect_and_requests_reach_an_allowed_host() {
    let server = echo();
    let rig = ProxyRig::new(&["localhost", "127.0.0.1"], &[]);
    let port = server.port();
    let answer = rig.told(&format!("CONNECT localhost:{port} HTTP/1.1\r\nhost: localhost:{port}\r\n\r\nhello\n"));
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nhello\n"), "{answer}");
    let head = "proxy-authorization: Basic abc\r\nproxy-connection: keep-alive\r\nhost: other.example\r\nx-own: 1\r\n";
    let answer = rig.told(&format!("GET http://user@127.0.0.1:{port}/a?b HTTP/1.1\r\n{head}connection: close\r\n\r\n"));
    assert!(answer.contains("\r\n\r\nGET /a?b HTTP/1.1\r\n"), "{answer}");
    assert!(answer.contains(&format!("host: 127.0.0.1:{port}\r\n")) && answer.contains("x-own: 1\r\n"), "{answer}");
    assert!(!answer.contains("proxy-") && !answer.contains("other.example"), "{answer}");
    let reports = rig.reports(2);
    let seen: Vec<_> = reports.iter().map(|one| (one.host.as_str(), one.by, one.outcome.clone())).collect();
    assert_eq!(
        seen,
        [("localhost", "connect", ConnectionOutcome::Closed), ("127.0.0.1", "http", ConnectionOutcome::Closed)]
    );
    assert_eq!((reports[0].sent, reports[0].port), (6, port));
    assert!(reports[0].received > 60 && reports[0].address == Some(Ipv4Addr::LOCALHOST.into()), "{reports:?}");
}

#[test]
fn refusal_and_failure_are_told_and_reported() {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let rig = ProxyRig::new(&["127.0.0.1", "*.localhost"], &["secret.localhost"]);
    for (target, status, why) in [
        ("secret.localhost:80", 403, "secret.localhost is denied"),
        ("other.example:443", 403, "it is not among the allowed hosts"),
        ("169.254.169.254:80", 403, "it is not among the allowed hosts"),
        ("127.1:80", 403, "invalid host name \"127.1\""),
        ("[::ffff:127.0.0.2]:80", 403, "it is not among the allowed hosts"),
        // Its address is this machine's, and only the names below it are allowed.
        ("a.localhost:80", 0, ""),
    ] {
        let answer = rig.told(&format!("CONNECT {target} HTTP/1.1\r\nhost: {target}\r\nconnection: close\r\n\r\n"));
        let is_refused = answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.contains(why);
        assert!(is_refused || (status == 0 && !answer.contains("200 OK")), "{target}: {answer}");
    }
    let answer = rig.told(&format!("CONNECT 127.0.0.1:{free} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"));
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("Connection refused"), "{answer}");
    for wrong in [
        "GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n",
        "CONNECT 127.0.0.1 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    ] {
        assert!(rig.told(wrong).starts_with("HTTP/1.1 400 "), "{wrong}");
    }
    assert!(rig.told("nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
    let reports = rig.reports(7);
    let refused = reports.iter().filter(|one| matches!(one.outcome, ConnectionOutcome::Refused(_))).count();
    assert!(refused >= 5 && reports.len() == 7, "{reports:?}");
}

#[test]
fn socks_reaches_names_and_addresses() {
    let server = echo();
    let rig = ProxyRig::new(&["localhost", "127.0.0.1"], &[]);
    let by_name = [&[5, 1, 0, 3, 9][..], b"localhost", &server.port().to_be_bytes()].concat();
    let by_address = [&[5, 1, 0, 1, 127, 0, 0, 1][..], &server.port().to_be_bytes()].concat();
    for asked in [by_name, by_address] {
        let mut stream = rig.connect();
        stream.write_all(&[5, 2, 2, 0]).unwrap();
        let mut greeting = [0; 2];
        stream.read_exact(&mut greeting).unwrap();
        assert_eq!(greeting, [5, 0]);
        stream.write_all(&asked).unwrap();
        let mut done = [0; 10];
        stream.read_exact(&mut done).unwrap();
        assert_eq!(done[..2], [5, 0]);
        stream.write_all(b"through\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("through\n"), "{answer}");
    }
    let refused = [&[5, 1, 0, 3, 13][..], b"other.example", &80_u16.to_be_bytes()].concat();
    for (asked, code) in [(refused, 2), (vec![5, 2, 0, 1, 127, 0, 0, 1, 0, 80], 7)] {
        let mut stream = rig.connect();
        stream.write_all(&[&[5, 1, 0][..], &asked].concat()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert_eq!(answer[2..4], [5, code], "{asked:?}");
    }
    // Only authentication is offered.
    let mut stream = rig.connect();
    stream.write_all(&[5, 1, 2]).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, [5, 255]);
}

#[test]
fn names_get_addresses_where_their_connections_are_taken() {
    let server = echo();
    let pattern = format!("localhost:{}", server.port());
    let rig = ProxyRig::new(&[&pattern, "*.example.com"], &["x.example.com"]);
    let (_, first) = rig.ask("localhost", TYPE::A);
    assert_eq!(first, Some(Ipv4Addr::new(127, 64, 0, 1)));
    assert_eq!(rig.ask("LOCALHOST", TYPE::A).1, first);
    let ports: Vec<u16> = rig.listeners.lock().unwrap().iter().map(|(port, _)| *port).collect();
    assert_eq!(ports.iter().filter(|port| [22, 80, 443, server.port()].contains(port)).count(), 4, "{ports:?}");
    assert_eq!(rig.ask("a.example.com", TYPE::A).1, Some(Ipv4Addr::new(127, 64, 0, 2)));
    assert_eq!(rig.ask("a.example.com", TYPE::AAAA), (RCODE::NoError, None));
    assert_eq!(rig.ask("x.example.com", TYPE::AAAA), (RCODE::NameError, None));
    assert_eq!(rig.ask("x.example.com", TYPE::A), (RCODE::NameError, None));
    let refused = rig.reports(1);
    assert_eq!((refused[0].host.as_str(), refused[0].port, refused[0].by), ("x.example.com", 0, "name"));

    let listener = |asked: u16| rig.listeners.lock().unwrap().iter().find(|(port, _)| *port == asked).unwrap().1;
    let mut stream = TcpStream::connect(listener(server.port())).unwrap();
    stream.write_all(b"hello\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("hello\n"), "{answer}");
    drop(stream);
    // The rules allow the name at that port only.
    let mut stream = TcpStream::connect(listener(443)).unwrap();
    assert!(stream.read_to_end(&mut Vec::new()).is_err());
    let reports = rig.reports(3);
    let sent = |outcome: &ConnectionOutcome| reports.iter().find(|one| one.outcome == *outcome).map(|one| one.sent);
    assert_eq!(sent(&ConnectionOutcome::Closed), Some(6), "{reports:?}");
    assert_eq!(sent(&ConnectionOutcome::Refused("it is not among the allowed hosts".to_owned())), Some(0));

    // Whatever is not understood has no answer, and does no harm.
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    for wrong in [&b""[..], b"x", &[0xff; 512], &[0; 12]] {
        socket.send_to(wrong, rig.resolver).unwrap();
    }
    assert_eq!(rig.ask("localhost", TYPE::A).1, first);
}

#[test]
fn proxy_ends_its_connections_with_itself() {
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let rig = ProxyRig::new(&["127.0.0.1"], &[]);
    let target = server.local_addr().unwrap();
    let mut inside = rig.connect();
    write!(inside, "CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n\r\n").unwrap();
    let (mut outside, _) = server.accept().unwrap();
    let reports = Arc::clone(&rig.reports);
    drop(rig);
    outside.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert_eq!(outside.read(&mut [0]).unwrap(), 0);
    let mut rest = Vec::new();
    drop(inside.read_to_end(&mut rest));
    assert_eq!(reported(&reports, 1).len(), 1);
}

#[test]
fn waiting_clients_leave_room_for_others() {
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let server = echo();
    let rig = ProxyRig::new(&["localhost"], &[]);
    let wait = |_| {
        let mut client = rig.connect();
        write!(client, "GET http://localhost:{}/ HTTP/1.1\r\nhost: x\r\n\r\n", silent.local_addr().unwrap().port())
            .unwrap();
        (client, silent.accept().unwrap())
    };
    let waiting: Vec<_> = (0..150).map(wait).collect();
    let asked = format!("GET http://localhost:{}/ HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", server.port());
    assert!(rig.told(&asked).starts_with("HTTP/1.1 200 OK"));
    assert_eq!(waiting.len(), 150);
}
