//! The tools that recorded calls use.

use foldspace::{Effect, EntryPath, Tool, ToolContext, ToolError, Tools, ToolsError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

struct WriteFile;
struct EditFile;

#[derive(Deserialize, JsonSchema)]
struct WriteParams {
    file_path: String,
    content: String,
}

#[derive(Deserialize, JsonSchema)]
struct EditParams {
    file_path: String,
    old_string: String,
    new_string: String,
}

#[derive(Serialize, JsonSchema)]
struct Written {
    file_path: String,
    bytes: usize,
}

impl Tool for WriteFile {
    const NAME: &'static str = "write_file";
    const DESCRIPTION: &'static str = "Creates a file.";
    const EFFECT: Effect = Effect::Additive;
    type Params = WriteParams;
    type Output = Written;

    async fn call(&self, context: &mut ToolContext, params: WriteParams) -> Result<Written, ToolError> {
        let path = EntryPath::for_creation(&params.file_path)?;
        let bytes = params.content.len();
        context.filesystem().create(&path, params.content)?;
        Ok(Written { file_path: params.file_path, bytes })
    }
}

impl Tool for EditFile {
    const NAME: &'static str = "edit_file";
    const DESCRIPTION: &'static str = "Replaces a text in a file.";
    const EFFECT: Effect = Effect::Destructive;
    type Params = EditParams;
    type Output = Written;

    async fn call(&self, context: &mut ToolContext, params: EditParams) -> Result<Written, ToolError> {
        let path = EntryPath::lookup(&params.file_path)?;
        let old = context.filesystem().read(&path)?;
        let old = std::str::from_utf8(&old).map_err(|e| ToolError::new(e.to_string()))?;
        if !old.contains(&params.old_string) {
            return Err(ToolError::new("nothing to replace"));
        }
        let new = old.replacen(&params.old_string, &params.new_string, 1);
        let bytes = new.len();
        context.filesystem().write(&path, new)?;
        Ok(Written { file_path: params.file_path, bytes })
    }
}

/// The tools.
///
/// # Errors
/// Never: their names differ.
pub fn tools() -> Result<Tools, ToolsError> {
    Tools::new().with(WriteFile)?.with(EditFile)
}
