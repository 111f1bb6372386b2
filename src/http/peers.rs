//! Proofs between the hosts of a cluster: each proves that it has the token, and neither sends it.
//!
//! A host reads the addresses of other hosts from the cluster, where anything may be written. So it sends a request
//! only to a host that has answered its question, and with a credential for that request alone.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use axum::extract::Request;
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderName, Method};
use serde_json::json;
use tokio::time::Instant;

use super::problem::{HttpProblem, ProblemKind};
use super::token::secret;
use super::{Access, HttpFace, Token};
use crate::engine::lock::lock;
use crate::engine::store::StoreHost;

/// Carries a question: the name of the host that asks, its nonce, and its proof.
pub(super) const ASK: HeaderName = HeaderName::from_static("foldspace-ask");
/// Carries the answer: the other host's nonce, and its proof.
pub(super) const ANSWER: HeaderName = HeaderName::from_static("foldspace-answer");
/// The scheme of a credential for one request: the other host's nonce, and the proof.
const SCHEME: &str = "Foldspace-Host ";
/// Time that an answer stays valid.
const GOOD: Duration = Duration::from_secs(10);
const ANSWERS_MAX: usize = 4096;

/// A question of one host to another, and the answer.
#[derive(Clone)]
pub(super) struct HostProof {
    token: Token,
    pub(super) from: String,
    to: StoreHost,
    asked: String,
    /// Empty before the answer.
    answered: String,
}

impl HostProof {
    /// Begins a question to a host.
    pub(super) fn ask(token: Token, from: &str, to: &StoreHost) -> Result<Self, HttpProblem> {
        let (from, asked) = (from.to_owned(), secret()?);
        Ok(Self { token, from, to: to.clone(), asked, answered: String::new() })
    }

    /// Returns the value of the question's header.
    pub(super) fn question(&self) -> String {
        format!("{} {} {}", self.from, self.asked, self.of("ask", ["", ""]).to_hex())
    }

    /// Checks the answer of the other host. Returns `None` if the proof is wrong or missing.
    pub(super) fn answered(mut self, headers: &HeaderMap) -> Option<Self> {
        let (nonce, proof) = headers.get(ANSWER)?.to_str().ok()?.split_once(' ')?;
        nonce.clone_into(&mut self.answered);
        is(proof, &self.of("answer", ["", ""])).then_some(self)
    }

    /// Returns the credential for one request to a host that has answered.
    pub(super) fn credential(&self, method: &Method, path: &str) -> String {
        format!("{SCHEME}{} {}", self.answered, self.of("request", [method.as_str(), path]).to_hex())
    }

    /// Returns the proof of a step, valid only between these two hosts.
    fn of(&self, step: &str, request: [&str; 2]) -> blake3::Hash {
        let Self { from, to, asked, answered, .. } = self;
        self.token.derived(&json!(["hosts", step, from, to.name, to.at, asked, answered, request]).to_string())
    }
}

/// Compares in constant time.
fn is(shown: &str, proof: &blake3::Hash) -> bool {
    blake3::Hash::from_hex(shown).is_ok_and(|shown| shown == *proof)
}

/// The answers that other hosts have not used yet, by their nonces.
#[derive(Default)]
pub(super) struct HostAnswers(Mutex<BTreeMap<String, (HostProof, Instant)>>);

impl HttpFace {
    /// Answers the question of another host. Returns `None` for a request without a question.
    pub(super) fn answer_host(&self, headers: &HeaderMap, access: &Access) -> Result<Option<String>, HttpProblem> {
        let (Some(asked), Access::Token { token, .. }) = (headers.get(ASK), access) else { return Ok(None) };
        let refused = || HttpProblem::new(ProblemKind::Forbidden, "this host has a different token, name or address");
        let parts: Vec<_> = asked.to_str().unwrap_or_default().split(' ').map(str::to_owned).collect();
        let [from, asked, proof] = <[String; 3]>::try_from(parts).map_err(|_| refused())?;
        let hosts = self.hub().sessions().store().hosts().ok_or_else(refused)?;
        // The proof covers this host's own name and address: a host that relays the question gets no usable answer.
        let asked = HostProof { token: token.clone(), from, to: hosts.own().clone(), asked, answered: String::new() };
        if !is(&proof, &asked.of("ask", ["", ""])) {
            return Err(refused());
        }
        let (answer, now) = (HostProof { answered: secret()?, ..asked }, Instant::now());
        let text = format!("{} {}", answer.answered, answer.of("answer", ["", ""]).to_hex());
        let mut answers = lock(&self.shared.host_answers.0);
        answers.retain(|_, (_, until)| *until > now);
        if answers.len() >= ANSWERS_MAX {
            return Err(HttpProblem::new(ProblemKind::Ending, "too many unused answers to other hosts"));
        }
        answers.insert(answer.answered.clone(), (answer, now + GOOD));
        Ok(Some(text))
    }

    /// Returns true if the request has another host's credential, valid once and only for the same token.
    pub(super) fn is_of_host(&self, request: &Request, token: &Token) -> bool {
        let shown = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let shown = shown.and_then(|shown| shown.strip_prefix(SCHEME)).and_then(|shown| shown.split_once(' '));
        let Some((nonce, proof)) = shown else { return false };
        let Some((answer, until)) = lock(&self.shared.host_answers.0).remove(nonce) else { return false };
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let answer = HostProof { token: token.clone(), ..answer };
        until > Instant::now() && is(proof, &answer.of("request", [request.method().as_str(), path]))
    }
}
