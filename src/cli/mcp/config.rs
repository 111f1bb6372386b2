//! The configurations of clients that start the server.

use std::ffi::OsString;
use std::path::Path;

use clap::ValueEnum;
use serde_json::{Map, Value, json};

use crate::cli::{Failure, Globals, Out, open, output, text};

const NAME: &str = "foldspace";

const PLACES: [&str; 5] = ["--data", "--dir", "--answers", "--allow-root", "--mount"];
const VALUED: [&str; 1] = ["--color"];

/// Variables that the server may lack, since not every client passes them on.
const PASSED_ON: [&str; 15] = [
    "CONTAINER_HOST",
    "CONTAINER_SSHKEY",
    "DOCKER_CONFIG",
    "DOCKER_CONTEXT",
    "DOCKER_HOST",
    "FOLDSPACE_AUTO_CONFIRM",
    "FOLDSPACE_CACHE",
    "FOLDSPACE_IMAGE",
    "FOLDSPACE_MAX_TIMEOUT",
    "FOLDSPACE_MOUNT_ROOTS",
    "PODMAN_BASE_URL",
    "PODMAN_CONNECTION",
    "PODMAN_IDENTITY",
    "PODMAN_URL",
    // Locates the user's engine.
    "XDG_RUNTIME_DIR",
];

/// The supported clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum McpClientKind {
    /// Claude Code and Claude Desktop
    Claude,
    /// Cursor
    Cursor,
    /// Visual Studio Code
    Vscode,
    /// Codex
    Codex,
    /// Gemini CLI
    Gemini,
    /// Windsurf
    Windsurf,
    /// Zed
    Zed,
    /// opencode
    Opencode,
    /// LangGraph and LangChain (langchain-mcp-adapters)
    Langgraph,
    /// OpenAI Agents SDK
    OpenaiAgents,
    /// Pydantic AI
    PydanticAi,
    /// smolagents
    Smolagents,
    /// FastMCP's client
    Fastmcp,
    /// Vercel AI SDK
    Vercel,
}

