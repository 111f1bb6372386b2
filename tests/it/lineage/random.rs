//! Relatives that work in turns, at random, against a plain model.

use foldspace::event::{DeleteEntry, Isolation, WriteFile};
use foldspace::{ForkOptions, Session, ToolRunner, WorkspaceSpec};
use proptest::prelude::*;
use serde_json::json;

use crate::rig::{Family, Kind, Rig, Texts, texts_at};

#[derive(Debug, Clone)]
enum Operation {
    Write {
        member: usize,
        file: u8,
        text: u8,
    },
    Remove {
        member: usize,
        file: u8,
    },
    /// A command that moves a file, which is a removal and a new file to everybody else.
    Move {
        member: usize,
        from: u8,
        to: u8,
    },
    Fork {
        member: usize,
        back: u64,
    },
    /// A child with nothing of its parent's.
    Afresh {
        member: usize,
    },
    /// The session goes, with its workspace.
    Leave {
        member: usize,
    },
    /// The process goes, and another comes.
    Reopen {
        member: usize,
    },
}

fn operation() -> impl Strategy<Value = Operation> {
    let member = 0..6usize;
    prop_oneof![
        6 => (member.clone(), 0..4u8, any::<u8>()).prop_map(|(member, file, text)| Operation::Write { member, file, text }),
        2 => (member.clone(), 0..4u8).prop_map(|(member, file)| Operation::Remove { member, file }),
        3 => (member.clone(), 0..4u8, 0..4u8).prop_map(|(member, from, to)| Operation::Move { member, from, to }),
        3 => (member.clone(), 0..8u64).prop_map(|(member, back)| Operation::Fork { member, back }),
        1 => member.clone().prop_map(|member| Operation::Afresh { member }),
        1 => member.clone().prop_map(|member| Operation::Leave { member }),
        1 => member.prop_map(|member| Operation::Reopen { member }),
    ]
}

/// A session, and what its files are after each of its events.
struct Relative {
    tool_runner: Option<ToolRunner>,
    /// Of every position that there is, the first at 1.
    moments: Vec<Texts>,
}

impl Relative {
    fn begun(tool_runner: ToolRunner, mut past: Vec<Texts>) -> Self {
        past.push(past.last().cloned().unwrap_or_default());
        Self { tool_runner: Some(tool_runner), moments: past }
    }

    fn tool_runner(&self) -> &ToolRunner {
        self.tool_runner.as_ref().unwrap()
    }

    fn now(&self) -> Texts {
        self.moments.last().cloned().unwrap_or_default()
    }

    /// Fills up the moments to the head, where the files are these: each event of a file changes that one.
    fn went_on(&mut self, files: &Texts) {
        let head = self.tool_runner().session().head().unwrap();
        while (self.moments.len() as u64) < head {
            let seq = self.moments.len() as u64 + 1;
            let event = self.tool_runner().session().event(seq).unwrap();
            let mut now = self.now();
            if let Some(written) = event.typed::<WriteFile>() {
                let path = written.unwrap().event.path.to_string();
                now.extend(files.get(&path).map(|text| (path, text.clone())));
            } else if let Some(deleted) = event.typed::<DeleteEntry>() {
                let path = deleted.unwrap().event.path.to_string();
                now.retain(|file, _| *file != path && !file.starts_with(&format!("{path}/")));
            }
            self.moments.push(now);
        }
        assert_eq!(&self.now(), files);
    }
}

/// Changes a member's files.
fn change(family: &Family, member: &mut Relative, operation: &Operation) {
    let mut files = member.now();
    match *operation {
        Operation::Write { file, text, .. } => {
            let (path, text) = (format!("d/{file}"), text.to_string());
            if files.remove(&path).is_some() {
                assert!(family.call(member.tool_runner(), "rm", json!({ "path": path })).is_ok());
                member.went_on(&files);
            }
            family.write(member.tool_runner(), &path, &text);
            files.insert(path, text);
        }
        Operation::Remove { file, .. } => {
            let path = format!("d/{file}");
            let removed = family.call(member.tool_runner(), "rm", json!({ "path": path }));
            assert_eq!(removed.is_ok(), files.remove(&path).is_some());
        }
        Operation::Move { from, to, .. } if family.has_shell() && from != to => {
            let (from, to) = (format!("d/{from}"), format!("d/{to}"));
            let Some(text) = files.remove(&from) else { return };
            files.insert(to.clone(), text);
            family.sh(member.tool_runner(), &format!("mv {from} {to}"));
        }
        _ => return,
    }
    member.went_on(&files);
}

