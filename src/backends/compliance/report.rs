//! The results of the checks.

use std::fmt;

/// The results of all checks.
///
/// Printed, it has a line for each check and, of a failed one, what was expected and seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComplianceReport {
    /// The backend's name.
    pub backend: &'static str,
    /// The checks, in the order in which they were made.
    pub checks: Vec<ComplianceCheck>,
}

/// A promise of a backend and the result of its check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComplianceCheck {
    /// A short name, which no other check has.
    pub name: &'static str,
    /// The backend's duty.
    pub expects: &'static str,
    /// The result.
    pub outcome: CheckOutcome,
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckOutcome {
    /// The promise is kept.
    Passed,
    /// It is not.
    Failed {
        /// The observation.
        seen: String,
    },
    /// It is not this backend's to keep.
    NotApplicable {
        /// The reason.
        reason: String,
    },
}

impl ComplianceReport {
    /// Tells whether every promise that is the backend's is kept, and it has made one at all.
    pub fn passed(&self) -> bool {
        self.failed().next().is_none() && self.checks.iter().any(|check| check.outcome == CheckOutcome::Passed)
    }

    /// The promises that are not kept.
    pub fn failed(&self) -> impl Iterator<Item = &ComplianceCheck> {
        self.checks.iter().filter(|check| matches!(check.outcome, CheckOutcome::Failed { .. }))
    }

    /// The check of that name; none when there is none.
    pub fn check(&self, name: &str) -> Option<&ComplianceCheck> {
        self.checks.iter().find(|check| check.name == name)
    }

    fn count(&self, of: impl Fn(&CheckOutcome) -> bool) -> usize {
        self.checks.iter().filter(|check| of(&check.outcome)).count()
    }
}

impl fmt::Display for ComplianceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {} passed, {} failed, {} not applicable",
            self.backend,
            self.count(|outcome| *outcome == CheckOutcome::Passed),
            self.count(|outcome| matches!(outcome, CheckOutcome::Failed { .. })),
            self.count(|outcome| matches!(outcome, CheckOutcome::NotApplicable { .. })),
        )?;
        self.checks.iter().try_for_each(|check| check.fmt(f))
    }
}

impl fmt::Display for ComplianceCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, expects, outcome } = self;
        match outcome {
            CheckOutcome::Passed => writeln!(f, "  passed  {name}: {expects}"),
            CheckOutcome::Failed { seen } => writeln!(f, "  FAILED  {name}: {expects}\n          seen: {seen}"),
            CheckOutcome::NotApplicable { reason } => writeln!(f, "  -       {name}: not applicable: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(outcomes: impl IntoIterator<Item = CheckOutcome>) -> ComplianceReport {
        let names = ["one", "two", "three"];
        let check = |(name, outcome)| ComplianceCheck { name, expects: "it is so", outcome };
        ComplianceReport { backend: "own", checks: names.into_iter().zip(outcomes).map(check).collect() }
    }

    #[test]
    fn compliance_report_prints_as_list() {
        let failed = CheckOutcome::Failed { seen: "it is not".to_owned() };
        let report =
            report([CheckOutcome::Passed, failed, CheckOutcome::NotApplicable { reason: "no shell".to_owned() }]);
        let text = "own: 1 passed, 1 failed, 1 not applicable\n  passed  one: it is so\n  FAILED  two: it is so\n          \
                    seen: it is not\n  -       three: not applicable: no shell\n";
        assert_eq!(report.to_string(), text);
        assert_eq!(report.failed().map(|check| check.name).collect::<Vec<_>>(), ["two"]);
        assert!(report.check("three").is_some() && report.check("four").is_none());
    }

    #[test]
    fn compliance_report_without_checks_has_not_passed() {
        let not_applicable = || CheckOutcome::NotApplicable { reason: String::new() };
        assert!(report([CheckOutcome::Passed, not_applicable()]).passed());
        assert!(!report([not_applicable(), not_applicable()]).passed());
        assert!(!report([CheckOutcome::Passed, CheckOutcome::Failed { seen: String::new() }]).passed());
        assert!(!report([]).passed());
    }
}
