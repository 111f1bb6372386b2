use foldspace::EntryPath;
use foldspace::reducers::Entry;

use super::live_files::LiveArg;
use super::{AtArg, Failure, Globals, Out, TextTable, open, position, stat, tree};

/// Lists a directory of the workspace, or shows the metadata of an entry
#[derive(Debug, clap::Args)]
#[command(mut_args(position::meaning("Lists the files as they were at", "Lists the files as they were before")))]
pub(super) struct Ls {
    /// The session, by name or by the beginning of its id
    session: String,
    /// The directory, or a single file
    #[arg(default_value = "/")]
    path: String,
    /// Lists everything below it
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Also shows kind, version, size and time
    #[arg(short, long)]
    long: bool,
    /// Shows the metadata of one entry, and the call that wrote it
    #[arg(long, conflicts_with_all = ["recursive", "long"])]
    stat: bool,
    #[command(flatten)]
    at: AtArg,
    #[command(flatten)]
    live: LiveArg,
}

impl Ls {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        let path = tree::path(&self.path)?;
        let found = open::session(globals, &self.session)?;
        let state = self.at.state(&found.session)?;
        let shown = self.live.files(globals, &found.session, &state)?;
        if self.stat {
            return stat::show_entry(&found.session, &state, (&path, &shown), out);
        }
        let files = &shown.files;
        let entries: Vec<(&EntryPath, &Entry)> = match (files.is_directory(&path), self.recursive) {
            (true, true) => files.below(&path).collect(),
            (true, false) => files.children(&path).collect(),
            (false, _) => vec![(&path, tree::entry(files, &path, &state)?)],
        };
        if out.is_json() {
            let list: Vec<_> = entries.iter().map(|(path, entry)| shown.document(path, entry)).collect();
            return out.document(&list);
        }
        let mut table = TextTable::default();
        for (entry_path, entry) in entries {
            let name = relative(entry_path, &path);
            match self.long {
                true => table.row(tree::cells(out, &name, entry)),
                false => out.line(tree::shown(out, &name, entry))?,
            }
        }
        table.show(out)
    }
}

fn relative(path: &EntryPath, directory: &EntryPath) -> String {
    let inner = path.relative_to(directory).and_then(|bytes| EntryPath::from_bytes(bytes).ok());
    inner.unwrap_or_else(|| path.clone()).to_string()
}
