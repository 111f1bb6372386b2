//! Random work with an open store.

use std::sync::Arc;

use serde_json::json;

use super::disk::Fault;
use super::run::{Live, Run};
use crate::backends::{MemoryWorkspace, Workspace};
use crate::engine::commit::Content;
use crate::engine::event::{DeleteEntry, Isolation, Node, WriteFile, WriteMode};
use crate::engine::id::CommitId;
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::engine::session::children::ForkOptions;
use crate::engine::session::sessions::NewSession;
use crate::engine::store::EventStore;
use crate::reducers::MergeChoices;
use crate::tools::{
    CaptureBudget, OwnEvent, RewindOptions, ToolCall, ToolRunner, Tools, declare_slice, merge_child, record_own, rewind,
};

/// An operation that the store refused.
type Refused = Box<dyn std::error::Error>;

impl Run {
    /// Uses the store; returns true if an operation failed, which requires a planned fault.
    pub(super) fn work(&mut self, live: &Live, operations: usize) -> Result<bool, String> {
        let mut failed = false;
        for _ in 0..operations {
            let operation = self.random.index(26);
            let done = self.operation(live, operation);
            self.say(|| format!("operation {operation}: {done:?}"));
            if let Err(error) = done {
                if self.fault == Fault::None {
                    return Err(format!("operation {operation} failed: {error}"));
                }
                failed = true;
                if self.random.once_in(2) {
                    break;
                }
            }
        }
        Ok(failed)
    }

    fn operation(&mut self, live: &Live, operation: usize) -> Result<(), Refused> {
        let witness = &live.witness;
        let Some(session) = self.some_session(live)? else { return self.begin(live) };
        match operation {
            0..6 => self.record(&session, true, live),
            6..10 => self.record(&session, false, live),
            10 => Ok(witness.sync_all()?),
            11 => self.begin(live),
            12 | 13 => {
                let new = ForkOptions { name: Some(self.name()), ..ForkOptions::new(Isolation::Fork) };
                live.sessions.child_of(&session, new)?;
                Ok(())
            }
            14 if self.random.once_in(2) => Ok(live.sessions.remove(session.id())?),
            14..17 => self.call(&session),
            17 => self.go_back(&session),
            18 => self.merge(&session, live),
            19 => {
                witness.store.maintain_now();
                Ok(())
            }
            20 => {
                session.snapshot()?;
                self.keep_index(live);
                Ok(())
            }
            21 => {
                witness.sync_all()?;
                let state = session.state()?;
                self.folds.insert((session.id(), state.seq()), state.digests()?);
                Ok(())
            }
            22 => self.retry(&session, live),
            23 | 24 => self.own(&session),
            _ => Ok(witness.look()?),
        }
    }

    fn some_session(&mut self, live: &Live) -> Result<Option<Session>, Refused> {
        let entries = live.witness.entries()?;
        if entries.is_empty() {
            return Ok(None);
        }
        let id = self.random.pick(&entries).id;
        Ok(Some(live.sessions.session(id)?))
    }

    fn name(&mut self) -> String {
        self.names += 1;
        format!("s{}", self.names)
    }

    fn begin(&mut self, live: &Live) -> Result<(), Refused> {
        live.sessions.create(NewSession::named(self.name()))?;
        Ok(())
    }

    fn path(&mut self) -> EntryPath {
        EntryPath::for_creation(&format!("d{}/f{}", self.random.index(3), self.random.index(6))).unwrap()
    }

    /// Records files with contents. Some contents exist already, and some come in chunks.
    fn record(&mut self, session: &Session, waits: bool, live: &Live) -> Result<(), Refused> {
        let mut commit = session.commit();
        for _ in 0..1 + self.random.index(3) {
            let path = self.path();
            let length = *self.random.pick(&[0, 10, 300, 300, 700, 2_000, 5_000]);
            let length = if self.random.once_in(40) { 140_000 } else { length };
            let bytes = match self.random.once_in(4) {
                true => vec![b'x'; length],
                false => self.random.bytes(length),
            };
            commit.push(&WriteFile { path, mode: WriteMode::Overwrite, node: Node::file(&bytes, false) })?;
            commit.keep(Content::of(bytes));
        }
        self.figures.commits += 1;
        match waits {
            true => drop(live.witness.submit(commit)?),
            false => drop(live.witness.submit_only(commit)?),
        }
        Ok(())
    }

