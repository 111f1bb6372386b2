//! The program as an unprivileged user runs it, with an engine of that user.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldspace::backends::EngineKind;
use serde_json::{Value, json};

use crate::engine::{Rootless, kind, rootless, url_variable};
use crate::rig::{Running, eventually, has_begun, named_at, report_skip, skip, told};

/// Held by the test that has the engine. Podman 4.3 looks up a user's further ids in a library that is not safe for
/// threads: two containers made at once can end its service.
static ENGINE: Mutex<()> = Mutex::new(());

/// A user with a home of its own, in which the program is.
struct RootlessUser {
    home: tempfile::TempDir,
    engine: Rootless,
    _turn: MutexGuard<'static, ()>,
}

impl RootlessUser {
    /// None where there is no engine for it.
    fn new() -> Option<Self> {
        rootless().map(Self::of)
    }

    fn of(engine: Rootless) -> Self {
        let turn = ENGINE.lock().unwrap_or_else(PoisonError::into_inner);
        let home = tempfile::tempdir().unwrap();
        std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        // Not by this process: what another test starts meanwhile would have the copy open for writing.
        let copied =
            Command::new("cp").arg(env!("CARGO_BIN_EXE_foldspace")).arg(home.path().join("foldspace")).status();
        assert!(copied.unwrap().success());
        let person = Self { home, engine, _turn: turn };
        person.own(person.home.path());
        person
    }

    fn own(&self, path: &Path) {
        chown(path, Some(self.engine.user.0), Some(self.engine.user.1)).unwrap();
    }

    /// The program as whoever runs the test.
    fn mine(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.home.path().join("foldspace"));
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", self.home.path());
        command.env(url_variable(), &self.engine.url).env("FOLDSPACE_IMAGE", &self.engine.image);
        command.env("FOLDSPACE_IN_PROCESS", "1");
        command.current_dir(self.home.path()).stdin(Stdio::null()).args(arguments);
        command
    }

    /// The program as the person.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.mine(arguments);
        if rustix::process::geteuid().is_root() {
            command.uid(self.engine.user.0).gid(self.engine.user.1);
        }
        command
    }

    fn output(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// What it prints; it must do well.
    fn printed(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", told(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.printed(&[&["--json"], arguments].concat())).unwrap()
    }

    /// Makes calls in the session `s`, all of which must do as they say, and gives their results.
    fn run(&self, calls: &[(&str, Value)]) -> Vec<Value> {
        let line = |(tool, params): &(&str, Value)| json!({ "tool": tool, "params": params }).to_string();
        let story = self.home.path().join("story.jsonl");
        std::fs::write(&story, calls.iter().map(line).collect::<Vec<_>>().join("\n")).unwrap();
        let run =
            ["--json", "run", "--yes", "--keep-going", "--backend", kind().name(), "--session", "s", "story.jsonl"];
        let output = self.output(&run);
        let lines = String::from_utf8_lossy(&output.stdout).into_owned();
        let made = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let made: Vec<_> = made.filter(|line| line["type"] == "call").collect();
        assert_eq!(made.len(), calls.len(), "{}", told(&output));
        made
    }

    /// A command in the session `s`, after the first calls.
    fn sh(&self, command: &str) -> String {
        self.printed(&["exec", "s", "--sh", "--", command]).trim_end().to_owned()
    }

    /// Where the sessions' containers have their things.
    fn cache(&self) -> PathBuf {
        self.home.path().join(".cache/foldspace/podman")
    }

    /// The only session's files, as this machine has them.
    fn files(&self) -> PathBuf {
        let mut sessions = std::fs::read_dir(self.cache()).unwrap().map(|entry| entry.unwrap().path());
        let files = sessions.next().unwrap().join("files");
        assert!(sessions.next().is_none());
        files
    }

    /// How many containers the engine has for the session of these files, running or not.
    fn containers(&self) -> usize {
        let session = self.files().parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
        named_at(kind(), &self.engine.url, &format!("foldspace-{session}")).len()
    }

    fn verify(&self) {
        let verified = self.output(&["verify"]);
        assert!(verified.status.success(), "{}", told(&verified));
    }
}

