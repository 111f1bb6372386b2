//! The messages of agents' runs.

use foldspace::view::RunMessage;

use super::{BOLD, DIM, Failure, Out, events, text};
use crate::terminal::style::Tone;

/// Returns a message in one line, or its claim with the command that contradicts it.
pub(super) fn line(message: &RunMessage, out: &Out) -> String {
    let Some(claim) = &message.claim else {
        let usage = usage(message).map(|usage| format!("  {}", out.paint(DIM, usage))).unwrap_or_default();
        return format!("{}{usage}", events::said(message));
    };
    let ended = out.paint(Tone::Bad, &claim.ended);
    let command = format!("#{} {}", claim.call, text::one_line(&claim.tool, 40));
    format!("\"{}\"  {ended}  {command}  {}", text::one_line(&claim.sentence, 200), claim.command)
}

/// Shows a whole message.
pub(super) fn show(message: &RunMessage, out: &mut Out) -> Result<(), Failure> {
    let model = message.usage.model.as_ref().map(|model| text::one_line(model, 100));
    let about: Vec<String> = model.into_iter().chain(usage(message)).collect();
    let title = out.paint(BOLD, message.role.word());
    out.line(format!("\n{title}  {}", out.paint(DIM, about.join(", "))).trim_end())?;
    message.text.lines().try_for_each(|line| out.line(format!("    {}", out.content(line)).trim_end()))?;
    match message.cut {
        true => out.line(out.paint(DIM, "    the rest is not stored")),
        false => Ok(()),
    }
}

fn usage(message: &RunMessage) -> Option<String> {
    let tokens = |count: Option<u64>, way| count.map(|count| format!("{} {way}", text::count(count, "token")));
    let cost = message.usage.cost.map(|cost| format!("${cost:.4}"));
    let parts = [tokens(message.usage.input_tokens, "in"), tokens(message.usage.output_tokens, "out"), cost];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}
