//! What the variables of a script may be.

use std::collections::BTreeMap;

use super::expand::{Choice, Expansion};
use super::{Command, Piece, Script, Word, marker};
use crate::tools::policy::names::{changes_programs, holds_subscript};
use crate::tools::policy::refusal::{Denied, Fuel};

/// Values that one variable is given before it counts as unknown.
const VALUES_MAX: usize = 8;
/// Choices of values that one command is looked at with.
const CHOICES_MAX: usize = 64;

/// Every value that a variable is given somewhere in a script, in whatever order that happens.
#[derive(Clone, Debug, Default)]
pub(in crate::tools::policy) struct Variables {
    values: BTreeMap<String, Vec<String>>,
    /// One that decides which programs run is set, or one holds what shells evaluate as a subscript.
    unclear: bool,
}

impl Variables {
    /// Those of a shell that was started with these words after its script.
    pub(in crate::tools::policy) fn with_arguments(arguments: &[String]) -> Self {
        let mut variables = Self::default();
        let name = arguments.first().map_or("sh", String::as_str);
        variables.add("0", name);
        variables.add_positional(arguments.get(1..).unwrap_or_default());
        variables
    }

    /// Adds what the first shell finds in its environment.
    pub(in crate::tools::policy) fn add_environment<'e>(
        &mut self,
        environment: impl Iterator<Item = (&'e String, &'e String)>,
    ) {
        for (name, value) in environment {
            let value: String = value.chars().map(|c| if marker::is(c) { marker::UNKNOWN } else { c }).collect();
            self.set(name, &value);
        }
    }

    /// Whether they may change what a command means.
    pub(in crate::tools::policy) fn is_unclear(&self) -> bool {
        self.unclear
    }

    /// What is inherited by a shell below this one.
    pub(in crate::tools::policy) fn inherited(&self, arguments: &[String]) -> Self {
        let mut variables = Self::with_arguments(arguments);
        variables.unclear = self.unclear;
        for (name, values) in self.values.iter().filter(|(name, _)| !is_positional(name)) {
            values.iter().for_each(|value| variables.add(name, value));
        }
        variables
    }

    /// Learns what a script assigns.
    pub(in crate::tools::policy) fn learn(&mut self, script: &Script, fuel: &mut Fuel) -> Result<(), Denied> {
        for command in &script.commands {
            let (choices, _) = self.choices(command, script, fuel)?;
            let mut learned = Vec::new();
            let mut calls = Vec::new();
            for choice in choices {
                let expansion = Expansion { script, variables: self, choice };
                for (name, word) in &command.assignments {
                    learned.push((name.clone(), expansion.text(word, fuel)?));
                }
                let targets = command.redirects.iter().map(|redirect| &redirect.target);
                let values = command.assignments.iter().map(|(_, value)| value);
                for word in command.words.iter().chain(targets).chain(values) {
                    defaults(word, &expansion, &mut learned, fuel)?;
                }
                let words = expansion.words(command, fuel)?;
                match words.first().map(String::as_str) {
                    Some("export" | "readonly" | "declare" | "typeset" | "local" | "env") => {
                        let pairs = words.iter().filter_map(|word| word.split_once('='));
                        learned.extend(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())));
                    }
                    Some("read" | "mapfile" | "readarray" | "getopts") => {
                        let names = words[1..].iter().filter(|word| !word.starts_with('-'));
                        learned.extend(names.map(|name| (name.clone(), marker::UNKNOWN.to_string())));
                    }
                    Some("set") => {
                        let after = words.iter().position(|word| word == "--").map_or(1, |at| at + 1);
                        calls.push(words[after.min(words.len())..].to_vec());
                    }
                    Some(name) if script.functions.iter().any(|function| function.name == name) => {
                        calls.push(words[1..].to_vec());
                    }
                    _ => {}
                }
            }
            learned.iter().for_each(|(name, value)| self.set(name, value));
            calls.iter().for_each(|arguments| self.add_positional(arguments));
        }
        Ok(())
    }

    fn add_positional(&mut self, arguments: &[String]) {
        for (number, argument) in arguments.iter().enumerate().take(9) {
            self.add(&(number + 1).to_string(), argument);
        }
        if !arguments.is_empty() {
            let all = arguments.join(&marker::SPLIT.to_string());
            self.add("@", &all);
            self.add("*", &all);
        }
    }

    /// Adds a value that a command gives.
    fn set(&mut self, name: &str, value: &str) {
        self.unclear |= changes_programs(name);
        self.add(name, value);
    }

    fn add(&mut self, name: &str, value: &str) {
        self.unclear |= holds_subscript(value);
        let values = self.values.entry(name.to_owned()).or_default();
        if values.iter().any(|known| known == value) {
            return;
        }
        match values.len() < VALUES_MAX {
            true => values.push(value.to_owned()),
            false => values[VALUES_MAX - 1] = marker::UNKNOWN.to_string(),
        }
    }

    /// A variable's value; none where it comes from the environment.
    pub(super) fn get(&self, name: &str, choice: &Choice) -> Option<&str> {
        if let Some(values) = self.values.get(name) {
            let index = choice.get(name).copied().unwrap_or_default();
            return values.get(index).or(values.last()).map(String::as_str);
        }
        match name {
            "HOME" => Some("\u{f0002}"),
            "IFS" => Some("\u{f0003}"),
            "PWD" => Some("."),
            // `${x+operand}` is the operand, or nothing.
            "" => Some(""),
            name if is_positional(name) => Some(""),
            _ => None,
        }
    }

    /// Whether the choice for a variable is what stands in for its value.
    pub(super) fn is_operand(&self, name: &str, choice: &Choice) -> bool {
        choice.get(name).is_some_and(|&index| index >= self.count(name))
    }

    /// Values of a variable; one that is not known counts as one.
    fn count(&self, name: &str) -> usize {
        self.values.get(name).map_or(1, Vec::len).max(1)
    }

    /// Whether `IFS` may be set to split values at this character.
    pub(super) fn separates(&self, c: char) -> bool {
        self.values.get("IFS").is_some_and(|values| values.iter().any(|value| value.contains(c)))
    }

    /// The ways to choose values for a command's variables, and whether these are all.
    pub(in crate::tools::policy) fn choices(
        &self,
        command: &Command,
        script: &Script,
        fuel: &mut Fuel,
    ) -> Result<(Vec<Choice>, bool), Denied> {
        let mut names = BTreeMap::new();
        used_by(command, script, &mut names, fuel)?;
        let several = names.iter().map(|(&name, &operand)| (name, self.count(name) + usize::from(operand)));
        let several: Vec<_> = several.filter(|&(_, count)| count > 1).collect();
        let product = several.iter().fold(1_usize, |product, (_, count)| product.saturating_mul(*count));
        let all = product <= CHOICES_MAX;
        let total = if all { product } else { VALUES_MAX + 1 };
        let choices = (0..total).map(|mut number| {
            let pick = |&(name, count): &(&str, usize)| {
                let index = if all { number % count } else { number.min(count - 1) };
                number = if all { number / count } else { number };
                (name.to_owned(), index)
            };
            several.iter().map(pick).collect()
        });
        Ok((choices.collect(), all))
    }
}

