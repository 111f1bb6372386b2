//! The event loop of the debugger.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossterm::clipboard::CopyToClipboard;
use crossterm::cursor::Show;
use crossterm::event::{self, DisableBracketedPaste, EnableBracketedPaste, Event};
use crossterm::execute;
use crossterm::terminal::{Clear, ClearType};
use foldspace::Seq;
use ratatui::DefaultTerminal;
use rustix::event::{PollFd, PollFlags, Timespec};
use tui_input::InputRequest;

use super::draw::{Styles, draw, heights, pointed};
use super::keys;
use super::model::{DebuggerAction, Model, OutsideCommand, OutsideRequest};
use super::picker::{Picked, Picker};
use super::worker::Worker;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::style::Tone;

const BUSY: Duration = Duration::from_millis(10);
const IDLE: Duration = Duration::from_millis(200);
/// Interval between checks for new events.
const FOLLOWS: Duration = Duration::from_secs(1);
const KEYS_MAX: usize = 64;

/// Actions outside of the debugger, which is read-only itself.
pub(crate) trait DebuggerHost {
    /// Returns the shell command line of a command.
    fn command_line(&self, command: &OutsideCommand) -> Result<String, Failure>;

    /// Shows a command, runs it if the person agrees, and waits until they return.
    fn run_command(&mut self, command: &OutsideCommand) -> Result<String, Failure>;

    /// Opens a shell in a throw-away copy and waits until it ends.
    fn shell_here(&mut self, session: &str, at: Seq) -> Result<String, Failure>;
}

/// The terminal while the debugger uses it. A panic restores it before printing its message.
struct RawTerminal(DefaultTerminal);

impl Drop for RawTerminal {
    fn drop(&mut self) {
        restore();
    }
}

fn enter() -> io::Result<DefaultTerminal> {
    let entered = ratatui::try_init();
    let pasting = |terminal| execute!(io::stdout(), EnableBracketedPaste).map(|()| terminal);
    entered.and_then(pasting).inspect_err(|_| restore())
}

/// Enables presses and the wheel, in the encoding for large screens, but not movements, as crossterm would.
const MOUSE_ON: &[u8] = b"\x1b[?1000h\x1b[?1006h";
const MOUSE_OFF: &[u8] = b"\x1b[?1006l\x1b[?1000l";

fn set_mouse(on: bool) -> io::Result<()> {
    let mut out = io::stdout();
    out.write_all(if on { MOUSE_ON } else { MOUSE_OFF })?;
    out.flush()
}

/// Restores the terminal; idempotent.
fn restore() {
    // Without a terminal there is nothing to restore.
    let _ = set_mouse(false);
    let _ = execute!(io::stdout(), DisableBracketedPaste, Show);
    let _ = ratatui::try_restore();
}

pub(crate) fn run(
    mut model: Model,
    colour: bool,
    outside: &mut dyn DebuggerHost,
    told: &AtomicBool,
) -> io::Result<Exit> {
    let worker = Worker::start()?;
    let styles = Styles { colour };
    let mut held = RawTerminal(enter()?);
    let (mut has_more, mut has_mouse, mut silent) = (false, false, Duration::ZERO);
    loop {
        if has_mouse != model.mouse {
            set_mouse(model.mouse)?;
            has_mouse = model.mouse;
        }
        fit(&mut model, &held.0)?;
        while let Some(errand) = model.next_errand() {
            worker.send(errand)?;
        }
        held.0.draw(|frame| draw(frame, &model, styles))?;
        let patience = if model.is_busy() { BUSY } else { IDLE };
        has_more = match Input::wait_for(if has_more { Duration::ZERO } else { patience })? {
            Input::Gone => return Ok(Exit::Interrupted),
            Input::Silent if !has_more => {
                silent += patience;
                if silent >= FOLLOWS {
                    silent = Duration::ZERO;
                    follow(&mut model);
                }
                false
            }
            Input::Silent | Input::Waiting => take_keys(&mut model, &held.0)?,
        };
        while let Some(done) = worker.take()? {
            model.take(done);
        }
        while let Some(wish) = model.take_wish() {
            if wish == OutsideRequest::Quit {
                return Ok(Exit::Ok);
            }
            has_mouse &= !fulfil(wish, &mut model, &mut held, outside)?;
        }
        if told.load(Ordering::Relaxed) {
            return Ok(Exit::Interrupted);
        }
    }
}

