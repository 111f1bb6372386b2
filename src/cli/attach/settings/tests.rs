use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use foldspace::tools::AgentKind;
use jsonc_parser::cst::CstRootNode;
use proptest::prelude::*;
use serde_json::Value;
use tempfile::TempDir;

use super::edit::{with_hooks, without_hooks};
use super::hooks::{Homes, HookCommands, HookProgram, is_ours};
use super::{SettingsScope, UserSettings, apply, plan, plan_removal};
use crate::terminal::exit::Failure;

const PROGRAM: &str = "/opt/foldspace/bin/foldspace";
const JSON_AGENTS: [AgentKind; 4] = [AgentKind::Claude, AgentKind::Codex, AgentKind::Gemini, AgentKind::Copilot];

fn program(file: &str) -> HookProgram {
    HookProgram { file: file.to_owned(), data: None }
}

struct Home {
    directory: TempDir,
    user: UserSettings,
}

impl Home {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let set: BTreeMap<&str, OsString> =
            [("HOME", directory.path().into()), ("PATH", directory.path().join("bin").into())].into();
        let user = UserSettings { homes: Homes::new(move |name| set.get(name).cloned()) };
        Self { directory, user }
    }

    fn path(&self, below: &str) -> std::path::PathBuf {
        self.directory.path().join(below)
    }

    fn put(&self, below: &str, text: &str) {
        let path = self.path(below);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn text(&self, below: &str) -> String {
        fs::read_to_string(self.path(below)).unwrap()
    }

    fn files(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut left = vec![self.directory.path().to_owned()];
        while let Some(directory) = left.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                found.push(path.strip_prefix(self.directory.path()).unwrap().display().to_string());
                if path.is_dir() {
                    left.push(path);
                }
            }
        }
        found.sort();
        found
    }

    fn attach(&self, agents: &[AgentKind]) -> Result<usize, Failure> {
        let changes = plan(agents, &SettingsScope::User(&self.user), &program(PROGRAM))?;
        changes.iter().try_for_each(apply).map(|()| changes.len())
    }

    fn detach(&self, agents: &[AgentKind]) -> Result<usize, Failure> {
        let changes = plan_removal(agents, &SettingsScope::User(&self.user))?;
        changes.iter().try_for_each(apply).map(|()| changes.len())
    }
}

fn value(text: &str) -> Option<Value> {
    CstRootNode::parse(text.trim_start_matches('\u{feff}'), &Default::default()).unwrap().to_serde_value()
}

/// The number of each comment in a text.
fn comments(text: &str) -> [usize; 3] {
    ["// first", "// between", "// two"].map(|comment| text.matches(comment).count())
}

#[test]
fn attach_to_nothing_and_detach_leaves_nothing() {
    let home = Home::new();
    assert_eq!(home.attach(&AgentKind::ALL).unwrap(), 5);
    let files = home.files();
    for file in [
        ".claude/settings.json",
        ".codex/hooks.json",
        ".config/opencode/plugins/foldspace.js",
        ".copilot/hooks/foldspace.json",
        ".gemini/settings.json",
    ] {
        assert!(files.contains(&file.to_owned()), "{file} is missing in {files:?}");
    }
    assert_eq!(home.attach(&AgentKind::ALL).unwrap(), 0);
    assert_eq!(home.detach(&AgentKind::ALL).unwrap(), 5);
    assert_eq!(home.files(), [".config"]);
    assert_eq!(home.detach(&AgentKind::ALL).unwrap(), 0);
}

#[test]
fn detach_leaves_the_directories_that_attach_found() {
    let home = Home::new();
    fs::create_dir_all(home.path(".claude")).unwrap();
    fs::create_dir_all(home.path(".copilot")).unwrap();
    for _ in 0..2 {
        assert_eq!(home.attach(&[AgentKind::Claude, AgentKind::Copilot]).unwrap(), 2);
        assert_eq!(home.detach(&[AgentKind::Claude, AgentKind::Copilot]).unwrap(), 2);
        assert_eq!(home.files(), [".claude", ".copilot"]);
    }
}

