//! Repositories to which agents' hooks report, through the program.

mod accidents;
mod asking;
mod hooking;
mod keeping;
mod late;
mod naming;
mod samples;
mod telling;
mod unrecorded;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use foldspace::event::{Node, SystemClock};
use foldspace::reducers::VirtualFileSystem;
use foldspace::session::SnapshotPolicy;
use foldspace::store::RemoteStore;
use foldspace::{Registry, Session, Sessions};
use serde_json::{Value, json};

use crate::rig::{Program, told};

/// A git repository that is attached, as session `repo`.
pub(super) struct Repository {
    pub(super) program: Program,
}

/// Files by their paths: contents and whether they are executable.
type Held = BTreeMap<String, (Vec<u8>, bool)>;

impl Repository {
    /// One with these committed files.
    pub(super) fn with(files: &[(&str, &str)]) -> Self {
        let repository = Self::unattached(files);
        repository.attach();
        repository
    }

    pub(super) fn unattached(files: &[(&str, &str)]) -> Self {
        let repository = Self { program: Program::new().through_owner() };
        fs::create_dir_all(repository.root()).unwrap();
        repository.git(&["init", "-q", "-b", "main"]);
        files.iter().for_each(|(path, text)| repository.write(path, text));
        repository.commit("first");
        repository
    }

    /// Attaches it. No agent is installed in the program's home, so none gets hooks.
    pub(super) fn attach(&self) {
        self.attach_with(&[]);
    }

    pub(super) fn attach_with(&self, options: &[&str]) {
        let attached = self.program.json(&[&["attach", &self.root().to_string_lossy()], options].concat());
        assert_eq!((&attached["name"], &attached["settings"]), (&json!("repo"), &json!([])));
    }

    pub(super) fn root(&self) -> PathBuf {
        self.program.path("repo")
    }

    pub(super) fn git(&self, arguments: &[&str]) -> String {
        let user = ["-c", "user.name=a", "-c", "user.email=a@example.org"];
        let ran = Command::new("git").arg("-C").arg(self.root()).args(user).args(arguments).output().unwrap();
        assert!(ran.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8(ran.stdout).unwrap()
    }

    pub(super) fn commit(&self, message: &str) {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", message]);
    }

    pub(super) fn write(&self, path: &str, text: &str) {
        self.program.file(&format!("repo/{path}"), text);
    }

    pub(super) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.root().join(path)).unwrap()
    }

    pub(super) fn has(&self, path: &str) -> bool {
        self.root().join(path).symlink_metadata().is_ok()
    }

    pub(super) fn remove(&self, path: &str) {
        fs::remove_file(self.root().join(path)).unwrap();
    }

    /// Runs a hook, which must end well and print nothing that its agent does not want.
    pub(super) fn hook(&self, words: &[&str], payload: &Value) {
        let mut hook = self.program.command(&[&["hook"], words].concat());
        hook.current_dir(self.root()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut hook = hook.spawn().unwrap();
        hook.stdin.take().unwrap().write_all(payload.to_string().as_bytes()).unwrap();
        let printed = told(&hook.wait_with_output().unwrap());
        let wanted = if words[0] == "gemini" { "{}\n[exit 0]" } else { "\n[exit 0]" };
        assert_eq!(printed, wanted, "{words:?} {payload}");
    }

    /// Reports an event of Claude's session `s1`.
    pub(super) fn claude(&self, event: &str, more: Value) {
        let mut payload = json!({ "session_id": "s1", "cwd": self.root(), "hook_event_name": event });
        payload.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.hook(&["claude"], &payload);
    }

    /// Reports a command of Claude's that makes changes.
    pub(super) fn command(&self, id: &str, change: impl FnOnce(&Self)) {
        let call = json!({ "tool_name": "Bash", "tool_input": { "command": id }, "tool_use_id": id });
        self.claude("PreToolUse", call.clone());
        change(self);
        let mut done = call;
        done["tool_response"] = json!({ "stdout": "", "stderr": "" });
        self.claude("PostToolUse", done);
    }

    /// Opens the session as the owner has it.
    pub(super) fn session(&self) -> Session {
        let store = RemoteStore::connect(self.program.data()).unwrap().unwrap();
        let clock = Arc::new(SystemClock::default());
        let policy = SnapshotPolicy { every: 0, ..SnapshotPolicy::default() };
        let sessions = Sessions::new(Arc::new(store), Registry::standard(), clock, policy).unwrap();
        sessions.session(sessions.find("repo").unwrap().id).unwrap()
    }

    /// Compares the files that the session has with those that git sees in the directory.
    pub(super) fn check(&self, when: &str) {
        let (session, mut recorded, mut held) = (self.session(), Held::new(), Held::new());
        for (path, entry) in VirtualFileSystem::of(&session.state().unwrap()).iter() {
            match &entry.node {
                Node::File { content, mode, .. } => {
                    let bytes = session.content(content).unwrap().to_vec();
                    recorded.insert(path.to_string(), (bytes, mode.is_executable()));
                }
                Node::Symlink { target } => drop(recorded.insert(path.to_string(), (target.clone(), false))),
                _ => {}
            }
        }
        for path in self.git(&["ls-files", "-z", "-c", "-o", "--exclude-standard"]).split('\0') {
            let place = self.root().join(path);
            let Ok(stat) = place.symlink_metadata() else { continue };
            if stat.is_file() {
                held.insert(path.to_owned(), (fs::read(&place).unwrap(), stat.permissions().mode() & 0o100 != 0));
            } else if stat.is_symlink() {
                let target = fs::read_link(&place).unwrap();
                held.insert(path.to_owned(), (target.into_os_string().into_encoded_bytes(), false));
            }
        }
        // Small ignored files are recorded, too.
        let ignored = self.git(&["ls-files", "-z", "-o", "-i", "--exclude-standard"]);
        recorded.retain(|path, _| held.contains_key(path) || !ignored.split('\0').any(|ignored| ignored == path));
        assert_eq!(recorded, held, "{when}");
    }

    /// Returns the events of a kind, as the log has them.
    pub(super) fn events(&self, kind: &str) -> Vec<Value> {
        self.program.json_lines(&["log", "repo", "--kind", kind])
    }
}
