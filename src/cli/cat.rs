//! `foldspace cat`: the contents of a file.

use foldspace::view;
use foldspace::{EntryPath, VirtualFileSystem};
use serde_json::json;

use super::Globals;
use super::exit::{Exit, Failure};
use super::output::Out;
use super::position::{self, AtArg};
use super::{open, tree};

/// Prints a file's contents byte for byte, now or at any moment
#[derive(Debug, clap::Args)]
#[command(mut_args(position::meaning("Prints the files as they were at", "Prints the files as they were before")))]
pub(super) struct Cat {
    /// The session, by name or by the beginning of its id
    session: String,
    /// The files
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<String>,
    #[command(flatten)]
    at: AtArg,
}

impl Cat {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        let opened = open::reading(globals)?;
        let found = opened.find(&self.session)?;
        let state = self.at.state(&found.session)?;
        let files = VirtualFileSystem::of(&state);
        let mut list = Vec::new();
        for path in &self.paths {
            let path = EntryPath::lookup(path)?;
            let entry = match path.is_root() {
                true => return Err(Failure::new(Exit::NotFound, "/ is a directory")),
                false => tree::entry(&files, &path, &state)?,
            };
            let bytes = tree::contents(&found.session, &path, entry)?;
            if !out.is_json() {
                out.raw(&bytes)?;
                continue;
            }
            let mut value = json!(view::entry(&path, entry));
            // What is no text is told by its digest, `content`, only.
            value["contents_text"] = json!(std::str::from_utf8(&bytes).ok());
            list.push(value);
        }
        if out.is_json() {
            out.document(&list)?;
        }
        Ok(Exit::Ok)
    }
}
