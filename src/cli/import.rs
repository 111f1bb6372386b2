//! `foldspace import`: a session out of one file.

use std::path::PathBuf;

use foldspace::{Durability, import_session, name_of};

use super::Globals;
use super::exit::{Exit, Failure};
use super::output::{self, Out};
use super::{export, files, open};

/// Takes a session out of a file that `export` wrote; everything in it is checked first
#[derive(Debug, clap::Args)]
pub(super) struct Import {
    /// The file; - is standard input
    #[arg(value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
    /// Gives the session another name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

impl Import {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        let mut file = files::reader(&self.file)?;
        let opened = open::writing(globals, Durability::Synced)?;
        let summary = import_session(&opened.sessions, &mut file, self.name.as_deref())?;
        let entry = opened.sessions.find(&summary.session.to_string())?;
        if name_of(&entry) != summary.name {
            output::note(&format!("the session was here already and is called {}", name_of(&entry)));
        }
        match out.is_json() {
            true => out.document(&summary)?,
            false => out.line(format!("{} taken in", export::told(&summary)))?,
        }
        Ok(Exit::Ok)
    }
}
