//! Custom events, a custom slice and its reducers; an atomic commit; a subscription; a restart.
//!
//! `cargo run --example own_events`

#![expect(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use foldspace::event::CommitId;
use foldspace::fold::SliceError;
use foldspace::reducers::{
    AppendAll, Keyed, LatestByKey, ReplaceLatest, UpsertByKey, append_all, replace_latest, replace_latest_by_key,
    upsert_by_key,
};
use foldspace::store::Expected;
use foldspace::{Event, Filter, NewSession, Recorded, Reducer, Registry, Sessions, Slice};
use serde::{Deserialize, Serialize};

/// Money was spent on a model.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Spent {
    model: String,
    cents: u64,
}

impl Event for Spent {
    const KIND: &'static str = "Spent";
}

/// The total spent.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Budget {
    cents: u64,
    purchases: u64,
}

impl Slice for Budget {
    const NAME: &'static str = "Budget";
    // Version 1 had only the cents. A rewind may have recorded such a value in the history.
    const VERSION: u32 = 2;

    fn decode_older(_: u32, blocks: &[Bytes]) -> Result<Self, SliceError> {
        let cents = serde_json::from_slice(&blocks.concat());
        Ok(Self { cents: cents.map_err(|error| SliceError::new(Self::NAME, error))?, purchases: 0 })
    }
}

/// A task of the agent's plan changed its state.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Task {
    title: String,
    done: bool,
}

impl Event for Task {
    const KIND: &'static str = "Task";
}

impl Keyed for Task {
    type Key = String;

    fn key(&self) -> String {
        self.title.clone()
    }
}

/// A test's score was measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Score {
    test: String,
    points: u32,
}

impl Event for Score {
    const KIND: &'static str = "Score";
}

impl Keyed for Score {
    type Key = String;

    fn key(&self) -> String {
        self.test.clone()
    }
}

/// Another model was chosen.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct ModelChosen {
    model: String,
}

impl Event for ModelChosen {
    const KIND: &'static str = "ModelChosen";
}

fn registry() -> Result<Registry, Box<dyn Error>> {
    // Besides the custom slice, generic ones: all events of a type, the latest event, the latest for each key.
    let registry = Registry::standard().with(append_all::<Spent>)?.slice::<Budget>()?.reducer(spend())?;
    let registry = registry.with(replace_latest::<ModelChosen>)?.with(replace_latest_by_key::<Score>)?;
    Ok(registry.with(upsert_by_key::<Task>)?)
}

/// Adds what was spent.
fn spend() -> impl Reducer<Budget, Spent> {
    |budget: Budget, spent: &Recorded<Spent>| Budget {
        cents: budget.cents + spent.event.cents,
        purchases: budget.purchases + 1,
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let sessions = Sessions::open(directory.path(), registry()?)?;
    let session = sessions.create(NewSession::named("plan"))?;
    let mut purchases = session.subscribe(1, Filter::of::<Spent>());

    // Recorded atomically, and only if nothing else was recorded in between.
    let mut commit = session.commit().expecting(Expected::Exactly(session.head()?));
    commit.push(&Task { title: "write the parser".to_owned(), done: false })?;
    commit.push(&Task { title: "test the parser".to_owned(), done: false })?;
    commit.push(&Spent { model: "small".to_owned(), cents: 3 })?;
    let planned = session.record(commit)?;

    let mut late = session.commit().expecting(Expected::Exactly(planned.first));
    late.push(&Spent { model: "large".to_owned(), cents: 90 })?;
    if let Err(error) = session.record(late) {
        println!("a late commit fails: {error}");
    }

    // The id marks the second commit as a retry, so it is recorded once.
    let id = CommitId::from_bytes([7; 16]);
    for _ in 0..2 {
        let mut commit = session.commit().with_id(id);
        commit.push(&Task { title: "write the parser".to_owned(), done: true })?;
        commit.push(&ModelChosen { model: "large".to_owned() })?;
        commit.push(&Score { test: "parser".to_owned(), points: 7 })?;
        session.record(commit)?;
    }

    let seen = purchases.next_typed::<Spent>(Duration::from_secs(5))?.ok_or("nothing came")??;
    println!("received event {}: {} cents for {}", seen.seq, seen.event.cents, seen.event.model);

    drop((session, purchases));
    sessions.close();

    let sessions = Sessions::open(directory.path(), registry()?)?;
    let session = sessions.session(sessions.find("plan")?.id)?;
    let state = session.state()?;
    let budget = state.slice::<Budget>().ok_or("the slice is registered")?;
    println!("after a restart: {} cents in {} purchase(s)", budget.cents, budget.purchases);
    for task in state.slice::<UpsertByKey<Task>>().ok_or("the slice is registered")?.iter() {
        println!("  [{}] {}", if task.done { 'x' } else { ' ' }, task.title);
    }
    let all = state.slice::<AppendAll<Spent>>().map_or(0, AppendAll::len);
    let chosen = state.slice::<ReplaceLatest<ModelChosen>>().and_then(|chosen| chosen.item.as_ref());
    println!("{all} purchase(s), now with model {}", chosen.map_or("none", |chosen| &chosen.model));
    for Score { test, points } in state.slice::<LatestByKey<Score>>().ok_or("the slice is registered")?.iter() {
        println!("  {test}: {points} points");
    }
    let before = session.state_at(planned.last)?;
    let open = before.slice::<UpsertByKey<Task>>().map_or(0, |tasks| tasks.iter().filter(|task| !task.done).count());
    println!("open tasks at event {}: {open}", planned.last);
    Ok(())
}
