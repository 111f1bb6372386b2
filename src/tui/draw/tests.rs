use insta::assert_snapshot;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier};

use super::*;
use crate::tui::fixture;
use crate::tui::model::{Ask, DebuggerAction, Direction};

/// A screen after these actions.
fn screen(width: u16, height: u16, colour: bool, actions: &[DebuggerAction]) -> Buffer {
    let (sessions, session) = fixture::story();
    fixture::command(&session, "built\n\u{1b}[31mred\n", "warning\n", 2);
    let mut model = fixture::model(&sessions, &session, 8);
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let fit = |model: &mut Model| {
        let heights = heights(model, width, height);
        model.apply(DebuggerAction::Resize(heights));
        model.settle();
    };
    fit(&mut model);
    for action in actions {
        model.apply(action.clone());
        fit(&mut model);
    }
    terminal.draw(|frame| draw(frame, &model, Styles { colour })).unwrap();
    terminal.backend().buffer().clone()
}

/// The text of a screen; times are the machine's zone's.
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
