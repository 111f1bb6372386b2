//! Fork bombs: functions that multiply.

use std::collections::BTreeSet;

use super::refusal::{Denied, Fuel};
use super::shell::{Choice, Expansion, Function};

/// A function with what it calls: the call's place, and the name.
struct Calls<'s> {
    function: &'s Function,
    calls: Vec<(usize, String)>,
}

/// Whether a script has a function that starts itself in the background, or pipes into itself.
pub(super) fn has_fork_bomb(expansion: &Expansion<'_>, fuel: &mut Fuel) -> Result<bool, Denied> {
    let script = expansion.script;
    let mut all = Vec::new();
    for function in &script.functions {
        let mut calls = Vec::new();
        for index in function.body.clone() {
            let (choices, _) = expansion.variables.choices(&script.commands[index], script, fuel)?;
            for choice in choices {
                let name = first_word(expansion, index, choice, fuel)?;
                calls.extend(name.map(|name| (index, name)));
            }
        }
        fuel.take(calls.len() + 1)?;
        all.push(Calls { function, calls });
    }
    for calls in &all {
        let back = leading_to(&calls.function.name, &all, fuel)?;
        let own: Vec<usize> =
            calls.calls.iter().filter(|(_, name)| back.contains(name.as_str())).map(|(index, _)| *index).collect();
        fuel.take(own.len() * own.len() + 1)?;
        let multiplies = own.iter().any(|&index| {
            let command = &script.commands[index];
            command.background || command.upstream.iter().any(|range| own.iter().any(|other| range.contains(other)))
        });
        if multiplies {
            return Ok(true);
        }
    }
    Ok(false)
}

fn first_word(
    expansion: &Expansion<'_>,
    index: usize,
    choice: Choice,
    fuel: &mut Fuel,
) -> Result<Option<String>, Denied> {
    let chosen = Expansion { script: expansion.script, variables: expansion.variables, choice };
    let words = chosen.words(&expansion.script.commands[index], fuel)?;
    Ok(words.into_iter().find(|word| !matches!(word.as_str(), "command" | "eval" | "exec" | "nohup" | "setsid")))
}

/// The functions that lead to this one, itself among them.
fn leading_to<'s>(name: &'s str, all: &'s [Calls<'s>], fuel: &mut Fuel) -> Result<BTreeSet<&'s str>, Denied> {
    let mut leading = BTreeSet::from([name]);
    loop {
        let before = leading.len();
        for calls in all {
            fuel.take(calls.calls.len() + 1)?;
            if calls.calls.iter().any(|(_, called)| leading.contains(called.as_str())) {
                leading.insert(&calls.function.name);
            }
        }
        if leading.len() == before {
            return Ok(leading);
        }
    }
}
