//! A prompt in a throw-away copy of a workspace at a position, and the directory of such copies.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use foldspace::backends::{ShellCommand, unwatched};
use foldspace::tools::{CommandPolicy, Probe, ShellRules};
use foldspace::{EntryPath, Seq, Session};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::exec::TOOK_TOO_LONG;
use super::interrupt::{closing, minding};
use super::prompt::{LinePrompt, PromptRun, Typed};
use super::{Exit, Failure, Globals, Signals, live, open, output, text, workspace};

/// Opens a prompt in a throw-away copy of the workspace as it was at a position.
pub(super) fn shell_at(globals: &Globals, session: &Session, seq: Seq, timeout: Option<f64>) -> Result<Exit, Failure> {
    let (spec, home) = (workspace::spec_for_copy(globals, session)?, Home::of(globals)?);
    let policy = CommandPolicy::typed();
    let rules = ShellRules { policy, ..ShellRules::default() };
    let mut probe = Probe::open(session, &session.state_at(seq)?, &spec, home.path(), rules)?;
    let left_out = probe.left_out();
    if !left_out.is_empty() {
        let count = text::count(left_out.len() as u64, "entry");
        output::note(&format!("failed to recreate {count}, such as {}", left_out[0].rooted()));
    }
    if output::can_ask() {
        output::note("this is a copy: nothing is recorded, and it is gone when you leave (exit, or Ctrl-D)");
    }
    let title = format!("{}@{seq}", text::one_line(session.name(), 80));
    let prompt = LinePrompt::new(title, probe.root(), EntryPath::root(), home.path());
    super::block_on(prompt.read_lines(async move |typed, signals| run(&mut probe, typed, timeout, signals).await))?
}

/// The directory of throw-away workspaces. Normally the data directory, where `gc` removes the remains of a killed
/// process; for a user who can only read the data, a temporary directory that is removed on drop.
pub(super) enum Home {
    OfData(PathBuf),
    Fresh(TempDir),
}

impl Home {
    pub(super) fn of(globals: &Globals) -> Result<Self, Failure> {
        let path = open::existing(globals)?;
        if rustix::fs::access(&path, rustix::fs::Access::WRITE_OK).is_ok() {
            return Ok(Self::OfData(path));
        }
        let mut fresh = tempfile::Builder::new();
        let fresh = fresh.prefix("foldspace-").permissions(Permissions::from_mode(0o700)).tempdir();
        fresh.map(Self::Fresh).map_err(|error| Failure::io("make", "a directory for probes", &error))
    }

    pub(super) fn path(&self) -> &Path {
        match self {
            Self::OfData(path) => path,
            Self::Fresh(directory) => directory.path(),
        }
    }
}

async fn run(
    probe: &mut Probe,
    typed: Typed<'_>,
    timeout: Option<f64>,
    signals: &mut Signals,
) -> Result<PromptRun, Failure> {
    let Some(workspace) = probe.workspace().cloned() else {
        return Ok(PromptRun::wrong(1, "this session can't run commands"));
    };
    let timeout = timeout.map(Duration::from_secs_f64);
    let mut command = ShellCommand { cwd: typed.cwd.clone(), timeout, ..ShellCommand::shell(typed.command) };
    command.is_unlimited = true;
    // A closed output is not a failure.
    let shown = |stream, bytes: &[u8]| drop(live::write(stream, bytes));
    let watch = if typed.quiet { unwatched() } else { Arc::new(shown) };
    let cancel = CancellationToken::new();
    let work = probe.run(command, watch, cancel.clone());
    let result = match minding(signals, &cancel, closing(&workspace), work).await {
        Ok(result) => result,
        Err(error) => return Ok(PromptRun::wrong(1, error.to_string())),
    };
    let code = i64::from(result.exit_code);
    Ok(match (result.timed_out, result.cancelled) {
        (true, _) => PromptRun::wrong(code, TOOK_TOO_LONG),
        (_, true) => PromptRun::wrong(code, "interrupted"),
        _ if typed.quiet && code != 0 => {
            PromptRun::wrong(code, String::from_utf8_lossy(&result.stderr.kept).trim_end())
        }
        _ => PromptRun { code, printed: result.stdout.kept.to_vec(), complaint: None },
    })
}
