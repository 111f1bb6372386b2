//! `foldspace service`.

use std::net::TcpListener;

use serde_json::{Value, json};

use crate::rig::Program;

/// Prints a line, and serves the present directory at a port of the loopback address.
const SERVE: &str = "echo up; exec python3 -m http.server --bind 127.0.0.1 ";

const FIRST: &str = "b'first\\n'\n[exit 0]";

fn free_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string()
}

struct Served {
    program: Program,
    port: String,
}

impl Served {
    fn begin(program: Program) -> Self {
        let served = Self { program, port: free_port() };
        served.run(&["exec", "work", "--sh", "echo first > a.txt"]);
        let serve = format!("{SERVE}{}", served.port);
        let start =
            ["service", "start", "work", "web", "--port", &served.port, "--prints", "up", "--restart", "--sh", &serve];
        let told = served.run(&start);
        assert!(told.starts_with("web runs and is ready (process "), "{told}");
        served
    }

    fn run(&self, words: &[&str]) -> String {
        self.program.run(words)
    }

    fn list(&self, session: &str) -> Value {
        let all = self.program.json(&["service", "list", session]);
        let one = |service: &Value| json!([service["name"], service["running"]]);
        all.as_array().unwrap().iter().map(one).collect()
    }

    /// Returns what the service serves, as a command of the session sees it.
    fn page(&self, session: &str) -> String {
        let program =
            format!("import urllib.request as u; print(u.urlopen('http://127.0.0.1:{}/a.txt').read())", self.port);
        self.run(&["exec", session, "--", "python3", "-c", &program])
    }

    fn head(&self) -> u64 {
        self.program.json_lines(&["log", "work"]).last().unwrap()["seq"].as_u64().unwrap()
    }

    fn outlives_its_call(&self) {
        let refused = |words: &[&str], why: &str| {
            let told = self.run(&[&["service", "start", "work"], words].concat());
            assert!(told.contains(why) && told.ends_with("[exit 1]"), "{told}");
        };
        refused(&["web", "--", "true"], "error: the service web runs already, as process ");
        refused(&["x", "--port", &self.port, "--", "true"], "already, so x can't");
        refused(&["x", "--after", "db", "--", "true"], "error: x starts after db, which does not run");
        refused(&["a b", "--", "true"], "error: a service's name has 1 to 64 letters");
        refused(
            &["x", "--prints", "up", "--sh", "echo oops; exit 3"],
            "error: the service x ended with exit code 3 before it was ready:\noops",
        );
        refused(&["x", "--", "no-such-program"], "error: the service x ended with exit code 127 before it was ready");
        let slow = ["service", "start", "work", "slow", "--prints", "up", "--wait", "0.2", "--after", "web", "--"];
        let told = self.run(&[&slow[..], &["sleep", "600"]].concat());
        assert!(told.starts_with("slow runs, and is not ready after 0.2 s"), "{told}");
        assert_eq!(self.list("work"), json!([["web", true], ["slow", true]]));
        assert_eq!(self.page("work"), FIRST);
        assert!(self.run(&["service", "logs", "work", "web"]).starts_with("up\n"));
        assert_eq!(self.program.printed(&["service", "stop", "work", "slow"]), "stopped slow\n");
        assert_eq!(self.list("work"), json!([["web", true]]));
        for verb in ["stop", "logs"] {
            let told = self.run(&["service", verb, "work", "slow"]);
            assert!(told.contains("has no service slow") && told.ends_with("[exit 3]"), "{told}");
        }
    }

    fn comes_back_after_a_rewind(&self) {
        let head = self.head().to_string();
        self.run(&["rewind", "work", "--to", &head]);
        assert_eq!(self.list("work"), json!([["web", true]]), "nothing changed");
        self.run(&["service", "start", "work", "late", "--", "sleep", "600"]);
        self.run(&["exec", "work", "--sh", "echo second > a.txt"]);
        self.run(&["rewind", "work", "--to", &head]);
        assert_eq!(self.list("work"), json!([["web", false]]), "it starts for the next command");
        assert_eq!(self.page("work"), FIRST);
        assert_eq!(self.list("work"), json!([["web", true]]));
    }

    fn comes_back_with_the_owner(&self) {
        self.run(&["stop"]);
        assert_eq!(self.list("work"), json!([["web", false]]));
        assert_eq!(self.page("work"), FIRST);
        assert_eq!(self.program.printed(&["service", "stop", "work", "web"]), "stopped web\n");
        self.run(&["stop"]);
        assert!(self.page("work").contains("Connection refused"));
        assert_eq!(self.list("work"), json!([]));
    }
}

#[test]
fn service_of_the_host_outlives_calls_and_comes_back() {
    let program = Program::new().through_owner();
    program.run(&["new", "work", "--backend", "host"]);
    let served = Served::begin(program);
    served.outlives_its_call();
    served.comes_back_after_a_rewind();
    // The port is taken here.
    served.run(&["fork", "work", "--name", "child"]);
    served.page("child");
    assert_eq!(served.list("child"), json!([["web", false]]));
    served.comes_back_with_the_owner();
}

#[test]
fn service_of_a_container_comes_back_in_a_fork() {
    let Some(program) = Program::with_container() else { return };
    let served = Served::begin(program.through_owner());
    served.outlives_its_call();
    served.comes_back_after_a_rewind();
    served.run(&["fork", "work", "--name", "child"]);
    assert_eq!(served.list("child"), json!([["web", false]]));
    assert_eq!(served.page("child"), FIRST);
    assert_eq!(served.list("child"), json!([["web", true]]));
    served.comes_back_with_the_owner();
}
