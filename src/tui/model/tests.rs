use super::*;
use crate::terminal::exit::Exit;
use crate::tui::fixture;

use Direction::{Back, Forward};

fn at(seq: Seq) -> Model {
    let (sessions, session) = fixture::story();
    fixture::model(&sessions, &session, seq)
}

fn does(model: &mut Model, actions: impl IntoIterator<Item = DebuggerAction>) {
    for action in actions {
        model.apply(action);
        model.settle();
    }
}

fn said(model: &Model) -> &str {
    model.message.as_ref().map_or("", |(_, words)| words.as_str())
}

fn rows(model: &Model) -> Vec<Seq> {
    model.window.rows.iter().map(|row| row.seq).collect()
}

fn detail(model: &Model) -> String {
    let lines = model.detail().unwrap().lines.iter().map(|line| line.text.as_str());
    lines.collect::<Vec<_>>().join("\n")
}

fn asked(ask: Ask, text: &str) -> DebuggerAction {
    DebuggerAction::Answer(ask, text.to_owned())
}

#[test]
fn rows_are_calls_that_open_to_events() {
    let mut model = at(1);
    assert_eq!(rows(&model), [1, 2, 5, 8, 11, 13, 16]);
    does(&mut model, [DebuggerAction::Line(Forward), DebuggerAction::Enter]);
    assert_eq!(rows(&model), [1, 2, 3, 4, 5, 8, 11, 13]);
    does(&mut model, [DebuggerAction::Line(Forward), DebuggerAction::Enter]);
    assert_eq!((model.cursor, rows(&model).len()), (2, 7), "what closes leaves the cursor on its call");
    does(&mut model, [DebuggerAction::FoldAll]);
    does(&mut model, [DebuggerAction::Last]);
    assert_eq!(model.cursor, 18);
    does(&mut model, [DebuggerAction::FoldAll]);
    assert_eq!(model.cursor, 16);
}

#[test]
fn cursor_steps_by_event_call_and_end() {
    let mut model = at(1);
    does(&mut model, [DebuggerAction::Call(Forward), DebuggerAction::Call(Forward)]);
    assert_eq!(model.cursor, 5);
    does(&mut model, [DebuggerAction::Event(Forward)]);
    assert_eq!((model.cursor, rows(&model).contains(&6)), (6, true), "stepping into a call opens it");
    does(&mut model, [DebuggerAction::Event(Back), DebuggerAction::Event(Back)]);
    assert_eq!(model.cursor, 4);
    does(&mut model, [DebuggerAction::First, DebuggerAction::Event(Back)]);
    assert_eq!((model.cursor, said(&model)), (1, "nothing before: this is the first"));
    does(&mut model, [DebuggerAction::Last, DebuggerAction::Line(Forward)]);
    assert_eq!((model.cursor, said(&model)), (16, "nothing further: this is the last"));
    does(&mut model, [asked(Ask::Jump, "9")]);
    assert_eq!(model.cursor, 9);
    does(&mut model, [asked(Ask::Jump, "-1")]);
    assert_eq!(model.cursor, 17);
    for wrong in ["0", "99", "x", "'q"] {
        does(&mut model, [asked(Ask::Jump, wrong)]);
        assert_eq!(model.cursor, 17, "{wrong}");
        assert!(!said(&model).is_empty(), "{wrong}");
    }
}

#[test]
fn folded_call_shows_its_changes() {
    let mut model = at(8);
    let step = |model: &Model| model.sight.as_ref().map(|sight| (sight.step.before, sight.step.after)).unwrap();
    assert_eq!(step(&model), (7, 10));
    does(&mut model, [DebuggerAction::Tab(Tab::File)]);
    assert!(detail(&model).contains("-two\n+zwei"), "{}", detail(&model));
    does(&mut model, [DebuggerAction::WholeFile]);
    assert_eq!(detail(&model), "    1  one\n      -two\n    2 +zwei\n    3  three");
    does(&mut model, [DebuggerAction::Enter]);
    assert_eq!(step(&model), (7, 8), "an open call is its first event");
}