/// Closes a member's workspace.
fn close(member: &mut Relative) -> Session {
    let tool_runner = member.tool_runner.take().unwrap();
    tool_runner.close().unwrap();
    tool_runner.session().clone()
}

fn run(spec: WorkspaceSpec, operations: &[Operation]) {
    let family = Family::new(spec);
    let mut members = vec![Relative::begun(family.founder(), Vec::new())];
    for operation in operations {
        let at = match *operation {
            Operation::Write { member, .. }
            | Operation::Remove { member, .. }
            | Operation::Move { member, .. }
            | Operation::Fork { member, .. }
            | Operation::Afresh { member }
            | Operation::Leave { member }
            | Operation::Reopen { member } => member % members.len(),
        };
        let is_alone = members.len() == 1;
        let member = &mut members[at];
        let files = member.now();
        match *operation {
            Operation::Write { .. } | Operation::Remove { .. } | Operation::Move { .. } => {
                change(&family, member, operation);
            }
            Operation::Fork { back, .. } => {
                let head = member.moments.len() as u64;
                let seq = head.saturating_sub(back).max(1);
                let seq = member.tool_runner().session().commit_end(seq).unwrap();
                let child = family.fork_at(member.tool_runner(), seq);
                let past = member.moments[..usize::try_from(seq).unwrap()].to_vec();
                member.went_on(&files);
                members.push(Relative::begun(child, past));
            }
            Operation::Afresh { .. } => {
                let child = family.start(member.tool_runner(), ForkOptions::new(Isolation::Full));
                member.went_on(&files);
                members.push(Relative::begun(child, Vec::new()));
            }
            Operation::Leave { .. } if !is_alone => {
                let session = close(&mut members.swap_remove(at));
                let spec = WorkspaceSpec::of_session(session.started().unwrap()).unwrap();
                spec.remove(session.id(), family.path()).unwrap();
                family.sessions.remove(session.id()).unwrap();
            }
            Operation::Leave { .. } => {}
            Operation::Reopen { .. } => {
                let session = close(member);
                session.forget_states();
                member.tool_runner = Some(family.open(&session));
                member.went_on(&files);
            }
        }
    }
    members.iter_mut().for_each(|member| check(&family, member));
    family.verify();
}

/// Checks each moment of a member's history.
fn check(family: &Family, member: &mut Relative) {
    let files = member.now();
    assert_eq!(family.texts(member.tool_runner()), files);
    member.went_on(&files);
    let session = member.tool_runner().session();
    session.forget_states();
    for (seq, moment) in (1..).zip(&member.moments) {
        assert_eq!(&texts_at(session, seq), moment, "{} at {seq}", session.name());
    }
    member.tool_runner().close().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, max_shrink_iters: 200, ..ProptestConfig::default() })]
    #[test]
    fn random_lineage_in_memory_equals_model(operations in prop::collection::vec(operation(), 1..40)) {
        run(WorkspaceSpec::Memory, &operations);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, failure_persistence: None, max_shrink_iters: 60, ..ProptestConfig::default() })]
    #[test]
    fn random_lineage_in_directories_equals_model(operations in prop::collection::vec(operation(), 1..30)) {
        run(WorkspaceSpec::Host(foldspace::backends::HostOptions::default()), &operations);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3, failure_persistence: None, max_shrink_iters: 10, ..ProptestConfig::default() })]
    #[test]
    fn random_lineage_in_overlays_equals_model(operations in prop::collection::vec(operation(), 1..25)) {
        if let Some(options) = Rig::options(Kind::Overlay) {
            run(WorkspaceSpec::Podman(options), &operations);
        }
    }
}
