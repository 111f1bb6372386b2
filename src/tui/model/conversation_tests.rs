//! Tests of messages between the calls, and of entries below the event that lists them.

use foldspace::event::{
    CallFinished, CallStarted, CallStatus, DriftFound, Node, TranscriptRecord, WriteFile, WriteMode,
};
use foldspace::store::CallLink;
use foldspace::{EntryPath, Event, Session};
use serde_json::json;

use super::*;
use crate::tui::fixture;

use Direction::{Back, Forward};

fn record(session: &Session, call: CallLink, event: &impl Event) -> Seq {
    let mut commit = session.commit().of_call(call);
    commit.push(event).unwrap();
    session.record(commit).unwrap().last
}

fn say(session: &Session, role: &str, text: &str) -> Seq {
    let record_of = json!({ "type": role, "message": { "role": role, "content": text } });
    record(session, CallLink::None, &TranscriptRecord { run: "r1".to_owned(), record: record_of })
}

fn fails(session: &Session) -> Seq {
    let params = json!({ "command": "make test" });
    let call = record(session, CallLink::Opens, &CallStarted { tool: "shell_execute".to_owned(), params });
    let (status, result) = (CallStatus::Ok, json!({ "exit_code": 1 }));
    let end = CallFinished { status, result, message: String::new(), micros: 1, reason: None };
    record(session, CallLink::Of(call), &end);
    call
}

fn does(model: &mut Model, actions: impl IntoIterator<Item = DebuggerAction>) {
    for action in actions {
        model.apply(action);
        model.settle();
    }
}

fn rows(model: &Model) -> Vec<(Seq, String)> {
    model.window.rows.iter().map(|row| (row.seq, format!("{} {}", row.kind, row.text))).collect()
}

#[test]
fn messages_are_rows_that_a_key_hides() {
    let sessions = fixture::sessions();
    let session = fixture::session(&sessions, "talk", &[]);
    let asked = say(&session, "user", "Mend the sum.");
    let call = fails(&session);
    let claimed = say(&session, "assistant", &format!("All tests pass now.\n{}", "long words ".repeat(20)));
    let mut model = fixture::model(&sessions, &session, asked);
    let shown = rows(&model);
    assert_eq!(shown[1], (asked, "user Mend the sum.".to_owned()));
    assert_eq!(shown[3].1, "assistant [claim after exit 1] All tests pass now....");
    does(&mut model, [DebuggerAction::Tab(Tab::Event), DebuggerAction::Jump(claimed)]);
    let text = |model: &Model| {
        let lines = &model.sight.as_ref().unwrap().detail.lines;
        lines.iter().map(|line| line.text.clone()).collect::<Vec<_>>()
    };
    let lines = text(&model);
    assert!(lines.contains(&format!("  claims success after exit 1: #{call} make test")), "{lines:#?}");
    assert!(lines.iter().all(|line| line.len() <= 80) && lines.len() > 6, "long lines are wrapped: {lines:#?}");

    let quiet = || [DebuggerAction::Conversation];
    does(&mut model, quiet());
    assert_eq!((model.cursor, rows(&model).len()), (call, 2), "the cursor leaves a hidden row");
    does(&mut model, [DebuggerAction::Event(Forward), DebuggerAction::Event(Forward), DebuggerAction::Last]);
    assert_eq!(model.cursor, call + 1);
    does(&mut model, [DebuggerAction::Jump(claimed)]);
    assert_eq!((model.cursor, rows(&model).len()), (claimed, 5), "a jump shows them again");
    does(&mut model, quiet());
    does(&mut model, quiet());
    assert_eq!(rows(&model).len(), 5, "with the open call");
}

#[test]
fn entries_fold_into_the_event_before_them() {
    // More than two chunks of rows.
    const ENTRIES: u64 = 600;
    let sessions = fixture::sessions();
    let session = fixture::session(&sessions, "full", &[]);
    let mut commit = session.commit();
    let drift = DriftFound { backend: "host".to_owned(), entries: ENTRIES, late: 0, perhaps: Vec::new() };
    commit.push(&drift).unwrap();
    for number in 0..ENTRIES {
        let path = EntryPath::lookup(&format!("d{}/{number}", number % 7)).unwrap();
        commit.push(&WriteFile { path, mode: WriteMode::Create, node: Node::DIRECTORY }).unwrap();
    }
    session.record(commit).unwrap();
    let call = fails(&session);
    assert_eq!(call, ENTRIES + 3);

    let mut model = fixture::model(&sessions, &session, call);
    assert_eq!(rows(&model).iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), [1, 2, call]);
    does(&mut model, [DebuggerAction::Line(Back)]);
    let step = &model.sight.as_ref().unwrap().step;
    assert_eq!((step.cursor, step.after, step.call), (2, call - 1, false));
    assert!(step.changes.len() as u64 >= ENTRIES);
    does(&mut model, [DebuggerAction::Enter, DebuggerAction::Line(Forward)]);
    assert_eq!(model.cursor, 3, "it opens");
    does(&mut model, [DebuggerAction::Enter]);
    assert_eq!((model.cursor, rows(&model).len()), (2, 3), "an entry closes it");
    does(&mut model, [DebuggerAction::Jump(400)]);
    assert_eq!((model.cursor, model.window.rows.iter().all(|row| row.inner)), (400, true));
}

#[test]
fn compared_positions_are_those_of_every_command() {
    let (sessions, session) = fixture::story();
    let mut model = fixture::model(&sessions, &session, 2);
    let compared = |model: &mut Model, text: &str| {
        does(model, [DebuggerAction::Answer(Ask::Compare, text.to_owned())]);
        model.choice.compared.as_ref().map(|(from, to)| (from.seq, to.seq))
    };
    assert_eq!(compared(&mut model, "before:8..8"), Some((7, 10)));
    assert_eq!(compared(&mut model, "@9..-0"), Some((9, 18)));
    assert_eq!(compared(&mut model, "story@before:8..story"), Some((7, 18)));
    model.choice.compared = None;
    for wrong in ["story@x..", "nobody..", "before:99..", "99.."] {
        assert_eq!(compared(&mut model, wrong), None, "{wrong}");
        assert!(matches!(model.message, Some((Tone::Bad, _))), "{wrong}");
    }
}
