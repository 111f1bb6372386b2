use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use foldspace::EntryPath;
use foldspace::event::{Clock, SystemClock};
use foldspace::tools::rescue::{
    Certainty, FileNow, RescueCandidate, RescuePlaces, RescueReport, RescuedPath, rescue_contents, write_rescued,
};
use foldspace::view::Patch;
use serde_json::{Value, json};

use super::table::{Cell, TextTable};
use super::{BAD, BOLD, DIM, Exit, Failure, GOOD, Globals, ODD, Out, diffs, output, text};

/// The digits of an id that are shown, and the fewest that are accepted.
const ID_SHOWN: usize = 8;
const ID_MIN: usize = 4;
/// The candidates of a path, and the notes, that are shown without --all.
const SHOWN: usize = 4;
const NOTES_SHOWN: usize = 8;

/// Finds lost files that git, agents and editors still have, also without `foldspace attach`
///
/// It reads git's unreachable objects and stashes, the records of Claude Code, Codex and Gemini CLI, VS Code's local
/// history, and backup, auto-save and swap files. It writes nothing, except with --to, and sends nothing.
#[derive(Debug, clap::Args)]
pub(super) struct RescueArgs {
    /// The directory [default: the current one], and paths below it; without a directory, paths below the current one
    #[arg(value_name = "DIR|PATH", value_hint = clap::ValueHint::AnyPath)]
    paths: Vec<PathBuf>,
    /// Lists all paths and candidates, also of files that are as they were last written
    #[arg(long)]
    all: bool,
    /// Prints a candidate: one by its id in the list, or the best one of a path
    #[arg(long, value_name = "ID|PATH", conflicts_with_all = ["diff", "to", "json"])]
    show: Option<String>,
    /// Compares the file with a candidate
    #[arg(long, value_name = "ID|PATH", conflicts_with_all = ["to", "json"])]
    diff: Option<String>,
    /// Writes the best candidate of each missing path, or of each PATH, into a new or empty directory
    #[arg(long, value_name = "NEWDIR", value_hint = clap::ValueHint::DirPath)]
    to: Option<PathBuf>,
    /// Writes this candidate rather than the missing paths; with =PATH, under that name
    #[arg(long, value_name = "ID[=PATH]", requires = "to")]
    take: Vec<String>,
}

impl RescueArgs {
    pub(super) fn run(&self, _: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        let (directory, paths) = match self.paths.split_first() {
            Some((first, rest)) if first.is_dir() => (first.as_path(), rest),
            _ => (Path::new("."), &self.paths[..]),
        };
        let places = RescuePlaces::of(directory).map_err(|error| Failure::io("read", directory.display(), &error))?;
        let paths: Vec<EntryPath> = paths.iter().map(|path| below(&places, path)).collect::<Result<_, _>>()?;
        let report = RescueReport::of(&places);
        if let Some(wanted) = self.show.as_ref().or(self.diff.as_ref()) {
            return self.look(&places, &report, wanted, out);
        }
        if let Some(into) = &self.to {
            return self.write(&places, &report, &paths, into, out);
        }
        let is_named = |path: &EntryPath| paths.iter().any(|named| path == named || path.is_below(named));
        let is_listed = |found: &&RescuedPath| match &found.path {
            Some(path) if !paths.is_empty() => is_named(path),
            None if !paths.is_empty() => false,
            _ => self.all || found.is_lost(),
        };
        let listed: Vec<&RescuedPath> = report.paths.iter().filter(is_listed).collect();
        let document = json!({
            "directory": places.directory,
            "paths": listed.iter().map(|found| document(found)).collect::<Vec<_>>(),
            "notes": report.notes,
        });
        out.show(&document, |out| self.list(&places, &listed, !paths.is_empty(), out))?;
        let shown = if self.all { usize::MAX } else { NOTES_SHOWN };
        for note in report.notes.iter().take(shown).filter(|_| !out.is_json()) {
            output::note(&text::one_line(note, 300));
        }
        if report.notes.len() > shown && !out.is_json() {
            output::note("--all shows the other notes");
        }
        Ok(if listed.is_empty() { Exit::Failed } else { Exit::Ok })
    }

