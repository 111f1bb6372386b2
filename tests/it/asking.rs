//! Questions about commands: who is asked, and what comes of each answer.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use foldspace::ToolCall;
use foldspace::event::{
    CallStatus, CommandDecided, CommandLine, CommandResult, DecidedBy, PolicyDecision, SessionAllow,
};
use foldspace::reducers::Allowances;
use foldspace::tools::{ApprovalAnswer, Asker, Asking, CommandQuestion, PythonPlace, PythonRules, ShellRules};
use serde_json::json;

use crate::rig::{Kind, Rig, Step, eventually};

/// Gives prepared answers, then refuses, and keeps what it was asked.
#[derive(Default)]
struct Person {
    answers: Mutex<VecDeque<ApprovalAnswer>>,
    asked: Mutex<Vec<CommandQuestion>>,
}

impl Person {
    fn asked(&self) -> Vec<CommandQuestion> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    fn says(&self, answer: ApprovalAnswer) {
        self.answers.lock().unwrap().push_back(answer);
    }
}

impl Asker for Person {
    fn ask(&self, question: CommandQuestion) -> Asking {
        self.asked.lock().unwrap().push(question);
        let answer =
            self.answers.lock().unwrap().pop_front().unwrap_or(ApprovalAnswer::Refuse("not prepared".to_owned()));
        Box::pin(async move { answer })
    }
}

/// A session whose commands are asked about.
fn asked_about() -> (Rig, Arc<Person>) {
    let (mut rig, person) = (Rig::new(Kind::Host).unwrap(), Arc::new(Person::default()));
    let python = PythonRules { place: Some(PythonPlace::Container), ..PythonRules::default() };
    rig.reopen_with(ShellRules { asker: Some(person.clone()), python, ..ShellRules::default() });
    (rig, person)
}

/// What was decided in a call, by whom and why.
fn decided(step: &Step) -> (PolicyDecision, DecidedBy, String) {
    let decisions = step.of::<CommandDecided>();
    assert_eq!(decisions.len(), 1, "{decisions:?}");
    (decisions[0].decision, decisions[0].by, decisions[0].reason.clone())
}

fn assert_refused(rig: &Rig, step: &Step, by: DecidedBy, why: &str) {
    assert_eq!(step.outcome.status, CallStatus::Error, "{}", step.outcome.text);
    assert!(step.outcome.text.contains(why), "{}", step.outcome.text);
    let (decision, who, reason) = decided(step);
    assert_eq!((decision, who), (PolicyDecision::Deny, by));
    assert!(reason.contains(why), "{reason}");
    assert_eq!((step.of::<CommandResult>().len(), step.of::<SessionAllow>().len()), (0, 0));
    assert_eq!(step.writes_and_deletes(), (0, 0));
    rig.verify();
}

#[test]
fn approval_once_allows_one_command() {
    let (rig, person) = asked_about();
    person.says(ApprovalAnswer::Once);
    let step = rig.ok("touch a");
    assert_eq!(decided(&step), (PolicyDecision::Allow, DecidedBy::Answer, String::new()));
    assert_eq!((step.paths().0, step.of::<SessionAllow>().len()), (vec!["a".to_owned()], 0));
    let asked = person.asked();
    let [question] = &asked[..] else { panic!("one question was to come: {asked:?}") };
    assert_eq!(question.session, rig.session().name());
    assert_eq!((question.call, &question.agent[..]), (step.outcome.call, &rig.session().agent()[..]));
    assert_eq!(question.command, CommandLine::Shell("touch a".to_owned()));
    assert_eq!(question.programs, ["touch"]);
    // The same again is asked again.
    let step = rig.sh("touch a");
    assert_refused(&rig, &step, DecidedBy::Answer, "not prepared");
    assert_eq!(person.asked().len(), 1);
    // What is harmless or denied is nobody's question.
    assert_eq!(decided(&rig.ok("echo x")).1, DecidedBy::Policy);
    assert_refused(&rig, &rig.sh("rm -rf /"), DecidedBy::Policy, "remove everything");
    assert_eq!(person.asked(), []);
}