fn is_positional(name: &str) -> bool {
    matches!(name, "@" | "*" | "0" | "1" | "2" | "3" | "4" | "5" | "6" | "7" | "8" | "9")
}

/// The values that `${name:=operand}` gives.
fn defaults(
    word: &Word,
    expansion: &Expansion<'_>,
    learned: &mut Vec<(String, String)>,
    fuel: &mut Fuel,
) -> Result<(), Denied> {
    fuel.take(1)?;
    for piece in &word.pieces {
        if let Piece::Variable { name, instead: Some(operand), assigns, .. } = piece {
            if *assigns {
                learned.push((name.clone(), expansion.text(operand, fuel)?));
            }
            defaults(operand, expansion, learned, fuel)?;
        }
    }
    Ok(())
}

/// The names that a command uses, and whether an operand may stand in for their values.
fn used_by<'s>(
    command: &'s Command,
    script: &'s Script,
    names: &mut BTreeMap<&'s str, bool>,
    fuel: &mut Fuel,
) -> Result<(), Denied> {
    let targets = command.redirects.iter().map(|redirect| &redirect.target);
    let values = command.assignments.iter().map(|(_, value)| value);
    for word in command.words.iter().chain(targets).chain(values) {
        used_in(word, script, names, fuel)?;
    }
    Ok(())
}

fn used_in<'s>(
    word: &'s Word,
    script: &'s Script,
    names: &mut BTreeMap<&'s str, bool>,
    fuel: &mut Fuel,
) -> Result<(), Denied> {
    fuel.take(1)?;
    for piece in &word.pieces {
        match piece {
            Piece::Variable { name, instead, .. } => {
                *names.entry(name).or_default() |= instead.is_some();
                instead.iter().try_for_each(|instead| used_in(instead, script, names, fuel))?;
            }
            Piece::Output { commands, .. } => {
                for command in &script.commands[commands.clone()] {
                    used_by(command, script, names, fuel)?;
                }
            }
            Piece::Document(number) => {
                if let Some(document) = script.documents.get(*number) {
                    used_in(document, script, names, fuel)?;
                }
            }
            Piece::Text(_) | Piece::Process(_) | Piece::Unknown => {}
        }
    }
    Ok(())
}
