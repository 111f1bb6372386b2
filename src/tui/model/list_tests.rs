//! Tests of the filter, of menus, of questions and of the mouse.

use super::*;
use crate::tui::fixture;

use Direction::{Back, Forward};

/// Returns the story with a failed command in a call without an outcome.
fn at(seq: Seq) -> Model {
    let (sessions, session) = fixture::story();
    fixture::command(&session, "built\n", "warning\n", 2);
    fixture::model(&sessions, &session, seq)
}

fn does(model: &mut Model, actions: impl IntoIterator<Item = DebuggerAction>) {
    for action in actions {
        model.apply(action);
        model.settle();
    }
}

fn only(text: &str) -> DebuggerAction {
    DebuggerAction::Answer(Ask::Filter, text.to_owned())
}

fn typed(text: &str) -> impl Iterator<Item = DebuggerAction> {
    text.chars().map(|c| DebuggerAction::Type(tui_input::InputRequest::InsertChar(c)))
}

fn said(model: &Model) -> &str {
    model.message.as_ref().map_or("", |(_, words)| words.as_str())
}

fn rows(model: &Model) -> Vec<Seq> {
    model.window.rows.iter().map(|row| row.seq).collect()
}

#[test]
fn filter_lists_calls_by_what_they_did() {
    for (filter, listed) in [
        ("failed", &[11, 19][..]),
        ("commands", &[19]),
        ("writes", &[2, 5, 8, 13, 16]),
        ("reads", &[11]),
        ("tool rm", &[13]),
        ("agent tidy", &[11, 13]),
        ("path *.txt", &[2, 8, 13, 16]),
        ("/zwei/", &[8]),
    ] {
        let mut model = at(1);
        does(&mut model, [only(filter)]);
        assert_eq!((rows(&model), model.cursor), (listed.to_vec(), listed[0]), "{filter}");
    }
    for wrong in ["nonsense", "tool", "path ", "/(/", "failed now", "//", "Usage.calls > 1", "path ["] {
        let mut model = at(1);
        does(&mut model, [only(wrong)]);
        assert!(matches!(model.message, Some((Tone::Bad, _))), "{wrong}: {}", said(&model));
        assert_eq!(rows(&model).len(), 8, "{wrong}");
    }
}

#[test]
fn filter_keeps_the_cursor_on_its_rows() {
    let mut model = at(13);
    does(&mut model, [only("failed")]);
    assert_eq!(model.cursor, 19, "the next one");
    does(&mut model, [DebuggerAction::First, DebuggerAction::Event(Forward)]);
    assert_eq!((model.cursor, rows(&model)), (12, vec![11, 12, 19]), "into the call");
    does(&mut model, [DebuggerAction::Event(Forward)]);
    assert_eq!(model.cursor, 19, "what is hidden is stepped over");
    does(&mut model, [DebuggerAction::Event(Back), DebuggerAction::Line(Back), DebuggerAction::Line(Back)]);
    assert_eq!((model.cursor, said(&model)), (11, "nothing before: this is the first"));
    does(&mut model, [DebuggerAction::Page(Forward)]);
    assert_eq!(model.cursor, 19);
    does(&mut model, [DebuggerAction::FoldAll, DebuggerAction::Line(Forward)]);
    assert_eq!(rows(&model), [11, 12, 19, 20]);
    does(&mut model, [only("tool nope")]);
    assert_eq!(said(&model), "no row matches the filter tool nope; the list is unchanged");
    assert_eq!(rows(&model), [11, 12, 19, 20]);
}

#[test]
fn filter_bounds_searches_and_goes_where_they_must() {
    let mut model = at(1);
    let search = DebuggerAction::Answer(Ask::Search(Forward), "event:txt".to_owned());
    does(&mut model, [only("agent tidy"), search, DebuggerAction::Again(Forward)]);
    assert_eq!(model.cursor, 13, "and not 2, 8 or 16");
    does(&mut model, [DebuggerAction::Again(Forward), DebuggerAction::Again(Forward), DebuggerAction::Again(Forward)]);
    assert_eq!(said(&model), "nothing found up to the end; Esc shows the hidden rows");
    does(&mut model, [DebuggerAction::Answer(Ask::Until(Back), "tool edit_file".to_owned())]);
    assert_eq!((model.cursor, said(&model)), (8, "stopped at 8: tool edit_file; all rows are shown again"));
    assert_eq!(rows(&model).len(), 8);
    does(&mut model, [only("failed"), DebuggerAction::Jump(5)]);
    assert_eq!((model.cursor, rows(&model).len()), (5, 8));
    does(&mut model, [only("failed"), DebuggerAction::Zoom, DebuggerAction::Escape]);
    assert_eq!(rows(&model), [11, 12, 19], "Esc closes one thing after the other");
    does(&mut model, [DebuggerAction::Escape]);
    assert_eq!((rows(&model).len(), said(&model)), (8, "all rows are shown again"));
}

