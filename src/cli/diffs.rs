//! Prints patches with colours.

use foldspace::Session;
use foldspace::reducers::Change;
use foldspace::view::{self, Patch};

use super::{BAD, Failure, GOOD, Out};
use crate::terminal::style::patch_lines;

pub(super) fn show(patch: &str, out: &mut Out) -> Result<(), Failure> {
    patch_lines(patch).try_for_each(|(tone, line)| out.line(out.paint(tone, out.content(line))))
}

pub(super) fn show_change(session: &Session, change: &Change, out: &mut Out) -> Result<(), Failure> {
    view::patches(session, change)?.iter().try_for_each(|patch| show(&patch.text, out))
}

pub(super) fn counts(patch: &Patch, out: &Out) -> String {
    match (patch.binary, patch.added, patch.removed) {
        (true, ..) => "binary".to_owned(),
        (false, 0, 0) => patch.text.lines().filter(|line| !line.starts_with("diff ")).collect::<Vec<_>>().join(", "),
        (false, added, removed) => {
            format!("{} {}", out.paint(GOOD, format!("+{added}")), out.paint(BAD, format!("-{removed}")))
        }
    }
}
