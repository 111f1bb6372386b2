//! The approval of a bisection's command. The command runs unrecorded, in copies of any session, so the restrictions of
//! the client's own commands apply to it.

use std::collections::BTreeSet;
use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::service::RequestContext;

use super::approver::{AsksAtOnce, can_ask};
use super::calls::comes_back;
use super::client::McpClient;
use super::pending_questions::ASKING_MAX;
use super::tool_list;
use crate::backends::{ShellError, WorkspaceSpec};
use crate::engine::event::{CommandDecided, PolicyDecision};
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::hub::operations::{OperationError, reading};
use crate::reducers::Allowances;
use crate::tools::{ASK_THE_PERSON, Bisection, CommandQuestion, Decided, ShellRules, denied, limits_of};

/// The tool for a client's own commands.
const SHELL: &str = "shell_execute";

/// A bisection, the maximum number of positions where its command runs, and, if it bisects the client's own session,
/// that session's allowed programs.
type WantedProbe = (Bisection, usize, BTreeSet<String>);

pub(super) async fn allow(
    client: &McpClient,
    context: &RequestContext<RoleServer>,
    bisection: Bisection,
) -> Result<Bisection, OperationError> {
    if !tool_list::has(client, SHELL) {
        let what = "commands are not offered here; bisect with a predicate";
        return Err(OperationError::refused(what));
    }
    let own = client.joined(context).await?.open.session().clone();
    let looked = own.clone();
    let wanted = reading(move || wanted(&looked, bisection)).await?;
    decided(client, context, &own, wanted).await
}

fn wanted(own: &Session, mut bisection: Bisection) -> Result<WantedProbe, OperationError> {
    let limits = limits_of(own)?;
    if limits.tools.as_ref().is_some_and(|tools| !tools.contains(SHELL)) {
        let what = format!("session {} may not use {SHELL}, so it may not bisect with a command", own.name());
        return Err(OperationError::refused(what));
    }
    bisection.rules.policy.deny.extend(denied(&limits));
    let started = own.started().ok_or_else(|| SessionError::Unreadable { name: own.name().to_owned() })?;
    check_place(&WorkspaceSpec::of_session(started)?, &bisection)?;
    let is_own = own.id() == bisection.session.id();
    let state = own.state()?;
    let allowed = state.slice::<Allowances>().filter(|_| is_own).map(|known| known.programs.clone());
    let positions = bisection.positions()?;
    Ok((bisection, positions, allowed.unwrap_or_default()))
}

/// Refuses copies that restrict commands less than the client's own workspace.
fn check_place(own: &WorkspaceSpec, bisection: &Bisection) -> Result<(), OperationError> {
    let has_network = |spec: &WorkspaceSpec| matches!(spec, WorkspaceSpec::Podman(options) if options.network.is_on());
    let why = match (own, &bisection.spec) {
        (_, WorkspaceSpec::Memory) => "is in memory, where no command can run; bisect with a predicate",
        (WorkspaceSpec::Host(_), _) => return Ok(()),
        (_, WorkspaceSpec::Host(_)) => "works on the machine itself, unlike this client's own commands",
        (own, copies) if has_network(copies) && !has_network(own) => {
            "reaches the network, unlike this client's own commands"
        }
        _ => return Ok(()),
    };
    Err(OperationError::refused(format!("session {} {why}", bisection.session.name())))
}

/// Asks the policy, then the person, once for all runs. The client's own session records the decision.
async fn decided(
    client: &McpClient,
    context: &RequestContext<RoleServer>,
    own: &Session,
    (bisection, positions, allowed): WantedProbe,
) -> Result<Bisection, OperationError> {
    let decision = bisection.rules.policy.check(&bisection.command, &allowed);
    let question = |programs| CommandQuestion {
        session: bisection.session.name().to_owned(),
        call: 0,
        agent: own.agent().to_string(),
        command: bisection.command.command.clone(),
        env: bisection.command.env.clone(),
        stdin: bisection.command.stdin.clone(),
        programs,
        copies: Some(positions),
    };
    let rules = rules(client, context);
    let decided = tokio::select! {
        decided = Decided::of(decision, &rules, question) => decided,
        () = context.ct.cancelled() => return Err(OperationError::refused("the call was cancelled")),
        () = client.gone.cancelled() => return Err(OperationError::refused("the client disconnected")),
        () = tokio::time::sleep(ASKING_MAX) => return Err(OperationError::refused("the person did not answer in time")),
    };
    let Decided { decision, by, reason, .. } = decided;
    let why = if decision == PolicyDecision::Allow { String::new() } else { format!(": {reason}") };
    let event = CommandDecided {
        command: bisection.command.command.clone(),
        env: bisection.command.env.clone(),
        stdin: None,
        code: None,
        environment: None,
        decision,
        by,
        reason: format!("to bisect session {}{why}", bisection.session.name()),
    };
    let own = own.clone();
    reading(move || {
        let mut commit = own.commit();
        commit.push(&event).map_err(SessionError::from)?;
        Ok(own.record(commit)?)
    })
    .await?;
    match decision {
        PolicyDecision::Allow => Ok(bisection.allowed()),
        PolicyDecision::Deny => Err(OperationError::refused(ShellError::Blocked(reason).to_string())),
    }
}

fn rules(client: &McpClient, context: &RequestContext<RoleServer>) -> ShellRules {
    let rules = client.options().rules.clone();
    match (can_ask(context), comes_back(context)) {
        (false, _) => rules,
        (true, false) => ShellRules { asker: Some(Arc::new(AsksAtOnce(context.peer.clone()))), ..rules },
        // Only a call can wait for the repeated request.
        (true, true) => {
            let advice = format!("in this protocol version a bisection can't ask; {ASK_THE_PERSON}");
            ShellRules { asker: None, advice: Some(advice.into()), ..rules }
        }
    }
}
