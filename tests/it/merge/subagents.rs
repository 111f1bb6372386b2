//! Batches of children: each result in its place, and nobody harms another.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldspace::event::{ChildLimits, Isolation};
use foldspace::reducers::MergeChoices;
use foldspace::tools::{
    ChildContext, MergeOutcome, Subagent, SubagentOutcome, SubagentResult, Subagents, dispatch_subagents,
};
use foldspace::{ForkOptions, ToolCall};
use serde_json::{Value, json};
use tokio::sync::{Barrier, Notify};

use crate::rig::{Family, texts};

fn agent(isolation: Isolation, task: Value) -> Subagent {
    Subagent { child: ForkOptions { agent: "worker".to_owned(), ..ForkOptions::new(isolation) }, task }
}

fn fork(task: Value) -> Subagent {
    agent(Isolation::Fork, task)
}

/// Makes the calls that the task lists as tools with parameters.
async fn calls(child: ChildContext) -> Result<Value, String> {
    let list = child.task.as_array().cloned().unwrap_or_default();
    for call in &list {
        let mut call = ToolCall::new(call[0].as_str().unwrap(), call[1].clone());
        call.cancel = child.cancel.clone();
        let outcome = child.tool_runner.call(call).await.map_err(|error| error.to_string())?;
        if !outcome.is_ok() {
            return Err(outcome.text);
        }
    }
    Ok(json!(list.len()))
}

fn write(path: &str, content: &str) -> Value {
    json!(["write_file", { "file_path": path, "content": content }])
}

fn merging() -> Subagents {
    Subagents { merge: Some(MergeChoices::default()), ..Subagents::default() }
}

fn merge_of(result: &SubagentResult) -> MergeOutcome {
    result.merge.as_ref().unwrap().as_ref().unwrap().outcome
}

#[test]
fn subagent_failure_leaves_other_results() {
    let family = Family::on_host();
    let parent = family.founder();
    family.create(&parent, "a", "a");
    let taken = ForkOptions { name: Some("founder".to_owned()), ..ForkOptions::new(Isolation::Fork) };
    let batch = vec![
        fork(json!([write("first", "1")])),
        fork(json!([["no_such_tool", {}]])),
        fork(json!("panic")),
        Subagent { child: taken, task: json!([]) },
        fork(json!([write("last", "5"), ["rm", { "path": "a" }]])),
    ];
    let work = |child: ChildContext| async move {
        assert!(child.task != "panic", "the callback of {} panics", child.number);
        calls(child).await
    };
    let results = family.runtime.block_on(dispatch_subagents(&parent, &family.forker(), batch, merging(), work));
    let [first, fails, panics, unnamed, last] = &results[..] else { panic!("{results:?}") };
    assert_eq!(first.outcome, SubagentOutcome::Done { result: json!(1) });
    let words = |outcome: &SubagentOutcome| match outcome {
        SubagentOutcome::Failed { reason } => format!("failed: {reason}"),
        SubagentOutcome::Panicked { reason } => format!("panicked: {reason}"),
        SubagentOutcome::NotStarted { reason } => format!("not started: {reason}"),
        other => format!("{other:?}"),
    };
    assert!(words(&fails.outcome).starts_with("failed: tool "), "{:?}", fails.outcome);
    assert_eq!(words(&panics.outcome), "panicked: the callback of 2 panics");
    assert!(words(&unnamed.outcome).starts_with("not started: a session called"), "{:?}", unnamed.outcome);
    assert_eq!(last.outcome, SubagentOutcome::Done { result: json!(2) });
    assert_eq!((merge_of(first), merge_of(last)), (MergeOutcome::Merged, MergeOutcome::Merged));
    assert!([fails, panics, unnamed].iter().all(|result| result.merge.is_none()));
    assert_eq!(family.texts_on_host(parent.session()), texts([("first", "1"), ("last", "5")]));
}

