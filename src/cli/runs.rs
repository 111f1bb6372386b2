//! The list of agents' runs in a session.

use foldspace::reducers::{AgentRun, AgentRuns};
use foldspace::view;
use foldspace::{Seq, Session, Timestamp};
use serde::Serialize;

use super::{Cell, DIM, Failure, Out, TextTable, blame, text};

/// A run, as `log --runs` lists it.
#[derive(Serialize)]
struct ListedRun {
    run: String,
    agent: String,
    model: Option<String>,
    seq: Seq,
    began_at: Timestamp,
    /// The time of its end; null while it runs.
    ended_at: Option<Timestamp>,
    calls: u64,
    incomplete: u64,
    /// The first line of the latest request.
    prompt: String,
}

/// Shows the runs that started up to a position: with `limit` only the last ones, with `reverse` the latest first.
pub(super) fn show(
    session: &Session,
    until: Seq,
    (limit, reverse): (Option<usize>, bool),
    out: &mut Out,
) -> Result<(), Failure> {
    let state = session.state_at(until)?;
    let runs = state.slice::<AgentRuns>().cloned().unwrap_or_default().runs;
    let listed = runs.into_iter().map(|(run, known)| listed(session, run, known));
    let mut listed = listed.collect::<Result<Vec<_>, _>>()?;
    listed.sort_by_key(|run| run.seq);
    if listed.iter().any(|run| run.prompt.is_empty()) {
        let mut prompts = view::prompts(session, until)?;
        for run in listed.iter_mut().filter(|run| run.prompt.is_empty()) {
            run.prompt = prompts.remove(&run.run).unwrap_or_default();
        }
    }
    if let Some(limit) = limit {
        listed.drain(..listed.len().saturating_sub(limit));
    }
    if reverse {
        listed.reverse();
    }
    if out.is_json() {
        return listed.iter().try_for_each(|run| out.line(out.json(run)?));
    }
    if listed.is_empty() {
        return out.line("no agent has reported a run");
    }
    let mut table = TextTable::with_titles(&["RUN", "AGENT", "MODEL", "BEGAN", "ENDED", ">CALLS", "PROMPT"]);
    for run in listed {
        let ended = run.ended_at.map_or("-".to_owned(), text::moment);
        table.row([
            Cell::left(blame::short(&run.run)),
            Cell::left(text::one_line(&run.agent, 40)),
            Cell::left(text::one_line(run.model.as_deref().unwrap_or("-"), 40)),
            Cell::left(text::moment(run.began_at)).styled(DIM),
            Cell::left(ended).styled(DIM),
            Cell::right(run.calls),
            Cell::left(text::one_line(&run.prompt, 80)),
        ]);
    }
    table.show(out)
}

fn listed(session: &Session, run: String, known: AgentRun) -> Result<ListedRun, Failure> {
    let AgentRun { seq, agent, facts, calls, incomplete, prompt, ended, .. } = known;
    let model = facts.get("model").and_then(|model| model.as_str()).map(str::to_owned);
    let began_at = session.event(seq)?.time;
    let ended_at = if ended == 0 { None } else { Some(session.event(ended)?.time) };
    Ok(ListedRun { run, agent, model, seq, began_at, ended_at, calls, incomplete, prompt })
}
