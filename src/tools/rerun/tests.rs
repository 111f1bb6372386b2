//! Own events in reruns: those of calls are compared, others are recorded again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::*;
use crate::backends::MemoryWorkspace;
use crate::engine::event::Event;
use crate::engine::registry::Registry;
use crate::engine::session::sessions::{NewSession, Sessions};
use crate::reducers::SliceDeclaration;
use crate::tools::call::context::ToolContext;
use crate::tools::call::error::ToolError;
use crate::tools::call::tool::{Effect, Tool};
use crate::tools::call::tool_call::ToolCall;
use crate::tools::call::tool_runner::ToolRunner;
use crate::tools::call::toolset::Tools;
use crate::tools::declared::{OwnEvent, declare_slice, declared_in, record_own};

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Scored {
    points: u64,
}

impl Event for Scored {
    const KIND: &'static str = "Scored";
}

/// Records an own event with the number of its calls, which its result lacks.
#[derive(Debug, Default)]
struct Scorer(AtomicU64);

#[derive(Debug, Deserialize, schemars::JsonSchema)]
struct Nothing {}

impl Tool for Scorer {
    const NAME: &'static str = "score";
    const DESCRIPTION: &'static str = "Scores.";
    const EFFECT: Effect = Effect::Additive;
    type Params = Nothing;
    type Output = ();

    async fn call(&self, context: &mut ToolContext, _: Nothing) -> Result<(), ToolError> {
        context.record(&Scored { points: self.0.fetch_add(1, Ordering::Relaxed) })
    }
}

fn tools(first: u64) -> Tools {
    Tools::standard().with(Scorer(first.into())).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn rerun_compares_own_events_of_calls_and_records_others_again() {
    let directory = tempfile::tempdir().unwrap();
    let sessions = Sessions::open(directory.path(), Registry::standard()).unwrap();
    let session = sessions.create(NewSession::named("first")).unwrap();
    let runner = ToolRunner::new(session.clone(), tools(1), Arc::new(MemoryWorkspace)).unwrap();
    let call = runner.call(ToolCall::new("score", json!({}))).await.unwrap().call;
    let declaration = json!({ "name": "Plan", "rules": [{ "kinds": ["plan.step"], "fold": "append" }] });
    declare_slice(&session, serde_json::from_value::<SliceDeclaration>(declaration).unwrap()).unwrap();
    let said = |step: &str| vec![OwnEvent { kind: "plan.step".to_owned(), data: json!(step) }];
    record_own(&session, said("during"), None, None).unwrap();
    record_own(&session, said("about the call"), Some(call), None).unwrap();
    runner.call(ToolCall::new("ls", json!({}))).await.unwrap();
    record_own(&session, said("after"), None, None).unwrap();

    for (first, expected) in [(1, vec![]), (5, vec![("/0/data/points".to_owned(), json!(1), json!(5))])] {
        let scratch = Scratch::begin(Registry::standard(), &WorkspaceSpec::Memory, "again").unwrap();
        let fresh = RerunWorkspace {
            session: scratch.session().clone(),
            workspace: scratch.workspace().clone(),
            tools: tools(first).into(),
            rules: ShellRules::default(),
            cancel: Default::default(),
        };
        let report = Rerun::of(&session).run(fresh, &mut |_| {}).await.unwrap();
        let differing = report.calls.iter().flat_map(|call| match &call.verdict {
            CallVerdict::Diverged { divergences } => divergences.clone(),
            _ => Vec::new(),
        });
        let event = |one| match one {
            Divergence::Event { at, was, is } => (at, was, is),
            other => panic!("{other:?}"),
        };
        assert_eq!(differing.map(event).collect::<Vec<(String, Value, Value)>>(), expected);
        let plan = |session: &Session| declared_in(&session.state().unwrap()).get("Plan").unwrap().value();
        assert_eq!(plan(scratch.session()), json!(["during", "about the call", "after"]));
        assert_eq!(plan(scratch.session()), plan(&session));
    }
}
