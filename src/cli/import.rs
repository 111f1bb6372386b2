//! `foldspace import`: a session out of one file.

use std::path::PathBuf;

use foldspace::{Durability, import_session};

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
        if self.name.as_ref().is_some_and(|name| *name != summary.name) {
            output::note(&format!("the session was here already and is called {}", summary.name));
        }
        match out.is_json() {
            true => out.document(&summary)?,
            false => out.line(format!("{} read, {} events were new", export::told(&summary), summary.added))?,
        }
        Ok(Exit::Ok)
    }
}