    fn list(
        &self,
        places: &RescuePlaces,
        listed: &[&RescuedPath],
        is_named: bool,
        out: &mut Out,
    ) -> Result<(), Failure> {
        let shown = text::one_line(&places.directory.display().to_string(), 300);
        if listed.is_empty() {
            let hint = if self.all || is_named { "" } else { "; --all lists files that have not changed" };
            return out.line(format!("{shown}: found no lost file{hint}"));
        }
        let now = SystemClock::default().now();
        for found in listed {
            let (name, tone, state) = match (&found.path, found.now) {
                (None, _) => ("without a name".to_owned(), ODD, ""),
                (Some(path), FileNow::Missing) => (path.to_string(), BAD, "missing"),
                (Some(path), _) if !found.is_lost() => (path.to_string(), GOOD, "as last written"),
                (Some(path), _) => (path.to_string(), ODD, "different now"),
            };
            let state = out.paint(tone, state);
            out.line(format!("{}  {state}", out.paint(BOLD, text::visible(&name))).trim_end())?;
            let most = if self.all || is_named || found.path.is_none() { usize::MAX } else { SHOWN };
            let mut table = TextTable::default();
            for candidate in found.candidates.iter().take(most) {
                let time = candidate.time.map_or("unknown time".to_owned(), |time| text::ago(time, now));
                let id = candidate.id.map_or("-".to_owned(), |id| id.to_string().chars().take(ID_SHOWN).collect());
                let sure = match (candidate.sure, found.differs(candidate)) {
                    (_, false) => "as now",
                    _ if candidate.id.is_none() || candidate.path.is_none() => "",
                    (Certainty::Exact, _) => "exact",
                    (Certainty::Text, _) => "text",
                    (Certainty::Inferred, _) => "name guessed",
                };
                let size = candidate.bytes.map_or(String::new(), text::size);
                let from = format!("{}: {}", candidate.source, text::one_line(&candidate.detail, 80));
                let cells = [Cell::left(format!("  {id}")), Cell::left(time), Cell::right(size)];
                table.row(cells.into_iter().chain([Cell::left(sure).styled(DIM), Cell::left(from)]));
            }
            table.show(out)?;
            if let Some(more) = found.candidates.len().checked_sub(most).filter(|more| *more > 0) {
                out.line(out.paint(DIM, format!("  and {}", text::count(more as u64, "older candidate"))))?;
            }
        }
        out.line(out.paint(DIM, "\n--show ID prints one, --diff ID compares it, --to NEWDIR copies what is missing"))
    }

    /// Prints a candidate, or compares it with the file.
    fn look(&self, places: &RescuePlaces, report: &RescueReport, wanted: &str, out: &mut Out) -> Result<Exit, Failure> {
        let (found, candidate) = chosen(places, report, wanted)?;
        let content = content(places, candidate)?;
        if self.show.is_some() {
            match (out.is_terminal(), std::str::from_utf8(&content)) {
                (true, Ok(shown)) => out.raw(out.content(shown).into_owned().as_bytes())?,
                (true, Err(_)) => return Err(binary("redirect the output to a file")),
                (false, _) => out.raw(&content)?,
            }
            return Ok(Exit::Ok);
        }
        let now = match (&found.path, found.now) {
            (Some(path), FileNow::File(_)) => places.read(path).map_err(|error| Failure::io("read", path, &error))?,
            _ => Default::default(),
        };
        let [now, then] =
            [&now[..], &content[..]].map(|side| std::str::from_utf8(side).ok().filter(|text| !text.contains('\0')));
        let (Some(now), Some(then)) = (now, then) else { return Err(binary("--show prints it")) };
        let name = found.path.as_ref().map_or("unnamed".to_owned(), EntryPath::to_string);
        diffs::show(&Patch::of_texts(&name, now, then).text, out)?;
        Ok(Exit::Ok)
    }

