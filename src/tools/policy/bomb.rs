//! Fork bombs: functions that multiply.

use std::collections::BTreeSet;

use super::words::{Script, Simple};

/// Functions of which it is followed which call each other; of more, only that they call themselves.
const FUNCTIONS_MAX: usize = 16;

/// Tells whether a text has a function that starts itself in the background, or pipes into itself.
pub(super) fn has_fork_bomb(script: &Script) -> bool {
    let all = script.commands.len();
    let few = script.functions.len() <= FUNCTIONS_MAX;
    script.functions.iter().any(|function| {
        let body = function.start..function.end.unwrap_or(all);
        let mut leading = BTreeSet::from([function.name.as_str()]);
        // Functions that lead to this one multiply as it does.
        for _ in 0..if few { script.functions.len() } else { 0 } {
            for other in &script.functions {
                let mut commands = script.commands[other.start..other.end.unwrap_or(all)].iter();
                if commands.any(|command| called(command).is_some_and(|name| leading.contains(name))) {
                    leading.insert(&other.name);
                }
            }
        }
        let calls = |command: &Simple| called(command).is_some_and(|name| leading.contains(name));
        let own = script.commands[body.clone()].iter().filter(|command| calls(command));
        own.into_iter().any(|command| {
            let pipes = command.upstream.filter(|up| body.contains(up)).is_some_and(|up| calls(&script.commands[up]));
            command.background || pipes
        })
    })
}

/// Returns the name that a command calls; `command f` is a program.
fn called(command: &Simple) -> Option<&str> {
    command.words.iter().map(String::as_str).find(|word| *word != "eval")
}
