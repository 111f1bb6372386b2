//! Recorded requests, with servers on this machine's loopback.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConnection, ServerConnection, StreamOwned};

use super::certificates::Authority;
use super::tests::{ProxyRig, echo, read};
use super::{ConnectionOutcome, HttpMessage, NetworkRules};

fn certificate(authority: &Authority) -> CertificateDer<'static> {
    pem::parse(authority.bundle()).unwrap().into_contents().into()
}

fn recording(record: &[&str], authority: Authority) -> ProxyRig {
    let rules = NetworkRules { allow: read(&["localhost"]), record_http: read(record), ..Default::default() };
    ProxyRig::with(rules, Some(authority))
}

/// A server of HTTPS, with a certificate of that authority, that answers each request with its body.
fn https(authority: Authority) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let connection = ServerConnection::new(authority.server("localhost").unwrap()).unwrap();
            let mut tls = BufReader::new(StreamOwned::new(connection, stream.unwrap()));
            let mut length = 0;
            let mut line = String::new();
            while tls.read_line(&mut line).is_ok_and(|count| count > 0) {
                if line == "\r\n" {
                    let mut body = vec![0; length];
                    tls.read_exact(&mut body).unwrap();
                    write!(tls.get_mut(), "HTTP/1.1 201 Created\r\nx-own: 1\r\ncontent-length: {length}\r\n\r\n")
                        .unwrap();
                    tls.get_mut().write_all(&body).unwrap();
                }
                length = line.strip_prefix("content-length: ").map_or(length, |length| length.trim().parse().unwrap());
                line.clear();
            }
        }
    });
    port
}

/// A client of HTTPS, through the proxy.
fn through(rig: &ProxyRig, port: u16) -> StreamOwned<ClientConnection, TcpStream> {
    let mut stream = rig.connect();
    write!(stream, "CONNECT localhost:{port} HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head));
    let own = pem::parse(rig.proxy.certificates().unwrap()).unwrap().into_contents();
    let trusting = Authority::trusting(vec![own.into()]).unwrap().client();
    StreamOwned::new(ClientConnection::new(trusting, ServerName::try_from("localhost").unwrap()).unwrap(), stream)
}

/// Sends a request, and returns the answer up to that end.
fn post(client: &mut (impl Read + Write), body: &str, end: &str) -> String {
    write!(client, "POST /a?b=c HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut told = Vec::new();
    while !String::from_utf8_lossy(&told).ends_with(end) {
        let mut piece = [0; 512];
        match client.read(&mut piece).unwrap() {
            0 => break,
            count => told.extend_from_slice(&piece[..count]),
        }
    }
    String::from_utf8(told).unwrap()
}

#[test]
fn requests_of_https_are_recorded_with_their_answers() {
    let host = Authority::trusting(Vec::new()).unwrap();
    let rig = recording(&["localhost"], Authority::trusting(vec![certificate(&host)]).unwrap());
    let port = https(host);
    let mut client = through(&rig, port);
    for body in ["one", "two"] {
        let answer = post(&mut client, body, body);
        assert!(answer.starts_with("HTTP/1.1 201 Created\r\n") && answer.ends_with(body), "{answer}");
    }
    let [first, second] = &rig.exchanges(2)[..] else { panic!("two requests") };
    let url = format!("https://localhost:{port}/a?b=c");
    assert_eq!((first.method.as_str(), first.url.as_str(), first.status), ("POST", url.as_str(), 201));
    assert_eq!((&first.request.body[..], &second.response.body[..]), (&b"one"[..], &b"two"[..]));
    assert!(first.response.headers.contains(&("x-own".to_owned(), "1".to_owned())), "{first:?}");
    assert_eq!((first.error.as_str(), first.response.bytes), ("", 3));
}

#[test]
fn host_with_an_unknown_certificate_is_not_reached() {
    let rig = recording(&["*"], Authority::trusting(Vec::new()).unwrap());
    let port = https(Authority::trusting(Vec::new()).unwrap());
    let answer = post(&mut through(&rig, port), "secret", "UnknownIssuer\n");
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("UnknownIssuer"), "{answer}");
    let exchanges = rig.exchanges(1);
    assert!(exchanges[0].error.contains("UnknownIssuer") && exchanges[0].request.body.is_empty(), "{exchanges:?}");
}

#[test]
fn plain_requests_are_recorded_and_others_pass() {
    let server = echo();
    let port = server.port();
    let rig = recording(&[&format!("localhost:{port}")], Authority::trusting(Vec::new()).unwrap());
    let direct = format!("GET http://me:secret@localhost:{port}/x HTTP/1.1\r\nhost: y\r\nconnection: close\r\n\r\n");
    assert!(rig.told(&direct).contains("\r\n\r\nGET /x HTTP/1.1\r\n"));
    let tunnel = format!("CONNECT localhost:{port} HTTP/1.1\r\nhost: y\r\n\r\n");
    let asked = "GET /y HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    assert!(rig.told(&format!("{tunnel}{asked}")).contains("\r\n\r\nGET /y HTTP/1.1\r\n"));
    // Anything else passes unchanged.
    assert!(rig.told(&format!("{tunnel}hello\n")).ends_with("hello\n"));
    let exchanges = rig.exchanges(2);
    let urls: Vec<&str> = exchanges.iter().map(|one| one.url.as_str()).collect();
    assert_eq!(urls, [format!("http://localhost:{port}/x"), format!("http://localhost:{port}/y")]);
    assert_eq!(exchanges.len(), 2);
    assert!(rig.reports(3).iter().all(|one| one.outcome == ConnectionOutcome::Closed));
}

#[test]
fn server_that_speaks_first_is_not_interrupted() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || listener.accept().unwrap().0.write_all(b"220 ready\r\n"));
    let rig = recording(&["*"], Authority::trusting(Vec::new()).unwrap());
    let answer = rig.told(&format!("CONNECT localhost:{port} HTTP/1.1\r\nhost: y\r\n\r\n"));
    assert!(answer.ends_with("220 ready\r\n"), "{answer}");
}

