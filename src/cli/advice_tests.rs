//! Advice names commands and options that exist.

use clap::error::ErrorKind;
use foldspace::event::Advice;

use super::{Failure, definition};

/// Returns an example of each kind of advice.
fn examples() -> Vec<Advice> {
    let name = || "x".to_owned();
    let examples = vec![
        Advice::text("retry"),
        Advice::ListSessions { nearest: None },
        Advice::ListSessions { nearest: Some(name()) },
        Advice::ListPositions,
        Advice::ListCalls,
        Advice::ListRuns,
        Advice::ShowLineage,
        Advice::ReadLog,
        Advice::ShowHistory,
        Advice::ShowAuthors,
        Advice::RaiseFileBudget,
        Advice::SelectUndo { outside: None },
        Advice::SelectUndo { outside: Some(7) },
        Advice::ForceRewind,
        Advice::RemoveEarlier,
        Advice::NameDirectory,
        Advice::WriteAllFiles,
        Advice::AllowDirectory,
        Advice::RemoveChild { name: name() },
        Advice::ImportUnderOtherName,
        Advice::ReplaceSession,
        Advice::CheckMachine,
        Advice::UseWritableStore,
        Advice::WaitForOwner,
        Advice::StopOwner,
        Advice::FindOwner,
        Advice::UseHost { host: name(), at: None },
        Advice::UseHost { host: name(), at: Some("http://x".to_owned()) },
        Advice::CheckStore,
        Advice::RepairStore,
        Advice::AcceptLoss,
        Advice::TakeOverCopy,
        Advice::RestoreFromCopy,
        Advice::ReplaceCopy,
        Advice::UseOtherDirectory,
    ];
    // serde lists all kinds.
    let unknown = serde_json::from_str::<Advice>(r#"{"kind": "?"}"#).unwrap_err().to_string();
    let kinds: Vec<&str> = unknown.split('`').skip(3).step_by(2).collect();
    let kind = |advice: &Advice| serde_json::to_value(advice).unwrap()["kind"].as_str().unwrap().to_owned();
    let known: Vec<String> = examples.iter().map(kind).collect();
    assert!(kinds.len() > 30, "{unknown}");
    kinds.iter().for_each(|kind| assert!(known.iter().any(|known| known == kind), "no example of {kind}"));
    examples
}

#[derive(Debug, thiserror::Error)]
#[error("failed")]
struct Advised(Advice);

impl foldspace::event::Diagnostic for Advised {
    fn kind(&self) -> foldspace::ErrorKind {
        foldspace::ErrorKind::Invalid
    }

    fn advice(&self) -> Option<Advice> {
        Some(self.0.clone())
    }
}

fn options(command: &clap::Command) -> Vec<String> {
    let own = command.get_arguments().filter_map(|argument| argument.get_long()).map(str::to_owned);
    own.chain(command.get_subcommands().flat_map(options)).collect()
}

#[test]
fn advice_names_commands_and_options_that_exist() {
    let (mut commands, known) = (0, options(&definition()));
    for advice in examples() {
        let Failure::Told { hint: Some(hint), .. } = Failure::from(Advised(advice)) else { panic!("it has no hint") };
        for command in hint.split('`').skip(1).step_by(2).filter(|quoted| quoted.starts_with("foldspace ")) {
            let words = command.split(' ').map(|word| match word {
                "URL" => "s3://bucket/prefix",
                "N" => "1",
                word => word,
            });
            let parsed = definition().try_get_matches_from(words);
            let problem = parsed.err().map(|error| error.kind());
            // Advice leaves out names that it does not know.
            let parses = matches!(problem, None | Some(ErrorKind::MissingRequiredArgument));
            assert!(parses, "{hint}: {problem:?}");
            commands += 1;
        }
        for option in
            hint.split(|c: char| !(c.is_ascii_lowercase() || c == '-')).filter_map(|word| word.strip_prefix("--"))
        {
            assert!(known.iter().any(|known| known == option), "{hint}: no option {option}");
        }
    }
    assert!(commands > 15, "only {commands} commands are named");
}
