//! The results of the checks.

use std::fmt;

/// The results of all checks.
///
/// It is displayed with a line per check, and for a failed check with the expectation and the observation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComplianceReport {
    /// The backend's name.
    pub backend: &'static str,
    /// The checks, in the order they were made.
    pub checks: Vec<ComplianceCheck>,
}

/// A guarantee of a backend and the result of its check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComplianceCheck {
    /// A short, unique name.
    pub name: &'static str,
    /// The backend's duty.
    pub expects: &'static str,
    /// The result.
    pub outcome: CheckOutcome,
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckOutcome {
    /// The guarantee holds.
    Passed,
    /// The guarantee does not hold.
    Failed {
        /// The observation.
        seen: String,
    },
    /// The guarantee does not apply to this backend.
    NotApplicable {
        /// The reason.
        reason: String,
    },
}

impl ComplianceReport {
    /// Returns true if no check failed and at least one passed.
    pub fn passed(&self) -> bool {
        self.failed().next().is_none() && self.checks.iter().any(|check| check.outcome == CheckOutcome::Passed)
    }

    /// Returns the failed checks.
    pub fn failed(&self) -> impl Iterator<Item = &ComplianceCheck> {
        self.checks.iter().filter(|check| matches!(check.outcome, CheckOutcome::Failed { .. }))
    }

    /// Returns the check with that name, if any.
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
