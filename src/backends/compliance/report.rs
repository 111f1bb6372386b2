//! What the checks have found.

use std::fmt;

/// What became of all checks.
///
/// Printed, it is a list with a line for each check and, of a failed one, what was expected and seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The backend's name.
    pub backend: &'static str,
    /// The checks, in the order in which they were made.
    pub checks: Vec<Check>,
}

/// One promise of a backend, and whether it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// A short name, which no other check has.
    pub name: &'static str,
    /// What a backend must do.
    pub expects: &'static str,
    /// What it did.
    pub outcome: Outcome,
}

/// What became of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The promise is kept.
    Passed,
    /// It is not.
    Failed {
        /// What was seen instead.
        seen: String,
    },
    /// It is not this backend's to keep.
    NotApplicable {
        /// Why not.
        reason: String,
    },
}

impl Report {
    /// Whether every promise that is the backend's is kept, and it has made one at all.
    pub fn passed(&self) -> bool {
        self.failed().next().is_none() && self.checks.iter().any(|check| check.outcome == Outcome::Passed)
    }

    /// The promises that are not kept.
    pub fn failed(&self) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(|check| matches!(check.outcome, Outcome::Failed { .. }))
    }

    /// The check of that name; none when there is none.
    pub fn check(&self, name: &str) -> Option<&Check> {
        self.checks.iter().find(|check| check.name == name)
    }

    fn count(&self, of: impl Fn(&Outcome) -> bool) -> usize {
        self.checks.iter().filter(|check| of(&check.outcome)).count()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {} passed, {} failed, {} not applicable",
            self.backend,
            self.count(|outcome| *outcome == Outcome::Passed),
            self.count(|outcome| matches!(outcome, Outcome::Failed { .. })),
            self.count(|outcome| matches!(outcome, Outcome::NotApplicable { .. })),
        )?;
        self.checks.iter().try_for_each(|check| check.fmt(f))
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, expects, outcome } = self;
        match outcome {
            Outcome::Passed => writeln!(f, "  passed  {name}: {expects}"),
            Outcome::Failed { seen } => writeln!(f, "  FAILED  {name}: {expects}\n          seen: {seen}"),
            Outcome::NotApplicable { reason } => writeln!(f, "  -       {name}: not applicable: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(outcomes: impl IntoIterator<Item = Outcome>) -> Report {
        let names = ["one", "two", "three"];
        let check = |(name, outcome)| Check { name, expects: "it is so", outcome };
        Report { backend: "own", checks: names.into_iter().zip(outcomes).map(check).collect() }
    }

    #[test]
    fn it_prints_as_a_list() {
        let failed = Outcome::Failed { seen: "it is not".to_owned() };
        let report = report([Outcome::Passed, failed, Outcome::NotApplicable { reason: "no shell".to_owned() }]);
        let text = "own: 1 passed, 1 failed, 1 not applicable\n  passed  one: it is so\n  FAILED  two: it is so\n          \
                    seen: it is not\n  -       three: not applicable: no shell\n";
        assert_eq!(report.to_string(), text);
        assert_eq!(report.failed().map(|check| check.name).collect::<Vec<_>>(), ["two"]);
        assert!(report.check("three").is_some() && report.check("four").is_none());
    }

    #[test]
    fn what_promises_nothing_has_not_passed() {
        let not_applicable = || Outcome::NotApplicable { reason: String::new() };
        assert!(report([Outcome::Passed, not_applicable()]).passed());
        assert!(!report([not_applicable(), not_applicable()]).passed());
        assert!(!report([Outcome::Passed, Outcome::Failed { seen: String::new() }]).passed());
        assert!(!report([]).passed());
    }
}
