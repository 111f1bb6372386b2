mod ever;

use foldspace::event::Node;
use foldspace::history::HistorySearch;
use foldspace::reducers::Entry;
use foldspace::tools::LineSearch;
use foldspace::{EntryPath, VirtualFileSystem};
use serde_json::json;

use super::{AtArg, BAD, Exit, Failure, Globals, NOTED, Out, open, position, tree};

/// Finds lines that match a regular expression
#[derive(Debug, clap::Args)]
#[command(mut_args(position::meaning(
    "Searches the files as they were at",
    "Searches the files as they were before"
)))]
pub(super) struct Grep {
    /// The session, by name or by the beginning of its id
    session: String,
    /// The regular expression
    pattern: String,
    /// The directory or file to search
    #[arg(default_value = "/")]
    path: String,
    /// Searches only files that match GLOB: by name if it has no slash, else by path
    #[arg(short, long, value_name = "GLOB")]
    glob: Option<String>,
    /// Ignores case
    #[arg(short, long)]
    ignore_case: bool,
    /// Lists the files that match, not the lines
    #[arg(short = 'l', long)]
    files_with_matches: bool,
    /// Searches the whole history up to --at: all versions of all files, events and the output of commands; shows the
    /// first and last positions of each line
    #[arg(long)]
    all_history: bool,
    #[command(flatten)]
    at: AtArg,
}

/// A line's number, and the line.
type Hit = (u64, String);

impl Grep {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        let path = tree::path(&self.path)?;
        let lines = self.lines()?;
        let glob = self.glob.as_deref().map(tree::glob).transpose()?;
        let found = open::session(globals, &self.session)?;
        if self.all_history {
            let wanted = |other: &EntryPath| {
                let is_inside = *other == path || other.is_below(&path);
                is_inside && glob.as_ref().is_none_or(|glob| glob.fits(other))
            };
            // A search in named files excludes events.
            let events = path.is_root() && glob.is_none() && !self.files_with_matches;
            let what = HistorySearch {
                until: self.at.resolve(&found.session)?,
                wanted: &wanted,
                events,
                ..HistorySearch::default()
            };
            return ever::search_all(&found.session, &lines, &what, self.files_with_matches, out);
        }
        let state = self.at.state(&found.session)?;
        let files = VirtualFileSystem::of(&state);
        let places: Vec<(&EntryPath, &Entry)> = match files.is_directory(&path) {
            true => files.below(&path).collect(),
            false => vec![(&path, tree::entry(&files, &path, &state)?)],
        };
        let mut any = false;
        let mut list = Vec::new();
        for (path, entry) in places {
            let is_text = matches!(entry.node, Node::File { text: true, .. });
            if !is_text || glob.as_ref().is_some_and(|glob| !glob.fits(path)) {
                continue;
            }
            let bytes = tree::contents(&found.session, path, entry)?;
            let hits = lines.matches(&bytes, usize::MAX);
            any |= !hits.is_empty();
            match out.is_json() {
                true => list.extend(hits.iter().map(|hit| self.as_json(path, hit))),
                false => self.show(path, &hits, &lines, out)?,
            }
        }
        if out.is_json() {
            list.dedup();
            out.document(&list)?;
        }
        Ok(if any { Exit::Ok } else { Exit::Failed })
    }

    fn lines(&self) -> Result<LineSearch, Failure> {
        let flags = if self.ignore_case { "(?i)" } else { "" };
        let lines = LineSearch::new(&format!("{flags}{}", self.pattern));
        lines.map_err(|error| Failure::pattern("pattern", foldspace::tools::regex_error(&error)))
    }

    fn as_json(&self, path: &EntryPath, (number, line): &Hit) -> serde_json::Value {
        match self.files_with_matches {
            true => json!({ "path": path }),
            false => json!({ "path": path, "line_number": number, "line": line }),
        }
    }

    fn show(&self, path: &EntryPath, hits: &[Hit], lines: &LineSearch, out: &mut Out) -> Result<(), Failure> {
        let path = out.paint(NOTED, path);
        if self.files_with_matches {
            return if hits.is_empty() { Ok(()) } else { out.line(path) };
        }
        for (number, line) in hits {
            out.line(format!("{path}:{number}:{}", marked(line, lines, out)))?;
        }
        Ok(())
    }
}

fn marked(line: &str, lines: &LineSearch, out: &Out) -> String {
    let mut shown = String::new();
    let mut at = 0;
    for spot in lines.spots(line) {
        let (before, inside) = (line.get(at..spot.start), line.get(spot.clone()));
        let (Some(before), Some(inside)) = (before, inside) else { break };
        shown.push_str(&out.content(before));
        shown.push_str(&out.paint(BAD.bold(), out.content(inside)));
        at = spot.end;
    }
    shown.push_str(&out.content(&line[at..]));
    shown
}
