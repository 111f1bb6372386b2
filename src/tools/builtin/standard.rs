//! The tools that every session offers.

use super::evaluate_python::PythonTool;
use super::execute_script::ScriptTool;
use super::files::{EditTool, GlobTool, GrepTool, ListTool, ReadTool, RemoveTool, WriteTool};
use super::processes::{ProcessListTool, ProcessReadTool, ProcessSignalTool, ProcessStartTool, ProcessWriteTool};
use super::shell_execute::ShellTool;
use super::shell_facts::{EnvTool, WhichTool};
use crate::engine::error::ValueError;
use crate::tools::call::toolset::Tools;

impl Tools {
    /// Returns the file tools, `evaluate_python`, `shell_execute`, `execute_script`, the tools for processes, `which`
    /// and `env`. All from `shell_execute` on need a backend with a shell.
    pub fn standard() -> Self {
        // A test checks that the names are valid and distinct, so this can't fail.
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
        .with(ScriptTool)?
        .with(ProcessStartTool)?
        .with(ProcessListTool)?
        .with(ProcessReadTool)?
        .with(ProcessWriteTool)?
        .with(ProcessSignalTool)?
        .with(WhichTool)?
        .with(EnvTool)?
        .with(PythonTool)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_tools_are_complete() {
        let tools = Tools::standard();
        let names: Vec<_> = tools.names().collect();
        let all = "edit_file env evaluate_python execute_script glob grep ls process_list process_read process_signal \
                   process_start process_write read_file rm shell_execute which write_file";
        assert_eq!(names.join(" "), all);
    }

    #[test]
    fn standard_tools_describe_parameters() {
        for tool in Tools::standard().describe() {
            let params = serde_json::to_value(&tool.params).unwrap();
            assert_eq!(params["additionalProperties"], false, "{}", tool.name);
            for (name, param) in params["properties"].as_object().into_iter().flatten() {
                assert!(param["description"].is_string(), "{}: {name}", tool.name);
            }
            assert!(tool.description.len() > 40, "{}", tool.name);
        }
    }
}
