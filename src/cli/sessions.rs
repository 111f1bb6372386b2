use foldspace::hub::operations::{SessionDocument, listed};

use super::{BOLD, Cell, DIM, Failure, Globals, Out, TextTable, lineage, open, text};

/// Lists the sessions, oldest first
#[derive(Debug, clap::Args)]
#[command(aliases = ["list", "ps"])]
pub(super) struct SessionsArgs {
    /// Shows only this session and its descendants
    #[arg(requires = "tree")]
    session: Option<String>,
    /// Shows them as a tree of parents and children
    #[arg(long)]
    tree: bool,
}

impl SessionsArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        if self.tree {
            return lineage::show(self.session.as_deref(), globals, out);
        }
        let opened = open::reading(globals)?;
        let rows: Vec<_> = opened.sessions.list()?.iter().map(listed).collect();
        out.show(&rows, |out| show(&rows, out))
    }
}

const LATEST: usize = 5;

/// Shows the most recently changed sessions.
pub(super) fn show_latest(globals: &Globals, out: &mut Out) -> Result<(), Failure> {
    let opened = open::reading(globals)?;
    let mut entries = opened.sessions.list()?;
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.updated));
    let rows: Vec<_> = entries.iter().take(LATEST).map(listed).collect();
    show(&rows, out)
}

fn show(rows: &[SessionDocument], out: &mut Out) -> Result<(), Failure> {
    if rows.is_empty() {
        return out.line("no sessions");
    }
    let mut table = TextTable::with_titles(&["name", "id", "backend", ">events", ">calls", "updated"]);
    for row in rows {
        table.row([
            Cell::left(text::one_line(&row.name, 80)).styled(BOLD),
            Cell::left(row.session.short()).styled(DIM),
            Cell::left(text::one_line(&row.backend, 20)),
            Cell::right(row.events),
            Cell::right(row.calls.map_or_else(|| "?".to_owned(), |calls| calls.to_string())),
            Cell::left(text::moment(row.updated)),
        ]);
    }
    table.show_cut(6, 0, out)
}