/// The user of a container, who is the person outside.
fn user_inside() -> u32 {
    match kind() {
        EngineKind::Podman => 65534,
        EngineKind::Docker => 0,
    }
}

fn shell(command: &str) -> (&'static str, Value) {
    ("shell_execute", json!({ "command": command }))
}

fn stdout(made: &Value) -> &str {
    made["result"]["stdout"].as_str().unwrap_or_else(|| panic!("it has not run: {made}"))
}

/// Everything below a directory, links not followed.
fn below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.symlink_metadata().unwrap().is_dir() {
            found.extend(below(&path));
        }
        found.push(path);
    }
    found
}

#[test]
fn rootless_command_changes_become_events() {
    let Some(person) = RootlessUser::new() else { return };
    let made = person.run(&[
        shell("id -u && echo one > f && mkdir d && ln -s f d/link && printf x > d/x && chmod 700 d/x"),
        ("write_file", json!({ "file_path": "w", "content": "written\n" })),
        shell("cat w && echo more >> w && rm f"),
    ]);
    assert_eq!((stdout(&made[0]), stdout(&made[2])), (&*format!("{}\n", user_inside()), "written\n"));
    let events = person.printed(&["log", "s"]);
    for change in ["create /f", "create /d/x", "create /d/link -> f", "/w"] {
        assert!(events.contains(change), "{change} is not in {events}");
    }
    let files = person.files();
    assert_eq!(std::fs::read_to_string(files.join("w")).unwrap(), "written\nmore\n");
    for path in below(&person.cache()) {
        let seen = path.symlink_metadata().unwrap();
        assert_eq!((seen.uid(), seen.gid()), person.engine.user, "{}", path.display());
    }
    assert_eq!(person.containers(), 0, "it went with its process");
    // Neither commands nor the library could enter it.
    let made = person.run(&[shell("chmod 000 ."), shell("cat w && chmod 755 .")]);
    assert_eq!(stdout(&made[1]), "written\nmore\n");
    person.verify();
    // What a command has shut its owner has to open first.
    person.sh("mkdir -p shut/below && echo x > shut/below/x && chmod 000 shut/below shut");
    person.printed(&["remove", "--yes", "s"]);
    assert_eq!(below(&person.cache()), Vec::<PathBuf>::new());
}

#[test]
fn rootless_session_is_continued_by_later_process() {
    let Some(person) = RootlessUser::new() else { return };
    person.run(&[shell("echo one > f && echo secret > shut && chmod 000 shut && mkdir closed && chmod 000 closed")]);
    let drifted = person.files().join("drifted");
    std::fs::write(&drifted, "from outside\n").unwrap();
    person.own(&drifted);
    assert_eq!(person.sh("cat f drifted && echo two >> f"), "one\nfrom outside");
    assert!(person.printed(&["log", "s"]).contains("DriftFound"));
    // Killed in the middle: what it had done is found, and its container does not stay.
    let mut command = person.command(&["exec", "s", "--sh", "--", "echo begun > g; sleep 100"]);
    let mut child = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let begun = person.files().join("g");
    eventually("the command runs", || has_begun(&begun));
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    assert_eq!(person.containers(), 1, "nobody could remove it");
    assert_eq!(person.sh("cat g f"), "begun\none\ntwo");
    assert_eq!(person.containers(), 0);
    person.verify();
}

const CONFINED: &str = "
grep -E '^(Uid|Gid|Groups|Cap...|NoNewPrivs|Seccomp):' /proc/self/status | tr -s '\\t ' ' '
cut -d: -f1 -s /proc/net/dev | tr -d ' '
touch /x /etc/x /run/foldspace/x 2>/dev/null; ls /x /etc/x /run/foldspace/x 2>/dev/null
unshare --user true 2>/dev/null && echo a user namespace
cat /proc/1/environ 2>/dev/null | wc -c";