    /// Submits a commit with an id twice: the second time nothing happens.
    fn retry(&mut self, session: &Session, live: &Live) -> Result<(), Refused> {
        let id = CommitId::from_bytes([u8::try_from(self.random.index(250)).unwrap_or(0) + 1; 16]);
        let mut commit = session.commit().with_id(id);
        commit.push(&DeleteEntry { path: self.path() })?;
        let (first, _) = live.witness.submit_only(commit.duplicate())?;
        let (again, _) = live.witness.submit_only(commit)?;
        let (first, again) = (first.committed().unwrap(), again.committed().unwrap());
        assert!(again.repeated && (again.first, again.last) == (first.first, first.last), "{first:?} {again:?}");
        Ok(())
    }

    /// Records an own event, or declares a slice of such events over the session's past.
    fn own(&mut self, session: &Session) -> Result<(), Refused> {
        if self.random.once_in(2) {
            let data = json!({ "id": self.random.index(4), "n": self.random.index(100) });
            record_own(session, vec![OwnEvent { kind: "step".to_owned(), data }], None, None)?;
            return Ok(());
        }
        let rule = *self.random.pick(&[r#""latest_by","key":"/id""#, r#""append","max":5"#, r#""merge_patch""#]);
        let (name, on_rewind) = (self.random.index(3), *self.random.pick(&["keep", "restore"]));
        let declaration =
            format!(r#"{{"name":"Own{name}","on_rewind":"{on_rewind}","rules":[{{"kinds":["step"],"fold":{rule}}}]}}"#);
        declare_slice(session, serde_json::from_str(&declaration)?)?;
        self.figures.declared += 1;
        Ok(())
    }

    fn tool_runner(session: &Session) -> Result<ToolRunner, Refused> {
        Ok(ToolRunner::new(session.clone(), Tools::standard(), Arc::new(MemoryWorkspace))?)
    }

    fn call(&mut self, session: &Session) -> Result<(), Refused> {
        let path = self.path().to_string();
        let call = match self.random.index(4) {
            0 => ToolCall::new("rm", json!({ "path": path })),
            _ => {
                let content = "line\n".repeat(self.random.index(200));
                ToolCall::new("write_file", json!({ "file_path": path, "content": content }))
            }
        };
        let tool_runner = Self::tool_runner(session)?;
        self.runtime.block_on(tool_runner.call(call))?;
        Ok(())
    }

    fn go_back(&mut self, session: &Session) -> Result<(), Refused> {
        let to = 1 + self.random.index(usize::try_from(session.head()?)?) as u64;
        let workspace: Arc<dyn Workspace> = Arc::new(MemoryWorkspace);
        let options = RewindOptions { force: true, dry_run: false, keep_earlier: false, git: false, id: None };
        let rewound = self.runtime.block_on(rewind(session, &workspace, CaptureBudget::default(), to, options));
        // It may be refused; a failing store shows on its next use.
        self.figures.rewinds += u64::from(rewound.is_ok());
        Ok(())
    }

    fn merge(&mut self, session: &Session, live: &Live) -> Result<(), Refused> {
        let Some(origin) = session.origin() else { return Ok(()) };
        let Ok(parent) = live.sessions.session(origin.parent) else { return Ok(()) };
        let parent = Self::tool_runner(&parent)?;
        let merged = self.runtime.block_on(merge_child(&parent, session, &MergeChoices::default()));
        self.figures.merges += u64::from(merged.is_ok());
        Ok(())
    }
}
