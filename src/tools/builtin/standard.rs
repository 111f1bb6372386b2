//! The tools that every session offers.

use super::evaluate_python::PythonTool;
use super::files::{EditTool, GlobTool, GrepTool, ListTool, ReadTool, RemoveTool, WriteTool};
use super::shell_execute::ShellTool;
use crate::engine::error::ValueError;
use crate::tools::call::toolset::Tools;

impl Tools {
    /// Returns the file tools, `shell_execute` and `evaluate_python`. The last two need a backend with a shell.
    pub fn standard() -> Self {
        // Their names are distinct and fit, which a test checks; so this can't fail.
        assembled().unwrap_or_default()
    }
}

fn assembled() -> Result<Tools, ValueError> {
    Tools::new()
        .with(ListTool)?
        .with(ReadTool)?
        .with(WriteTool)?
        .with(EditTool)?
        .with(GlobTool)?
        .with(GrepTool)?
        .with(RemoveTool)?
        .with(ShellTool)?
        .with(PythonTool)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_tools_are_complete() {
        let tools = Tools::standard();
        let names: Vec<_> = tools.names().collect();
        let all =
            ["edit_file", "evaluate_python", "glob", "grep", "ls", "read_file", "rm", "shell_execute", "write_file"];
        assert_eq!(names, all);
    }

    #[test]
    fn standard_tools_describe_parameters() {
        for tool in Tools::standard().describe() {
            let params = serde_json::to_value(&tool.params).unwrap();
            assert_eq!(params["additionalProperties"], false, "{}", tool.name);
            for (name, param) in params["properties"].as_object().unwrap() {
                assert!(param["description"].is_string(), "{}: {name}", tool.name);
            }
            assert!(tool.description.len() > 40, "{}", tool.name);
        }
    }
}