#[test]
fn rootless_command_is_confined_as_with_root_engine() {
    let Some(person) = RootlessUser::new() else { return };
    let made = person.run(&[shell(CONFINED)]);
    let nothing = "0000000000000000";
    let caps: String = ["Inh", "Prm", "Eff", "Bnd", "Amb"].map(|set| format!("Cap{set}: {nothing}\n")).concat();
    let one = user_inside();
    let ids = format!("Uid: {one} {one} {one} {one}\nGid: {one} {one} {one} {one}");
    let expected = |groups: &str| format!("{ids}\nGroups:{groups}\n{caps}NoNewPrivs: 1\nSeccomp: 2\nlo\n0\n");
    let seen = stdout(&made[0]);
    assert!([" ", &*format!(" {one} ")].map(expected).contains(&seen.to_owned()), "{seen}");
}

#[test]
fn rootless_writable_root_is_this_user_outside() {
    if kind() == EngineKind::Docker {
        return report_skip("a writable root takes Podman");
    }
    let Some(person) = RootlessUser::new() else { return };
    let story = json!({ "tool": "write_file", "params": { "file_path": "w", "content": "written\n" } });
    std::fs::write(person.home.path().join("story.jsonl"), story.to_string()).unwrap();
    let new = ["run", "--yes", "--backend", "podman", "--writable-root", "--also-at", "/srv/app", "--session", "s"];
    person.printed(&[&new[..], &["story.jsonl"]].concat());
    let command =
        "id -u && cd /srv/app && cat w && echo x > /usr/bin/x && mkdir /logs d && touch a b d/c && chown 42 b";
    assert_eq!(person.sh(command), "0\nwritten");
    let owners = ["a", "b", "d/c"].map(|name| person.files().join(name).metadata().unwrap().uid());
    assert_eq!((owners[0], owners[2]), (person.engine.user.0, person.engine.user.0));
    assert!(![0, 42, person.engine.user.0].contains(&owners[1]), "{owners:?}");
    let events = person.printed(&["log", "s"]);
    assert!(events.contains("create /b") && events.contains("create /d/c"), "{events}");
    assert_eq!(person.sh("mount -t tmpfs x /mnt 2>/dev/null || ls /usr/bin/x || echo gone"), "gone");
    person.verify();
    person.printed(&["remove", "--yes", "s"]);
    assert_eq!(below(&person.cache()), Vec::<PathBuf>::new());
}

#[test]
fn rootless_links_lead_nowhere() {
    let Some(person) = RootlessUser::new() else { return };
    let secret = person.home.path().join("secret");
    std::fs::write(&secret, "the caller's own").unwrap();
    person.own(&secret);
    let (secret, home) = (secret.display().to_string(), person.home.path().display().to_string());
    let made = person.run(&[
        shell(&format!("ln -s {secret} link && ln -s {home} home && cat {secret} link home/secret; ls {home}")),
        ("read_file", json!({ "file_path": "link" })),
        ("read_file", json!({ "file_path": "home/secret" })),
        ("write_file", json!({ "file_path": "home/new", "content": "x" })),
        ("edit_file", json!({ "file_path": "link", "old_string": "own", "new_string": "x" })),
        ("rm", json!({ "path": "home/secret" })),
        ("shell_execute", json!({ "command": "cat secret", "cwd": "home" })),
    ]);
    assert_eq!(stdout(&made[0]), "");
    for call in &made[1..] {
        assert_eq!(call["status"], "error", "{call}");
        assert!(!call.to_string().contains("the caller's own"), "{call}");
    }
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "the caller's own");
    assert!(!person.home.path().join("new").exists());
    person.verify();
}