#[test]
fn slice_pane_shows_changes() {
    let mut model = at(3);
    does(&mut model, [DebuggerAction::Tab(Tab::Slices)]);
    let shown = detail(&model);
    assert!(shown.contains("* > VirtualFileSystem  1 change\n    + /a.txt: {"), "{shown}");
    assert!(shown.contains("    ~ /writes: 0 -> 1"), "{shown}");
    assert!(shown.contains("\n  > Mounts"), "{shown}");
    model.focus = Focus::Detail;
    model.detail_scroll.line = 0;
    does(&mut model, [DebuggerAction::Enter]);
    assert!(detail(&model).contains("* v VirtualFileSystem"), "{}", detail(&model));
}

#[test]
fn search_goes_forward_and_back() {
    let mut model = at(1);
    does(&mut model, [asked(Ask::Search(Forward), "content:zwei")]);
    assert_eq!(model.cursor, 9);
    does(&mut model, [DebuggerAction::Again(Forward)]);
    assert_eq!((model.cursor, said(&model)), (9, "nothing found up to the end"));
    does(&mut model, [asked(Ask::Search(Forward), "path:^/a")]);
    assert_eq!(model.cursor, 14);
    does(&mut model, [DebuggerAction::Again(Back), DebuggerAction::Again(Back)]);
    assert_eq!(model.cursor, 3);
    does(&mut model, [asked(Ask::Search(Forward), "event:missing")]);
    assert_eq!(model.cursor, 11);
    does(&mut model, [asked(Ask::Search(Forward), "(")]);
    assert_eq!(said(&model), "the pattern can't be understood: unclosed group");
}

#[test]
fn run_stops_at_condition() {
    let until = |way, text: &str| asked(Ask::Until(way), text);
    let mut model = at(1);
    for (condition, stop) in [
        ("path src/*", 6),
        ("tool edit_file", 8),
        ("failed", 12),
        ("agent main", 16),
        ("/evil/", 17),
        ("kind callfinished", 18),
    ] {
        does(&mut model, [until(Forward, condition)]);
        assert_eq!((model.cursor, said(&model)), (stop, &*format!("stopped at {stop}: {condition}")), "{condition}");
    }
    does(&mut model, [until(Back, "path *.txt"), until(Back, "path *.txt")]);
    assert_eq!(model.cursor, 14);
    does(&mut model, [until(Forward, "path nowhere")]);
    assert_eq!((model.cursor, said(&model)), (14, "nothing found up to the end"));
    does(&mut model, [until(Forward, "what is this")]);
    assert!(said(&model).contains("conditions: "), "{}", said(&model));
}

#[test]
fn run_stops_where_predicate_holds() {
    let mut model = at(1);
    does(&mut model, [asked(Ask::Until(Forward), "Usage.calls >= 3")]);
    assert_eq!(model.cursor, 8);
    does(&mut model, [asked(Ask::Until(Forward), "Usage.calls >= 3")]);
    assert_eq!((model.cursor, said(&model)), (8, "nothing found up to the end"), "it holds from there on");
    does(&mut model, [DebuggerAction::Last, asked(Ask::Until(Back), "Usage.calls >= 3")]);
    assert_eq!(model.cursor, 8);
    does(
        &mut model,
        [
            asked(Ask::Breakpoint, "Usage.calls >= 5"),
            asked(Ask::Breakpoint, "path a.txt"),
            DebuggerAction::Continue(Forward),
        ],
    );
    assert_eq!((model.cursor, said(&model)), (9, "stopped at 9: path a.txt"));
    does(&mut model, [DebuggerAction::Continue(Forward)]);
    assert_eq!((model.cursor, said(&model)), (13, "stopped at 13: Usage.calls >= 5"));
    does(&mut model, [DebuggerAction::ClearBreakpoints, DebuggerAction::Continue(Forward)]);
    assert_eq!((model.cursor, said(&model)), (13, "no breakpoint is set: b sets one"));
}

#[test]
fn cursor_follows_changes_of_a_file() {
    let mut model = at(1);
    does(&mut model, [DebuggerAction::Change(Forward)]);
    assert!(said(&model).starts_with("no file is chosen"), "{}", said(&model));
    does(&mut model, [asked(Ask::Select, "a.txt")]);
    let mut seen = Vec::new();
    for _ in 0..4 {
        does(&mut model, [DebuggerAction::Change(Forward)]);
        seen.push(model.cursor);
    }
    assert_eq!((seen, said(&model)), (vec![3, 9, 14, 14], "nothing found up to the end"));
    does(&mut model, [DebuggerAction::Change(Back)]);
    assert_eq!(model.cursor, 9);
    does(&mut model, [DebuggerAction::Escape]);
    assert_eq!(model.choice.selected, None);
}

