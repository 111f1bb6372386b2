use serde_json::json;

use super::live_files::LiveArg;
use super::{AtArg, Failure, Globals, Out, open, position, tree};

/// Prints files byte for byte
#[derive(Debug, clap::Args)]
#[command(mut_args(position::meaning("Prints the files as they were at", "Prints the files as they were before")))]
pub(super) struct Cat {
    /// The session, by name or by the beginning of its id
    session: String,
    /// The files
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<String>,
    #[command(flatten)]
    at: AtArg,
    #[command(flatten)]
    live: LiveArg,
}

impl Cat {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        let found = open::session(globals, &self.session)?;
        let state = self.at.state(&found.session)?;
        let shown = self.live.files(globals, &found.session, &state)?;
        let mut list = Vec::new();
        for path in &self.paths {
            let path = tree::path(path)?;
            let entry = match path.is_root() {
                true => return Err(Failure::missing("/ is a directory")),
                false => tree::entry(&shown.files, &path, &state)?,
            };
            let bytes = shown.contents(&path, entry)?;
            if !out.is_json() {
                out.raw(&bytes)?;
                continue;
            }
            let mut value = json!(shown.document(&path, entry));
            // Binary contents are identified only by their digest, `content`.
            value["contents_text"] = json!(std::str::from_utf8(&bytes).ok());
            list.push(value);
        }
        if out.is_json() {
            out.document(&list)?;
        }
        Ok(())
    }
}
