//! `foldspace materialise`: the files of any moment, on a disk.

use std::path::PathBuf;

use foldspace::materialise;
use serde_json::json;

use super::Globals;
use super::exit::{Exit, Failure};
use super::output::{self, Out};
use super::position::{self, AtArg};
use super::{open, text};

/// Writes the files of a session, now or at any moment, into a new or empty directory
#[derive(Debug, clap::Args)]
#[command(mut_args(position::meaning("Writes the files as they were at", "Writes the files as they were before")))]
#[command(visible_alias = "materialize")]
pub(super) struct Materialise {
    /// The session, by name or by the beginning of its id
    session: String,
    /// The directory, which must be empty or not there
    #[arg(value_hint = clap::ValueHint::DirPath)]
    directory: PathBuf,
    #[command(flatten)]
    at: AtArg,
}

impl Materialise {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        let opened = open::reading(globals)?;
        let found = opened.find(&self.session)?;
        let state = self.at.state(&found.session)?;
        let written = materialise(&found.session, &state, &self.directory)?;
        for path in &written.left_out {
            output::note(&format!("{} is not there: its contents were never kept, or it is no file", path.rooted()));
        }
        let shown = text::one_line(&self.directory.display().to_string(), 300);
        match out.is_json() {
            true => out.document(&json!({
                "session": found.session.id(),
                "seq": state.seq(),
                "directory": self.directory,
                "entries": written.entries,
                "bytes": written.bytes,
                "left_out": written.left_out,
            }))?,
            false => {
                let (entries, bytes) = (text::count(written.entries, "entry"), text::size(written.bytes));
                out.line(format!("wrote {entries}, {bytes}, as of position {}, to {shown}", state.seq()))?;
            }
        }
        Ok(if written.left_out.is_empty() { Exit::Ok } else { Exit::Failed })
    }
}
