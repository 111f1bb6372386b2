//! Operation of a server: checks beside it, readiness, metrics and exit status.

use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use serde_json::{Value, json};

use super::serve::{ServeProcess, asked};
use crate::rig::{Disk, Program, eventually};

/// A server with a session `demo` in memory.
fn server(program: &Program, arguments: &[&str]) -> ServeProcess {
    let serving = ServeProcess::begin(program, arguments, |_| ());
    assert_eq!(serving.ask("POST", "/v1/sessions", Some(&json!({ "name": "demo" }))).0, 201);
    serving
}

/// Writes a new file.
fn write(serving: &ServeProcess, content: &str) -> (u16, Value) {
    static FILES: AtomicU32 = AtomicU32::new(0);
    let path = format!("{}.txt", FILES.fetch_add(1, Ordering::Relaxed));
    let call = json!({ "tool": "write_file", "params": { "file_path": path, "content": content } });
    serving.ask("POST", "/v1/sessions/demo/calls", Some(&call))
}

/// Flips a bit of the journal's first segment, in these bytes.
fn flip(program: &Program, bytes: &[u8]) {
    let path = program.data().join("journal/00000001.seg");
    let whole = std::fs::read(&path).unwrap();
    let at = whole.windows(bytes.len()).position(|found| found == bytes).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&[whole[at] ^ 1, whole[at + 1] ^ 1], at as u64).unwrap();
}

#[test]
fn maintenance_never_ends_a_server_that_somebody_runs() {
    let program = Program::new();
    let serving = server(&program, &[]);
    assert_eq!(write(&serving, "the first content").1["status"], "ok");
    assert_eq!(write(&serving, "the second content").1["status"], "ok");
    let told = program.run(&["check", "--bytes"]);
    assert!(told.contains("has the store: its index is not checked"), "{told}");
    assert!(told.contains(": no damage") && told.ends_with("[exit 0]"), "{told}");
    flip(&program, b"the first content");
    let told = program.run(&["check", "--bytes"]);
    assert!(told.contains("segment 1 at byte ") && told.ends_with("[exit 1]"), "{told}");
    let process = format!("process {} (", serving.pid().as_raw_nonzero());
    for needs_it_alone in [&["check", "--repair"][..], &["gc"], &["gc", "--dry-run"]] {
        let told = program.run(needs_it_alone);
        assert!(told.contains(&process) && told.contains("stop it, or wait") && told.ends_with("[exit 4]"), "{told}");
    }
    assert_eq!(serving.ask("GET", "/readyz", None).1["status"], "ready");
    assert_eq!(serving.end().0, Some(0));
}

/// A write in flight is not damage.
#[test]
fn check_beside_a_busy_server_finds_no_damage() {
    let program = Program::new();
    let serving = server(&program, &[]);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..3 {
            let (serving, is_over) = (&serving, &is_over);
            scope.spawn(move || {
                for round in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let content = format!("{writer} {round} ").repeat(4000);
                    assert_eq!(write(serving, &content).1["status"], "ok");
                }
            });
        }
        let told: Vec<_> = (0..12).map(|_| program.run(&["check", "--bytes"])).collect();
        is_over.store(true, Ordering::Relaxed);
        for told in told {
            assert!(told.contains(": no damage") && told.ends_with("[exit 0]"), "{told}");
        }
    });
}