#[test]
fn filter_finds_events_that_have_come() {
    let (sessions, session) = fixture::story();
    let mut model = fixture::model(&sessions, &session, 1);
    does(&mut model, [only("writes")]);
    let written = fixture::write(&session, &serde_json::json!({ "file_path": "b.txt", "content": "b" }));
    does(&mut model, [DebuggerAction::Refresh]);
    assert_eq!((rows(&model).last(), model.cursor), (Some(&written), 2));
}

#[test]
fn filter_of_thousands_of_rows_is_walked() {
    let (sessions, session) = fixture::story();
    fixture::long_call(&session, 12_000);
    let last = fixture::write(&session, &serde_json::json!({ "file_path": "last.txt", "content": "" }));
    let mut model = fixture::model(&sessions, &session, 1);
    does(&mut model, [only("kind deleteentry"), DebuggerAction::Last]);
    assert_eq!(model.cursor, 19 + 12_000);
    does(&mut model, [DebuggerAction::First, DebuggerAction::Line(Forward)]);
    assert_eq!(model.cursor, 20);
    does(&mut model, [DebuggerAction::Enter]);
    assert_eq!((model.cursor, said(&model)), (20, "its call 19 is hidden: Esc shows all rows"));
    does(&mut model, [only("writes"), DebuggerAction::Last, DebuggerAction::Event(Forward)]);
    assert_eq!(model.cursor, last + 1);
    does(&mut model, [DebuggerAction::Line(Back), DebuggerAction::Line(Back)]);
    assert_eq!(model.cursor, 19, "the long call removed files");
}

#[test]
fn question_recalls_earlier_answers() {
    let mut model = at(1);
    let until = DebuggerAction::Ask(Ask::Until(Forward));
    does(&mut model, [until.clone()]);
    does(&mut model, typed("tool edit_file").chain([DebuggerAction::Submit]));
    assert_eq!(model.cursor, 8);
    does(&mut model, [until.clone(), DebuggerAction::Type(tui_input::InputRequest::InsertChar('x'))]);
    does(&mut model, [DebuggerAction::Recall(Back), DebuggerAction::Recall(Back)]);
    assert_eq!(model.prompt.as_ref().unwrap().input.value(), "tool edit_file");
    does(&mut model, [DebuggerAction::Recall(Forward)]);
    assert_eq!(model.prompt.as_ref().unwrap().input.value(), "");
    does(&mut model, [DebuggerAction::First, until, DebuggerAction::Submit]);
    assert_eq!(model.cursor, 8, "Enter alone takes the last one");
    assert!(model.answers(Ask::Compare).next().is_none());
    does(&mut model, [DebuggerAction::Ask(Ask::Compare), DebuggerAction::Submit]);
    assert_eq!((model.tab, model.focus), (Tab::Diff, Focus::Detail), "the difference can be scrolled");
    assert_eq!(model.detail().unwrap().title, "difference 7..10: 1 entry");
}

