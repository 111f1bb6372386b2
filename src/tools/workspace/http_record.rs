//! Recorded HTTP exchanges: masked before they are stored, and replayed.

use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use regex::Regex;
use serde_json::Value;

use super::recording::EventBuffer;
use crate::backends::{HttpAnswers, HttpMessage, HttpReport};
use crate::engine::Digest;
use crate::engine::commit::{CommitError, Content};
use crate::engine::event::{EffectOutcome, EffectSource, ExternalEffect, HttpExchange, HttpPart};
use crate::engine::id::Seq;
use crate::engine::lock::lock;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::tools::policy::effect_text::target_of;
use crate::tools::secret_mask::SecretMask;

/// Methods of requests that change something, as a rule.
const CHANGING: [&str; 4] = ["POST", "PUT", "PATCH", "DELETE"];
/// The end of the path of a request of git that only reads, by `POST`.
const GIT_READS: &str = "/git-upload-pack";
/// Headers with URLs.
const ADDRESSES: [&str; 3] = ["location", "content-location", "referer"];
/// Headers that select an answer.
const SELECTING: [&str; 5] = ["accept", "range", "if-range", "if-none-match", "if-modified-since"];
const MULTIPART: &str = "multipart/form-data";
const FORM: &str = "application/x-www-form-urlencoded";
const SUCCESS: u16 = 400;

/// Masks requests, by well-known secrets and by the masks of a session.
pub(crate) struct HttpMask(SecretMask);

impl HttpMask {
    /// Masks that are not valid expressions are ignored: the options of a workspace are checked before.
    pub(crate) fn new(own: &[String]) -> Self {
        let own: Vec<Regex> = own.iter().filter_map(|text| Regex::new(text).ok()).collect();
        Self(SecretMask::new(true, &own))
    }

    fn url(&mut self, url: &str) -> String {
        let Some((path, query)) = url.split_once('?') else { return self.0.text(url).into_owned() };
        let path = self.0.text(path).into_owned();
        format!("{path}?{}", self.0.pairs(query))
    }

    fn headers(&mut self, headers: &[(String, String)]) -> Vec<(String, String)> {
        let mut masked = |name: &String, value: &String| {
            let value = self.0.header(name, value).into_owned();
            if ADDRESSES.contains(&name.as_str()) { self.url(&value) } else { value }
        };
        headers.iter().map(|(name, value)| (name.clone(), masked(name, value))).collect()
    }

    fn body(&mut self, message: &HttpMessage) -> Vec<u8> {
        let Ok(text) = std::str::from_utf8(&message.body) else { return message.body.clone() };
        let kind = message.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        let kind = kind.map(|(_, kind)| kind.to_ascii_lowercase()).unwrap_or_default();
        if kind.starts_with(FORM) {
            return self.0.pairs(text).into_bytes();
        }
        if kind.starts_with(MULTIPART) {
            return self.parts(text).into_bytes();
        }
        let text = self.0.text(text);
        if text.trim_start().starts_with(['{', '['])
            && let Ok(value) = serde_json::from_str::<Value>(&text)
        {
            let mut masked = value.clone();
            self.0.json(&mut masked);
            self.0.short_fields(&mut masked, false);
            if masked != value {
                return masked.to_string().into_bytes();
            }
        }
        text.into_owned().into_bytes()
    }

    /// Masks the fields of a form in parts.
    fn parts(&mut self, text: &str) -> String {
        let masked = |part: &str| match part.split_once("\r\n\r\n") {
            Some((head, value)) if head.split("name=\"").skip(1).any(|name| self.0.is_secret_field(quoted(name))) => {
                format!("{head}\r\n\r\n[masked]{}", &value[value.rfind("\r\n").unwrap_or(value.len())..])
            }
            _ => self.0.text(part).into_owned(),
        };
        // Each part begins with two hyphens and the boundary.
        let first = text.split("\r\n").next().unwrap_or(text);
        let parts: Vec<String> = text.split(first).map(masked).collect();
        if first.is_empty() { self.0.text(text).into_owned() } else { parts.join(first) }
    }
}

