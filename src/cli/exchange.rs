//! Prints a recorded HTTP request and its response.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use foldspace::Session;
use foldspace::event::{HttpExchange, HttpPart};
use serde_json::{Value, json};

use super::{BOLD, DIM, Failure, Out, text};

/// The most bytes of a body that are printed.
const SHOWN: usize = 64 << 10;

pub(super) fn show(session: &Session, exchange: &HttpExchange, out: &mut Out) -> Result<(), Failure> {
    let HttpExchange { method, url, request, status, response, error, micros, .. } = exchange;
    let line = format!("\n{} {}", text::one_line(method, 20), text::one_line(url, 10_000));
    out.line(out.paint(BOLD, line))?;
    part(session, request, out)?;
    let lasted = text::duration(*micros);
    match *status {
        0 => out.line(out.paint(BOLD, format!("\nno response after {lasted}: {}", text::one_line(error, 1000)))),
        status => {
            out.line(out.paint(BOLD, format!("\n{status} in {lasted}")))?;
            if !error.is_empty() {
                out.line(format!("  {}", text::one_line(error, 1000)))?;
            }
            part(session, response, out)
        }
    }
}

fn part(session: &Session, part: &HttpPart, out: &mut Out) -> Result<(), Failure> {
    for (name, value) in &part.headers {
        let name = out.paint(DIM, format!("{}:", text::one_line(name, 200)));
        out.line(format!("  {name} {}", text::one_line(value, 10_000)))?;
    }
    let size = text::size(part.bytes);
    let Some(digest) = part.body else {
        return if part.truncated { out.line(format!("\n  ({size}, not stored)")) } else { Ok(()) };
    };
    out.line("")?;
    let body = session.content(&digest)?;
    match std::str::from_utf8(&body) {
        Ok(body) if body.len() <= SHOWN => {
            body.lines().try_for_each(|line| out.line(format!("  {}", out.content(line))))?;
        }
        Ok(_) => out.line(format!("  ({size}, too long to print)"))?,
        Err(_) => out.line(format!("  ({size}, binary)"))?,
    }
    if part.truncated { out.line(format!("  (truncated: {size} in total)")) } else { Ok(()) }
}

/// Returns the stored bodies: as text, or in base64.
pub(super) fn bodies(session: &Session, exchange: &HttpExchange) -> Result<Value, Failure> {
    let body = |part: &HttpPart| -> Result<Value, Failure> {
        let Some(digest) = part.body else { return Ok(Value::Null) };
        let body = session.content(&digest)?;
        Ok(match std::str::from_utf8(&body) {
            Ok(text) => json!({ "text": text }),
            Err(_) => json!({ "base64": BASE64_STANDARD.encode(&body) }),
        })
    };
    Ok(json!({ "request": body(&exchange.request)?, "response": body(&exchange.response)? }))
}
