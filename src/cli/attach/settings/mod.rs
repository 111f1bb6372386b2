//! The hooks in agents' settings: plans, shows, adds and removes them.

mod edit;
mod hooks;
mod settings_file;
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the tests look at the files themselves")]
mod tests;

use std::path::{Path, PathBuf};

use foldspace::tools::AgentKind;
use serde::Serialize;

use crate::terminal::exit::Failure;
use edit::{UnfitSettings, with_hooks, without_hooks};
use hooks::{Homes, HookCommands, HookProgram};
use settings_file::SettingsFile;

/// The settings that hooks are added to.
pub(super) enum SettingsScope<'a> {
    /// The user's settings, for all directories.
    User(&'a UserSettings),
    /// The settings of one directory, which are not meant to be committed.
    Project(&'a Path),
}

/// The settings of a user, located by the environment.
pub(super) struct UserSettings {
    homes: Homes,
}

impl UserSettings {
    /// Locates the settings by the same variables as the agents.
    pub(super) fn of_environment() -> Self {
        Self { homes: Homes::new(|name| std::env::var_os(name).filter(|value| !value.is_empty())) }
    }

    /// Returns the agents that are installed.
    pub(super) fn installed(&self) -> Vec<AgentKind> {
        AgentKind::ALL.into_iter().filter(|agent| self.homes.has(*agent)).collect()
    }

    /// Returns this program as hooks name it. Prefers the name in the `PATH`, which stays the same across releases.
    pub(super) fn program(&self, data: Option<&Path>) -> Result<HookProgram, Failure> {
        let running = std::env::current_exe().map_err(|error| Failure::io("find", "this program", &error))?;
        let is_running = |found: &PathBuf| found.canonicalize().is_ok_and(|file| file == running);
        let program = self.homes.program("foldspace").filter(is_running).unwrap_or(running);
        Ok(HookProgram { file: word(&program)?, data: data.map(word).transpose()? })
    }
}

fn word(path: &Path) -> Result<String, Failure> {
    let named = path.to_str().map(str::to_owned);
    named.ok_or_else(|| Failure::failed(format!("{} is not UTF-8, so no hook can name it", path.display())))
}

impl SettingsScope<'_> {
    fn file(&self, agent: AgentKind) -> Result<SettingsFile, Failure> {
        match self {
            Self::Project(directory) => {
                SettingsFile::at(hooks::project_file(agent, directory), directory.to_path_buf())
            }
            Self::User(user) => {
                let directory = user.homes.directory(agent).ok_or_else(|| {
                    Failure::usage(format!("failed to locate the settings of {agent}: HOME is not set"))
                })?;
                let base = directory.parent().unwrap_or(&directory).to_owned();
                SettingsFile::at(hooks::user_file(agent, &directory), base)
            }
        }
    }
}

/// A change of an agent's settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct SettingsChange {
    #[serde(serialize_with = "name")]
    pub(super) agent: AgentKind,
    pub(super) path: PathBuf,
    #[serde(skip)]
    base: PathBuf,
    /// The text before; `None` if the file is new.
    #[serde(skip)]
    pub(super) before: Option<String>,
    /// The text after; `None` if the file is removed.
    #[serde(skip)]
    pub(super) after: Option<String>,
    change: HookChange,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum HookChange {
    Added,
    Removed,
}

fn name<S: serde::Serializer>(agent: &AgentKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(agent.name())
}

/// Returns the changes that add the agents' hooks. Agents that already have them need no change.
pub(super) fn plan(
    agents: &[AgentKind],
    scope: &SettingsScope<'_>,
    program: &HookProgram,
) -> Result<Vec<SettingsChange>, Failure> {
    let mut changes = Vec::new();
    for &agent in agents {
        let SettingsFile { path, base, text: before, .. } = scope.file(agent)?;
        let commands = HookCommands::new(agent, program);
        let after = with_hooks(before.as_deref(), agent, &commands).map_err(|error| refused(&path, error))?;
        if before.as_ref() != Some(&after) {
            changes.push(SettingsChange { agent, path, base, before, after: Some(after), change: HookChange::Added });
        }
    }
    Ok(changes)
}

/// Returns the changes that remove the agents' hooks. Agents without hooks need no change.
pub(super) fn plan_removal(agents: &[AgentKind], scope: &SettingsScope<'_>) -> Result<Vec<SettingsChange>, Failure> {
    let mut changes = Vec::new();
    for &agent in agents {
        let SettingsFile { path, base, text, backup } = scope.file(agent)?;
        let Some(before) = text else { continue };
        let stripped = without_hooks(&before, agent).map_err(|error| refused(&path, error))?;
        if stripped.as_ref() == Some(&before) {
            continue;
        }
        // If nothing else has changed since the hooks were added, the original is restored byte for byte.
        let commands = HookCommands::new(agent, &HookProgram { file: "foldspace".to_owned(), data: None });
        let again = with_hooks(backup.as_deref(), agent, &commands).and_then(|text| without_hooks(&text, agent));
        let after = if again.is_ok_and(|again| again == stripped) { backup } else { stripped };
        changes.push(SettingsChange { agent, path, base, before: Some(before), after, change: HookChange::Removed });
    }
    Ok(changes)
}

/// A settings file with our hooks.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct HookPlace {
    #[serde(serialize_with = "name")]
    pub(super) agent: AgentKind,
    pub(super) path: PathBuf,
}

/// Returns the settings that have hooks.
pub(super) fn hooked(scope: &SettingsScope<'_>) -> Vec<HookPlace> {
    // An unreadable file counts as one without hooks.
    let changes = AgentKind::ALL.into_iter().filter_map(|agent| plan_removal(&[agent], scope).ok()?.pop());
    changes.map(|SettingsChange { agent, path, .. }| HookPlace { agent, path }).collect()
}

fn refused(path: &Path, error: UnfitSettings) -> Failure {
    Failure::failed(format!("{} was not changed: {error}", path.display()))
        .with_hint("correct it, or name the other agents with --agent")
}

/// Makes a change. A backup of the file without hooks stays next to it until the hooks are removed.
pub(super) fn apply(change: &SettingsChange) -> Result<(), Failure> {
    let file = SettingsFile::at(change.path.clone(), change.base.clone())?;
    if file.text != change.before {
        return Err(Failure::failed(format!("{} has changed since it was read", change.path.display()))
            .with_hint("run the command again"));
    }
    match (change.change, &change.after) {
        (HookChange::Added, Some(after)) => {
            file.keep_backup()?;
            file.write(after)
        }
        (_, Some(after)) => file.write(after).and_then(|()| file.drop_backup()),
        (_, None) => file.remove().and_then(|()| file.drop_backup()),
    }
}