/// Records a request, its answer, and its effect outside of the workspace.
pub(crate) fn record(report: &HttpReport, mask: &mut HttpMask, recording: &mut EventBuffer) -> Result<(), CommitError> {
    let HttpReport { method, status, error, is_replayed, left_out, duration, .. } = report;
    let mut part = |message: &HttpMessage| {
        let (headers, bytes) = (mask.headers(&message.headers), message.bytes);
        let truncated = bytes > message.body.len() as u64;
        let content = (!message.body.is_empty()).then(|| Content::of(mask.body(message)));
        let body = content.as_ref().map(|content| content.digest);
        content.into_iter().for_each(|content| recording.keep(content));
        HttpPart { headers, body, bytes, truncated }
    };
    let (request, response) = (part(&report.request), part(&report.response));
    let exchange = HttpExchange {
        method: method.clone(),
        url: mask.url(&report.url),
        request,
        status: *status,
        response,
        error: error.clone(),
        replayed: *is_replayed,
        left_out: *left_out,
        micros: u64::try_from(duration.as_micros()).unwrap_or(u64::MAX),
    };
    recording.push(&exchange)?;
    effect_of(&exchange).map_or(Ok(()), |effect| recording.push(&effect))
}

/// Returns the effect of a request that changes something, as a rule.
fn effect_of(exchange: &HttpExchange) -> Option<ExternalEffect> {
    let HttpExchange { method, url, status, replayed, .. } = exchange;
    if *replayed || !CHANGING.contains(&method.as_str()) || target_of(url).ends_with(GIT_READS) {
        return None;
    }
    let outcome = match *status {
        0 => EffectOutcome::Unknown,
        status if status < SUCCESS => EffectOutcome::Done,
        _ => EffectOutcome::Failed,
    };
    let (what, by) = (method.clone(), EffectSource::Network);
    Some(ExternalEffect { what, target: target_of(url), outcome, undo: String::new(), by, of: None })
}

fn quoted(text: &str) -> &str {
    text.split('"').next().unwrap_or(text)
}

/// The method, the URL, the headers that select an answer, and the digest of the body of a request, with secrets masked.
#[derive(PartialEq, Eq, Hash)]
struct RequestKey {
    method: String,
    url: String,
    selecting: Vec<(String, String)>,
    body: Option<Digest>,
}

impl RequestKey {
    fn new(method: &str, url: String, headers: &[(String, String)], body: Option<Digest>) -> Self {
        let selecting = headers.iter().filter(|(name, _)| SELECTING.contains(&name.as_str())).cloned().collect();
        Self { method: method.to_owned(), url, selecting, body }
    }
}

/// Returns the answers that a session has recorded from `from` to `until`. Equal requests are answered in the recorded
/// order, and the last answer is repeated. Fails with [`SessionError`] if the session can't be read.
pub(crate) fn answers(session: &Session, from: Seq, until: Seq, mask: &[String]) -> Result<HttpAnswers, SessionError> {
    let mut known: HashMap<RequestKey, VecDeque<HttpExchange>> = HashMap::new();
    session.visit_between(from, until, &mut |event| {
        if let Some(exchange) = event.decoded::<HttpExchange>() {
            let HttpExchange { method, url, request, .. } = &exchange;
            let key = RequestKey::new(method, url.clone(), &request.headers, request.body);
            known.entry(key).or_default().push_back(exchange);
        }
        ControlFlow::Continue(())
    })?;
    let (known, mask, session) = (Mutex::new(known), Mutex::new(HttpMask::new(mask)), session.clone());
    Ok(Arc::new(move |request: &HttpReport| {
        let HttpMessage { headers, body, .. } = &request.request;
        let (url, headers, body) = {
            let mut mask = lock(&mask);
            let body = (!body.is_empty()).then(|| Digest::of(&mask.body(&request.request)));
            (mask.url(&request.url), mask.headers(headers), body)
        };
        let asked = format!("{} {url}", request.method);
        let exchange = {
            let mut known = lock(&known);
            let answers = known.get_mut(&RequestKey::new(&request.method, url, &headers, body));
            let answers = answers.ok_or_else(|| format!("the recording has no response to {asked}"))?;
            let next = if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() };
            next.ok_or_else(|| format!("the recording has no response to {asked}"))?
        };
        answer(&session, exchange).map_err(|why| format!("{why} {asked}"))
    }))
}