#[test]
fn menu_offers_what_can_be_done_with_a_row() {
    let mut model = at(8);
    let id = model.past.id().to_string();
    let choose = |model: &mut Model, key| {
        let at = model.menu.as_ref().and_then(|menu| menu.item_of(key)).unwrap();
        does(model, [DebuggerAction::Choose(at)]);
        model.take_wish()
    };
    let open = DebuggerAction::Menu(MenuKind::Row);
    does(&mut model, [open.clone()]);
    let command = |at, verb| OutsideCommand { session: id.clone(), at, verb };
    let rewind = command(10, OutsideVerb::Rewind);
    assert_eq!(choose(&mut model, 'w'), Some(OutsideRequest::Run(rewind)));
    assert!(model.menu.is_none());
    does(&mut model, [DebuggerAction::Event(Forward), open.clone()]);
    let show = command(8, OutsideVerb::Show);
    assert_eq!(choose(&mut model, 'c'), Some(OutsideRequest::CopyCommand(show)), "the call of an event");
    does(&mut model, [open.clone()]);
    assert_eq!((choose(&mut model, 'f'), model.prompt.as_ref().map(|prompt| prompt.ask)), (None, Some(Ask::Fork)));
    does(&mut model, [DebuggerAction::Submit]);
    let fork = command(9, OutsideVerb::Fork { name: None });
    assert_eq!(model.take_wish(), Some(OutsideRequest::Run(fork)), "inside of a call that is open");
    does(&mut model, [DebuggerAction::Jump(19), open.clone()]);
    assert_eq!(choose(&mut model, 's'), Some(OutsideRequest::Copy("make".to_owned())));
    does(&mut model, [open.clone()]);
    assert_eq!((choose(&mut model, 't'), rows(&model)), (None, vec![19]));
    does(&mut model, [open, DebuggerAction::Line(Back), DebuggerAction::Enter]);
    assert!(matches!(model.take_wish(), Some(OutsideRequest::Shell { .. })), "the last item");
    does(&mut model, [DebuggerAction::Menu(MenuKind::Filter)]);
    assert_eq!(choose(&mut model, 't'), None);
    assert_eq!(model.prompt.as_ref().unwrap().input.value(), "tool shell_execute");
    let mut hasty = at(5);
    hasty.apply(DebuggerAction::Line(Forward));
    hasty.apply(DebuggerAction::Rewind);
    let is_right = |wish| matches!(wish, Some(OutsideRequest::Run(OutsideCommand { at: 10, .. })));
    assert!(is_right(hasty.take_wish()), "the call's end is known before the panes are drawn");
    assert_eq!(model.past.refresh().unwrap(), 20, "nothing was recorded");
}

#[test]
fn mouse_selects_opens_and_scrolls() {
    use ScreenPlace::{Item, Line, Pane, Row};
    let mut model = at(1);
    model.apply(DebuggerAction::Resize(Heights { timeline: 4, files: 2, detail: 4, apart: false, columns: 40 }));
    let click = DebuggerAction::Click;
    does(&mut model, [click(Row(1))]);
    assert_eq!(model.cursor, 2);
    does(&mut model, [click(Row(1))]);
    assert_eq!(rows(&model), [1, 2, 3, 4], "the second click opens it");
    let wheel = |place, way| DebuggerAction::Wheel(place, way);
    does(&mut model, [wheel(Row(0), Forward)]);
    assert_eq!((model.cursor, rows(&model)), (2, vec![4, 5, 8, 11]), "the rows scroll, the cursor stays");
    does(&mut model, [wheel(Row(0), Forward), wheel(Row(0), Forward), wheel(Pane(Focus::Timeline), Forward)]);
    assert_eq!(rows(&model), [11, 13, 16, 19], "not beyond the last");
    does(&mut model, [wheel(Row(0), Back)]);
    assert_eq!(rows(&model), [4, 5, 8, 11]);
    does(&mut model, [click(Row(2))]);
    assert_eq!((model.cursor, rows(&model).contains(&8)), (8, true));
    does(&mut model, [wheel(Row(0), Forward), DebuggerAction::Line(Forward)]);
    assert_eq!((model.cursor, rows(&model).contains(&11)), (11, true), "a key leads back to the cursor");
    let files = |line| Line(Focus::Files, line);
    does(&mut model, [click(files(1))]);
    assert_eq!((model.focus, model.file_scroll.line), (Focus::Files, model.file_scroll.top + 1));
    does(&mut model, [wheel(files(0), Back), wheel(files(0), Back), wheel(files(0), Forward)]);
    assert_eq!(model.file_scroll.top, 1, "three lines, of which two are in sight");
    does(&mut model, [click(ScreenPlace::Tab(Tab::Slices)), click(files(50)), click(Pane(Focus::Detail))]);
    assert_eq!((model.tab, model.focus), (Tab::Slices, Focus::Detail));
    does(&mut model, [DebuggerAction::Menu(MenuKind::Filter), wheel(Row(0), Forward), click(Item(0))]);
    assert_eq!(model.rows.filter.as_ref().map(|rows| rows.text().to_owned()).as_deref(), Some("failed"));
    does(&mut model, [DebuggerAction::Menu(MenuKind::Row), click(ScreenPlace::Elsewhere)]);
    assert!(model.menu.is_none() && model.rows.filter.is_some(), "a click next to a menu closes it");
    does(&mut model, [DebuggerAction::Mouse]);
    assert!(!model.mouse);
}
