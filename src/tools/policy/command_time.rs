//! The time limits of commands.

use std::time::Duration;

use crate::backends::{DEFAULT_TIMEOUT, MAX_TIMEOUT, ShellCommand};
use crate::engine::error::ValueError;

/// The default for the longest time that a call may request.
const USUAL_MOST: Duration = Duration::from_secs(600);
/// The shortest time that a call may request.
const LEAST: Duration = Duration::from_secs(1);

/// The time limits of commands: the longest time that a call may request, and the default.
///
/// ```
/// # use foldspace_tools as foldspace;
/// use std::time::Duration;
/// use foldspace::tools::CommandTime;
/// let time = CommandTime::up_to(1800.0).expect("half an hour is within 24 hours");
/// assert_eq!(time.most(), Duration::from_secs(1800));
/// assert!(CommandTime::up_to(0.5).is_err());
/// assert_eq!(CommandTime::default().most(), Duration::from_secs(600));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandTime {
    most: Duration,
    is_unlimited: bool,
}

impl Default for CommandTime {
    fn default() -> Self {
        Self { most: USUAL_MOST, is_unlimited: false }
    }
}

impl CommandTime {
    /// Limits the time that calls may request, in seconds from 1 to 86,400.
    ///
    /// # Errors
    /// [`ValueError`]: the limit is out of range.
    pub fn up_to(seconds: f64) -> Result<Self, ValueError> {
        let wrong = || format!("the time limit is {seconds} s; it must be from 1 to {} s", MAX_TIMEOUT.as_secs());
        let most = Duration::try_from_secs_f64(seconds).ok().filter(|most| (LEAST..=MAX_TIMEOUT).contains(most));
        most.map(|most| Self { most, is_unlimited: false }).ok_or_else(|| ValueError::new(wrong()))
    }

    /// Removes the limit of commands unless a call requests one, as for commands that a person types.
    #[must_use]
    pub fn unlimited(self) -> Self {
        Self { is_unlimited: true, ..self }
    }

    /// Returns the longest time that a call may request.
    pub fn most(&self) -> Duration {
        self.most
    }

    /// Returns true if commands have no limit unless a call requests one.
    pub fn is_unlimited(&self) -> bool {
        self.is_unlimited
    }

    /// Checks the time that a call requests.
    pub(crate) fn asked(&self, seconds: Option<f64>) -> Result<Option<Duration>, ValueError> {
        let Some(seconds) = seconds else { return Ok(None) };
        let asked = Duration::try_from_secs_f64(seconds).ok().filter(|asked| (LEAST..=self.most).contains(asked));
        let wrong =
            || ValueError::new(format!("timeout_seconds is {seconds}; it must be from 1 to {}", self.seconds()));
        asked.map(Some).ok_or_else(wrong)
    }

    /// Returns the advice for a model.
    #[doc(hidden)]
    pub fn advice(&self) -> String {
        let (usual, most) = (DEFAULT_TIMEOUT.min(self.most).as_secs_f64(), self.seconds());
        format!(
            "A command is killed after {usual} seconds, unless timeout_seconds asks for more, up to {most}: choose it \
             for long commands, such as builds and tests. Do not start commands that never end, such as servers, \
             watchers, or programs that wait for input: they are killed, and no process that a command starts \
             outlives it."
        )
    }

    /// Returns the longest time in seconds, for messages.
    pub(crate) fn seconds(&self) -> f64 {
        self.most.as_secs_f64()
    }

    /// Applies the limits to a command. Fails if its timeout exceeds the longest time.
    pub(crate) fn bound(&self, command: &mut ShellCommand) -> Result<(), ValueError> {
        if let Some(timeout) = command.timeout.filter(|timeout| *timeout > self.most) {
            let seconds = timeout.as_secs_f64();
            return Err(ValueError::new(format!("the timeout is {seconds} s; the limit is {} s", self.seconds())));
        }
        command.is_unlimited = self.is_unlimited;
        if !self.is_unlimited && self.most < DEFAULT_TIMEOUT {
            command.timeout.get_or_insert(self.most);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_time_refuses_what_is_out_of_range() {
        let time = CommandTime::default();
        assert_eq!(
            [1.0, 600.0].map(|s| time.asked(Some(s)).ok().flatten()),
            [1, 600].map(|s| Some(Duration::from_secs(s)))
        );
        for seconds in [0.0, 0.9, 600.1, 5000.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(time.asked(Some(seconds)).is_err_and(|e| e.to_string().ends_with("from 1 to 600")), "{seconds}");
        }
        for seconds in [0.0, 0.9, 86_400.1, -1.0, f64::NAN, f64::INFINITY] {
            assert!(CommandTime::up_to(seconds).is_err(), "{seconds}");
        }
    }

    #[test]
    fn command_time_bounds_commands() {
        let time = CommandTime::up_to(60.0).unwrap();
        let mut command = ShellCommand::shell("make");
        command.timeout = Some(Duration::from_secs(61));
        assert!(time.bound(&mut command).is_err());
        command.timeout = None;
        assert!(time.bound(&mut command).is_ok() && command.time_limit(LEAST) == Some(LEAST));
        assert!(time.unlimited().bound(&mut command).is_ok() && command.time_limit(LEAST).is_none());
    }

    #[test]
    fn advice_makes_the_model_choose_and_warns() {
        let advice = CommandTime::up_to(1800.0).unwrap().advice();
        for words in ["killed after 30 seconds", "timeout_seconds asks for more, up to 1800", "that never end"] {
            assert!(advice.contains(words), "{words} is not in {advice}");
        }
    }
}