#[test]
fn rootless_daemons_die_with_their_command() {
    let Some(person) = RootlessUser::new() else { return };
    let look = "grep -lszx '[9]8765' /proc/[0-9]*/cmdline | wc -l";
    let leave = "(setsid setsid sh -c 'sleep 98765; true' >/dev/null 2>&1 &)";
    let made = person.run(&[
        shell(&format!("{leave}; until grep -qszx '[9]8765' /proc/[0-9]*/cmdline; do :; done")),
        shell(look),
        ("shell_execute", json!({ "command": "setsid sleep 98765", "timeout_seconds": 1 })),
        shell(look),
    ]);
    assert_eq!((made[0]["result"]["exit_code"].as_i64(), stdout(&made[1])), (Some(0), "0\n"));
    assert_eq!((made[2]["result"]["timed_out"].as_bool(), stdout(&made[3])), (Some(true), "0\n"));
}

#[test]
fn rootless_doctor_names_limits_not_enforced() {
    let Some(person) = RootlessUser::new() else { return };
    let doctor = person.json(&["doctor"]);
    let finding = |what: &str| {
        let found = doctor.as_array().unwrap().iter().find(|finding| finding["what"] == what);
        found.unwrap_or_else(|| panic!("{what} is not in {doctor}")).clone()
    };
    assert!(finding("engine")["found"].as_str().unwrap().contains("rootless"), "{doctor}");
    assert_eq!(finding("container")["state"], "ok", "{doctor}");
    assert_eq!(finding("workspace")["state"], "limited", "{doctor}");
    person.run(&[shell("true")]);
    let state = person.json(&["state", "s", "PodmanWorkspace"]).to_string();
    assert!(state.contains("\"rootless\":true") && state.contains("\"overlay\":false"), "{state}");
    let enforced = finding("limits")["state"] == "ok";
    assert!(state.contains(&format!("\"limits_enforced\":{enforced}")), "{state}");
    if finding("cgroups")["found"].as_str().unwrap().contains("version 1") {
        assert!(!enforced, "there a rootless engine ignores limits: {doctor}");
    }
}

#[test]
fn rootless_engine_refuses_root_with_hint() {
    let Some(person) = RootlessUser::new() else { return };
    if !rustix::process::geteuid().is_root() {
        return skip("only root is refused by another user's engine");
    }
    let story = person.home.path().join("story.jsonl");
    std::fs::write(&story, json!({ "tool": "shell_execute", "params": { "command": "true" } }).to_string()).unwrap();
    let ran =
        person.mine(&["run", "--yes", "--backend", kind().name(), "--session", "s", "story.jsonl"]).output().unwrap();
    let words = format!("rootless, user {}'s", person.engine.user.0);
    assert!(!ran.status.success() && told(&ran).contains(&words), "{}", told(&ran));
    assert!(told(&ran).contains("run foldspace as that user"), "{}", told(&ran));
    let doctor = person.mine(&["doctor"]).output().unwrap();
    assert!(!doctor.status.success() && told(&doctor).contains(&words), "{}", told(&doctor));
}

/// Root's Docker serves all who may use it: in the container they are the same user.
#[test]
fn docker_of_root_serves_another_user() {
    if kind() == EngineKind::Podman || !rustix::process::geteuid().is_root() {
        return report_skip("root's Docker is tested by root, in a run on Docker");
    }
    let Some(options) = crate::engine::options() else { return };
    let home = tempfile::tempdir().unwrap();
    let socket = home.path().join("docker.sock");
    let gate = crate::attacks::engine::Gate::open(&socket, None);
    let user = (54321, 54321);
    let engine = Rootless { url: gate.url(), image: options.image, user };
    let person = RootlessUser::of(engine);
    person.own(home.path());
    person.own(&socket);
    let made = person.run(&[
        shell("id -u; id -g; echo one > f; grep -E '^Cap(Eff|Bnd)' /proc/self/status | grep -c 0000000000000000"),
        ("write_file", json!({ "file_path": "w", "content": "written\n" })),
        shell("cat w && echo more >> w && rm f"),
    ]);
    assert_eq!((stdout(&made[0]), stdout(&made[2])), ("54321\n54321\n2\n", "written\n"));
    assert_eq!(std::fs::read_to_string(person.files().join("w")).unwrap(), "written\nmore\n");
    let seen = person.files().join("w").metadata().unwrap();
    assert_eq!((seen.uid(), seen.gid()), user);
    assert_eq!(person.containers(), 0);
    person.verify();
}