impl McpClientKind {
    fn place(self) -> &'static str {
        match self {
            Self::Claude => ".mcp.json of a project (Claude Code), or claude_desktop_config.json (Claude Desktop)",
            Self::Cursor => "~/.cursor/mcp.json, or .cursor/mcp.json of a project",
            Self::Vscode => ".vscode/mcp.json of a project, or mcp.json of the user profile",
            Self::Codex => "~/.codex/config.toml",
            Self::Gemini => "~/.gemini/settings.json, or .gemini/settings.json of a project",
            Self::Windsurf => "~/.codeium/windsurf/mcp_config.json",
            Self::Zed => "settings.json of Zed",
            Self::Opencode => "opencode.json of a project, or ~/.config/opencode/opencode.json",
            Self::Langgraph => "a Python program that uses LangGraph or LangChain, with langchain-mcp-adapters",
            Self::OpenaiAgents => "a Python program that uses openai-agents",
            Self::PydanticAi => "a Python program that uses pydantic-ai",
            Self::Smolagents => "a Python program that uses smolagents, with its extra mcp",
            Self::Fastmcp => "a Python program that uses fastmcp",
            Self::Vercel => "a TypeScript program that uses ai and @ai-sdk/mcp",
        }
    }

    /// Returns true if the client connects for each call, so that it needs a sticky session.
    fn connects_often(self) -> bool {
        self == Self::Langgraph
    }

    /// Returns program code that starts the server; `None` for a client with a settings file.
    fn program(self, server: &Value) -> Option<String> {
        let (command, args) = (&server["command"], &server["args"]);
        let env = server.get("env").cloned().unwrap_or_else(|| json!({}));
        Some(match self {
            Self::Langgraph => format!(
                "# It connects for each call; --sticky continues one session. A server with several users passes\n\
                 # --sticky-key with a key for each.\n\
                 from langchain_mcp_adapters.client import MultiServerMCPClient\n\n\
                 client = MultiServerMCPClient({{\n    \"{NAME}\": {{\n        \"transport\": \"stdio\",\n        \
                 \"command\": {command},\n        \"args\": {args},\n        \"env\": {env},\n    }},\n}})\n\
                 tools = await client.get_tools()"
            ),
            Self::OpenaiAgents => format!(
                "from agents.mcp import MCPServerStdio\n\n\
                 # A call has 5 seconds by default, which is less than most commands take.\n\
                 server = MCPServerStdio(\n    params={{\"command\": {command}, \"args\": {args}, \"env\": {env}}},\n    \
                 client_session_timeout_seconds=None,\n)\n\
                 # async with server: Agent(..., mcp_servers=[server])"
            ),
            Self::PydanticAi => format!(
                "from fastmcp.client.transports import StdioTransport\n\
                 from pydantic_ai.mcp import MCPToolset\n\n\
                 toolset = MCPToolset(StdioTransport({command}, {args}, env={env}))\n\
                 # Agent(..., toolsets=[toolset])"
            ),
            Self::Smolagents => format!(
                "from mcp import StdioServerParameters\n\
                 from smolagents import ToolCollection\n\n\
                 server = StdioServerParameters(command={command}, args={args}, env={env})\n\
                 with ToolCollection.from_mcp(server, trust_remote_code=True) as collection:\n    \
                 tools = collection.tools"
            ),
            Self::Fastmcp => format!(
                "from fastmcp import Client\n\n\
                 client = Client({{\"mcpServers\": {{\"{NAME}\": {server}}}}})\n\
                 # async with client: await client.call_tool(...)"
            ),
            Self::Vercel => format!(
                "import {{ createMCPClient }} from '@ai-sdk/mcp';\n\
                 import {{ Experimental_StdioMCPTransport }} from '@ai-sdk/mcp/mcp-stdio';\n\n\
                 const client = await createMCPClient({{\n  transport: new Experimental_StdioMCPTransport({{\n    \
                 command: {command},\n    args: {args},\n    env: {env},\n  }}),\n}});\n\
                 const tools = await client.tools();"
            ),
            _ => return None,
        })
    }

    fn snippet(self, start: &ServerCommand) -> String {
        let mut server = json!({ "command": start.program, "args": start.args });
        if !start.env.is_empty() {
            server["env"] = json!(start.env);
        }
        if let Some(program) = self.program(&server) {
            return program;
        }
        let document = match self {
            Self::Codex => return start.as_toml(),
            Self::Claude | Self::Cursor | Self::Gemini | Self::Windsurf => json!({ "mcpServers": { NAME: server } }),
            Self::Vscode => {
                server["type"] = json!("stdio");
                json!({ "servers": { NAME: server } })
            }
            Self::Zed => {
                server["source"] = json!("custom");
                json!({ "context_servers": { NAME: server } })
            }
            Self::Opencode => {
                let command: Vec<&String> = std::iter::once(&start.program).chain(&start.args).collect();
                let mut server = json!({ "type": "local", "command": command, "enabled": true });
                if !start.env.is_empty() {
                    server["environment"] = json!(start.env);
                }
                json!({ "mcp": { NAME: server } })
            }
            // The other clients are programs.
            _ => Value::Null,
        };
        serde_json::to_string_pretty(&document).unwrap_or_default()
    }
}

struct ServerCommand {
    program: String,
    args: Vec<String>,
    env: Map<String, Value>,
}

impl ServerCommand {
    fn as_toml(&self) -> String {
        let args: Vec<String> = self.args.iter().map(|arg| toml_text(arg)).collect();
        let mut text = format!("[mcp_servers.{NAME}]\ncommand = {}\n", toml_text(&self.program));
        text.push_str(&format!("args = [{}]", args.join(", ")));
        if !self.env.is_empty() {
            text.push_str(&format!("\n\n[mcp_servers.{NAME}.env]"));
            for (name, value) in &self.env {
                text.push_str(&format!("\n{name} = {}", toml_text(value.as_str().unwrap_or_default())));
            }
        }
        text
    }
}

/// Quotes a text for TOML: as JSON, except for one character.
fn toml_text(text: &str) -> String {
    json!(text).to_string().replace('\u{7f}', "\\u007f")
}

