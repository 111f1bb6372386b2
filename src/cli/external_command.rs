//! A prompt into a throw-away copy of a workspace as it was, and the directory of such copies.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use foldspace::backends::{ShellCommand, unwatched};
use foldspace::tools::{CommandPolicy, Probe};
use foldspace::{Seq, Session};
use tokio_util::sync::CancellationToken;

use super::interrupt::minding;
use super::prompt::{LinePrompt, PromptRun, PromptTarget, Typed};
use super::{Exit, Failure, Globals, Signals, live, open, output, text, workspace};

/// Opens a prompt into a throw-away copy of the workspace as it was at a position.
pub(super) fn shell_at(globals: &Globals, session: &Session, seq: Seq) -> Result<Exit, Failure> {
    let (spec, home) = (workspace::spec_of(session)?, Home::of(globals)?);
    let policy = CommandPolicy { auto_confirm: true, ..CommandPolicy::default() };
    let probe = Probe::open(session, &session.state_at(seq)?, &spec, home.path(), policy)?;
    let left_out = probe.left_out();
    if !left_out.is_empty() {
        let count = text::count(left_out.len() as u64, "entry");
        output::note(&format!("{count} of then could not be made again, such as {}", left_out[0].rooted()));
    }
    if output::can_ask() {
        output::note("this is a copy: nothing is recorded, and it is gone when you leave (exit, or Ctrl-D)");
    }
    let title = format!("{}@{seq}", text::one_line(session.name(), 80));
    super::block_on(LinePrompt::new(CopiedText { probe, title }).read_lines())?
}

/// The directory of throw-away workspaces: that of the data, where `gc` finds those of a killed process; a fresh
/// temporary one, removed on drop, for a user who can only read the data.
pub(super) struct Home {
    path: PathBuf,
    is_fresh: bool,
}

impl Home {
    pub(super) fn of(globals: &Globals) -> Result<Self, Failure> {
        let path = open::existing(globals)?;
        match rustix::fs::access(&path, rustix::fs::Access::WRITE_OK) {
            Ok(()) => Ok(Self { path, is_fresh: false }),
            Err(_) => Self::fresh(&std::env::temp_dir()),
        }
    }

    /// Other users can create directories there, so an existing one is refused.
    #[expect(clippy::disallowed_methods, reason = "a face makes the directory of its probes")]
    fn fresh(below: &Path) -> Result<Self, Failure> {
        let mut name = [0; 16];
        let failed = |error: &io::Error| Failure::io("make", "a directory for probes", error);
        getrandom::fill(&mut name).map_err(|error| failed(&io::Error::other(error)))?;
        let path = below.join(format!("foldspace-{:032x}", u128::from_be_bytes(name)));
        std::fs::DirBuilder::new().mode(0o700).create(&path).map_err(|error| failed(&error))?;
        Ok(Self { path, is_fresh: true })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Home {
    #[expect(clippy::disallowed_methods, reason = "the program removes what it made")]
    fn drop(&mut self) {
        if self.is_fresh
            && let Err(error) = std::fs::remove_dir_all(&self.path)
        {
            tracing::warn!(%error, directory = %self.path.display(), "the probes' directory could not be removed");
        }
    }
}

struct CopiedText {
    probe: Probe,
    title: String,
}

impl PromptTarget for CopiedText {
    fn title(&self) -> String {
        self.title.clone()
    }

    fn root(&self) -> Option<String> {
        self.probe.root()
    }

    async fn run(&mut self, typed: Typed<'_>, signals: &mut Signals) -> Result<PromptRun, Failure> {
        let Some(workspace) = self.probe.workspace().cloned() else {
            return Ok(PromptRun::wrong(1, "nothing can run here"));
        };
        let command = ShellCommand { cwd: typed.cwd.clone(), ..ShellCommand::shell(typed.command) };
        // A closed output is no failure.
        let shown = |stream, bytes: &[u8]| drop(live::write(stream, bytes));
        let watch = if typed.quiet { unwatched() } else { Arc::new(shown) };
        let cancel = CancellationToken::new();
        let work = self.probe.run(command, watch, cancel.clone());
        let result = match minding(signals, &cancel, &workspace, work).await {
            Ok(result) => result,
            Err(error) => return Ok(PromptRun::wrong(1, error.to_string())),
        };
        let code = i64::from(result.exit_code);
        Ok(match (result.timed_out, result.cancelled) {
            (true, _) => PromptRun::wrong(code, "it took too long and was ended"),
            (_, true) => PromptRun::wrong(code, "interrupted"),
            _ if typed.quiet && code != 0 => {
                PromptRun::wrong(code, String::from_utf8_lossy(&result.stderr.kept).trim_end())
            }
            _ => PromptRun { code, printed: result.stdout.kept.to_vec(), complaint: None },
        })
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the test looks at files by itself")]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn fresh_home_is_private_and_removed() {
        let below = tempfile::tempdir().unwrap();
        let homes = [Home::fresh(below.path()).unwrap(), Home::fresh(below.path()).unwrap()];
        assert_ne!(homes[0].path(), homes[1].path());
        for home in &homes {
            assert_eq!(home.path().metadata().unwrap().permissions().mode() & 0o777, 0o700);
            std::fs::create_dir(home.path().join("probes")).unwrap();
        }
        drop(homes);
        assert_eq!(std::fs::read_dir(below.path()).unwrap().count(), 0);
    }
}