    fn write(
        &self,
        places: &RescuePlaces,
        report: &RescueReport,
        paths: &[EntryPath],
        into: &Path,
        out: &mut Out,
    ) -> Result<Exit, Failure> {
        let mut files: BTreeMap<EntryPath, RescueCandidate> = BTreeMap::new();
        for found in &report.paths {
            let Some(path) = &found.path else { continue };
            let is_meant = match paths {
                [] => self.take.is_empty() && found.now == FileNow::Missing,
                paths => paths.iter().any(|named| path == named || path.is_below(named)),
            };
            files.extend(found.best().filter(|_| is_meant).map(|best| (path.clone(), best.clone())));
        }
        for taken in &self.take {
            let (id, name) = taken.split_once('=').map_or((&**taken, None), |(id, name)| (id, Some(name)));
            let (found, candidate) = by_id(report, id)?;
            let path = match (name, &found.path) {
                (Some(name), _) => below(places, Path::new(name))?,
                (None, Some(path)) if candidate.sure > Certainty::Inferred && report.with_id(id).len() == 1 => {
                    path.clone()
                }
                (None, _) => {
                    let failure = Failure::usage(format!("candidate {id} has no certain name"));
                    return Err(failure.with_hint(format!("name it: --take {id}=PATH")));
                }
            };
            files.insert(path, candidate.clone());
        }
        if files.is_empty() {
            return Err(Failure::missing("found no candidate to write").with_hint("--take ID[=PATH] names one"));
        }
        let rescued = write_rescued(places, into, &files)?;
        let document =
            json!({ "directory": into, "written": rescued.written, "bytes": rescued.bytes, "left": rescued.left });
        out.show(&document, |out| {
            for path in &rescued.written {
                let source = &files[path];
                let from = format!("{}: {}", source.source, text::one_line(&source.detail, 80));
                out.line(format!("{}  {}", text::visible(&path.to_string()), out.paint(DIM, from)))?;
            }
            let (count, size) = (text::count(rescued.written.len() as u64, "file"), text::size(rescued.bytes));
            let shown = text::one_line(&into.display().to_string(), 300);
            out.line(format!("wrote {count}, {size}, to {shown}; only you can read them"))
        })?;
        rescued.left.iter().for_each(|path| output::note(&format!("left out {path}: its source or its place is gone")));
        Ok(if rescued.left.is_empty() { Exit::Ok } else { Exit::Failed })
    }
}

/// Returns the path below the directory, of an absolute path or a path below the directory.
fn below(places: &RescuePlaces, path: &Path) -> Result<EntryPath, Failure> {
    let relative = || EntryPath::lookup(path.to_str()?).ok().filter(|named| !named.is_root());
    let found = if path.is_absolute() { places.below(path) } else { relative() };
    found.ok_or_else(|| {
        let (path, directory) = (path.display(), places.directory.display());
        Failure::usage(format!("{path} is not a path below {directory}"))
    })
}

fn by_id<'r>(report: &'r RescueReport, id: &str) -> Result<(&'r RescuedPath, &'r RescueCandidate), Failure> {
    let found = if id.len() < ID_MIN { Vec::new() } else { report.with_id(id) };
    let ids: BTreeSet<_> = found.iter().map(|(_, candidate)| candidate.id).collect();
    match (found.first(), ids.len()) {
        (Some(first), 1) => Ok(*first),
        (Some(_), _) => Err(Failure::usage(format!("{id} is the start of {} ids; use more digits", ids.len()))),
        (None, _) => Err(Failure::missing(format!("no candidate with the id {}", text::one_line(id, 100)))),
    }
}

/// Finds a candidate by its id, or the best one of a path.
fn chosen<'r>(
    places: &RescuePlaces,
    report: &'r RescueReport,
    wanted: &str,
) -> Result<(&'r RescuedPath, &'r RescueCandidate), Failure> {
    let at_path = below(places, Path::new(wanted)).ok().and_then(|path| report.at(&path));
    let Some(found) = at_path else {
        return by_id(report, wanted).map_err(|failure| failure.with_hint("`foldspace rescue --all` lists all"));
    };
    let best = found.best().map(|best| (found, best));
    best.ok_or_else(|| {
        let failure = Failure::missing(format!("no certain candidate of {}", text::one_line(wanted, 200)));
        failure.with_hint("use the id of one in the list")
    })
}

fn content(places: &RescuePlaces, candidate: &RescueCandidate) -> Result<Vec<u8>, Failure> {
    let mut found = None;
    rescue_contents(places, candidate.id.into_iter().collect(), |_, content| found = Some(content.to_vec()));
    found.ok_or_else(|| Failure::missing("the source of the candidate has changed since; try again"))
}

fn binary(hint: &str) -> Failure {
    Failure::failed("the contents are not text").with_hint(hint)
}

fn document(found: &RescuedPath) -> Value {
    let candidates = found.candidates.iter().map(|candidate| {
        let mut document = json!(candidate);
        document["differs"] = found.differs(candidate).into();
        document
    });
    json!({ "path": found.path, "now": found.now, "lost": found.is_lost(), "candidates": candidates.collect::<Vec<_>>() })
}