fn answer(session: &Session, exchange: HttpExchange) -> Result<(u16, HttpMessage), String> {
    let HttpExchange { status, response: HttpPart { headers, body, bytes, truncated }, error, .. } = exchange;
    match status {
        0 => return Err(format!("no response was recorded ({error}) to")),
        101 => return Err("the recording has no content of the connection after".to_owned()),
        _ if truncated => return Err(format!("the recording does not have all {bytes} bytes of the response to")),
        _ if !error.is_empty() => return Err(format!("the recording has only a part ({error}) of the response to")),
        _ => {}
    }
    let body = match body {
        Some(digest) => session.content(&digest).map_err(|error| format!("{error}; it is the response to"))?.to_vec(),
        None => Vec::new(),
    };
    Ok((status, HttpMessage { headers, body, bytes }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: &str, body: &str) -> HttpMessage {
        let headers = vec![("content-type".to_owned(), kind.to_owned())];
        HttpMessage { headers, body: body.into(), bytes: body.len() as u64 }
    }

    #[test]
    fn secrets_in_requests_are_masked() {
        let mut mask = HttpMask::new(&["cats?".to_owned()]);
        for (kind, body, expected) in [
            ("application/json", r#"{ "a": 1 }"#, r#"{ "a": 1 }"#),
            ("application/json", r#"{ "access_token": "abcdefgh" }"#, r#"{ "access_token": "[masked]" }"#),
            ("application/json", r#"{ "token": "$1 ab{cd}" }"#, r#"{"token":"[masked]"}"#),
            (FORM, "grant=x&client_secret=ab%20c&key=1", "grant=x&client_secret=[masked]&key=[masked]"),
            (
                "application/json",
                r#"{"password":["ab",1],"auth-token":"^5.0.0"}"#,
                r#"{"password":["[masked]",1],"auth-token":"^5.0.0"}"#,
            ),
            (
                "application/json",
                r#"{"next":"/a?access_token=abcd&b=1"}"#,
                r#"{"next":"/a?access_token=[masked]&b=1"}"#,
            ),
            ("application/json", r#"{"password":"123456"}"#, r#"{"password":"[masked]"}"#),
            ("text/plain", "my cats", "my [masked]"),
        ] {
            assert_eq!(String::from_utf8(mask.body(&message(kind, body))).unwrap(), expected);
        }
        let url = "https://me:hunter2@x.example/a?token=1&b=2";
        assert_eq!(mask.url(url), "https://me:[masked]@x.example/a?token=[masked]&b=2");
        for (name, value, masked) in [
            ("Cookie", "v", "[masked]"),
            ("ocp-subscription-key", "v", "[masked]"),
            ("location", "/a?%74oken=1", "/a?%74oken=[masked]"),
            ("accept", "v", "v"),
        ] {
            assert_eq!(mask.headers(&[(name.to_owned(), value.to_owned())])[0].1, masked, "{name}");
        }
        let body = "--x\r\nContent-Disposition: form-data; name=\"password\"\r\n\r\nab\r\n--x\r\n\
                    Content-Disposition: form-data; name=\"b\"\r\n\r\nc\r\n--x--\r\n";
        let masked = String::from_utf8(mask.body(&message("multipart/form-data; boundary=x", body))).unwrap();
        assert_eq!(masked, body.replace("ab", "[masked]"));
    }
}
