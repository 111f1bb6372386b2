//! Patches in the format of Codex, which add and delete files, and replace lines.

/// Beginning and end of a patch.
const BEGIN: &str = "*** Begin Patch";
const END: &str = "*** End Patch";

/// A change of a patch. Paths are as the patch names them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PatchChange {
    Added { path: String, text: String },
    Deleted { path: String },
    Updated { path: String, moved_to: Option<String>, hunks: Vec<PatchHunk> },
}

/// Lines and their replacement.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PatchHunk {
    /// Lines that locate the hunk, searched for in order.
    after: Vec<String>,
    old: Vec<String>,
    new: Vec<String>,
    is_at_end: bool,
}

impl PatchHunk {
    /// Returns the old lines and the new lines.
    pub(super) fn texts(&self) -> (String, String) {
        (self.old.join("\n"), self.new.join("\n"))
    }
}

/// Returns the changes of the patch in a text; `None` without a valid patch.
pub(super) fn patch_of(text: &str) -> Option<Vec<PatchChange>> {
    let start = text.find(BEGIN)?;
    let mut lines = text[start..].lines().skip(1).peekable();
    let mut changes: Vec<PatchChange> = Vec::new();
    while let Some(line) = lines.next() {
        if line.trim_end() == END {
            return Some(changes);
        }
        if let Some(path) = line.strip_prefix("*** Add File: ") {
            changes.push(PatchChange::Added { path: path.trim().to_owned(), text: String::new() });
        } else if let Some(path) = line.strip_prefix("*** Delete File: ") {
            changes.push(PatchChange::Deleted { path: path.trim().to_owned() });
        } else if let Some(path) = line.strip_prefix("*** Update File: ") {
            let moved_to = lines.next_if(|line| line.starts_with("*** Move to: "));
            let moved_to = moved_to.and_then(|line| Some(line.strip_prefix("*** Move to: ")?.trim().to_owned()));
            changes.push(PatchChange::Updated { path: path.trim().to_owned(), moved_to, hunks: Vec::new() });
        } else {
            add(changes.last_mut()?, line)?;
        }
    }
    // A patch without its last line was cut off.
    None
}

fn add(change: &mut PatchChange, line: &str) -> Option<()> {
    let hunks = match change {
        PatchChange::Added { text, .. } => {
            text.push_str(line.strip_prefix('+')?);
            text.push('\n');
            return Some(());
        }
        PatchChange::Deleted { .. } => return None,
        PatchChange::Updated { hunks, .. } => hunks,
    };
    if let Some(scope) = line.strip_prefix("@@") {
        let begins = hunks.last().is_none_or(|hunk| !hunk.old.is_empty() || !hunk.new.is_empty());
        if begins {
            hunks.push(PatchHunk::default());
        }
        let scope = scope.trim().to_owned();
        hunks.last_mut()?.after.extend(Some(scope).filter(|scope| !scope.is_empty()));
        return Some(());
    }
    // The first hunk may have no header.
    if hunks.is_empty() {
        hunks.push(PatchHunk::default());
    }
    let hunk = hunks.last_mut()?;
    match (line.chars().next(), line.get(1..)) {
        _ if line == "*** End of File" => hunk.is_at_end = true,
        (Some('+'), Some(text)) => hunk.new.push(text.to_owned()),
        (Some('-'), Some(text)) => hunk.old.push(text.to_owned()),
        (Some(' '), Some(text)) => {
            [&mut hunk.old, &mut hunk.new].iter_mut().for_each(|side| side.push(text.to_owned()))
        }
        (None, _) => [&mut hunk.old, &mut hunk.new].iter_mut().for_each(|side| side.push(String::new())),
        _ => return None,
    }
    Some(())
}

/// Returns the text with these hunks applied; `None` if a hunk does not fit.
pub(super) fn patched(before: &str, hunks: &[PatchHunk]) -> Option<String> {
    let mut lines: Vec<String> = before.lines().map(str::to_owned).collect();
    let mut from = 0;
    for hunk in hunks {
        for scope in &hunk.after {
            from += lines[from..].iter().position(|line| line.trim() == scope)? + 1;
        }
        let at = match (hunk.old.is_empty(), hunk.is_at_end) {
            (true, _) if hunk.after.is_empty() => lines.len(),
            (true, _) => from,
            (false, true) => lines.len().checked_sub(hunk.old.len()).filter(|at| fits(&lines[*at..], &hunk.old))?,
            (false, false) => from + (0..=lines.len() - from).find(|at| fits(&lines[from + at..], &hunk.old))?,
        };
        lines.splice(at..at + hunk.old.len(), hunk.new.iter().cloned());
        from = at + hunk.new.len();
    }
    let text = lines.join("\n");
    Some(if lines.is_empty() { text } else { text + "\n" })
}

fn fits(lines: &[String], wanted: &[String]) -> bool {
    let same = |(line, wanted): (&String, &String)| line.trim_end() == wanted.trim_end();
    lines.len() >= wanted.len() && lines.iter().zip(wanted).all(same)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "*** Begin Patch\n*** Add File: new.py\n+a\n+b\n*** Update File: calc.py\n*** Move to: sum.py\n\
        @@ def sub\n     x\n-    y\n+    z\n@@\n-last\n*** End of File\n*** Delete File: old.py\n*** End Patch\n";

    #[test]
    fn patch_is_applied_where_its_lines_stand() {
        let changes = patch_of(&format!("apply_patch <<'EOF'\n{PATCH}EOF")).unwrap();
        let [
            PatchChange::Added { text, .. },
            PatchChange::Updated { path, moved_to, hunks },
            PatchChange::Deleted { .. },
        ] = &changes[..]
        else {
            panic!("{changes:?}")
        };
        assert_eq!((&**text, &**path, moved_to.as_deref()), ("a\nb\n", "calc.py", Some("sum.py")));
        let before = "def add\n    x\n    y\ndef sub\n    x\n    y\nlast\n";
        assert_eq!(patched(before, hunks).unwrap(), "def add\n    x\n    y\ndef sub\n    x\n    z\n");
        assert_eq!(patched("def add\n    x\n    y\nlast\n", hunks), None, "its scope is not there");
        assert_eq!(patched("", hunks), None);
    }

    #[test]
    fn patch_that_makes_no_sense_is_none() {
        for odd in
            ["", "*** Begin Patch\n", "*** Begin Patch\n+a\n*** End Patch", "*** Begin Patch\n*** Add File: a\n+x"]
        {
            assert_eq!(patch_of(odd), None, "{odd:?}");
        }
        let no_more = patch_of("*** Begin Patch\n*** Update File: a\n@@\n+end\n*** End Patch").unwrap();
        let [PatchChange::Updated { hunks, .. }] = &no_more[..] else { panic!("{no_more:?}") };
        assert_eq!(patched("one\n", hunks).unwrap(), "one\nend\n", "lines without others go to the end");
    }
}
