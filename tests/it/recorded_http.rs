//! Recorded requests of a container's commands, and reruns that they answer.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;

use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::json;

use crate::rig::{Program, Rig};

/// A server of HTTPS. Returns its port, and its certificate as PEM.
fn https() -> (u16, String) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let config = Arc::new(config.with_single_cert(vec![made.cert.der().clone()], key.into()).unwrap());
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for (stream, count) in listener.incoming().zip(1..) {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            serve(StreamOwned::new(connection, stream.unwrap()), count);
        }
    });
    (port, made.cert.pem())
}

/// Answers one request with a number, and with a secret.
fn serve(stream: impl Read + Write, count: u32) {
    let mut stream = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    while stream.read_line(&mut line).is_ok_and(|count| count > 2) {
        length =
            line.to_lowercase().strip_prefix("content-length: ").map_or(length, |sent| sent.trim().parse().unwrap());
        line.clear();
    }
    drop(stream.read_exact(&mut vec![0; length]));
    let body = format!("{{\"count\": {count}}}\n");
    let head = format!("set-cookie: id=hunter2hunter2\r\ncontent-length: {}\r\nconnection: close", body.len());
    drop(write!(stream.get_mut(), "HTTP/1.1 200 OK\r\n{head}\r\n\r\n{body}"));
}

const GET: &str = "
import sys, urllib.request
for url in sys.argv[1:]:
    url, data = (url[1:], b'secret=hunter2') if url[0] == '+' else (url, None)
    try: print(urllib.request.urlopen(url, data, timeout=20).read().decode(), end='')
    except Exception as error: print('error:', error, getattr(error, 'read', lambda: b'')().decode())
";

fn get<'a>(urls: &[&'a str]) -> Vec<&'a str> {
    [&["env", "-u", "no_proxy", "-u", "NO_PROXY", "python3", "-c", GET], urls].concat()
}

#[test]
fn requests_are_recorded_and_answer_a_rerun() {
    let Some(mut program) = Program::with_container() else { return };
    let (port, certificate) = https();
    let trusted = program.file("trusted.pem", certificate);
    program.engine.push(("SSL_CERT_FILE", trusted));
    let record = format!("--record-http=localhost:{port}");
    let url = format!("https://localhost:{port}/a?api_key=hunter2&b=1");
    let (post, other) = (format!("+https://localhost:{port}/p"), format!("https://localhost:{port}/other"));
    program.printed(&["new", "rec", "--backend", "container", "--allow-host", "localhost", &record]);
    let exec = |urls: &[&str]| program.run(&[&["exec", "rec", "--yes", "--"][..], &get(urls)].concat());
    assert_eq!(exec(&[&url, &url, &post]), "{\"count\": 1}\n{\"count\": 2}\n{\"count\": 3}\n[exit 0]");
    let log = program.printed(&["log", "rec", "--kind", "HttpExchange"]);
    assert_eq!(log.matches("/a?api_key=[masked]&b=1: 200, 13 B").count(), 2, "{log}");
    let (_, rest) = log.split_once("POST").unwrap();
    assert!(rest.contains("/p: 200, 13 B"), "{log}");
    let seq = log.lines().last().unwrap().split_whitespace().next().unwrap();
    let shown = program.printed(&["show", "rec", seq]);
    for part in ["set-cookie: [masked]", "{\"count\": 3}", "secret=[masked]"] {
        assert!(shown.contains(part), "{shown}");
    }
    assert!(!shown.contains("hunter2"), "{shown}");
    let shown: serde_json::Value = serde_json::from_str(&program.printed(&["--json", "show", "rec", seq])).unwrap();
    assert_eq!(
        shown["bodies"],
        json!({ "request": { "text": "secret=[masked]" }, "response": { "text": "{\"count\": 3}\n" } })
    );
    // A request that changes something is an effect.
    let effects = program.printed(&["log", "rec", "--kind", "ExternalEffect"]);
    assert!(effects.contains(&format!("POST https://localhost:{port}/p: done")), "{effects}");
    let refused = program.run(&["rerun", "rec"]);
    assert!(refused.contains("1 effect outside of the workspace would take place again"), "{refused}");

    let again = program.run(&["rerun", "rec", "--offline", "--keep", "again"]);
    assert!(again.contains("1 call: none diverged; files the same") && again.contains("[exit 0]"), "{again}");
    assert!(!program.printed(&["log", "again", "--kind", "ExternalEffect"]).contains("POST"));
    // The record of a rerun answers like the first one. What it lacks is said.
    let call = json!({ "tool": "shell_execute", "params": { "command": get(&[&other]) } });
    let script = program.file("other.jsonl", call.to_string());
    let told = program.run(&["--json", "what-if", "again", "--script", &script, "--at", "1", "--offline", "--yes"]);
    assert!(told.contains("foldspace is offline: the recording has no response to GET"), "{told}");
}

#[test]
fn answer_that_was_cut_off_is_not_repeated() {
    let Some(program) = Program::with_container() else { return };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("http://localhost:{}/part", listener.local_addr().unwrap().port());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        drop(stream.read(&mut [0; 4096]));
        drop(write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\npart"));
    });
    program.printed(&["new", "rec", "--backend", "container", "--allow-host", "localhost", "--record-http"]);
    let command = get(&[&url]);
    let told = program.run(&[&["exec", "rec", "--yes", "--"][..], &command].concat());
    assert!(told.contains("error:") && told.contains("4 bytes read"), "{told}");
    let again = program.run(&["rerun", "rec", "--offline"]);
    assert!(
        again.contains("the recording has only a part (the response was cut off) of the response to GET"),
        "{again}"
    );
}

#[test]
fn host_without_a_valid_certificate_is_not_reached() {
    let rules = json!({ "allow": ["localhost"], "record_http": ["*"] });
    let rules: foldspace::backends::ContainerNetwork = serde_json::from_value(rules).unwrap();
    let Some(rig) = Rig::container(|options| foldspace::backends::PodmanOptions { network: rules, ..options }) else {
        return;
    };
    let (port, _) = https();
    let call = rig.call("shell_execute", json!({ "command": get(&[&format!("https://localhost:{port}/")]) }));
    // Its commands trust the authority of foldspace, so that they see the reason.
    assert!(call.outcome.text.contains("502") && call.outcome.text.contains("UnknownIssuer"), "{}", call.outcome.text);
    rig.verify();
}

#[test]
fn wrong_options_for_records_are_refused() {
    let Some(program) = Program::with_container() else { return };
    for (arguments, why) in [
        (&["--record-http=a b"][..], "invalid host pattern \"a b\""),
        (&["--record-http", "--mask-http", "("], "'--mask-http <REGEX>'"),
        (&["--mask-http", "x"], "--record-http"),
        (&["--record-http", "--network=engine"], "--network=engine excludes host rules and --record-http"),
    ] {
        let new = [&["new", "wrong", "--backend", "container"][..], arguments].concat();
        let told = program.run(&new);
        assert!(told.contains(why) && told.ends_with("[exit 2]"), "{arguments:?}: {told}");
    }
    program.printed(&["new", "plain", "--backend", "container", "--network"]);
    program.printed(&["exec", "plain", "--yes", "--", "true"]);
    let told = program.run(&["rerun", "plain", "--offline"]);
    assert!(told.contains("offline needs a container with `record_http`"), "{told}");
}