#[test]
fn metrics_listener_needs_no_token_and_names_no_session() {
    let program = Program::new();
    let mut serving = server(&program, &["--metrics", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    let line = serving.line();
    let address = line.strip_prefix("serving metrics on http://").and_then(|rest| rest.strip_suffix("/metrics"));
    let get = |address: &str, path: &str| asked(TcpStream::connect(address).unwrap(), "GET", path, None, "");
    let address = address.unwrap().to_owned();
    assert_eq!(write(&serving, "x").1["status"], "ok");
    let refused = json!({ "tool": "shell_execute", "params": { "command": "curl example.com" } });
    let new = json!({ "name": "demo-2", "backend": "host" });
    assert_eq!(serving.ask("POST", "/v1/sessions", Some(&new)).0, 201);
    assert_eq!(serving.ask("POST", "/v1/sessions/demo-2/calls", Some(&refused)).1["status"], "error");
    let (status, figures) = get(&address, "/metrics");
    let figures = figures.as_str().unwrap();
    assert_eq!((status, figures.contains("demo")), (200, false), "{figures}");
    let value = |name: &str| {
        let mut lines = figures.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        lines.next().unwrap_or_else(|| panic!("{name} is not in\n{figures}")).parse::<f64>().unwrap()
    };
    let documented = include_str!("../../../docs/operating.md");
    for name in figures.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()) {
        assert!(documented.contains(&format!("| `{name}` |")), "{name} is not in docs/operating.md");
    }
    for (name, wanted) in [
        ("foldspace_ready", 1.0),
        ("foldspace_store_failed", 0.0),
        ("foldspace_policy_refusals_total", 1.0),
        ("foldspace_sessions", 2.0),
    ] {
        assert_eq!(value(name), wanted, "{name}");
    }
    let commits = value("foldspace_commits_total");
    assert!(commits >= 3.0 && value("foldspace_commit_duration_seconds_count") <= commits, "{figures}");
    assert!(value("foldspace_commit_duration_seconds_bucket{le=\"+Inf\"}") >= 2.0, "{figures}");
    assert!(value("foldspace_journal_bytes") > 100.0 && value("foldspace_disk_free_bytes") > 0.0, "{figures}");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    let started = value("process_start_time_seconds");
    assert!(started <= now + 2.0 && started > now - 600.0, "{started} {now}");
    assert!(value("process_cpu_seconds_total") > 0.0 && value("process_resident_memory_bytes") > 1e6, "{figures}");
    assert!(value("process_open_fds") > 3.0 && value("process_max_fds") >= value("process_open_fds"), "{figures}");
    assert_eq!((get(&address, "/readyz").0, get(&address, "/healthz").0), (200, 200));
    for other in ["/v1/sessions", "/v1/server", "/openapi.json", "/", "/mcp"] {
        assert_eq!(get(&address, other).0, 404, "{other}");
    }
    let api = serving.line().strip_prefix("serving on http://").unwrap().to_owned();
    assert_eq!((get(&api, "/metrics").0, get(&api, "/readyz").0), (401, 200));
}

#[test]
fn server_is_not_ready_while_it_ends() {
    let program = Program::new();
    let mut serving = ServeProcess::begin(&program, &["--metrics", "127.0.0.1:0", "--allow", "sleep"], |_| ());
    let line = serving.line();
    let address = line.strip_prefix("serving metrics on http://").and_then(|rest| rest.strip_suffix("/metrics"));
    let (address, new) = (address.unwrap().to_owned(), json!({ "name": "demo", "backend": "host" }));
    assert_eq!(serving.ask("POST", "/v1/sessions", Some(&new)).0, 201);
    let stream = UnixStream::connect(program.data().join("http.sock")).unwrap();
    let call = std::thread::spawn(move || {
        let call = json!({ "tool": "shell_execute", "params": { "command": "sleep 100" } });
        asked(stream, "POST", "/v1/sessions/demo/calls", Some(&call), "")
    });
    eventually("the call has begun", || program.printed(&["log", "demo", "--calls"]).contains("running"));
    serving.signal(rustix::process::Signal::TERM);
    let get = |path: &str| asked(TcpStream::connect(&address).unwrap(), "GET", path, None, "");
    eventually("the server is not ready", || get("/readyz").0 == 503);
    assert_eq!(get("/readyz").1["kind"], "ending");
    assert_eq!((get("/healthz").0, &get("/healthz").1["status"]), (200, &json!("ending")));
    assert!(get("/metrics").1.as_str().unwrap().contains("\nfoldspace_ready 0\n"));
    assert_eq!(write(&serving, "late").0, 503);
    let cancelled = serving.ask("DELETE", "/v1/sessions/demo/calls/2", None);
    assert!(cancelled.0 < 300, "{cancelled:?}");
    call.join().unwrap();
    let (code, said) = serving.ended();
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("ERROR"), "a rollout must not page anybody: {said}");
}

#[test]
fn server_on_a_full_disk_is_not_ready_and_ends_with_a_status() {
    let program = Program::new();
    std::fs::create_dir_all(program.data()).unwrap();
    let Some(disk) = Disk::over(&program.data(), 24) else { return };
    let serving = server(&program, &["-v"]);
    let filler = disk.root().join("filler");
    let fill = format!("cat /dev/zero > '{}' 2> /dev/null || true", filler.display());
    assert!(Command::new("sh").args(["-c", &fill]).status().unwrap().success());
    // Contents that do not compress fill the journal's reserved space.
    let mut random = 1_u64;
    let mut content = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        char::from(b'0' + (random % 64) as u8)
    };
    let mut looks = (0..500).map(|_| {
        write(&serving, &(0..200_000).map(|_| content()).collect::<String>());
        serving.ask("GET", "/readyz", None)
    });
    let ready = looks.find(|ready| ready.0 != 200).expect("a write to the store fails");
    assert_eq!((ready.0, &ready.1["kind"]), (503, &json!("store_failed")), "{ready:?}");
    assert_eq!(serving.ask("GET", "/healthz", None).0, 200);
    let figures = serving.ask("GET", "/metrics", None).1;
    assert!(figures.as_str().unwrap().contains("\nfoldspace_store_failed 1\n"), "{figures}");
    let (code, said) = serving.ended();
    assert_eq!(code, Some(6), "{said}");
    std::fs::remove_file(filler).unwrap();
    assert!(program.run(&["check", "--bytes"]).contains("no damage"));
}

#[test]
fn server_without_its_socket_ends_with_a_status() {
    let program = Program::new();
    let serving = server(&program, &[]);
    std::fs::remove_file(program.data().join("http.sock")).unwrap();
    let (code, said) = serving.ended();
    assert_eq!(code, Some(6), "{said}");
    assert!(said.contains("its lock or the socket is gone"), "{said}");
}

#[test]
fn empty_name_is_an_error_without_a_route() {
    let program = Program::with_story();
    let told = program.run(&["exec", "", "--", "true"]);
    assert!(told.contains("the session's name is empty") && told.ends_with("[exit 2]"), "{told}");
    for (name, wanted) in [("", "a name in the request is empty"), ("a/b c", "has no service a/b c")] {
        let told = program.run(&["service", "stop", "story", name]);
        assert!(told.contains(wanted) && !told.contains("/v1/"), "{told}");
    }
}
