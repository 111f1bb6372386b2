//! The control plane: sandboxes and snapshots.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::connect::{Wrong, collected, parsed};
use super::query::{decoded, query};
use super::sandbox::{PortRules, Sandbox, SandboxState};
use super::sandboxes::{BASE, NewSandbox};
use super::{Api, E2bAnswer};
use crate::backends::{HostPattern, NetworkRules};
use crate::engine::clock::Timestamp;

/// The lifetime of a sandbox in seconds, by default and at most.
const SECONDS: u64 = 300;
const SECONDS_MAX: u64 = 30 * 86_400;
/// The entries of a page, by default and at most.
const PAGE: usize = 100;
const NEXT: &str = "x-next-token";

/// Reads a body, which may be missing.
async fn json<T: DeserializeOwned>(body: Body) -> Result<T, Wrong> {
    parsed(&collected(body).await?)
}

fn seconds(seconds: Option<u64>) -> Result<u64, Wrong> {
    let seconds = seconds.unwrap_or(SECONDS);
    match seconds <= SECONDS_MAX {
        true => Ok(seconds),
        false => Err(Wrong::invalid(format!("timeout is {seconds} s; the limit is {SECONDS_MAX} s"))),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Create {
    #[serde(rename = "templateID")]
    template: Option<String>,
    timeout: Option<u64>,
    #[serde(default)]
    metadata: Option<BTreeMap<String, String>>,
    #[serde(default)]
    env_vars: Option<BTreeMap<String, String>>,
    #[serde(default)]
    auto_pause: bool,
    auto_pause_memory: Option<bool>,
    auto_resume: Option<AutoResume>,
    #[serde(rename = "allow_internet_access")]
    internet: Option<bool>,
    network: Option<NetworkConfig>,
    /// All other fields, to refuse unsupported ones.
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NetworkConfig {
    allow_public_traffic: Option<bool>,
    mask_request_host: Option<String>,
    #[serde(default)]
    allow_out: Option<Vec<HostPattern>>,
    #[serde(default)]
    deny_out: Option<Vec<HostPattern>>,
    /// All other fields, to refuse unsupported ones.
    #[serde(flatten)]
    others: Map<String, Value>,
}

impl NetworkConfig {
    fn check(&self) -> Result<(), Wrong> {
        let given = |name: &&str| self.others.get(*name).is_some_and(|value| !value.is_null());
        match ["egressProxy", "rules"].iter().find(|name| given(name)) {
            Some(name) => Err(Wrong::missing(format_args!("`network.{name}` of a sandbox"))),
            None => Ok(()),
        }
    }

    /// Returns the rules for connections to the outside. E2B's permissions win over its denials.
    fn egress(self) -> NetworkRules {
        let (mut allow, mut deny) = (self.allow_out.unwrap_or_default(), self.deny_out.unwrap_or_default());
        deny.retain(|pattern| !allow.contains(pattern));
        match deny.iter().any(HostPattern::is_everything) {
            true if allow.is_empty() => deny = Vec::from_iter("*".parse()),
            true => deny.clear(),
            // Everything else stays allowed.
            false if !allow.is_empty() => allow.extend("*".parse::<HostPattern>()),
            false => {}
        }
        NetworkRules { allow, deny, public_only: true, ..NetworkRules::default() }
    }
}

#[derive(Deserialize)]
struct AutoResume {
    #[serde(default)]
    enabled: bool,
}

pub(super) async fn create(State(api): Api, headers: HeaderMap, body: Body) -> E2bAnswer {
    let asked: Create = json(body).await?;
    // With `mcp`, the SDKs start the image's `mcp-gateway` by a command.
    for name in ["iam", "volumeMounts"] {
        if asked.others.get(name).is_some_and(|value| !value.is_null()) {
            return Err(Wrong::missing(format_args!("`{name}` of a sandbox")));
        }
    }
    let network = asked.network.unwrap_or_default();
    network.check()?;
    let request = headers.get("idempotency-key").and_then(|key| key.to_str().ok());
    let new = NewSandbox {
        template: asked.template.filter(|template| !template.is_empty()).unwrap_or_else(|| BASE.to_owned()),
        seconds: seconds(asked.timeout)?,
        metadata: asked.metadata.unwrap_or_default(),
        envs: asked.env_vars.unwrap_or_default(),
        auto_pause: asked.auto_pause,
        keeps_memory: asked.auto_pause_memory != Some(false),
        auto_resume: asked.auto_resume.is_some_and(|auto| auto.enabled),
        network: asked.internet.unwrap_or(true),
        ports: PortRules {
            are_private: network.allow_public_traffic == Some(false),
            host: network.mask_request_host.clone().filter(|host| !host.is_empty()),
        },
        egress: (network.allow_out.is_some() || network.deny_out.is_some()).then(|| network.egress()),
        request: request.map(str::to_owned),
    };
    let sandbox = api.begin(new).await?;
    Ok((StatusCode::CREATED, axum::Json(api.created(&sandbox))).into_response())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct List {
    metadata: Option<String>,
    state: Option<String>,
    template: Option<String>,
    started_after: Option<Timestamp>,
    order: Option<String>,
    limit: Option<usize>,
    next_token: Option<String>,
}

pub(super) async fn list(State(api): Api, Query(asked): Query<List>) -> E2bAnswer {
    // The SDKs encode names and values twice.
    let wanted: Vec<(String, String)> = query(asked.metadata.as_deref())
        .map(|(name, value)| (decoded(&name).into_owned(), decoded(&value).into_owned()))
        .collect();
    let states = asked.state.as_deref().map(|states| states.split(',').collect::<Vec<_>>());
    let is_wanted = |sandbox: &Sandbox| {
        let record = &sandbox.record;
        let state = if record.state == SandboxState::Paused { "paused" } else { "running" };
        states.as_ref().is_none_or(|states| states.contains(&state))
            && asked.template.as_ref().is_none_or(|template| *template == record.template)
            && asked.started_after.is_none_or(|after| record.started >= after)
            && wanted.iter().all(|(name, value)| record.metadata.get(name) == Some(value))
    };
    let mut all: Vec<Sandbox> = api.table.all().into_iter().filter(is_wanted).collect();
    if asked.order.as_deref() != Some("asc") {
        all.reverse();
    }
    let (page, next) = page(&all, (asked.limit, asked.next_token), |sandbox| sandbox.name())?;
    Ok(paged(page.iter().map(|sandbox| api.listed(sandbox)).collect(), next))
}

/// Returns a page of entries, and the token of the next page.
fn page<T>(
    all: &[T],
    (limit, after): (Option<usize>, Option<String>),
    name: impl Fn(&T) -> &str,
) -> Result<(&[T], Option<String>), Wrong> {
    let limit = limit.unwrap_or(PAGE);
    if !(1..=PAGE).contains(&limit) {
        return Err(Wrong::invalid(format!("limit is from 1 to {PAGE}, not {limit}")));
    }
    let from = match after.filter(|after| !after.is_empty()) {
        None => 0,
        Some(after) => {
            let gone = || Wrong::invalid("the page token's entry no longer exists; start from the first page");
            1 + all.iter().position(|entry| name(entry) == after).ok_or_else(gone)?
        }
    };
    let page = all.get(from..).unwrap_or_default();
    let next = page.get(limit - 1).filter(|_| page.len() > limit).map(|last| name(last).to_owned());
    Ok((page.get(..limit).unwrap_or(page), next))
}

fn paged(page: Vec<Value>, next: Option<String>) -> Response {
    let mut response = axum::Json(page).into_response();
    if let Some(next) = next.and_then(|next| next.parse().ok()) {
        response.headers_mut().insert(NEXT, next);
    }
    response
}

pub(super) async fn show(State(api): Api, Path(id): Path<String>) -> E2bAnswer {
    Ok(axum::Json(api.shown(&api.sandbox(&id)?)).into_response())
}

pub(super) async fn kill(State(api): Api, Path(id): Path<String>) -> E2bAnswer {
    api.end(api.sandbox(&id)?).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

#[derive(Deserialize)]
pub(super) struct Timeout {
    timeout: Option<u64>,
    duration: Option<u64>,
}

/// Connects to a sandbox. A paused sandbox is resumed; a running one's remaining time is never shortened.
pub(super) async fn connect(State(api): Api, Path(id): Path<String>, body: Body) -> E2bAnswer {
    let asked: Timeout = json(body).await?;
    let (sandbox, seconds) = (api.sandbox(&id)?, seconds(asked.timeout)?);
    if sandbox.record.state == SandboxState::Paused {
        let sandbox = api.resume(sandbox, seconds).await?;
        return Ok((StatusCode::CREATED, axum::Json(api.created(&sandbox))).into_response());
    }
    let sandbox = lengthen(&api, sandbox, seconds).await?;
    Ok(axum::Json(api.created(&sandbox)).into_response())
}

async fn lengthen(api: &super::E2bApi, mut sandbox: Sandbox, seconds: u64) -> Result<Sandbox, Wrong> {
    let ends = api.in_seconds(seconds);
    if ends <= sandbox.record.ends {
        return Ok(sandbox);
    }
    sandbox.record.ends = ends;
    api.keep(sandbox).await
}

pub(super) async fn set_timeout(State(api): Api, Path(id): Path<String>, body: Body) -> E2bAnswer {
    let asked: Timeout = json(body).await?;
    let mut sandbox = api.sandbox(&id)?;
    sandbox.record.ends = api.in_seconds(seconds(asked.timeout)?);
    api.keep(sandbox).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(super) async fn refresh(State(api): Api, Path(id): Path<String>, body: Body) -> E2bAnswer {
    let asked: Timeout = json(body).await?;
    lengthen(&api, api.sandbox(&id)?, seconds(asked.duration)?).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

#[derive(Deserialize)]
pub(super) struct PauseBody {
    memory: Option<bool>,
}

pub(super) async fn pause(State(api): Api, Path(id): Path<String>, body: Body) -> E2bAnswer {
    let asked: Option<PauseBody> = json(body).await?;
    let sandbox = api.sandbox(&id)?;
    if sandbox.record.state == SandboxState::Paused {
        // Another client's command may have resumed its processes.
        return match api.freeze(&sandbox).await {
            true => Ok(StatusCode::NO_CONTENT.into_response()),
            false => Err(Wrong::new(StatusCode::CONFLICT, format!("the sandbox {id:.100} is already paused"))),
        };
    }
    let keep_memory = asked.is_none_or(|asked| asked.memory != Some(false));
    api.pause(sandbox, keep_memory).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Replaces the rules for connections to the outside.
pub(super) async fn update_network(State(api): Api, Path(id): Path<String>, body: Body) -> E2bAnswer {
    let asked: NetworkConfig = json(body).await?;
    asked.check()?;
    let (mut sandbox, rules) = (api.sandbox(&id)?, asked.egress());
    api.apply_egress(sandbox.name(), rules.clone()).await?;
    sandbox.record.egress = Some(rules);
    api.keep(sandbox).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

#[derive(Deserialize)]
pub(super) struct ForkBody {
    count: Option<u32>,
    timeout: Option<u64>,
}

pub(super) async fn fork(State(api): Api, Path(id): Path<String>, body: Body) -> E2bAnswer {
    let asked: ForkBody = json(body).await?;
    let forks = api.fork(&api.sandbox(&id)?, asked.count.unwrap_or(1), seconds(asked.timeout)?).await?;
    let forks: Vec<Value> = forks.iter().map(|fork| json!({ "sandbox": api.created(fork) })).collect();
    Ok((StatusCode::CREATED, axum::Json(forks)).into_response())
}

#[derive(Deserialize)]
pub(super) struct SnapshotBody {
    name: Option<String>,
}

pub(super) async fn create_snapshot(State(api): Api, Path(id): Path<String>, body: Body) -> E2bAnswer {
    let asked: SnapshotBody = json(body).await?;
    let taken = api.take_snapshot(&api.sandbox(&id)?, asked.name.filter(|name| !name.is_empty())).await?;
    let shown = json!({ "snapshotID": taken.snapshot, "names": Vec::from_iter(taken.name) });
    Ok((StatusCode::CREATED, axum::Json(shown)).into_response())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Snapshots {
    #[serde(rename = "sandboxID")]
    sandbox: Option<String>,
    name: Option<String>,
    limit: Option<usize>,
    next_token: Option<String>,
}

pub(super) async fn list_snapshots(State(api): Api, Query(asked): Query<Snapshots>) -> E2bAnswer {
    let mut all = api.snapshots();
    all.retain(|known| {
        asked.sandbox.as_ref().is_none_or(|of| *of == known.of) && (asked.name.is_none() || asked.name == known.name)
    });
    let (page, next) = page(&all, (asked.limit, asked.next_token), |known| &known.snapshot)?;
    let shown = |known: &super::snapshots::SnapshotRecord| json!({ "snapshotID": known.snapshot, "names": Vec::from_iter(known.name.clone()) });
    Ok(paged(page.iter().map(shown).collect(), next))
}

pub(super) async fn delete_snapshot(State(api): Api, Path(id): Path<String>) -> E2bAnswer {
    api.remove_snapshot(&id).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
