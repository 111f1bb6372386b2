use std::collections::BTreeSet;

use foldspace::Session;
use foldspace::history::{HistoryHit, HistorySearch, search_history};
use foldspace::tools::LineSearch;

use super::marked;
use crate::cli::blame::why;
use crate::cli::{DIM, Exit, Failure, NOTED, Out, text};

pub(super) fn search_all(
    session: &Session,
    lines: &LineSearch,
    what: &HistorySearch<'_>,
    names_only: bool,
    out: &mut Out,
) -> Result<Exit, Failure> {
    let (mut any, mut named) = (false, BTreeSet::new());
    let mut found = |hit: HistoryHit| {
        any = true;
        match hit {
            HistoryHit::Line { path, .. } if names_only => {
                named.insert(path);
                Ok(())
            }
            hit if out.is_json() => out.json_line(&hit),
            hit => out.line(shown(&hit, lines, out)),
        }
    };
    search_history::<Failure>(session, what, &mut |bytes| lines.matches(bytes, usize::MAX), &mut found)?;
    for path in named {
        match out.is_json() {
            true => out.json_line(&serde_json::json!({ "path": path }))?,
            false => out.line(out.paint(NOTED, path))?,
        }
    }
    Ok(if any { Exit::Ok } else { Exit::Failed })
}

fn shown(hit: &HistoryHit, lines: &LineSearch, out: &Out) -> String {
    match hit {
        HistoryHit::Event { seq, kind, call, field, line, .. } => {
            let call = call.filter(|call| call != seq).map_or(String::new(), |call| format!(" of #{call}"));
            let place = out.paint(NOTED, format!("event {seq} {}{call}", text::one_line(kind, 100)));
            format!("{place} {}: {}", text::one_line(field, 100), marked(line, lines, out))
        }
        HistoryHit::Line { path, line_number, line, first, cause, last, still, .. } => {
            let until = if *still { "still there".to_owned() } else { format!("until {last}") };
            let when = format!("[since {first} {}, {until}]", text::one_line(&why(cause), 80));
            let place = out.paint(NOTED, path);
            format!("{place}:{line_number}:{} {}", marked(line, lines, out), out.paint(DIM, when))
        }
    }
}
