//! `foldspace ls`: the entries of a directory.

use foldspace::reducers::Entry;
use foldspace::{EntryPath, VirtualFileSystem, view};

use super::Globals;
use super::exit::{Exit, Failure};
use super::output::Out;
use super::position::{self, AtArg};
use super::table::TextTable;
use super::{open, tree};

/// Lists a directory of the workspace, now or at any moment
#[derive(Debug, clap::Args)]
#[command(mut_args(position::meaning("Lists the files as they were at", "Lists the files as they were before")))]
pub(super) struct Ls {
    /// The session, by name or by the beginning of its id
    session: String,
    /// The directory; a file is listed by itself
    #[arg(default_value = "/")]
    path: String,
    /// Lists what is below it at any depth
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Shows kind, version, size and time too
    #[arg(short, long)]
    long: bool,
    #[command(flatten)]
    at: AtArg,
}

impl Ls {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        let path = EntryPath::lookup(&self.path)?;
        let opened = open::reading(globals)?;
        let found = opened.find(&self.session)?;
        let state = self.at.state(&found.session)?;
        let files = VirtualFileSystem::of(&state);
        let entries: Vec<(&EntryPath, &Entry)> = match (files.is_directory(&path), self.recursive) {
            (true, true) => files.below(&path).collect(),
            (true, false) => files.children(&path).collect(),
            (false, _) => vec![(&path, tree::entry(&files, &path, &state)?)],
        };
        if out.is_json() {
            let list: Vec<_> = entries.iter().map(|(path, entry)| view::entry(path, entry)).collect();
            out.document(&list)?;
            return Ok(Exit::Ok);
        }
        let mut table = TextTable::default();
        for (entry_path, entry) in entries {
            let name = relative(entry_path, &path);
            match self.long {
                true => table.row(tree::cells(out, &name, entry)),
                false => out.line(tree::shown(out, &name, entry))?,
            }
        }
        table.show(out)?;
        Ok(Exit::Ok)
    }
}

/// The path of an entry below a directory; the whole of it when it is not below it.
fn relative(path: &EntryPath, directory: &EntryPath) -> String {
    let inner = path.relative_to(directory).and_then(|bytes| EntryPath::from_bytes(bytes).ok());
    inner.unwrap_or_else(|| path.clone()).to_string()
}
