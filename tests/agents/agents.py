"""The agents that the driver knows: how each is started offline, and what its tools are called."""

import json
import os

QUIET = {
    "claude": {
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1", "IS_SANDBOX": "1", "ANTHROPIC_API_KEY": "sk-ant-dummy",
    },
    "codex": {"FAKE_KEY": "dummy"},
    "gemini": {"GEMINI_API_KEY": "dummy", "GEMINI_CLI_TRUST_WORKSPACE": "true", "GEMINI_TELEMETRY_ENABLED": "false"},
    "copilot": {
        "COPILOT_PROVIDER_TYPE": "openai", "COPILOT_PROVIDER_API_KEY": "dummy", "COPILOT_MODEL": "fake",
        "COPILOT_OFFLINE": "true", "COPILOT_AUTO_UPDATE": "false",
    },
    "opencode": {
        "NPM_CONFIG_FETCH_RETRIES": "0", "OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1", "OPENCODE_DISABLE_SHARE": "1",
    },
    "mini": {
        "OPENAI_API_KEY": "dummy", "MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True", "MSWEA_SILENT_STARTUP": "1",
    },
}
# The variable by which an agent finds its model.
MODEL = {
    "claude": {"ANTHROPIC_BASE_URL": "{}"},
    "codex": {},
    "gemini": {"GOOGLE_GEMINI_BASE_URL": "{}"},
    "copilot": {"COPILOT_PROVIDER_BASE_URL": "{}/v1"},
    "opencode": {},
    "mini": {"OPENAI_API_BASE": "{}/v1", "OPENAI_BASE_URL": "{}/v1"},
}
COMMAND = {
    "claude": ["claude", "-p", "{}", "--dangerously-skip-permissions"],
    "codex": ["codex", "exec", "--dangerously-bypass-hook-trust", "{}"],
    "gemini": ["gemini", "-m", "gemini-2.5-flash", "--approval-mode", "yolo", "-p", "{}"],
    "copilot": ["copilot", "-p", "{}", "--allow-all-tools", "--allow-all-paths"],
    "opencode": ["opencode", "run", "{}"],
    "mini": ["mini", "-m", "openai/fake", "-y", "--exit-immediately", "-l", "0", "-t", "{}", "-o", "../trajectory.json"],
}
# Settings that a user of the agent has before `foldspace attach`: their order and their comments have to stay.
SETTINGS = {
    "claude": (".claude/settings.json", '{\n  "theme": "dark",\n  "env": { "EDITOR": "vi" }\n}\n'),
    "codex": (".codex/hooks.json", '{ "hooks": {} }\n'),
    "gemini": (".gemini/settings.json", """{
  // Offline, with a key.
  "security": { "auth": { "selectedType": "gemini-api-key" }, "folderTrust": { "enabled": false } },
  "telemetry": { "enabled": false },
  "privacy": { "usageStatisticsEnabled": false },
  "general": { "enableAutoUpdate": false, "enableAutoUpdateNotification": false }
}
"""),
}
CODEX = """model = "gpt-5.5"
model_provider = "fake"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
[model_providers.fake]
name = "fake"
base_url = "{model}/v1"
wire_api = "responses"
env_key = "FAKE_KEY"
request_max_retries = 1
stream_max_retries = 1
supports_websockets = false
[analytics]
enabled = false
[projects."{project}"]
trust_level = "trusted"
"""