#[test]
fn marks_compare_two_positions() {
    let (sessions, session) = fixture::story();
    let write = serde_json::json!({ "file_path": "a.txt", "content": "other\n" });
    fixture::session(&sessions, "other", &[("main", "write_file", write)]);
    let mut model = fixture::model(&sessions, &session, 3);
    does(&mut model, [asked(Ask::SetMark, "a"), asked(Ask::Jump, "9"), asked(Ask::Compare, "'a..")]);
    assert!(detail(&model).contains("-two\n+zwei"), "{}", detail(&model));
    assert_eq!(model.detail().unwrap().title, "difference story@3..story@9: 3 entries");
    does(&mut model, [asked(Ask::Compare, "other..3")]);
    assert!(detail(&model).contains("-other\n+one"), "{}", detail(&model));
    does(&mut model, [asked(Ask::GoToMark, "a")]);
    assert_eq!(model.cursor, 3);
    for wrong in ["nobody..3", "other@99..3", "x@y..1", "'z..3"] {
        does(&mut model, [asked(Ask::Compare, wrong)]);
        assert!(matches!(model.message, Some((Tone::Bad, _))), "{wrong}");
    }
}

#[test]
fn model_only_requests_actions() {
    let mut model = at(8);
    let id = model.past.id().to_string();
    does(&mut model, [asked(Ask::Fork, "mine"), DebuggerAction::Shell, DebuggerAction::Copy, DebuggerAction::Quit]);
    let wishes: Vec<OutsideRequest> = std::iter::from_fn(|| model.take_wish()).collect();
    let verb = OutsideVerb::Fork { name: Some("mine".to_owned()) };
    let fork = OutsideRequest::Run(OutsideCommand { session: id.clone(), at: 10, verb });
    let shell = OutsideRequest::Shell { session: id, at: 10 };
    assert_eq!(wishes, [fork, shell, OutsideRequest::Copy("story@8".to_owned()), OutsideRequest::Quit]);
    assert_eq!(model.past.refresh().unwrap(), 18, "nothing was recorded");
}

#[test]
fn filter_shows_agent_or_kind() {
    let mut model = at(1);
    does(&mut model, [asked(Ask::Filter, "agent tidy"), DebuggerAction::Line(Forward)]);
    assert_eq!(rows(&model), [11, 13]);
    does(&mut model, [asked(Ask::Filter, ""), asked(Ask::Filter, "kind file"), DebuggerAction::First]);
    assert_eq!(rows(&model), [3, 6, 9, 17]);
    does(&mut model, [asked(Ask::Filter, "nonsense")]);
    assert!(said(&model).contains("a filter is"), "{}", said(&model));
}

#[test]
fn detail_shows_command_output() {
    let (sessions, session) = fixture::story();
    fixture::command(&session, "built\nall\n", "warning\n", 2);
    let mut model = fixture::model(&sessions, &session, 19);
    does(&mut model, [DebuggerAction::Tab(Tab::Output)]);
    assert_eq!(detail(&model), "$ make\n  built\n  all\n! warning\nexit 2 in 1.5 ms");
    does(&mut model, [DebuggerAction::First, asked(Ask::Search(Forward), "content:warning")]);
    assert_eq!(model.cursor, 20);
    does(
        &mut model,
        [DebuggerAction::First, asked(Ask::Until(Forward), "failed"), asked(Ask::Until(Forward), "failed")],
    );
    assert_eq!(model.cursor, 20);
}

#[test]
fn detail_shows_terminal_text() {
    let (sessions, session) = fixture::story();
    fixture::command(&session, "\x1b[1mone\x1b[0m\r\n10 %\r20 %\r\n\x1b]0;title\x07end", "", 0);
    let mut commit = session.commit().of_call(foldspace::store::CallLink::Of(19));
    let cast = foldspace::event::Digest::of(b"");
    let recorded = foldspace::event::TerminalRecorded { rows: 24, columns: 80, cast, bytes: 0, truncated: false };
    commit.push(&recorded).unwrap();
    session.record(commit).unwrap();
    let mut model = fixture::model(&sessions, &session, 19);
    does(&mut model, [DebuggerAction::Tab(Tab::Output)]);
    let played = "on a terminal of 80x24; `foldspace show --play` plays it";
    assert_eq!(detail(&model), format!("$ make\n  one\n  20 %\n  end\n{played}\nexit 0 in 1.5 ms"));
}

