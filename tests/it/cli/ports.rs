//! `foldspace open`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use crate::rig::{Program, eventually};

fn page(address: &str) -> String {
    let mut answer = String::new();
    let stream = TcpStream::connect(address).and_then(|mut stream| {
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
        stream.read_to_string(&mut answer)
    });
    stream.map_or_else(|error| error.to_string(), |_| answer)
}

#[test]
fn open_passes_connections_on_to_the_port() {
    let Some(program) = Program::with_container() else { return };
    let program = program.through_owner();
    let serve = ["exec", "work", "--", "python3", "-m", "http.server", "8000", "--bind", "127.0.0.1"];
    let _serving = program.spawn(&serve);
    let mut opened = program.spawn(&["--json", "open", "work", "8000"]);
    let mut printed = String::new();
    let mut lines = BufReader::new(opened.0.stdout.take().unwrap());
    while !printed.ends_with("}\n") {
        assert_ne!(lines.read_line(&mut printed).unwrap(), 0, "{printed}");
    }
    let told: serde_json::Value = serde_json::from_str(&printed).unwrap();
    let address = told["address"].as_str().unwrap();
    assert_eq!(told["url"], format!("http://{address}/"));
    eventually("the server answers", || page(address).contains("Directory listing"));
    let taken = program.run(&["open", "work", "8000", "--at", address]);
    assert!(taken.contains(&format!("can't listen at {address}: ")) && taken.ends_with("[exit 6]"), "{taken}");
}

#[test]
fn open_names_what_has_no_ports() {
    let program = Program::new();
    program.run(&["new", "memory", "--backend", "memory"]);
    program.run(&["new", "host", "--backend", "host"]);
    for (session, told) in [
        ("memory", "error: memory runs no commands, so nothing listens at its port 8000\n[exit 1]"),
        ("host", "error: commands of host run on this machine itself, so its port is http://127.0.0.1:8000\n[exit 1]"),
    ] {
        assert_eq!(program.run(&["open", session, "8000"]), told);
    }
    let wrong = program.run(&["open", "host", "0"]);
    assert!(wrong.contains("invalid value '0' for '<PORT>'") && wrong.ends_with("[exit 2]"), "{wrong}");
}