#[test]
fn client_that_leaves_ends_its_request() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let rig = recording(&["*"], Authority::trusting(Vec::new()).unwrap());
    for (target, count) in [(format!("GET http://localhost:{port}/"), 1), (format!("CONNECT localhost:{port}"), 2)] {
        let mut client = rig.connect();
        write!(client, "{target} HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        if count == 2 {
            client.read_exact(&mut [0; 12]).unwrap();
            write!(client, "GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        }
        let (mut host, _) = listener.accept().unwrap();
        host.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        host.read_exact(&mut [0; 14]).unwrap();
        drop(client);
        assert!(host.read_to_end(&mut Vec::new()).is_ok(), "the connection to the host stays");
        assert_eq!(rig.exchanges(count)[count - 1].error, "the client left before the response");
    }
}

#[test]
fn recording_answers_in_place_of_the_hosts() {
    let rig = recording(&["localhost"], Authority::trusting(Vec::new()).unwrap());
    rig.proxy.answer_from(Arc::new(|asked| match (asked.method.as_str(), asked.url.as_str()) {
        ("POST", "https://localhost/a?b=c") => {
            let headers = vec![("x-own".to_owned(), "2".to_owned()), ("content-length".to_owned(), "9".to_owned())];
            Ok((202, HttpMessage { headers, ..asked.request.clone() }))
        }
        (method, url) => Err(format!("the recording has no response to {method} {url}")),
    }));
    let answer = post(&mut through(&rig, 443), "again", "again");
    assert!(answer.starts_with("HTTP/1.1 202 Accepted\r\n") && answer.contains("x-own: 2\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nagain"), "{answer}");
    let answer = rig.told("GET http://localhost/z HTTP/1.1\r\nhost: y\r\nconnection: close\r\n\r\n");
    assert!(
        answer.starts_with("HTTP/1.1 504 ") && answer.contains("no response to GET http://localhost/z"),
        "{answer}"
    );
    assert!(rig.told("CONNECT localhost:5 HTTP/1.1\r\nhost: y\r\n\r\nhello\n").starts_with("HTTP/1.1 200 OK"));
    let why = |text: &str| ConnectionOutcome::Refused(format!("offline: {text}"));
    let outcomes: Vec<_> = rig.reports(2).into_iter().map(|one| one.outcome).collect();
    assert_eq!(
        outcomes,
        [why("the recording has no response to GET http://localhost/z"), why("only requests of HTTP are recorded")]
    );
    assert_eq!(rig.exchanges(2)[0].response.body, b"again");
}