#[test]
fn approval_refused_is_recorded_and_runs_nothing() {
    let (rig, person) = asked_about();
    person.says(ApprovalAnswer::Refuse("not on a Friday".to_owned()));
    assert_refused(&rig, &rig.sh("touch a && echo x > b"), DecidedBy::Answer, "not on a Friday");
    assert_eq!(rig.known().len(), 0);
    // Python is a program as any other.
    person.says(ApprovalAnswer::Refuse("no snakes".to_owned()));
    let step = rig.call("evaluate_python", json!({ "code": "open('c', 'w')" }));
    assert_refused(&rig, &step, DecidedBy::Answer, "no snakes");
    assert_eq!(person.asked().len(), 2);
}

#[test]
fn approval_for_session_allows_its_rest() {
    let (mut rig, person) = asked_about();
    let before = rig.session().head().unwrap();
    person.says(ApprovalAnswer::Session);
    let step = rig.ok("mkdir d && touch d/a");
    assert_eq!(decided(&step), (PolicyDecision::Allow, DecidedBy::Answer, "for the session".to_owned()));
    let allowed = step.of::<SessionAllow>();
    assert_eq!(allowed, [SessionAllow { programs: vec!["mkdir".to_owned(), "touch".to_owned()], everything: false }]);
    assert_eq!(person.asked().len(), 1);
    // Neither the programs nor another agent has to ask again; what is not among them has.
    let step = rig.ok("touch d/b; mkdir e");
    assert_eq!(decided(&step), (PolicyDecision::Allow, DecidedBy::Session, String::new()));
    let call = ToolCall::new("shell_execute", json!({ "command": "touch d/c" }));
    let outcome = rig.runtime.block_on(rig.tool_runner().as_agent("other").call(call)).unwrap();
    let step = rig.recorded(outcome, "another agent's");
    assert_eq!(decided(&step).1, DecidedBy::Session);
    assert_eq!(person.asked(), []);
    assert_refused(&rig, &rig.sh("touch d/e | cat"), DecidedBy::Answer, "not prepared");
    assert_eq!(person.asked()[0].programs, ["cat"]);
    assert_refused(&rig, &rig.sh("touch d/e; rm -rf /"), DecidedBy::Policy, "remove everything");
    // The answer is in the history, so it outlives the process, whoever could be asked then.
    rig.reopen_with(ShellRules::default());
    assert_eq!(decided(&rig.ok("touch d/f")).1, DecidedBy::Session);
    assert_refused(&rig, &rig.sh("cp d/f d/g"), DecidedBy::Nobody, "no approver is available");
    let programs =
        |seq| rig.session().state_at(seq).unwrap().slice::<Allowances>().cloned().unwrap_or_default().programs;
    assert_eq!(programs(before).len(), 0);
    assert_eq!(programs(rig.session().head().unwrap()).into_iter().collect::<Vec<_>>(), ["mkdir", "touch"]);
}

/// Never answers, but notes that it was asked.
#[derive(Default)]
struct Silent(Mutex<bool>);

impl Asker for Silent {
    fn ask(&self, _: CommandQuestion) -> Asking {
        *self.0.lock().unwrap() = true;
        Box::pin(std::future::pending())
    }
}

#[test]
fn approval_unanswered_does_not_keep_a_call() {
    let (mut rig, silent) = (Rig::new(Kind::Host).unwrap(), Arc::new(Silent::default()));
    rig.reopen_with(ShellRules { asker: Some(silent.clone()), ..ShellRules::default() });
    let call = || ToolCall::new("shell_execute", json!({ "command": "touch a" }));
    let limited = ToolCall { limit: Some(Duration::from_millis(300)), ..call() };
    let outcome = rig.runtime.block_on(rig.tool_runner().call(limited)).unwrap();
    assert_eq!(outcome.status, CallStatus::Error, "{}", outcome.text);
    let step = rig.recorded(outcome, "over its limit");
    assert_eq!((step.of::<CommandDecided>().len(), step.of::<CommandResult>().len()), (0, 0));
    *silent.0.lock().unwrap() = false;
    let cancelled = call();
    let cancel = cancelled.cancel.clone();
    let tool_runner = rig.tool_runner().clone();
    let called = rig.runtime.spawn(async move { tool_runner.call(cancelled).await });
    eventually("somebody is asked", || *silent.0.lock().unwrap());
    cancel.cancel();
    let outcome = rig.runtime.block_on(called).unwrap().unwrap();
    assert_eq!(outcome.status, CallStatus::Interrupted, "{}", outcome.text);
    rig.recorded(outcome, "cancelled");
    assert_eq!(rig.known().len(), 0);
    rig.verify();
}
