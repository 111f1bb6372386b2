use crossterm::event::{KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use insta::assert_snapshot;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier};

use super::*;
use crate::tui::fixture;
use crate::tui::model::{Ask, DebuggerAction, Direction, Focus, MenuKind, ScreenPlace};

/// Returns the screen after these actions.
fn screen(width: u16, height: u16, colour: bool, actions: &[DebuggerAction]) -> Buffer {
    drawn(&model(width, height, actions), width, height, colour)
}

fn model(width: u16, height: u16, actions: &[DebuggerAction]) -> Model {
    let (sessions, session) = fixture::story();
    fixture::command(&session, "built\n\u{1b}[31mred\n", "warning\n", 2);
    let mut model = fixture::model(&sessions, &session, 8);
    act(&mut model, width, height, actions);
    model
}

fn act(model: &mut Model, width: u16, height: u16, actions: &[DebuggerAction]) {
    let fit = |model: &mut Model| {
        let heights = heights(model, width, height);
        model.apply(DebuggerAction::Resize(heights));
        model.settle();
    };
    fit(model);
    for action in actions {
        model.apply(action.clone());
        fit(model);
    }
}

fn drawn(model: &Model, width: u16, height: u16, colour: bool) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, model, Styles { colour })).unwrap();
    terminal.backend().buffer().clone()
}