/// The state of the terminal's input. It is polled before crossterm, which reads from a closed terminal forever.
enum Input {
    Waiting,
    Silent,
    Gone,
}

impl Input {
    fn wait_for(patience: Duration) -> io::Result<Self> {
        // It was a terminal at the start, so a hang-up means that it is gone.
        let input = io::stdin();
        let mut asked = [PollFd::new(&input, PollFlags::IN)];
        let patience = Timespec::try_from(patience).map_err(io::Error::other)?;
        match rustix::event::poll(&mut asked, Some(&patience)) {
            Ok(_) if asked[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) => Ok(Self::Gone),
            Ok(_) if asked[0].revents().contains(PollFlags::IN) => Ok(Self::Waiting),
            // A signal: the size has changed, or the debugger has to end.
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(Self::Silent),
            Err(error) => Err(error.into()),
        }
    }
}

fn follow(model: &mut Model) {
    if let Err(trouble) = model.follow() {
        model.tell(Tone::Bad, trouble.to_string());
    }
}

fn fit(model: &mut Model, terminal: &DefaultTerminal) -> io::Result<()> {
    let size = terminal.size()?;
    let heights = heights(model, size.width, size.height);
    if heights != model.heights {
        model.apply(DebuggerAction::Resize(heights));
    }
    Ok(())
}

fn take_keys(model: &mut Model, terminal: &DefaultTerminal) -> io::Result<bool> {
    for _ in 0..KEYS_MAX {
        if !event::poll(Duration::ZERO)? {
            return Ok(false);
        }
        match event::read()? {
            Event::Key(key) => {
                if let Some(action) = keys::action(key, model) {
                    model.apply(action);
                }
            }
            // Pasted text is not keys: it can only be an answer.
            Event::Paste(text) => {
                let printable = text.chars().filter(|c| !c.is_control()).take(1000);
                printable.for_each(|c| model.apply(DebuggerAction::Type(InputRequest::InsertChar(c))));
            }
            Event::Mouse(mouse) => {
                let size = terminal.size()?;
                if let Some(action) = pointed(mouse, model, size.width, size.height) {
                    model.apply(action);
                }
            }
            // The mouse is over something else now.
            Event::Resize(..) => return Ok(true),
            Event::FocusGained | Event::FocusLost => {}
        }
    }
    Ok(true)
}

/// Fulfils a request; returns true if it left the terminal.
fn fulfil(
    wish: OutsideRequest,
    model: &mut Model,
    held: &mut RawTerminal,
    outside: &mut dyn DebuggerHost,
) -> io::Result<bool> {
    let leaves = matches!(wish, OutsideRequest::Run(_) | OutsideRequest::Shell { .. });
    if leaves {
        restore();
    }
    let done = match wish {
        OutsideRequest::Quit => return Ok(false),
        OutsideRequest::Copy(text) => copy(text).map(Ok)?,
        OutsideRequest::CopyCommand(command) => match outside.command_line(&command) {
            Ok(line) => copy(line).map(Ok)?,
            Err(failure) => Err(failure),
        },
        OutsideRequest::Run(command) => outside.run_command(&command),
        OutsideRequest::Shell { session, at } => outside.shell_here(&session, at),
    };
    if leaves {
        held.0 = enter()?;
        // Not `clear`, which asks for the cursor's position: not every terminal answers.
        execute!(io::stdout(), Clear(ClearType::All))?;
        // The command may have added events.
        model.apply(DebuggerAction::Refresh);
    }
    match done {
        Ok(words) => model.tell(Tone::Good, words),
        Err(failure) => model.tell(Tone::Bad, failure.to_string()),
    }
    Ok(leaves)
}

