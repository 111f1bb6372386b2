//! One file, with its change at the step.

use std::time::Duration;

use foldspace::event::Node;
use foldspace::reducers::{Change, Entry};
use foldspace::{EntryPath, VirtualFileSystem};
use similar::{ChangeTag, TextDiff};

use crate::terminal::style::patch_lines;
use crate::terminal::text;
use crate::tui::model::{Failure, SessionHistory, Sheet, ShownStep, Tone};

const BYTES_MAX: usize = 2 << 20;
/// The time limit of an exact comparison.
const DIFF_TIME_LIMIT: Duration = Duration::from_millis(500);

pub(crate) fn file(
    past: &SessionHistory,
    step: &ShownStep,
    path: Option<&EntryPath>,
    whole: bool,
) -> Result<Sheet, Failure> {
    let Some(path) = path else {
        let mut sheet = Sheet::new("file");
        sheet.add(Tone::Dim, "no file changed at this step; choose one to see it");
        return Ok(sheet);
    };
    let change = step.change(path);
    let tree = VirtualFileSystem::of(&step.new);
    let state = match change {
        Some(Change::Added { .. }) => "added at this step",
        Some(Change::Removed { .. }) => "removed at this step",
        Some(Change::Changed { .. }) => "changed at this step",
        None if tree.get(path).is_none() => "not present at this position",
        None => "unchanged at this step",
    };
    let mut sheet = Sheet::new(format!("{}: {state}", path.rooted()));
    match change {
        Some(change) if !whole => patches(past, change, &mut sheet)?,
        _ => {
            let old = change.and_then(|change| change.sides().0);
            let new = tree.get(path);
            shown_whole(past, (change.is_some(), old), new, &mut sheet)?;
        }
    }
    Ok(sheet)
}

pub(super) fn patches(past: &SessionHistory, change: &Change, sheet: &mut Sheet) -> Result<(), Failure> {
    for (tone, line) in patch_lines(&past.patch(change)?) {
        if sheet.is_full() {
            break;
        }
        sheet.add(tone, line);
    }
    Ok(())
}

fn shown_whole(
    past: &SessionHistory,
    (changed, old): (bool, Option<&Entry>),
    new: Option<&Entry>,
    sheet: &mut Sheet,
) -> Result<(), Failure> {
    let Some(shown) = new.or(old) else {
        sheet.add(Tone::Dim, "the path does not exist");
        return Ok(());
    };
    let text = |entry: Option<&Entry>| entry.map_or(Ok(Ok(String::new())), |entry| contents(past, entry));
    let (old, new) = match (changed, text(new)?) {
        (_, Err(words)) => {
            sheet.add(Tone::Dim, words);
            return Ok(());
        }
        (false, Ok(new)) => (new.clone(), new),
        (true, Ok(new)) => (text(old)?.unwrap_or_default(), new),
    };
    if shown.size() > BYTES_MAX as u64 {
        sheet.add(Tone::Odd, format!("... only the first {} are shown", text::size(BYTES_MAX as u64)));
    }
    let diff = TextDiff::configure().timeout(DIFF_TIME_LIMIT).diff_lines(old.as_str(), new.as_str());
    for line in diff.iter_all_changes() {
        if sheet.is_full() {
            break;
        }
        let number = line.new_index().map_or(String::new(), |at| (at + 1).to_string());
        let words = line.value().trim_end_matches('\n');
        let (sign, tone) = match line.tag() {
            ChangeTag::Equal => (' ', Tone::Plain),
            ChangeTag::Insert => ('+', Tone::Good),
            ChangeTag::Delete => ('-', Tone::Bad),
        };
        if sign != ' ' {
            sheet.notice();
        }
        sheet.add(tone, format!("{number:>5} {sign}{words}"));
    }
    Ok(())
}

fn contents(past: &SessionHistory, entry: &Entry) -> Result<Result<String, String>, Failure> {
    Ok(match &entry.node {
        Node::File { text: true, incomplete: false, content, .. } => {
            let bytes = past.content(content)?;
            Ok(String::from_utf8_lossy(&bytes[..bytes.len().min(BYTES_MAX)]).into_owned())
        }
        Node::File { incomplete: true, size, .. } => {
            Err(format!("{}, with contents that were not stored: they were over a budget", text::size(*size)))
        }
        Node::File { size, content, .. } => Err(format!("{} of binary data, digest {content}", text::size(*size))),
        Node::Symlink { target } => Ok(format!("-> {}", String::from_utf8_lossy(target))),
        Node::Directory { .. } => Err("a directory".to_owned()),
        Node::Special { special } => Err(format!("a {}", special.name())),
    })
}