/// Returns the text of a screen; times are in the machine's time zone.
fn text_of(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width);
    let lines = buffer.content.chunks(width).map(|cells| {
        let line: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
        line.trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn shown(name: &str, buffer: &Buffer) {
    let mut settings = insta::Settings::clone_current();
    settings.add_filter(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}", "YYYY-MM-DD HH:MM:SS.mmm");
    settings.set_prepend_module_to_snapshot(false);
    settings.bind(|| assert_snapshot!(name, text_of(buffer)));
}

fn tab(tab: Tab) -> DebuggerAction {
    DebuggerAction::Tab(tab)
}

#[test]
fn panes_fit_80x24() {
    for pane in Tab::ALL {
        shown(&format!("80x24-{}", pane.name()), &screen(80, 24, true, &[tab(pane)]));
    }
}

#[test]
fn panes_fit_200x50() {
    for pane in [Tab::File, Tab::Slices, Tab::Event] {
        shown(&format!("200x50-{}", pane.name()), &screen(200, 50, true, &[tab(pane)]));
    }
}

#[test]
fn help_prompts_and_hostile_text_are_drawn() {
    shown("80x24-help", &screen(80, 24, true, &[DebuggerAction::Help]));
    let typed = "src".chars().map(|c| DebuggerAction::Type(tui_input::InputRequest::InsertChar(c)));
    let asking: Vec<DebuggerAction> =
        [DebuggerAction::Ask(Ask::Search(Direction::Forward))].into_iter().chain(typed).collect();
    shown("80x24-prompt", &screen(80, 24, true, &asking));
    shown(
        "80x24-wrong",
        &screen(80, 24, true, &[DebuggerAction::Answer(Ask::Until(Direction::Forward), "what".to_owned())]),
    );
    shown("80x24-menu", &screen(80, 24, true, &[DebuggerAction::Menu(MenuKind::Row)]));
    let failed = DebuggerAction::Answer(Ask::Filter, "failed".to_owned());
    shown("80x24-filter", &screen(80, 24, true, &[failed, DebuggerAction::Menu(MenuKind::Filter)]));
    shown("80x24-hostile", &screen(80, 24, true, &[DebuggerAction::Jump(17), tab(Tab::File)]));
    let output = screen(80, 24, true, &[DebuggerAction::Last, tab(Tab::Output)]);
    assert!(text_of(&output).contains("\\x1b[31mred"), "{}", text_of(&output));
}

#[test]
fn drawing_has_no_terminal_control() {
    for pane in Tab::ALL {
        for seq in [16, 17, 18, 20] {
            let buffer = screen(80, 24, true, &[DebuggerAction::Jump(seq), tab(pane)]);
            let control =
                buffer.content.iter().find(|cell| cell.symbol().chars().any(|c| c.is_control() || c == '\u{202e}'));
            assert!(control.is_none(), "{control:?} at {seq} in {pane:?}");
        }
    }
}

#[test]
fn drawing_without_colour_shows_everything() {
    for pane in Tab::ALL {
        let (with, without) = (screen(80, 24, true, &[tab(pane)]), screen(80, 24, false, &[tab(pane)]));
        assert_eq!(text_of(&with), text_of(&without));
        let coloured =
            |buffer: &Buffer| buffer.content.iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset);
        assert!(coloured(&with) && !coloured(&without), "{pane:?}");
        let modifiers = |buffer: &Buffer| buffer.content.iter().map(|cell| cell.modifier).collect::<Vec<Modifier>>();
        assert_eq!(modifiers(&with), modifiers(&without), "what is chosen is reversed or bold in both");
    }
    let text = text_of(&screen(80, 24, false, &[tab(Tab::File)]));
    assert!(text.contains("\n -two") && text.contains("\n +zwei"), "{text}");
}

#[test]
fn drawing_on_small_terminal_says_so() {
    let text = text_of(&screen(30, 8, true, &[]));
    assert!(text.contains("30x8 is too small"), "{text}");
    for (width, height) in [(1, 1), (39, 24), (40, 10), (41, 11), (139, 10), (140, 10), (400, 120)] {
        for actions in
            [&[][..], &[DebuggerAction::Zoom], &[DebuggerAction::Help], &[tab(Tab::Slices), DebuggerAction::Zoom]]
        {
            let buffer = screen(width, height, true, actions);
            assert_eq!((buffer.area.width, buffer.area.height), (width, height));
        }
    }
}

#[test]
fn status_is_whole_where_the_text_is_cut() {
    let (sessions, session) = fixture::story();
    let path = "directory/".repeat(15);
    for name in ["a", "\u{6f22}\u{5b57}"] {
        let json = serde_json::json!({ "file_path": format!("{path}{name}"), "content": "" });
        fixture::write(&session, &json);
    }
    fixture::command(&session, "", "", 0);
    for (width, height) in [(40, 10), (80, 24), (120, 40), (139, 24), (140, 24), (200, 50), (400, 60)] {
        let mut model = fixture::model(&sessions, &session, 1);
        act(&mut model, width, height, &[DebuggerAction::Last]);
        let text = text_of(&drawn(&model, width, height, true));
        for row in model.window.rows.iter().filter(|row| row.open.is_some()) {
            let line = text.lines().skip(2).find(|line| line.contains(&format!(" {} ", row.seq))).unwrap();
            assert!(line.contains(&format!(" [{}]", row.end)), "{width}x{height}: {line}");
            let is_cut = row.text.len() > 100 && width < 300;
            let has_ellipsis = line.split(" [").next().is_some_and(|text| text.contains('\u{2026}'));
            assert!(width < 80 || has_ellipsis == is_cut, "{width}x{height}: {line}");
        }
    }
}

#[test]
fn timeline_has_the_width_that_its_rows_need() {
    let rows = |width, height| {
        let model = model(width, height, &[]);
        let areas = Areas::of(&model, Rect::new(0, 0, width, height));
        (areas.timeline.width, areas.timeline.height, areas.files.width)
    };
    assert_eq!(rows(80, 24), (80, 11, 80), "ten rows");
    assert_eq!(rows(120, 40), (120, 19, 120));
    assert_eq!(rows(200, 50), (51, 48, 49), "what the widest event needs, and no more");
}

#[test]
fn chosen_row_is_inverted_over_its_width() {
    for (width, height) in [(80, 24), (200, 50)] {
        let model = model(width, height, &[]);
        let buffer = drawn(&model, width, height, true);
        let areas = Areas::of(&model, Rect::new(0, 0, width, height));
        let line = |at: usize| {
            let y = areas.timeline.y + 1 + u16::try_from(at).unwrap();
            (areas.timeline.left()..areas.timeline.right()).map(move |x| (x, y))
        };
        for (at, row) in model.window.rows.iter().enumerate() {
            let inverted = line(at).filter(|place| buffer[*place].modifier.contains(Modifier::REVERSED)).count();
            let wanted = if row.seq == model.cursor { usize::from(areas.timeline.width) } else { 0 };
            assert_eq!(inverted, wanted, "row {}", row.seq);
            let is_bold = |sign: &str| {
                line(at).any(|at| buffer[at].symbol() == sign && buffer[at].modifier.contains(Modifier::BOLD))
            };
            assert_eq!(is_bold("]"), matches!(row.seq, 11 | 19), "what went wrong stands out: {}", row.seq);
        }
        let title = |x| &buffer[(x, areas.timeline.y)];
        assert!((0..20).all(|x| title(x).fg != Color::Blue && title(x).modifier.contains(Modifier::BOLD)));
    }
}

#[test]
fn mouse_finds_what_is_beneath() {
    let at = |model: &Model, width, height, column, row| {
        let kind = MouseEventKind::Down(MouseButton::Left);
        let event = MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE };
        match pointed(event, model, width, height) {
            Some(DebuggerAction::Click(place)) => Some(place),
            other => panic!("{other:?}"),
        }
    };
    let small = model(80, 24, &[]);
    let found = |column, row| at(&small, 80, 24, column, row).unwrap();
    assert_eq!([found(3, 0), found(3, 23)], [ScreenPlace::Elsewhere; 2], "the title and the last line");
    assert_eq!([found(9, 1), found(9, 10)], [ScreenPlace::Pane(Focus::Timeline); 2], "its title, and below its rows");
    assert_eq!([found(0, 2), found(79, 9)], [ScreenPlace::Row(0), ScreenPlace::Row(7)]);
    let tabs = [0, 8, 9, 16, 17, 53].map(|column| found(column, 12));
    let names = [Tab::Files, Tab::Files, Tab::File, Tab::File, Tab::Slices, Tab::Diff].map(ScreenPlace::Tab);
    assert_eq!(tabs, names);
    assert_eq!([found(70, 12), found(5, 13)], [ScreenPlace::Elsewhere, ScreenPlace::Pane(Focus::Files)]);
    assert_eq!(found(5, 15), ScreenPlace::Line(Focus::Files, 1));
    let menu = model(80, 24, &[DebuggerAction::Menu(MenuKind::Row)]);
    let items: Vec<_> = (0..24).filter_map(|row| at(&menu, 80, 24, 40, row)).collect();
    let count = menu.menu.as_ref().unwrap().items.len();
    assert_eq!(items.iter().filter(|place| matches!(place, ScreenPlace::Item(_))).count(), count);
    let wide = model(200, 50, &[]);
    let found = |column| at(&wide, 200, 50, column, 5).unwrap();
    let lines = [Focus::Files, Focus::Detail].map(|focus| ScreenPlace::Line(focus, 3));
    assert_eq!(
        [found(10), found(60), found(199)],
        [ScreenPlace::Row(3), lines[0], ScreenPlace::Line(Focus::Detail, 2)]
    );
    let scrolled = MouseEvent { kind: MouseEventKind::ScrollUp, column: 0, row: 3, modifiers: KeyModifiers::NONE };
    let wheel = DebuggerAction::Wheel(ScreenPlace::Row(1), Direction::Back);
    assert_eq!(pointed(scrolled, &small, 80, 24), Some(wheel));
    assert_eq!(pointed(scrolled, &small, 20, 5), None, "too small for anything");
}

#[test]
fn help_fits_80_columns() {
    for (keys, words) in HELP {
        assert!(keys.len() <= 16 && words.trim_start().chars().count() <= 60, "{keys} {words}");
    }
}
