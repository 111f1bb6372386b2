use std::path::PathBuf;

use foldspace::WorkspaceSpec;
use foldspace::event::SessionStarted;
use foldspace::history::{HistoryError, import_session_if};
use foldspace::store::Durability;

use super::owner::OwnerClient;
use super::{Failure, Globals, Out, export, files, open, output, text};

/// Reads a session from a file that `export` wrote
///
/// Everything in the file is checked first. The file must continue the history of a session that is here already;
/// the rest is added. So importing the file again completes an import that was killed.
#[derive(Debug, clap::Args)]
pub(super) struct Import {
    /// The file; - is standard input
    #[arg(value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
    /// Gives the session another name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Accepts a session whose workspace is a directory of this machine, or reaches an engine or the network
    #[arg(long)]
    trust_workspace: bool,
}

impl Import {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        let file = files::Rereadable::open(&self.file)?;
        let accept = |started: &SessionStarted| if self.trust_workspace { Ok(()) } else { harmless(started) };
        let summary = super::block_on(async {
            let owner = OwnerClient::of(globals, Durability::Synced).await?;
            let opened = owner.sessions()?;
            let mut file = file.file(&open::directory(globals)?)?;
            let import = || import_session_if(&opened.sessions, &mut file, self.name.as_deref(), &accept);
            let summary = tokio::task::block_in_place(import);
            owner.end().await;
            Ok::<_, Failure>(summary)
        })??;
        let summary = summary.map_err(|error| match error {
            HistoryError::Refused(_) => {
                Failure::from(error).with_hint("if you know where the file is from, --trust-workspace takes it")
            }
            error => error.into(),
        })?;
        if self.name.as_ref().is_some_and(|name| *name != summary.name) {
            output::note(&format!("the session was here already and is called {}", summary.name));
        }
        out.show(&summary, |out| {
            out.line(format!("{} read, {} events were new", export::told(&summary), summary.added))
        })
    }
}

fn harmless(started: &SessionStarted) -> Result<(), String> {
    // One that makes no sense can't be opened.
    let reached = WorkspaceSpec::of_session(started).map(|spec| spec.reaches()).unwrap_or_default();
    match reached.is_empty() {
        true => Ok(()),
        false => Err(format!("its workspace would use {}", text::one_line(&reached.join(", "), 1000))),
    }
}