pub(super) fn print(client: McpClientKind, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
    let program = std::env::current_exe().map_err(|error| Failure::io("find", "this program", &error))?;
    let mut args = arguments(std::env::args_os().skip(1))?;
    if globals.data.is_none() {
        args.extend(["--data".to_owned(), told(open::directory(globals)?.into_os_string())?]);
    }
    if client.connects_often() && !args.iter().any(|arg| arg == "--sticky" || arg.starts_with("--session")) {
        args.push("--sticky".to_owned());
    }
    let mut env = Map::new();
    for name in PASSED_ON {
        if let Some(value) = std::env::var_os(name).filter(|value| !value.is_empty()) {
            env.insert(name.to_owned(), json!(told(value)?));
        }
    }
    let start = ServerCommand { program: told(program.into_os_string())?, args, env };
    output::note(&format!("put this into {}", client.place()));
    out.line(client.snippet(&start))
}

/// Returns the given arguments after the subcommand, with absolute paths: a client may start it anywhere.
fn arguments(given: impl Iterator<Item = OsString>) -> Result<Vec<String>, Failure> {
    let (mut args, mut is_named) = (vec!["mcp".to_owned()], false);
    let mut given = given.map(told);
    while let Some(arg) = given.next().transpose()? {
        let (option, value) = match arg.split_once('=') {
            Some((option, value)) if option.starts_with("--") => (option.to_owned(), Some(value.to_owned())),
            _ => (arg.clone(), None),
        };
        let is_place = PLACES.contains(&option.as_str());
        if option == "--print-config" {
            if value.is_none() {
                given.next();
            }
        } else if is_place || VALUED.contains(&option.as_str()) {
            let Some(value) = value.map(Ok).or_else(|| given.next()).transpose()? else { continue };
            let value = if is_place { whole(&value)? } else { value };
            args.extend([option, value]);
        } else if arg == "mcp" && !is_named {
            is_named = true;
        } else {
            args.push(arg);
        }
    }
    Ok(args)
}

fn whole(path: &str) -> Result<String, Failure> {
    let absolute = std::path::absolute(Path::new(path)).map_err(|error| Failure::io("find", path, &error))?;
    told(absolute.into_os_string())
}

fn told(text: OsString) -> Result<String, Failure> {
    text.into_string().map_err(|text| {
        let shown = text::one_line(&text.to_string_lossy(), 300);
        Failure::usage(format!("{shown} is not UTF-8, so it can't be in a client's configuration"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> ServerCommand {
        let args = ["mcp", "--session", "a \"b\" \\"].map(str::to_owned).to_vec();
        let env = Map::from_iter([("CONTAINER_HOST".to_owned(), json!("unix:///x"))]);
        ServerCommand { program: "/opt/foldspace".to_owned(), args, env }
    }

    #[test]
    fn mcp_config_passes_arguments() {
        let given = |words: &[&str]| arguments(words.iter().map(OsString::from)).unwrap();
        let here = std::env::current_dir().unwrap().display().to_string();
        let args = given(&["--data", "mcp", "mcp", "--print-config", "claude", "--mount=./src:/work", "--yes"]);
        assert_eq!(args, ["mcp", "--data", &format!("{here}/mcp"), "--mount", &format!("{here}/src:/work"), "--yes"]);
        assert_eq!(given(&["mcp", "--print-config=codex", "--session", "mcp"]), ["mcp", "--session", "mcp"]);
    }

    #[test]
    fn mcp_config_toml_is_valid() {
        let text = McpClientKind::Codex.snippet(&start());
        let wanted = "[mcp_servers.foldspace]\ncommand = \"/opt/foldspace\"\n\
                      args = [\"mcp\", \"--session\", \"a \\\"b\\\" \\\\\"]\n\n\
                      [mcp_servers.foldspace.env]\nCONTAINER_HOST = \"unix:///x\"";
        assert_eq!(text, wanted);
    }

    #[test]
    fn mcp_config_covers_every_client() {
        for client in McpClientKind::value_variants().iter().filter(|client| **client != McpClientKind::Codex) {
            assert!(!client.place().is_empty());
            if client.program(&json!({})).is_some() {
                assert!(client.snippet(&start()).contains("\"/opt/foldspace\""), "{client:?}");
                continue;
            }
            let document: Value = serde_json::from_str(&client.snippet(&start())).unwrap();
            let servers = document.as_object().unwrap().values().next().unwrap();
            assert!(servers[NAME].to_string().contains("/opt/foldspace"), "{document}");
        }
    }
}