#[test]
fn step_over_large_call_runs_in_background() {
    let (sessions, session) = fixture::story();
    fixture::long_call(&session, 12_000);
    let write = serde_json::json!({ "file_path": "last.txt", "content": "" });
    let tools = fixture::write(&session, &write);
    // The long call is recorded as interrupted first.
    assert_eq!(tools, 18 + 12_001 + 2);
    let mut model = fixture::model(&sessions, &session, 19);
    model.apply(DebuggerAction::Line(Forward));
    assert_eq!(model.cursor, 19, "too far for the thread of the keys");
    model.settle();
    assert_eq!(model.cursor, tools);
    does(&mut model, [DebuggerAction::Line(Back)]);
    assert_eq!(model.cursor, 19);
}

#[test]
fn background_search_can_be_stopped() {
    let mut model = at(1);
    model.apply(asked(Ask::Search(Forward), "zwei"));
    let errand = model.next_errand().unwrap();
    assert!(model.seeking().is_some());
    model.apply(DebuggerAction::Escape);
    assert_eq!(said(&model), "stopped");
    model.take(errand.run());
    assert_eq!(model.cursor, 1);
    let look = {
        model.apply(DebuggerAction::Line(Forward));
        model.next_errand().unwrap()
    };
    model.apply(DebuggerAction::Line(Forward));
    let newer = model.next_errand().unwrap();
    model.take(look.run());
    assert_eq!(model.sight.as_ref().map(|sight| sight.step.cursor), Some(1), "it is of another row");
    model.take(newer.run());
    assert_eq!(model.sight.as_ref().map(|sight| sight.step.cursor), Some(5));
}

#[test]
fn cursor_enters_child_and_returns() {
    let (sessions, session) = fixture::story();
    let child = foldspace::ForkOptions { name: Some("kid".to_owned()), ..foldspace::ForkOptions::fork_at(9) };
    sessions.child_of(&session, child).unwrap();
    let mut model = fixture::model(&sessions, &session, 19);
    assert_eq!(model.window.lanes.last().map(String::as_str), Some("+kid"));
    does(&mut model, [DebuggerAction::Enter]);
    assert_eq!((model.past.name(), model.cursor, model.is_visiting()), ("kid", 10, true));
    does(&mut model, [DebuggerAction::Leave]);
    assert_eq!((model.past.name(), model.cursor, model.is_visiting()), ("story", 19, false));
}

#[test]
fn reload_shows_new_events() {
    let (sessions, session) = fixture::story();
    let mut model = fixture::model(&sessions, &session, 16);
    fixture::write(&session, &serde_json::json!({ "file_path": "b.txt", "content": "b" }));
    assert_eq!(rows(&model).last(), Some(&16));
    does(&mut model, [DebuggerAction::Refresh]);
    assert_eq!(rows(&model).last(), Some(&19));
}

#[test]
fn tree_of_thousands_of_levels_is_cut() {
    let (sessions, session) = fixture::story();
    let at = fixture::deep(&session, 4000);
    let mut model = fixture::model(&sessions, &session, at);
    does(&mut model, [DebuggerAction::Tab(Tab::Files)]);
    let shown = detail(&model);
    assert!(shown.contains("... deeper than can be shown"), "{shown}");
    assert_eq!(shown.matches(" d/\n").count(), 65, "{shown}");
    fixture::write(&session, &serde_json::json!({ "file_path": "b.txt", "content": "b" }));
    does(&mut model, [DebuggerAction::Refresh, DebuggerAction::Last]);
    assert!(detail(&model).starts_with("+ "), "{}", detail(&model));
}

#[test]
fn background_search_ends_when_unwanted() {
    let model = at(8);
    let leash = leash::Leash::default();
    leash.cancel();
    for tab in Tab::ALL {
        let look = ViewTarget { tab, ..model.look() };
        assert!(matches!(look.run(&model.past, &leash), Err(Failure::Told { exit: Exit::Interrupted, .. })), "{tab:?}");
    }
    let way = model.rows.next(&model.past, 1, Forward, Some(&leash), |_| true);
    assert!(matches!(way, Err(Failure::Told { exit: Exit::Interrupted, .. })));
}

