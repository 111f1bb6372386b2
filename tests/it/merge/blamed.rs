//! Lines keep whose they are through merges, however often and through however many generations, against a plain model:
//! each line is there once, and who wrote it is noted when it is written.

use std::collections::BTreeMap;
use std::sync::Arc;

use foldspace::event::{Isolation, MergeSide, Node, WriteFile, WriteMode};
use foldspace::history::{Cause, SessionChange, blame, history_through_merges};
use foldspace::reducers::MergeChoices;
use foldspace::store::Content;
use foldspace::tools::merge_child;
use foldspace::{
    ForkOptions, MemoryWorkspace, NewSession, Registry, Seq, Session, SessionId, Sessions, ToolRunner, Tools,
};

use super::{files, path};
use crate::rig::Random;

struct Member {
    tool_runner: ToolRunner,
    parent: Option<SessionId>,
    /// Whose history it begins with, each up to where.
    past: BTreeMap<SessionId, Seq>,
}

impl Member {
    fn session(&self) -> &Session {
        self.tool_runner.session()
    }
}

struct Model {
    _directory: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
    sessions: Sessions,
    members: Vec<Member>,
    wrote: BTreeMap<String, (SessionId, Seq)>,
}

impl Model {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let sessions = Sessions::open(directory.path(), Registry::standard()).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let first = sessions.create(NewSession::named("first")).unwrap();
        let mut model = Self { _directory: directory, runtime, sessions, members: Vec::new(), wrote: BTreeMap::new() };
        model.add(&first, None, BTreeMap::new());
        model
    }

    fn add(&mut self, session: &Session, parent: Option<SessionId>, past: BTreeMap<SessionId, Seq>) {
        let tool_runner = ToolRunner::new(session.clone(), Tools::standard(), Arc::new(MemoryWorkspace)).unwrap();
        self.members.push(Member { tool_runner, parent, past });
    }

    fn lines(&self, member: usize) -> Vec<String> {
        let session = self.members[member].session();
        let files = files(session);
        let Some(entry) = files.get(&path("f")) else { return Vec::new() };
        let Node::File { content, .. } = &entry.node else { panic!("{entry:?}") };
        let text = String::from_utf8(session.content(content).unwrap().to_vec()).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    fn edit(&mut self, member: usize, random: &mut Random) {
        let mut lines = self.lines(member);
        let (at, line) = (random.below(lines.len() as u64 + 1) as usize, format!("line {}", self.wrote.len()));
        if random.below(4) == 0 && lines.len() > 3 {
            lines.remove(at.min(lines.len() - 1));
        }
        lines.insert(at.min(lines.len()), line.clone());
        let bytes: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let session = self.members[member].session();
        let mut commit = session.commit();
        let node = Node::file(bytes.as_bytes(), false);
        commit.push(&WriteFile { path: path("f"), mode: WriteMode::Overwrite, node }).unwrap();
        commit.keep(Content::of(bytes));
        let seq = session.record(commit).unwrap().first;
        self.wrote.insert(line, (session.id(), seq));
    }

    fn fork(&mut self, member: usize, isolation: Isolation) {
        let parent = self.members[member].session().clone();
        let child = self.sessions.child_of(&parent, ForkOptions::new(isolation)).unwrap();
        let mut past = BTreeMap::new();
        if isolation == Isolation::Fork {
            past = self.members[member].past.clone();
            past.insert(parent.id(), child.origin().unwrap().at);
        }
        self.add(&child, Some(parent.id()), past);
    }

    fn merge(&mut self, member: usize, side: MergeSide) {
        let child = &self.members[member];
        let Some(parent) = self.members.iter().find(|other| Some(other.session().id()) == child.parent) else { return };
        let mut choices = MergeChoices::default();
        choices.choose(path("/"), side).unwrap();
        self.runtime.block_on(merge_child(&parent.tool_runner, child.session(), &choices)).unwrap();
    }

    /// Asks whose each line is, of every member. Gives how many lines had other writers than their session, and of how
    /// many only the merge could be told.
    fn check(&self) -> (usize, usize) {
        let (mut others, mut merges) = (0, 0);
        for (number, member) in self.members.iter().enumerate() {
            let (session, lines) = (member.session(), self.lines(number));
            if lines.is_empty() {
                continue;
            }
            let blamed = blame(session, &path("f"), session.head().unwrap()).unwrap();
            let shown: Vec<_> = blamed.lines.iter().map(|line| line.text.clone()).collect();
            assert_eq!(shown, lines);
            for line in &blamed.lines {
                let by = &blamed.changes[line.change];
                let (writer, seq) = self.wrote[&line.text];
                let is_past = member.past.get(&writer).is_some_and(|until| seq <= *until);
                let expected = if is_past { session.id() } else { writer };
                if by.child_removed {
                    assert!(matches!(by.change.cause, Cause::Merge { .. }), "{by:?}");
                    merges += 1;
                } else {
                    assert_eq!((by.session, by.change.seq), (expected, seq), "{} of {}", line.text, session.name());
                    others += usize::from(expected != session.id());
                }
            }
            self.check_history(session);
        }
        (others, merges)
    }

    /// Each change stands there once, and before the merge that brought it.
    fn check_history(&self, session: &Session) {
        let changes = history_through_merges(session, &path("f"), session.head().unwrap()).unwrap();
        let key = |by: &SessionChange| (by.session, by.change.seq);
        for (at, by) in changes.iter().enumerate() {
            assert!(changes[..at].iter().all(|before| key(before) != key(by)));
            if let Cause::Merge { child_id: Some(child), from: Some(from), .. } = by.change.cause {
                let is_told = changes[..at].iter().any(|before| key(before) == (child, from));
                assert!(is_told != by.child_removed, "{by:?}");
            }
        }
    }
}

