use std::collections::BTreeMap;

use foldspace::hub::operations::{AlignedCall, ComparedBranch, ComparedRun, ComparedRuns, compared};
use tokio_util::sync::CancellationToken;

use super::{BAD, BOLD, DIM, Failure, GOOD, Globals, Out, open, text};

const NAME_MAX: usize = 80;
const CALL_MAX: usize = 100;

/// Compares several runs as a tree: where they part, how each ends, and its scores
///
/// The tree begins with the calls that all runs made first. Calls are the same if tool and parameters are; the ids and
/// workspace directories of the sessions don't count. Forks part where their histories do, or later.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foldspace compare demo demo-1 demo-2
  foldspace compare 'rollout-*'       all sessions with such names
  foldspace compare --all --json")]
pub(super) struct CompareArgs {
    /// The sessions, by name, by the beginning of their ids, or by a glob of names
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    sessions: Vec<String>,
    /// Compares all sessions
    #[arg(long)]
    all: bool,
}

impl CompareArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        let opened = open::reading(globals)?;
        let names = if self.all {
            opened.sessions.list()?.iter().map(|entry| entry.name()).collect()
        } else {
            self.sessions.clone()
        };
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let runs = compared(&opened.sessions, &names, &open::existing(globals)?, &CancellationToken::new())?;
        out.show(&runs, |out| show(&runs, out))
    }
}

/// A line of the tree.
#[derive(Clone, Copy)]
enum CompareLine<'a> {
    Branch(usize, &'a ComparedBranch),
    End(&'a ComparedRun),
}

/// Shows the lines of the tree. Does not recurse, because the depth is not limited.
fn show(runs: &ComparedRuns, out: &mut Out) -> Result<(), Failure> {
    let mut next: BTreeMap<usize, Vec<CompareLine<'_>>> = BTreeMap::new();
    for (at, branch) in runs.branches.iter().enumerate() {
        if let Some(parent) = branch.parent {
            next.entry(parent).or_default().push(CompareLine::Branch(at, branch));
        }
        if !is_single(branch) {
            next.entry(at).or_default().extend(branch.ended.iter().map(CompareLine::End));
        }
    }
    let mut waiting: Vec<_> =
        runs.branches.first().map(|root| (Vec::new(), CompareLine::Branch(0, root))).into_iter().collect();
    while let Some((above, line)) = waiting.pop() {
        let mut shown = String::new();
        if let Some((own, older)) = above.split_last() {
            older.iter().for_each(|more| shown += if *more { "│  " } else { "   " });
            shown += if *own { "├─ " } else { "└─ " };
        }
        match line {
            CompareLine::End(run) => shown += &format!("ends here: {}", end(run, out)),
            CompareLine::Branch(at, branch) => {
                shown += &heading(branch, runs.runs, out);
                for (back, line) in next.remove(&at).unwrap_or_default().into_iter().rev().enumerate() {
                    waiting.push(([&above[..], &[back > 0]].concat(), line));
                }
            }
        }
        out.line(shown)?;
    }
    Ok(())
}

/// Returns true if only one run made the calls of a branch.
fn is_single(branch: &ComparedBranch) -> bool {
    branch.runs == 1
}

fn heading(branch: &ComparedBranch, all: usize, out: &Out) -> String {
    let Some(first) = &branch.first else { return format!("{}, no call in common", text::count(all as u64, "run")) };
    let mut words = call(first);
    if branch.calls > 1 {
        words += &out.paint(DIM, format!(" and {}", text::count(branch.calls as u64 - 1, "more call")));
    }
    if branch.differing > 0 {
        words += &format!(", {} with different outcomes", branch.differing);
    }
    if let ([run], true) = (&branch.ended[..], is_single(branch)) {
        return format!("{words}: {}", end(run, out));
    }
    let runs = text::count(branch.runs as u64, "run");
    let scores = branch.scores.iter().map(|(name, score)| {
        let range = if score.min < score.max { format!(" ({} to {})", score.min, score.max) } else { String::new() };
        let of = if score.runs < branch.runs {
            format!(" in {}", text::count(score.runs as u64, "run"))
        } else {
            String::new()
        };
        format!(", {name} {}{range}{of}", rounded(score.mean))
    });
    format!("{words}: {}{}", out.paint(BOLD, runs), scores.collect::<String>())
}

fn call(call: &AlignedCall) -> String {
    text::one_line(format!("{} {}", call.tool, call.summary).trim_end(), CALL_MAX)
}

fn end(run: &ComparedRun, out: &Out) -> String {
    let mut words = out.paint(BOLD, text::one_line(&run.name, NAME_MAX));
    words += &format!(", {}", text::count(run.calls as u64, "call"));
    if run.failed > 0 {
        words += &format!(", {} failed", run.failed);
    }
    if let Some(last) = &run.last {
        let (style, word) = match (last.status, last.exit_code) {
            ("ok", None | Some(0)) => (GOOD, "ok".to_owned()),
            ("ok", Some(code)) => (BAD, format!("exit {code}")),
            (status, _) => (BAD, status.to_owned()),
        };
        words += &format!(", last {}", out.paint(style, word));
    }
    for (name, score) in &run.scores {
        let note = score.note.iter().map(|note| format!(" \"{note}\"")).collect::<String>();
        words += &format!(", {name}{}{note}", score.score.map_or(String::new(), |score| format!(" {score}")));
    }
    words
}

fn rounded(mean: f64) -> f64 {
    (mean * 1000.0).round() / 1000.0
}