fn copy(text: String) -> io::Result<String> {
    // Terminals without a clipboard ignore it; the message has the text too.
    execute!(io::stdout(), CopyToClipboard::to_clipboard_from(&text))?;
    Ok(format!("copied: {text}"))
}

/// Lets the person choose a row; `None` if they leave.
pub(crate) fn pick(mut picker: Picker, colour: bool, told: &AtomicBool) -> io::Result<Option<usize>> {
    let mut held = RawTerminal(enter()?);
    set_mouse(true)?;
    while !told.load(Ordering::Relaxed) {
        let size = held.0.size()?;
        picker.fit(size.height);
        held.0.draw(|frame| picker.draw(frame, Styles { colour }))?;
        match Input::wait_for(IDLE)? {
            Input::Gone => return Ok(None),
            Input::Silent | Input::Waiting => {}
        }
        while event::poll(Duration::ZERO)? {
            match picker.take(&event::read()?, size.height) {
                Some(Picked::Row(row)) => return Ok(Some(row)),
                Some(Picked::Nothing) => return Ok(None),
                None => {}
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    use foldspace::Seq;
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

    use super::*;
    use crate::tui::fixture;

    /// Set if this test is the program at the terminal, not its observer.
    const INNER: &str = "FOLDSPACE_TEST_PANICS";

    struct Panics;

    impl DebuggerHost for Panics {
        fn command_line(&self, _: &OutsideCommand) -> Result<String, Failure> {
            panic!("as this test wants it");
        }

        fn run_command(&mut self, _: &OutsideCommand) -> Result<String, Failure> {
            Err(Failure::failed("there is none"))
        }

        fn shell_here(&mut self, _: &str, _: Seq) -> Result<String, Failure> {
            Err(Failure::failed("there is none"))
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a terminal is a file, and the test is its program")]
    fn screen_panic_restores_terminal_before_message() {
        if std::env::var_os(INNER).is_some() {
            let (sessions, session) = fixture::story();
            let model = fixture::model(&sessions, &session, 1);
            drop(run(model, false, &mut Panics, &AtomicBool::new(false)));
            return;
        }
        let keys = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&keys).unwrap();
        unlockpt(&keys).unwrap();
        tcsetwinsize(&keys, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let path = ptsname(&keys, Vec::new()).unwrap().into_string().unwrap();
        let open = || File::options().read(true).write(true).open(&path).unwrap();
        let side = open();
        let name = "tui::screen::tests::screen_panic_restores_terminal_before_message";
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", name, "--nocapture"]).env(INNER, "1").env("TERM", "xterm");
        let mut child =
            command.stdin(Stdio::from(open())).stdout(Stdio::from(open())).stderr(Stdio::from(open())).spawn().unwrap();
        drop(command);
        let (mut keys, mut shown, mut typed) = (File::from(keys), String::new(), false);
        let mut buffer = [0; 4096];
        while !shown.contains("as this test wants it") {
            let read = keys.read(&mut buffer).unwrap();
            shown.push_str(&String::from_utf8_lossy(&buffer[..read]));
            if !typed && shown.contains("\u{1b}[?1049h") {
                keys.write_all(b"ac").unwrap();
                typed = true;
            }
        }
        let left = shown.find("\u{1b}[?1049l").expect("the alternate screen is left first");
        assert!(left < shown.find("panicked at").unwrap(), "{shown}");
        let modes = tcgetattr(&side).unwrap().local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO));
        // A writer to a terminal without a reader may block.
        std::thread::spawn(move || while let Ok(1..) = keys.read(&mut buffer) {});
        assert!(!child.wait().unwrap().success());
    }
}
