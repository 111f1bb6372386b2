//! The messages of agents' runs.

use foldspace::view::RunMessage;

use super::{BOLD, DIM, Failure, Out, events, text};
use crate::terminal::style::Tone;

/// Returns a message in one line, with the failed command that contradicts it; or only its claim.
pub(super) fn line(message: &RunMessage, is_claim: bool, out: &Out) -> String {
    let usage = events::usage(message).filter(|_| !is_claim).map(|usage| format!("  {}", out.paint(DIM, usage)));
    let Some(claim) = &message.claim else { return events::said(message) + &usage.unwrap_or_default() };
    let said = match is_claim {
        true => format!("\"{}\"", text::one_line(&claim.sentence, 200)),
        false => events::said(message) + &usage.unwrap_or_default(),
    };
    let ended = out.paint(Tone::Bad, format!("after {}", claim.ended));
    format!("{said}  {ended}  #{} {}  {}", claim.call, text::one_line(&claim.tool, 40), claim.command)
}

/// Shows a whole message.
pub(super) fn show(message: &RunMessage, out: &mut Out) -> Result<(), Failure> {
    let model = message.usage.model.as_ref().map(|model| text::one_line(model, 100));
    let about: Vec<String> = model.into_iter().chain(events::usage(message)).collect();
    let title = out.paint(BOLD, message.role.word());
    out.line(format!("\n{title}  {}", out.paint(DIM, about.join(", "))).trim_end())?;
    message.text.lines().try_for_each(|line| out.line(format!("    {}", out.content(line)).trim_end()))?;
    match message.cut {
        true => out.line(out.paint(DIM, "    the rest is not stored")),
        false => Ok(()),
    }
}
