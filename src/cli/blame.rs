use foldspace::history::{Blame as Blamed, Cause, SessionChange, blame};
use foldspace::{EntryPath, SessionId, VirtualFileSystem, view};

use super::{AtArg, Cell, DIM, Failure, Globals, NOTED, Out, TextTable, open, output, position, text, tree};

/// Shows the call that wrote each line of a file; follows moves
#[derive(Debug, clap::Args)]
#[command(mut_args(position::meaning("Shows the file as it was at", "Shows the file as it was before")))]
#[command(after_help = "\
Before each line stand the event that wrote it, its call and tool (or a mount, drift, a rewind), its agent \
and its time. `foldspace show SESSION CALL` tells more about a call. A line that came \
with a merge has the child's event, as CHILD@EVENT; where the child was removed, the merge.")]
pub(super) struct BlameArgs {
    /// The session, by name or by the beginning of its id
    session: String,
    /// The file
    path: String,
    #[command(flatten)]
    at: AtArg,
}

impl BlameArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        let path = EntryPath::lookup(&self.path)?;
        let found = open::session(globals, &self.session)?;
        let seq = self.at.resolve(&found.session)?;
        let blamed = match blame(&found.session, &path, seq) {
            Ok(blamed) => blamed,
            Err(error) => {
                let files = VirtualFileSystem::of(&found.session.state_at(seq)?);
                let meant = if files.get(&path).is_some() { String::new() } else { tree::meant(&files, &path) };
                return Err(match Failure::from(error) {
                    Failure::Told { exit, message, hint: Some(hint) } => {
                        Failure::Told { exit, message, hint: Some(meant + &hint) }
                    }
                    failure => failure,
                });
            }
        };
        tell(&blamed);
        out.show(&view::blamed(&path, seq, &blamed), |out| show(found.session.id(), &path, &blamed, out))
    }
}

fn tell(blamed: &Blamed) {
    if let Some(last) = blamed.unknown.last() {
        output::note(&format!(
            "what stood there at {last} is not known line by line; older lines may count as later ones"
        ));
    }
    if blamed.coarse {
        output::note("versions differ in very many lines; some lines may be older than it seems");
    }
}

fn show(session: SessionId, path: &EntryPath, blamed: &Blamed, out: &mut Out) -> Result<(), Failure> {
    let heads: Vec<[String; 4]> = blamed.changes.iter().map(|by| head(session, path, by)).collect();
    let mut table = TextTable::default();
    for (number, line) in (1_u64..).zip(&blamed.lines) {
        let Some([seq, why, agent, time]) = heads.get(line.change).cloned() else { continue };
        table.row([
            Cell::right(seq),
            Cell::left(why).styled(NOTED),
            Cell::left(agent),
            Cell::left(time).styled(DIM),
            Cell::right(number).styled(DIM),
            Cell::left(out.content(&line.text)),
        ]);
    }
    table.show(out)
}

fn head(asked: SessionId, path: &EntryPath, by: &SessionChange) -> [String; 4] {
    let change = &by.change;
    let place = if change.path == *path { String::new() } else { format!(" in {}", change.path.rooted()) };
    let agent = if change.agent.is_empty() { "-".to_owned() } else { text::one_line(&change.agent, 40) };
    let why = text::one_line(&format!("{}{place}", why_of(by)), 80);
    [where_of(asked, by), why, agent, text::moment(change.time)]
}

pub(super) fn where_of(asked: SessionId, by: &SessionChange) -> String {
    match by.session == asked {
        true => by.change.seq.to_string(),
        false => format!("{}@{}", text::one_line(&by.session_name, 60), by.change.seq),
    }
}

pub(super) fn why_of(by: &SessionChange) -> String {
    let removed = if by.child_removed { " (removed)" } else { "" };
    format!("{}{removed}", why(&by.change.cause))
}

pub(super) fn why(cause: &Cause) -> String {
    match cause {
        Cause::Call { call, .. } => format!("#{call} {}", text::one_line(cause.name(), 40)),
        Cause::Rewind { to: Some(to) } => format!("rewind to {to}"),
        Cause::Merge { child, from: Some(from), .. } => format!("merge {}@{from}", text::one_line(child, 60)),
        Cause::Merge { child, from: None, .. } => format!("merge {}", text::one_line(child, 60)),
        other => other.name().to_owned(),
    }
}