#[test]
fn blame_in_random_family_equals_model() {
    let (mut others, mut merges) = (0, 0);
    for seed in 0..12 {
        let (mut model, mut random) = (Model::new(), Random(seed));
        for _ in 0..6 {
            model.edit(0, &mut random);
        }
        for _ in 0..70 {
            let member = random.below(model.members.len() as u64) as usize;
            match random.below(12) {
                0..7 => model.edit(member, &mut random),
                7 if model.members.len() < 7 => model.fork(member, Isolation::Fork),
                8 if model.members.len() < 7 && seed % 3 == 0 => model.fork(member, Isolation::Full),
                7 | 8 => {}
                9 => model.merge(member, MergeSide::Ours),
                _ => model.merge(member, MergeSide::Theirs),
            }
        }
        let (told, untold) = model.check();
        assert_eq!(untold, 0, "all are there");
        others += told;
        let gone = 1 + random.below(model.members.len() as u64 - 1) as usize;
        let gone = model.members.remove(gone).session().id();
        model.sessions.remove(gone).unwrap();
        merges += model.check().1;
    }
    assert!(others > 100 && merges > 10, "{others} lines of others, {merges} of those who are gone");
}

#[test]
fn blame_of_cyclic_history_ends() {
    let mut model = Model::new();
    let mut random = Random(1);
    model.edit(0, &mut random);
    let session = model.members[0].session().clone();
    for (child, from) in [(session.id(), 4), (session.id(), 99), (SessionId::from_bytes([9; 16]), 1)] {
        let mut commit = session.commit();
        let bytes = format!("{child} {from}\n");
        let entry = foldspace::event::MergedEntry { path: path("f"), from: Some(from), both: false };
        let (child_name, merged) = ("odd".to_owned(), vec![entry]);
        let event =
            foldspace::event::ChildMerged { child, child_name, base: 0, child_at: 9, merged, conflicts: Vec::new() };
        commit.push(&event).unwrap();
        let node = Node::file(bytes.as_bytes(), false);
        commit.push(&WriteFile { path: path("f"), mode: WriteMode::Overwrite, node }).unwrap();
        commit.keep(Content::of(bytes));
        let merged = session.record(commit).unwrap();
        let blamed = blame(&session, &path("f"), merged.last).unwrap();
        let by = &blamed.changes[blamed.lines[0].change];
        assert_eq!((by.session, by.change.seq), (session.id(), merged.last));
        assert_eq!(by.child_removed, child != session.id());
        let told = history_through_merges(&session, &path("f"), merged.last).unwrap();
        assert_eq!(told.last().unwrap().change.seq, merged.last);
    }
}
