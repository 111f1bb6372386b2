//! The options for all commands of a new session.

use foldspace::backends::CommandOptions;
use foldspace::event::VariableValue;

use super::{Failure, text};

pub(super) const NEW_COMMANDS: &str = "Commands of a new session";

#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = NEW_COMMANDS)]
pub(super) struct CommandArgs {
    /// Sets a variable for all commands; NAME alone copies the value from here. May be given several times
    #[arg(long = "env", visible_alias = "environment", value_name = "NAME[=VALUE]")]
    environment: Vec<String>,
    /// Records the values of --env, not only their digests
    #[arg(long, requires = "environment")]
    record_environment: bool,
    /// Sets the default working directory of commands, below /workspace
    #[arg(long, value_name = "DIR")]
    workdir: Option<String>,
    /// Returns at most N bytes of each output stream, 1 KiB to 1 MiB [default: 32768]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1 << 10..=1 << 20))]
    output_bytes: Option<u32>,
    /// Records at most N bytes of each output stream, 1 KiB to 8 MiB [default: 8388608]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1 << 10..=8 << 20))]
    keep_output_bytes: Option<u32>,
    /// Merges standard error into standard output, in the order of writing
    #[arg(long)]
    merge_output: bool,
    /// Treats files that match GLOB as generated: no merge conflicts over them; may be given several times
    #[arg(long, value_name = "GLOB")]
    generated: Vec<String>,
}

impl CommandArgs {
    /// Returns the name of an option that is given.
    pub(super) fn given(&self) -> Option<&'static str> {
        let options = [
            (!self.environment.is_empty(), "--env"),
            (self.workdir.is_some(), "--workdir"),
            (self.output_bytes.is_some(), "--output-bytes"),
            (self.keep_output_bytes.is_some(), "--keep-output-bytes"),
            (self.merge_output, "--merge-output"),
            (!self.generated.is_empty(), "--generated"),
        ];
        options.into_iter().find_map(|(is_given, option)| is_given.then_some(option))
    }

    pub(super) fn options(&self) -> Result<CommandOptions, Failure> {
        let defaults = CommandOptions::default();
        let bytes = |asked: Option<u32>, usual| asked.and_then(|bytes| bytes.try_into().ok()).unwrap_or(usual);
        let workdir = self.workdir.as_deref().map(CommandOptions::workdir_of).transpose()?;
        Ok(CommandOptions {
            environment: self.environment.iter().map(|text| variable(text)).collect::<Result<_, _>>()?,
            record_environment: self.record_environment,
            workdir: workdir.unwrap_or(defaults.workdir),
            output_bytes: bytes(self.output_bytes, defaults.output_bytes),
            keep_output_bytes: bytes(self.keep_output_bytes, defaults.keep_output_bytes),
            merge_output: self.merge_output,
            generated: self.generated.clone(),
        })
    }
}

fn variable(text: &str) -> Result<(String, VariableValue), Failure> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, value.to_owned()),
        None => (text, own_variable(text)?),
    };
    Ok((name.to_owned(), VariableValue::Text(value)))
}

fn own_variable(name: &str) -> Result<String, Failure> {
    std::env::var(name).map_err(|error| {
        let name = text::one_line(name, 80);
        let why = match error {
            std::env::VarError::NotPresent => "is not set here",
            std::env::VarError::NotUnicode(_) => "is not UTF-8 here",
        };
        Failure::usage(format!("--env: {name} {why}")).with_hint(format!("give its value: --env {name}=VALUE"))
    })
}
