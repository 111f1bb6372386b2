//! The commands of a script in the order in which they run, as far as that matters.

use std::ops::Range;

use super::bomb::has_fork_bomb;
use super::judge::{Around, Input, Judge, Judged};
use super::places::Places;
use super::refusal::Denied;
use super::rule::DenyRule;
use super::shell::{Expansion, Reading, Scope, ScopeKind, Script, Variables, marker};

/// Functions that call each other, as far as they are followed.
const CALLS_MAX: usize = 8;

/// What was followed through a script.
#[derive(Debug, Default)]
pub(super) struct Walked {
    /// The functions that are being called, by their numbers.
    calls: Vec<usize>,
    /// Where functions were called that read nothing, and where they ended up.
    ends: Vec<(usize, Places, Places)>,
    /// What runs at the end, and where it was set.
    pub(super) traps: Vec<(String, Reading, Places)>,
}

/// A script on the way through it.
#[derive(Clone, Copy)]
struct Way<'w> {
    script: &'w Script,
    variables: &'w Variables,
    around: Around<'w>,
}

impl Judge<'_> {
    /// Looks at every command of a text.
    pub(super) fn script(&mut self, text: &str, mut variables: Variables, around: Around<'_>) -> Judged<()> {
        let script = Script::read(text, around.reading, around.depth, &mut self.fuel)?;
        self.unclear |= script.unclear || text.contains([marker::UNKNOWN, marker::FETCHED]);
        variables.learn(&script, &mut self.fuel)?;
        self.unclear |= variables.is_unclear();
        let expansion = Expansion { script: &script, variables: &variables, choice: Default::default() };
        if self.rules.contains(&DenyRule::ForkBomb) && has_fork_bomb(&expansion, &mut self.fuel)? {
            return Err(Denied("it defines a function that starts itself over and over (a fork bomb)".to_owned()));
        }
        let before = self.places.clone();
        let outer = std::mem::take(&mut self.walked);
        self.walk(Way { script: &script, variables: &variables, around }, 0..script.commands.len(), &script.scopes)?;
        let traps = std::mem::replace(&mut self.walked, outer).traps;
        match around.same_shell {
            true => self.walked.traps.extend(traps),
            false => {
                self.traps(traps, &variables, around)?;
                self.places = before;
            }
        }
        Ok(())
    }

    /// Looks at what runs when the shell ends, from where it is then.
    fn traps(
        &mut self,
        traps: Vec<(String, Reading, Places)>,
        variables: &Variables,
        around: Around<'_>,
    ) -> Judged<()> {
        for (text, reading, places) in traps {
            if places != self.places {
                let around = Around { reading, depth: around.depth + 1, same_shell: true, ..around };
                self.script(&text, variables.clone(), around)?;
            }
        }
        Ok(())
    }

    fn walk(&mut self, way: Way<'_>, commands: Range<usize>, scopes: &[Scope]) -> Judged<()> {
        let mut at = commands.start;
        let mut next = 0;
        while at < commands.end {
            self.fuel.take(1)?;
            match scopes.get(next) {
                Some(scope) if scope.commands.start <= at => {
                    let rest = &scopes[next + 1..];
                    let inner = rest.iter().take_while(|inner| inner.commands.start < scope.commands.end).count();
                    self.fuel.take(inner)?;
                    self.enter(way, scope, &rest[..inner])?;
                    next += 1 + inner;
                    at = at.max(scope.commands.end);
                }
                _ => {
                    self.simple(way, at)?;
                    at += 1;
                }
            }
        }
        Ok(())
    }

    fn enter(&mut self, way: Way<'_>, scope: &Scope, inner: &[Scope]) -> Judged<()> {
        let before = self.places.clone();
        self.walk(way, scope.commands.clone(), inner)?;
        match scope.kind {
            ScopeKind::Subshell | ScopeKind::Function => self.places = before,
            ScopeKind::Loop if self.places != before => {
                self.places.merge(&before);
                self.walk(way, scope.commands.clone(), inner)?;
                self.places.merge(&before);
            }
            ScopeKind::Loop => {}
        }
        Ok(())
    }

    fn simple(&mut self, way: Way<'_>, index: usize) -> Judged<()> {
        let command = &way.script.commands[index];
        let (choices, all) = way.variables.choices(command, way.script, &mut self.fuel)?;
        self.unclear |= !all;
        self.fuel.take(choices.len() * way.script.functions.len() / 8)?;
        for choice in choices {
            let expansion = Expansion { script: way.script, variables: way.variables, choice };
            let (words, _) = expansion.guessed_words(command, &mut self.fuel)?;
            let called = |function: &&super::shell::Function| words.first() == Some(&function.name);
            let sure = way.script.functions.iter().filter(called).any(|f| f.sure && f.body.end <= index);
            self.command(command, &expansion, way.around, sure)?;
            let functions = way.script.functions.iter().enumerate().filter(|(_, function)| called(function));
            for (number, _) in functions {
                let input = self.input(command, &expansion, way.around.outer)?;
                self.call(way, number, &input)?;
            }
        }
        Ok(())
    }

    /// Looks at a function's commands again, from where it is called.
    fn call(&mut self, way: Way<'_>, number: usize, input: &Input) -> Judged<()> {
        if self.walked.calls.contains(&number) {
            return Ok(());
        }
        if self.walked.calls.len() >= CALLS_MAX {
            self.unclear = true;
            return Ok(());
        }
        self.fuel.take(self.walked.ends.len() + 1)?;
        let known = self.walked.ends.iter().find(|(called, from, _)| *called == number && *from == self.places);
        if let Some((_, _, to)) = known.filter(|_| input.is_empty()) {
            self.places = to.clone();
            return Ok(());
        }
        let from = self.places.clone();
        let body = way.script.functions[number].body.clone();
        let is_inside = |scope: &&Scope| scope.commands.start >= body.start && scope.commands.end <= body.end;
        let inside = way.script.scopes.iter().filter(is_inside);
        // The body itself is a scope that would take back where it went.
        let inside = inside.filter(|scope| scope.kind != ScopeKind::Function || scope.commands != body);
        let scopes: Vec<Scope> = inside.cloned().collect();
        self.fuel.take(way.script.scopes.len())?;
        self.walked.calls.push(number);
        let around = Around { outer: input, ..way.around };
        self.walk(Way { around, ..way }, body, &scopes)?;
        self.walked.calls.pop();
        if input.is_empty() {
            self.walked.ends.push((number, from, self.places.clone()));
        }
        Ok(())
    }
}