#[test]
fn call_status_is_shown_only_where_known() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let (sessions, session) = fixture::story();
    fixture::long_call(&session, 12_000);
    fixture::write(&session, &serde_json::json!({ "file_path": "last.txt", "content": "" }));
    fixture::long_call(&session, 3);
    let held = Arc::new(AtomicBool::new(true));
    let find_running: FindRunning = Arc::new({
        let held = Arc::clone(&held);
        move |session| {
            if held.load(Ordering::Relaxed) {
                (session.head().unwrap() - 3..).take(1).collect()
            } else {
                Default::default()
            }
        }
    });
    let end_of = |model: &Model, seq| model.window.rows.iter().find(|row| row.seq == seq).unwrap().end.clone();
    let mut model = fixture::unsettled(&sessions, &session, 19, find_running);
    assert_eq!(end_of(&model, 19), "...", "its end is far");
    model.settle();
    assert!(end_of(&model, 19).starts_with("interrupted"), "{}", end_of(&model, 19));
    let last = model.past.head() - 3;
    does(&mut model, [DebuggerAction::Last]);
    assert_eq!((model.cursor, end_of(&model, last)), (last, "running".to_owned()));
    held.store(false, Ordering::Relaxed);
    does(&mut model, [DebuggerAction::Refresh]);
    assert_eq!(end_of(&model, last), "interrupted", "no process runs it");
}

#[test]
fn search_text_is_literal() {
    let (sessions, session) = fixture::story();
    let content = format!("echo \"hi\"\n{}needle\n", "long ".repeat(100));
    let written = fixture::write(&session, &serde_json::json!({ "file_path": "c.txt", "content": content }));
    fixture::write(&session, &serde_json::json!({ "file_path": "c.txt", "content": "echo \"ho\"\nend" }));
    let mut model = fixture::model(&sessions, &session, 1);
    for (pattern, found) in [("event:echo \"hi\"", written), ("event:needle", written), ("event:\"ho\"$", written + 3)]
    {
        does(&mut model, [DebuggerAction::First, asked(Ask::Search(Forward), pattern)]);
        assert_eq!(model.cursor, found, "{pattern}");
    }
    does(&mut model, [DebuggerAction::First, asked(Ask::Search(Forward), r"\$content")]);
    assert_eq!((model.cursor, said(&model)), (1, "nothing found up to the end"));
}

#[test]
fn background_work_ends_with_history() {
    let (sessions, session) = fixture::story();
    let child = foldspace::ForkOptions { name: Some("kid".to_owned()), ..foldspace::ForkOptions::fork_at(14) };
    sessions.child_of(&session, child).unwrap();
    let mut model = fixture::model(&sessions, &session, 19);
    model.apply(asked(Ask::Search(Back), "path:a.txt"));
    let errand = model.next_errand().unwrap();
    model.apply(DebuggerAction::Enter);
    assert_eq!((model.past.name(), model.cursor, model.sight.is_none()), ("kid", 15, true));
    model.take(errand.run());
    assert_eq!(model.cursor, 15, "it looked in the parent");
    model.settle();
    let look = {
        model.apply(DebuggerAction::Refresh);
        model.next_errand().unwrap()
    };
    model.apply(DebuggerAction::Leave);
    model.take(look.run());
    assert!(model.sight.is_none(), "it is of the child");
    model.settle();
    assert_eq!((model.past.name(), model.sight.as_ref().map(|sight| sight.step.cursor)), ("story", Some(19)));
}

#[test]
fn predicate_is_found_far_back() {
    let (sessions, session) = fixture::story();
    fixture::long_call(&session, 3000);
    let mut model = fixture::model(&sessions, &session, 1);
    for (condition, stop) in [("Usage.calls >= 7", 19), ("Usage.calls >= 2", 5)] {
        does(&mut model, [DebuggerAction::Last, asked(Ask::Jump, "-1"), asked(Ask::Until(Back), condition)]);
        assert_eq!(model.cursor, stop, "{condition}");
    }
}
