//! Prints patches with colours.

use foldspace::view::Patch;

use super::{BAD, BOLD, Failure, GOOD, NOTED, Out, PLAIN};

pub(super) fn show(patch: &Patch, out: &mut Out) -> Result<(), Failure> {
    let (head, lines) = patch.parts();
    for line in head {
        out.line(out.paint(BOLD, line))?;
    }
    for (sign, text) in lines {
        let text = out.content(text);
        let painted = match sign {
            '@' => out.paint(NOTED, &text),
            '-' => out.paint(BAD, format!("-{text}")),
            '+' => out.paint(GOOD, format!("+{text}")),
            _ => out.paint(PLAIN, format!("{sign}{text}")),
        };
        out.line(painted)?;
    }
    Ok(())
}

pub(super) fn counts(patch: &Patch, out: &Out) -> String {
    match (patch.binary, patch.added, patch.removed) {
        (true, ..) => "binary".to_owned(),
        (false, 0, 0) => {
            patch.parts().0.iter().filter(|line| !line.starts_with("diff ")).cloned().collect::<Vec<_>>().join(", ")
        }
        (false, added, removed) => {
            format!("{} {}", out.paint(GOOD, format!("+{added}")), out.paint(BAD, format!("-{removed}")))
        }
    }
}