#[test]
fn subagents_run_concurrently_up_to_limit() {
    let family = Family::on_host();
    let parent = family.founder();
    let (at_work, most, both) = (AtomicUsize::new(0), AtomicUsize::new(0), Barrier::new(2));
    let shared = Arc::new((at_work, most, both));
    let seen = Arc::clone(&shared);
    let work = move |_| {
        let shared = Arc::clone(&shared);
        async move {
            let (at_work, most, both) = &*shared;
            most.fetch_max(at_work.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            // It only goes on when another one is at work, too.
            both.wait().await;
            at_work.fetch_sub(1, Ordering::SeqCst);
            Ok(Value::Null)
        }
    };
    let batch = (0..6).map(|_| fork(Value::Null)).collect();
    let options = Subagents { parallel: 2, ..Subagents::default() };
    let results = family.runtime.block_on(dispatch_subagents(&parent, &family.forker(), batch, options, work));
    assert_eq!((results.len(), results.iter().filter(|result| result.outcome.is_done()).count()), (6, 6));
    assert_eq!(seen.1.load(Ordering::SeqCst), 2);
}

#[test]
fn subagents_are_isolated_and_second_conflicts() {
    let family = Family::on_host();
    let parent = family.founder();
    family.create(&parent, "a", "1\n");
    let edit = |new: &str| json!([["edit_file", { "file_path": "a", "old_string": "1\n", "new_string": new }]]);
    let batch = vec![fork(edit("2\n")), fork(edit("3\n")), fork(json!([write("c", "c")]))];
    let results = family.runtime.block_on(dispatch_subagents(&parent, &family.forker(), batch, merging(), calls));
    let outcomes: Vec<_> = results.iter().map(merge_of).collect();
    assert_eq!(outcomes, [MergeOutcome::Merged, MergeOutcome::Conflicted, MergeOutcome::Merged]);
    assert_eq!(family.texts_on_host(parent.session()), texts([("a", "2\n"), ("c", "c")]));
}

#[test]
fn subagent_shared_works_in_parent_files() {
    let family = Family::on_host();
    let parent = family.founder();
    let batch = vec![agent(Isolation::Shared, json!([write("a", "a")])), fork(json!([write("b", "b")]))];
    let options = Subagents::default();
    let results = family.runtime.block_on(dispatch_subagents(&parent, &family.forker(), batch, options, calls));
    assert!(results.iter().all(|result| result.outcome.is_done() && result.merge.is_none()), "{results:?}");
    assert_eq!(results[0].session, Some(parent.session().id()));
    assert_eq!(family.texts_on_host(parent.session()), texts([("a", "a")]));
    let last = parent.session().event(parent.session().head().unwrap()).unwrap();
    assert_eq!(&*last.agent, "worker");
    family.create(&parent, "still", "open");
}

#[test]
fn subagent_batch_can_be_cancelled() {
    let family = Family::on_host();
    let parent = family.founder();
    let options = Subagents { parallel: 1, ..merging() };
    let (cancel, begun) = (options.cancel.clone(), Arc::new(Notify::new()));
    let told = Arc::clone(&begun);
    let work = move |child: ChildContext| {
        let told = Arc::clone(&told);
        async move {
            let command = json!({ "command": "echo begun > begun; sleep 1000", "timeout_seconds": 120 });
            let running = child.tool_runner.call(ToolCall::new("shell_execute", command));
            told.notify_one();
            running.await.map(|_| Value::Null).map_err(|error| error.to_string())
        }
    };
    let batch = vec![fork(Value::Null), fork(Value::Null)];
    let forker = family.forker();
    let results = family.runtime.block_on(async {
        let running = dispatch_subagents(&parent, &forker, batch, options, work);
        let cancelling = async {
            begun.notified().await;
            cancel.cancel();
        };
        tokio::join!(running, cancelling).0
    });
    assert!(results.iter().all(|result| result.outcome == SubagentOutcome::Cancelled && result.merge.is_none()));
    assert_eq!(family.texts_on_host(parent.session()), texts([]));
}

#[test]
fn subagent_limits_hold_in_a_batch() {
    let family = Family::on_host();
    let parent = family.founder();
    let mut once = fork(json!([write("a", "a"), write("b", "b")]));
    once.child.limits = ChildLimits { calls: Some(1), ..ChildLimits::default() };
    let results = family.runtime.block_on(dispatch_subagents(&parent, &family.forker(), vec![once], merging(), calls));
    let SubagentOutcome::Failed { reason } = &results[0].outcome else { panic!("{results:?}") };
    assert!(reason.contains("used up its 1 call"), "{reason}");
    assert_eq!(family.texts_on_host(parent.session()), texts([]), "what failed is not merged");
}

#[test]
fn subagent_without_mounts_is_named() {
    let family = Family::on_host();
    let parent = family.founder();
    let source = family.path().join("source");
    std::fs::create_dir_all(&source).unwrap();
    std::fs::write(source.join("a.txt"), "a").unwrap();
    let mounts = [foldspace::tools::MountSpec { host_path: source.clone(), ..foldspace::tools::MountSpec::default() }];
    let forker = family.forker();
    let hydrating = foldspace::tools::hydrate(parent.session(), parent.workspace().as_ref(), &mounts, &forker.roots);
    family.runtime.block_on(hydrating).unwrap();
    std::fs::remove_dir_all(source).unwrap();
    let batch = vec![agent(Isolation::Full, json!([]))];
    let results = family.runtime.block_on(dispatch_subagents(&parent, &forker, batch, merging(), calls));
    assert!(matches!(results[0].outcome, SubagentOutcome::NotStarted { .. }), "{results:?}");
    let begun = family.sessions.session(results[0].session.unwrap()).unwrap();
    assert_eq!(begun.name(), results[0].name, "who begins batches can take it away again");
}