#[test]
fn rootless_directory_in_container_stays_the_users() {
    let Some(person) = RootlessUser::new() else { return };
    let mine = person.home.path().join("mine");
    std::fs::create_dir(&mine).unwrap();
    std::fs::write(mine.join("a.txt"), "one\n").unwrap();
    std::fs::set_permissions(mine.join("a.txt"), std::fs::Permissions::from_mode(0o600)).unwrap();
    person.own(&mine);
    person.own(&mine.join("a.txt"));
    let call = shell("umask 022; stat -c %u a.txt; echo two >> a.txt; mkdir d; echo n > d/n; chmod 640 d/n").1;
    let line = json!({ "tool": "shell_execute", "params": call }).to_string();
    std::fs::write(person.home.path().join("dir.jsonl"), line).unwrap();
    let run = ["run", "--yes", "--show-output", "--backend", kind().name(), "--session", "s", "--dir", "mine"];
    let told = person.printed(&[&run[..], &["dir.jsonl"]].concat());
    assert!(told.contains(&format!("{}\n", user_inside())), "{told}");
    let stat = |name: &str| mine.join(name).metadata().unwrap();
    for name in ["a.txt", "d", "d/n"] {
        assert_eq!((stat(name).uid(), stat(name).gid()), person.engine.user, "{name}");
    }
    assert_eq!((stat("a.txt").mode() & 0o777, stat("d/n").mode() & 0o777), (0o600, 0o640));
    // A person's own change comes between two commands.
    std::fs::write(mine.join("a.txt"), "three\n").unwrap();
    assert_eq!(person.sh("cat a.txt"), "three");
    // A copy leaves it as it is, until it is applied.
    let copy = ["run", "--yes", "--backend", kind().name(), "--session", "copy", "--dir", "mine", "--copy-on-write"];
    person.printed(&[&copy[..], &["dir.jsonl"]].concat());
    assert_eq!(std::fs::read_to_string(mine.join("a.txt")).unwrap(), "three\n");
    person.printed(&["apply", "copy"]);
    assert_eq!(std::fs::read_to_string(mine.join("a.txt")).unwrap(), "three\ntwo\n");
    assert_eq!((stat("a.txt").uid(), stat("a.txt").mode() & 0o777), (person.engine.user.0, 0o600));
    person.verify();
}

#[test]
fn rootless_container_has_a_recorded_network() {
    let Some(person) = RootlessUser::new() else { return };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        use std::io::{Read, Write};
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            drop(stream.read(&mut [0; 4096]));
            drop(stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nhello"));
        }
    });
    let backend = kind().name();
    let allowed = format!("{at}");
    person.printed(&["new", "work", "--backend", backend, "--allow-host", &allowed, "--allow-host", "*.example.com"]);
    let get = format!(
        "import socket, urllib.request\nfetch = urllib.request.build_opener(urllib.request.ProxyHandler({{'http': 'http://127.0.0.2:3128'}}))\n\
         print(fetch.open('http://{at}/').read())\nprint(socket.gethostbyname('a.example.com'))\n\
         socket.create_server(('0.0.0.0', 81))"
    );
    let printed =
        person.printed(&["exec", "work", "--", "env", "-u", "no_proxy", "-u", "NO_PROXY", "python3", "-c", &get]);
    assert_eq!(printed, "b'hello'\n127.64.0.1\n");
    let events = person.printed(&["--json", "log", "work", "--kind", "NetworkConnection"]);
    let events: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((events.len(), &events[0]["event"]["outcome"]), (1, &json!("closed")), "{events:?}");
}