#[test]
fn settings_attached_keep_comments_order_and_format() {
    let before = "{\n  // mine\n  \"model\": \"opus\", // best\n  \"hooks\": {\n    \"Stop\": [\n      { \"hooks\": [{ \"type\": \"command\", \"command\": \"say done\" }] },\n    ],\n  },\n}\n";
    let commands = HookCommands::new(AgentKind::Claude, &program(PROGRAM));
    let after = with_hooks(Some(before), AgentKind::Claude, &commands).unwrap();
    insta::assert_snapshot!(after.split("\"UserPromptSubmit\"").next().unwrap(), @r#"
    {
      // mine
      "model": "opus", // best
      "hooks": {
        "Stop": [
          { "hooks": [{ "type": "command", "command": "say done" }] },
          {
            "hooks": [
              {
                "type": "command",
                "command": "command -v /opt/foldspace/bin/foldspace >/dev/null 2>&1 || exit 0; exec /opt/foldspace/bin/foldspace hook claude",
                "timeout": 5,
              },
            ],
          },
        ],
        "SessionStart": [
          {
            "hooks": [
              {
                "type": "command",
                "command": "command -v /opt/foldspace/bin/foldspace >/dev/null 2>&1 || exit 0; exec /opt/foldspace/bin/foldspace hook claude",
                "timeout": 5
              }
            ]
          }
        ],
    "#);
    assert_eq!(without_hooks(&after, AgentKind::Claude).unwrap().as_deref(), Some(before));
}

#[test]
fn detach_after_changes_takes_out_only_its_own() {
    let home = Home::new();
    home.put(".claude/settings.json", "{\"model\": \"opus\"}");
    home.attach(&[AgentKind::Claude]).unwrap();
    let changed = home.text(".claude/settings.json").replacen("\"model\"", "\"theme\": \"dark\", // new\n\"model\"", 1);
    home.put(".claude/settings.json", &changed);
    home.detach(&[AgentKind::Claude]).unwrap();
    let left = home.text(".claude/settings.json");
    assert_eq!(value(&left), value("{\"theme\": \"dark\", \"model\": \"opus\"}"));
    assert!(left.contains("// new"), "{left}");
    assert_eq!(home.files(), [".claude", ".claude/settings.json"]);
}

#[test]
fn hook_beside_ours_in_one_entry_stays() {
    let commands = HookCommands::new(AgentKind::Codex, &program(PROGRAM));
    let after = with_hooks(None, AgentKind::Codex, &commands).unwrap();
    let mine = "{ \"type\": \"command\", \"command\": \"mine\" }";
    let joined = after.replacen("\"hooks\": [\n", &format!("\"hooks\": [\n{mine},\n"), 1);
    let left = without_hooks(&joined, AgentKind::Codex).unwrap().unwrap();
    let hooks = format!("{{ \"hooks\": {{ \"SessionStart\": [{{ \"hooks\": [{mine}] }}] }} }}");
    assert_eq!(value(&left), value(&hooks));
}

#[test]
fn backup_is_the_first_one_and_goes_at_detach() {
    let home = Home::new();
    home.put(".gemini/settings.json", "{ }\n");
    home.attach(&[AgentKind::Gemini]).unwrap();
    assert_eq!(home.text(".gemini/settings.json.foldspace-backup"), "{ }\n");
    // Another place of the program: the entries are replaced, and the backup stays.
    let changes =
        plan(&[AgentKind::Gemini], &SettingsScope::User(&home.user), &program("/elsewhere/foldspace")).unwrap();
    changes.iter().try_for_each(apply).unwrap();
    let text = home.text(".gemini/settings.json");
    assert!(text.contains("/elsewhere/foldspace hook gemini") && !text.contains(PROGRAM), "{text}");
    assert_eq!(home.text(".gemini/settings.json.foldspace-backup"), "{ }\n");
    home.detach(&[AgentKind::Gemini]).unwrap();
    assert_eq!((home.files().len(), home.text(".gemini/settings.json")), (2, "{ }\n".to_owned()));
}

#[test]
fn settings_that_are_unfit_are_refused_unchanged() {
    for text in ["{", "[]", "{ \"hooks\": [] }", "{ \"hooks\": { \"PreToolUse\": {} } }", "{ a: 1 }", "3", "{} {}"] {
        let home = Home::new();
        home.put(".claude/settings.json", text);
        let failure = home.attach(&[AgentKind::Codex, AgentKind::Claude]).unwrap_err().to_string();
        assert!(failure.contains("settings.json was not changed: "), "{failure}");
        assert!(failure.ends_with("; correct it, or name the other agents with --agent"), "{failure}");
        assert_eq!(home.text(".claude/settings.json"), text);
        assert_eq!(home.files(), [".claude", ".claude/settings.json"]);
    }
    let home = Home::new();
    home.put(".config/opencode/plugins/foldspace.js", "export const Mine = 1\n");
    assert!(home.attach(&[AgentKind::OpenCode]).is_err());
    assert_eq!(home.detach(&[AgentKind::OpenCode]).unwrap(), 0);
    assert_eq!(home.text(".config/opencode/plugins/foldspace.js"), "export const Mine = 1\n");
}

#[test]
fn link_to_settings_stays_and_its_target_is_written() {
    let home = Home::new();
    home.put("dotfiles/claude.json", "{}\n");
    fs::set_permissions(home.path("dotfiles/claude.json"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::create_dir(home.path(".claude")).unwrap();
    symlink("../dotfiles/claude.json", home.path(".claude/settings.json")).unwrap();
    home.attach(&[AgentKind::Claude]).unwrap();
    assert!(home.path(".claude/settings.json").is_symlink());
    assert!(home.text("dotfiles/claude.json").contains("hook claude"));
    let mode = |below: &str| home.path(below).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("dotfiles/claude.json"), 0o600);
    assert_eq!(mode(".claude/settings.json.foldspace-backup"), 0o600);
    home.detach(&[AgentKind::Claude]).unwrap();
    assert_eq!(home.text("dotfiles/claude.json"), "{}\n");
    fs::remove_file(home.path("dotfiles/claude.json")).unwrap();
    let failure = home.attach(&[AgentKind::Claude]).unwrap_err().to_string();
    assert!(failure.ends_with("is a dangling link; create the file, or remove the link"), "{failure}");
}

#[test]
fn settings_changed_since_the_plan_are_refused() {
    let home = Home::new();
    let changes = plan(&[AgentKind::Codex], &SettingsScope::User(&home.user), &program(PROGRAM)).unwrap();
    home.put(".codex/hooks.json", "{}");
    let failure = apply(&changes[0]).unwrap_err().to_string();
    assert!(failure.ends_with("has changed since it was read; run the command again"));
    assert_eq!(home.text(".codex/hooks.json"), "{}");
}

#[test]
fn project_settings_are_below_the_project() {
    let directory = tempfile::tempdir().unwrap();
    let scope = SettingsScope::Project(directory.path());
    let changes = plan(&AgentKind::ALL, &scope, &program(PROGRAM)).unwrap();
    let paths: Vec<_> = changes.iter().map(|change| change.path.strip_prefix(directory.path()).unwrap()).collect();
    let expected = [
        ".claude/settings.local.json",
        ".codex/hooks.json",
        ".gemini/settings.json",
        ".github/hooks/foldspace.json",
        ".opencode/plugins/foldspace.js",
    ];
    assert_eq!(paths, expected.map(Path::new));
    changes.iter().try_for_each(apply).unwrap();
    plan_removal(&AgentKind::ALL, &scope).unwrap().iter().try_for_each(apply).unwrap();
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn agent_is_installed_where_its_directory_or_program_is() {
    let home = Home::new();
    assert_eq!(home.user.installed(), []);
    home.put(".gemini/settings.json", "{}");
    home.put("bin/codex", "");
    assert_eq!(home.user.installed(), [AgentKind::Codex, AgentKind::Gemini]);
}

#[test]
fn command_is_guarded_and_found_again() {
    for (file, data) in [(PROGRAM, None), ("/opt/with space/it's/foldspace", Some("/my data"))] {
        let program = HookProgram { file: file.to_owned(), data: data.map(str::to_owned) };
        for agent in JSON_AGENTS {
            for (event, entry) in HookCommands::new(agent, &program).entries() {
                let hook = if agent == AgentKind::Copilot { &entry["bash"] } else { &entry["hooks"][0]["command"] };
                let command = hook.as_str().unwrap();
                assert!(is_ours(command, agent), "{command}");
                assert!(AgentKind::ALL.iter().all(|other| *other == agent || !is_ours(command, *other)));
                assert!(
                    command.starts_with("command -v ") && command.contains(" || exit 0; exec "),
                    "{event} {command}"
                );
            }
        }
    }
    let claude = HookCommands::new(AgentKind::Claude, &program(PROGRAM)).entries().next().unwrap().1;
    let text = "command -v /opt/foldspace/bin/foldspace >/dev/null 2>&1 || exit 0; exec /opt/foldspace/bin/foldspace hook claude";
    assert_eq!(claude["hooks"][0]["command"], text);
    let program = HookProgram { data: Some("/my data".to_owned()), ..program(PROGRAM) };
    let copilot = HookCommands::new(AgentKind::Copilot, &program).entries().next().unwrap().1;
    assert!(copilot["bash"].as_str().unwrap().ends_with(" hook copilot sessionStart --data '/my data'"));
    let plugin = HookCommands::new(AgentKind::OpenCode, &program).plugin();
    assert!(plugin.contains(r#"= ["/opt/foldspace/bin/foldspace","hook","opencode","--data","/my data"]"#));
    for other in [
        "foldspace hook claude",
        "echo foldspace hook claude",
        "command -v a >/dev/null 2>&1 || exit 0; exec b hook claude",
    ] {
        assert!(!is_ours(other, AgentKind::Claude), "{other}");
    }
}

/// A JSON text with comments, trailing commas and odd white space.
fn settings() -> impl Strategy<Value = String> {
    let hook = prop_oneof![
        Just("{\"type\":\"command\",\"command\":\"a\"}".to_owned()),
        Just("{ \"type\": \"command\", \"command\": \"b\" }, // two\n {\"type\": \"http\"}".to_owned()),
    ];
    let group = hook.prop_map(|hook| format!("{{\"matcher\": \"x\", \"hooks\": [{hook}]}}"));
    let list = prop::collection::vec(group, 0..3).prop_map(|groups| format!("[{}]", groups.join(", ")));
    let event = prop::sample::select(vec!["PreToolUse", "Stop", "BeforeTool", "preToolUse", "Mine"]);
    let hooks = prop::collection::btree_map(event, list, 0..4)
        .prop_map(|lists| lists.iter().map(|(name, list)| format!("\"{name}\": {list}")).collect::<Vec<_>>())
        .prop_map(|lists| format!("{{{}}}", lists.join(",\n// between\n")));
    let other =
        prop::sample::select(vec!["1", "\"text // no comment\"", "[1,\n2 ]", "{ \"a\":{} }", "null", "[]", "{}"]);
    let parts = (prop::option::of(hooks), prop::collection::vec(other, 0..4), any::<[bool; 6]>());
    parts.prop_map(|(hooks, others, [bom, crlf, comma, wide, comment, last])| {
        let mut properties: Vec<String> =
            others.iter().enumerate().map(|(number, other)| format!("\"k{number}\": {other}")).collect();
        properties.extend(hooks.map(|hooks| format!("\"hooks\":{hooks}")));
        let between = if wide { ",\n    " } else { "," };
        let mut text = properties.join(between);
        if comma && !properties.is_empty() {
            text.push(',');
        }
        let comment = if comment { "// first\n" } else { "" };
        let mut text = if wide { format!("{comment}{{\n    {text}\n}}") } else { format!("{comment}{{{text}}}") };
        text.push_str(if last { "\n" } else { "" });
        let text = if crlf { text.replace('\n', "\r\n") } else { text };
        if bom { format!("\u{feff}{text}") } else { text }
    })
}

/// The settings without lists and objects that hold nothing of hooks.
fn meaning(text: &str) -> Value {
    let mut value = value(text).unwrap_or_else(|| Value::Object(Default::default()));
    if let Some(hooks) = value.get_mut("hooks").and_then(Value::as_object_mut) {
        hooks.retain(|_, list| list != &Value::Array(Vec::new()));
        if hooks.is_empty() {
            value.as_object_mut().unwrap().shift_remove("hooks");
        }
    }
    value
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn settings_detached_are_as_before_to_the_byte(
        text in prop_oneof![9 => settings(), 1 => prop::sample::select(vec!["", "\n", "{}", "// only\n", "\u{feff}"]).prop_map(str::to_owned)],
        agent in prop::sample::select(JSON_AGENTS.to_vec()),
    ) {
        let home = Home::new();
        let scope = SettingsScope::User(&home.user);
        let path = plan(&[agent], &scope, &program(PROGRAM)).unwrap().pop().unwrap().path;
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &text).unwrap();
        prop_assert_eq!(home.attach(&[agent]).unwrap(), 1);
        let attached = fs::read_to_string(&path).unwrap();
        prop_assert_eq!(attached.starts_with('\u{feff}'), text.starts_with('\u{feff}'));
        prop_assert_eq!(comments(&attached), comments(&text));
        prop_assert_eq!(home.attach(&[agent]).unwrap(), 0);
        prop_assert_eq!(home.detach(&[agent]).unwrap(), 1);
        prop_assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }

    #[test]
    fn hooks_taken_out_without_a_backup_leave_the_same_settings(
        text in settings(),
        agent in prop::sample::select(JSON_AGENTS[..3].to_vec()),
    ) {
        let commands = HookCommands::new(agent, &program(PROGRAM));
        let after = with_hooks(Some(&text), agent, &commands).unwrap();
        prop_assert!(value(&after).is_some());
        let left = without_hooks(&after, agent).unwrap().unwrap();
        prop_assert_eq!(meaning(&left), meaning(&text));
        prop_assert_eq!(comments(&left), comments(&text));
    }
}

#[test]
fn program_in_a_cache_names_its_installation() {
    let installation = |file: &str| program(file).installation();
    let npx = "/home/ada/.npm/_npx/5b6f/node_modules/@foldspace/linux-x64/foldspace";
    assert_eq!(installation(npx), Some("npm install --global foldspace"));
    assert_eq!(installation("/home/ada/.cache/uv/archive-v0/x1/bin/foldspace"), Some("uv tool install foldspace-sdk"));
    assert_eq!(installation("/usr/lib/node_modules/@foldspace/linux-x64/foldspace"), None);
    assert_eq!(installation("foldspace"), None);
}

#[test]
fn integrations_register_the_same_hooks() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("integrations");
    let places = [
        ("claude-plugin", AgentKind::Claude),
        ("codex-plugin", AgentKind::Codex),
        ("gemini-extension", AgentKind::Gemini),
    ];
    for (place, agent) in places {
        let path = folder.join(place).join("hooks/hooks.json");
        let commands = HookCommands::new(agent, &program("foldspace"));
        let hooks: serde_json::Map<_, _> =
            commands.entries().map(|(event, entry)| (event.to_owned(), Value::Array(vec![entry]))).collect();
        let text = serde_json::to_string_pretty(&serde_json::json!({ "hooks": hooks })).unwrap() + "\n";
        if std::env::var_os("FOLDSPACE_BLESS").is_some() {
            fs::write(&path, &text).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), text, "{}: FOLDSPACE_BLESS=1 writes it", path.display());
    }
}
