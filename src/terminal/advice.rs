//! The text of advice on the command line: names commands and options.

use foldspace::event::Advice;

use super::text;

/// Returns advice as the hint of a command.
pub(crate) fn hint(advice: &Advice) -> String {
    let fixed = match advice {
        Advice::Text { .. } | Advice::UseHost { at: None, .. } => return advice.to_string(),
        Advice::ListSessions { nearest: None } => "`foldspace sessions` lists them",
        Advice::ListSessions { nearest: Some(_) } => return format!("{advice} `foldspace sessions` lists them"),
        Advice::ListPositions => "`foldspace log` shows the positions",
        Advice::ListCalls => "`foldspace log --calls` lists the calls",
        Advice::ListRuns => "`foldspace log --runs` lists them",
        Advice::ShowLineage => "`foldspace sessions --tree` shows parents and children",
        Advice::ReadLog => "check with `foldspace log` before you retry",
        Advice::ShowHistory => "`foldspace log SESSION PATH` shows its changes; --at selects another position",
        Advice::ShowAuthors => "`foldspace log SESSION PATH` shows who changed it",
        Advice::RaiseFileBudget => {
            "`foldspace log SESSION PATH` shows who changed it; --keep-file-bytes raises the budget"
        }
        Advice::SelectUndo { outside } => {
            let rest = outside.map_or_else(String::new, |seq| {
                format!("; `foldspace undo --external` reverts changes from outside of calls, the last at {seq}")
            });
            return format!("`foldspace undo --call N` undoes what such a call left{rest}");
        }
        Advice::ForceRewind => {
            "--force records external changes first, and leaves files whose contents were never stored"
        }
        Advice::RemoveEarlier => "--force removes them",
        Advice::NameDirectory => "name the directory to apply its changes to with --to",
        Advice::WriteAllFiles => "`foldspace materialise` writes all files there",
        Advice::AllowDirectory => "--allow-root or FOLDSPACE_MOUNT_ROOTS allows a directory",
        Advice::RemoveChild { name } => return format!("`foldspace remove {}` removes it", text::one_line(name, 80)),
        Advice::ImportUnderOtherName => "give it another name with --name",
        Advice::ReplaceSession => {
            "nothing was changed; `foldspace remove` the existing session, or import into another store (--data)"
        }
        Advice::CheckMachine => "`foldspace doctor` shows what works here",
        Advice::UseWritableStore => "choose a writable directory with --data or FOLDSPACE_DATA",
        Advice::WaitForOwner => "wait for it to end (`foldspace stop` ends an owner), or use another --data directory",
        Advice::StopOwner => "stop that process, or use another --data directory",
        Advice::FindOwner => "it may be stopped; `foldspace status` shows its process",
        Advice::UseHost { at: Some(_), .. } => return format!("{advice}: `foldspace move SESSION HOST`"),
        Advice::CheckStore => "`foldspace check --bytes` lists all damage",
        Advice::RepairStore => {
            "`foldspace check --bytes` lists all damage; with --repair it keeps everything that is intact"
        }
        Advice::AcceptLoss => {
            "`foldspace check` names them; restore the journal, or continue without them: `foldspace check --repair \
             --accept-loss`"
        }
        Advice::TakeOverCopy => {
            "stop that process, then take over its copy: `foldspace replicate --once --take-over --to URL`"
        }
        Advice::RestoreFromCopy => {
            "`foldspace check --bytes` shows if events are lost; `foldspace restore` creates a store from the copy"
        }
        Advice::ReplaceCopy => "if the store still exists, delete the copy, then run `foldspace replicate` again",
        Advice::UseOtherDirectory => "choose another directory: --data DIR",
    };
    fixed.to_owned()
}