def prepare(agent, home, project, model, asks):
    """Writes the settings without which an agent doesn't run offline, and returns its environment."""
    def put(below, text):
        path = os.path.join(home, below)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)

    if agent in SETTINGS:
        put(*SETTINGS[agent])
    if agent == "codex":
        put(".codex/config.toml", CODEX.format(model=model, project=project))
    if agent == "copilot":
        put(".copilot/config.json", json.dumps({"trusted_folders": [project], "banner": "never"}))
    if agent == "opencode":
        # Else its start waits a minute for a package that it then does without.
        put(".npmrc", "offline=true\n")
        provider = {
            "npm": "@ai-sdk/openai-compatible", "name": "fake", "options": {"baseURL": f"{model}/v1", "apiKey": "dummy"},
            "models": {"fake": {"name": "fake", "tool_call": True, "limit": {"context": 100000, "output": 8000}}},
        }
        put(".config/opencode/opencode.json", json.dumps({
            "autoupdate": False, "share": "disabled", "model": "fake/fake", "small_model": "fake/fake",
            "permission": "ask" if asks else "allow", "provider": {"fake": provider},
        }))
    return QUIET[agent] | {name: value.format(model) for name, value in MODEL[agent].items()}


def write(agent, path, text):
    """Returns a call that creates a file."""
    name, file, content = {
        "claude": ("Write", "file_path", "content"),
        "gemini": ("write_file", "file_path", "content"),
        "copilot": ("create", "path", "file_text"),
        "opencode": ("write", "filePath", "content"),
    }.get(agent, (None, None, None))
    if agent == "codex":
        lines = "".join(f"+{line}\n" for line in text.splitlines())
        relative = os.path.basename(path)
        return {"custom": "apply_patch", "input": f"*** Begin Patch\n*** Add File: {relative}\n{lines}*** End Patch\n"}
    if agent == "mini":
        return shell(agent, f"cat > {path} <<'EOF'\n{text}EOF")
    return {"name": name, "args": {file: path, content: text}}


def edit(agent, path, old, new):
    """Returns a call that replaces a line."""
    if agent == "codex":
        relative = os.path.basename(path)
        return {"custom": "apply_patch",
                "input": f"*** Begin Patch\n*** Update File: {relative}\n@@\n-{old}\n+{new}\n*** End Patch\n"}
    if agent == "mini":
        return shell(agent, f"grep -qF '{old}' {path} && sed -i 's/{old}/{new}/' {path}")
    name, file, before, after = {
        "claude": ("Edit", "file_path", "old_string", "new_string"),
        "gemini": ("replace", "file_path", "old_string", "new_string"),
        "copilot": ("edit", "path", "old_str", "new_str"),
        "opencode": ("edit", "filePath", "oldString", "newString"),
    }[agent]
    args = {file: path, before: old, after: new}
    return {"name": name, "args": args | ({"instruction": "change it"} if agent == "gemini" else {})}


def shell(agent, command):
    """Returns a call of a command."""
    if agent == "codex":
        return {"name": "exec_command", "args": {"cmd": command}}
    name = {"claude": "Bash", "gemini": "run_shell_command"}.get(agent, "bash")
    described = {} if agent in ("gemini", "mini") else {"description": "A command"}
    return {"name": name, "args": {"command": command} | described}


def background(agent, command):
    """Returns a call that leaves a command running; none where the agent can't."""
    call = shell(agent, command)
    more = {
        "claude": {"run_in_background": True}, "gemini": {"is_background": True}, "copilot": {"mode": "async"},
        "codex": {"yield_time_ms": 500},
    }
    if agent not in more:
        return shell(agent, f"nohup sh -c '{command}' >/dev/null 2>&1 &")
    call["args"] |= more[agent]
    return call


def subagent(agent, prompt):
    """Returns a call that begins a subagent; none where the agent has none."""
    described = {"description": "A helper", "prompt": prompt}
    return {
        "claude": {"name": "Agent", "args": described | {"subagent_type": "general-purpose"}},
        "codex": {"namespace": "multi_agent_v1", "name": "spawn_agent", "args": {"message": prompt}},
        "gemini": {"name": "invoke_agent", "args": {"agent_name": "generalist", "prompt": prompt}},
        "copilot": {"name": "task",
                    "args": described | {"name": "helper", "agent_type": "general-purpose", "mode": "sync"}},
        "opencode": {"name": "task", "args": described | {"subagent_type": "general"}},
    }.get(agent)
