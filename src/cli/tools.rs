use foldspace::tools::{Effect, ToolDescription};
use serde_json::Value;

use super::{BOLD, Cell, DIM, Failure, Globals, Out, TextTable, did_you_mean, text};

/// Shows the tools, with the schemas of their parameters and results
#[derive(Debug, clap::Args)]
pub(super) struct ToolsArgs {
    /// The tool; without one, all are listed
    name: Option<String>,
}

impl ToolsArgs {
    pub(super) fn run(&self, _: &Globals, out: &mut Out) -> Result<(), Failure> {
        let all = foldspace::Tools::standard().describe();
        let Some(wanted) = &self.name else { return out.show(&all, |out| list(&all, out)) };
        let tool = all.iter().find(|tool| tool.name == wanted.as_str()).ok_or_else(|| {
            let names: Vec<_> = all.iter().map(|tool| &*tool.name).collect();
            let meant = did_you_mean(wanted, names.iter().copied());
            Failure::missing(format!("unknown tool {wanted:?}"))
                .with_hint(format!("{meant}there are {}", names.join(", ")))
        })?;
        out.show(tool, |out| show(tool, out))
    }
}

fn list(tools: &[ToolDescription], out: &mut Out) -> Result<(), Failure> {
    let mut table = TextTable::default();
    for tool in tools {
        let description = first_sentence(&tool.description);
        let effect = Cell::left(word(tool.effect)).styled(DIM);
        table.row([Cell::left(&*tool.name).styled(BOLD), effect, Cell::left(text::one_line(description, 100))]);
    }
    table.show(out)
}

fn first_sentence(text: &str) -> &str {
    text.find(". ").map_or(text, |end| &text[..=end])
}

fn word(effect: Effect) -> &'static str {
    match effect {
        Effect::ReadOnly => "reads",
        Effect::Additive => "adds",
        Effect::Destructive => "changes",
    }
}

fn show(tool: &ToolDescription, out: &mut Out) -> Result<(), Failure> {
    out.line(format!("{}  {}", out.paint(BOLD, &*tool.name), out.paint(DIM, word(tool.effect))))?;
    out.line(&*tool.description)?;
    for (title, schema) in [("parameters", &tool.params), ("result", &tool.output)] {
        out.line(out.paint(BOLD, format!("\n{title}")))?;
        let schema: &Value = schema.as_value();
        let text = serde_json::to_string_pretty(schema).unwrap_or_default();
        out.line(text)?;
    }
    Ok(())
}
