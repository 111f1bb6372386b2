//! SQL over the sessions.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Operation, OperationContext, OperationEffect, OperationError, OperationRoute, OperationTool, TooLong, reading,
};
use crate::sql::{SqlAnswer, SqlLimits, query};

/// Limit for the returned rows.
const ROWS: usize = 100_000;
/// Limit for the time in seconds.
const SECONDS: u64 = 300;

/// Runs an SQL query (SQLite, a single SELECT) over all recorded sessions; it can change nothing. Tables: sessions(session,
/// id, parent, inherited, backend, agent, events, calls, created, updated); events(session, seq, time, call, agent, kind, path,
/// data, inherited), data as JSON; calls(session, call, time, agent, tool, summary, status, failed, exit_code, finished,
/// micros, changed, params, result, message, digest, outcome, inherited); commands(session, seq, time, call, agent, kind,
/// command, cwd, exit_code, timed_out, cancelled, micros, stdout, stderr, inherited); changes(session, seq, time, call,
/// agent, path, kind, type, size, digest, inherited); files('SESSION', AT); content('DIGEST') with text;
/// slices('SESSION', 'NAME', AT) with value as JSON. A recorded kind or slice is a table, too. Name a session, a range of
/// positions, a kind or a path where you can: that is fast.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunSql {
    /// The query.
    pub query: String,
    /// Limit for the returned rows, from 1 to 100000; 10000 by default.
    #[schemars(range(min = 1, max = 100_000))]
    pub limit: Option<usize>,
    /// Limit for the time in seconds, from 1 to 300; 30 by default.
    #[schemars(range(min = 1, max = 300))]
    pub timeout_seconds: Option<u64>,
}

impl Operation for RunSql {
    const NAME: &'static str = "sql";
    const ROUTE: Option<OperationRoute> = OperationRoute::post("sessions", "/v1/sql", 200);
    const TOOL: Option<OperationTool> = Some(
        OperationTool::new("sql", OperationEffect::Looks, TooLong::Cut("use LIMIT, and select fewer columns"))
            .for_session("session", "Reads only this session, by name or id prefix; all by default."),
    );
    type Output = SqlAnswer;

    async fn run(self, context: &OperationContext<'_>) -> Result<SqlAnswer, OperationError> {
        let usual = SqlLimits::default();
        let (rows, seconds) = (self.limit.unwrap_or(usual.rows), self.timeout_seconds.unwrap_or(usual.time.as_secs()));
        if !(1..=ROWS).contains(&rows) || !(1..=SECONDS).contains(&seconds) {
            let what = format!("limit must be from 1 to {ROWS}, timeout_seconds from 1 to {SECONDS}");
            return Err(OperationError::invalid(what));
        }
        let limits = SqlLimits { rows, time: Duration::from_secs(seconds), ..usual };
        // The route names no session; a model may.
        let only = match context.session.as_deref() {
            None | Some("") => None,
            Some(_) => Some(context.session().await?.id()),
        };
        let (sessions, cancel) = (context.hub.sessions().clone(), context.cancel.clone());
        reading(move || Ok(query(&sessions, only, &self.query, limits, move || cancel.is_cancelled())?)).await
    }
}
