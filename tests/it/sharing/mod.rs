//! What the containers of several sessions share, and what they must not.

mod files;
mod killed;
mod processes;
pub(crate) mod warm;

use foldspace::backends::{DirtyPath, FileChange, MachineNews, PodmanOptions, Shell, ShellCommand, unwatched};
use foldspace::event::{Clock, ContainerStarted, Node, SystemClock};
use foldspace::{EntryPath, PodmanSandbox, SessionId, Workspace};
use tokio_util::sync::CancellationToken;

/// A session's sandbox without a history, removed with this.
struct Sandbox {
    id: SessionId,
    open: Option<PodmanSandbox>,
    options: PodmanOptions,
}

impl Sandbox {
    fn new(options: &PodmanOptions) -> Self {
        Self::of(SessionId::from_bytes(SystemClock::default().fresh_id()), options)
    }

    fn of(id: SessionId, options: &PodmanOptions) -> Self {
        let open = Some(PodmanSandbox::open(id, options).unwrap());
        Self { id, open, options: options.clone() }
    }

    /// One with files, of which nothing is touched.
    fn filled(options: &PodmanOptions, files: &[(&str, &str)]) -> Self {
        let sandbox = Self::new(options);
        assert!(sandbox.is_blank());
        sandbox.filling().unwrap();
        let changes: Vec<FileChange> = files.iter().map(|(path, text)| file(path, text)).collect();
        sandbox.apply(&changes).unwrap();
        sandbox.rest();
        sandbox.filled().unwrap();
        sandbox
    }

    /// The sandbox of a child that has these files.
    fn fork(&self) -> Self {
        let child = SessionId::from_bytes(SystemClock::default().fresh_id());
        assert!(self.fork_to(child).unwrap());
        let child = Self::of(child, &self.options);
        assert!(!child.is_blank());
        child
    }

    fn dirty(&self) -> Vec<DirtyPath> {
        let capture = self.capture().unwrap();
        let touched = capture.dirty().unwrap();
        capture.mark_clean().unwrap();
        touched
    }

    /// Looks until nothing is touched any more.
    fn rest(&self) {
        crate::rig::eventually("nothing is touched", || self.dirty().is_empty());
    }

    /// What a command prints that must succeed.
    fn sh(&self, text: &str) -> String {
        run(self.unrecorded_shell().unwrap().as_ref(), ShellCommand::shell(text))
    }

    fn name(&self) -> String {
        format!("foldspace-{}", self.id)
    }

    /// What has become of the container since this was last asked.
    fn started(&self) -> Vec<ContainerStarted> {
        let is_start = |news| match news {
            MachineNews::Started(started) => Some(started),
            MachineNews::Stopped(_) | MachineNews::Connected(_) | MachineNews::Exchanged(..) => None,
        };
        self.news().into_iter().filter_map(is_start).collect()
    }

    /// As another process finds it after this one was killed: neither closed nor dropped, so that what runs runs on.
    fn lose(&mut self, options: &PodmanOptions) -> PodmanSandbox {
        let lost = self.open.take().unwrap();
        let home = crate::rig::cache().join(self.id.to_string());
        std::fs::rename(home.join("lock"), home.join("lock.lost")).unwrap();
        self.open = Some(PodmanSandbox::open(self.id, options).unwrap());
        lost
    }

    /// As another process would find it.
    fn reopen(&mut self) {
        drop(self.open.take());
        self.open = Some(PodmanSandbox::open(self.id, &self.options).unwrap());
    }
}

impl std::ops::Deref for Sandbox {
    type Target = PodmanSandbox;

    fn deref(&self) -> &PodmanSandbox {
        self.open.as_ref().unwrap()
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            open.close();
            let removed = open.remove_files();
            assert!(std::thread::panicking() || removed.is_ok(), "{removed:?}");
        }
    }
}

fn run(shell: &dyn Shell, command: ShellCommand) -> String {
    let text = command.command.to_string();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ran = runtime.block_on(shell.execute(command, unwatched(), CancellationToken::new())).unwrap();
    let (out, err) = (ran.stdout.text(4096).0, ran.stderr.text(4096).0);
    assert!(ran.success(), "{text}: {} {out} {err}", ran.exit_code);
    out
}

fn file(path: &str, text: &str) -> FileChange {
    let bytes = bytes::Bytes::copy_from_slice(text.as_bytes());
    FileChange::Write { path: EntryPath::lookup(path).unwrap(), node: Node::file(&bytes, false), bytes, modified: None }
}
