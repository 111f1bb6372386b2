use std::path::PathBuf;

use foldspace::Session;
use foldspace::http::encoded;
use foldspace::hub::operations::DeclaredSliceDocument;
use serde_json::Value;

use super::{Cell, Failure, Globals, Out, OwnerClient, TextTable, emit, open, text};

/// Declares slices of your own, which fold events of any kind
///
/// A declaration is recorded in the session, and its past is folded once. `foldspace state` then shows the slice at
/// every position after it; predicates of `bisect --slice` and `replay --until` can use it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foldspace reducer add demo plan.json
  foldspace reducer list demo
  foldspace state demo Plan
  foldspace reducer remove demo Plan

plan.json:
  {\"name\": \"Plan\", \"rules\": [
    {\"kinds\": [\"plan.step\"], \"fold\": \"latest_by\", \"key\": \"/id\"},
    {\"kinds\": [\"plan.dropped\"], \"fold\": \"remove_by\", \"key\": \"/id\"}]}

Folds: append (max), latest, latest_by (key), remove_by (key), count_by (key),
sum_by (key, value), merge_patch, json_patch. docs/slices.md explains them.")]
pub(super) struct ReducerArgs {
    #[command(subcommand)]
    verb: ReducerVerb,
}

#[derive(Debug, clap::Subcommand)]
enum ReducerVerb {
    /// Declares a slice, or changes its declaration
    Add {
        /// The session, by name or by the beginning of its id
        session: String,
        /// The declaration, a JSON file; `-` reads it from standard input
        #[arg(value_hint = clap::ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Lists the declared slices
    List {
        /// The session, by name or by the beginning of its id
        session: String,
    },
    /// Removes a declared slice; earlier positions keep it
    Remove {
        /// The session, by name or by the beginning of its id
        session: String,
        /// The slice's name
        slice: String,
    },
}

impl ReducerArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        match &self.verb {
            ReducerVerb::Add { session, file } => add(globals, session, file, out),
            ReducerVerb::List { session } => list(globals, session, out),
            ReducerVerb::Remove { session, slice } => {
                acting(globals, session, slice, async |owner, path| owner.client.delete(&path).await)?;
                out.line(format!("removed {}; earlier positions keep it", text::one_line(slice, 80)))
            }
        }
    }
}

fn add(globals: &Globals, session: &str, file: &std::path::Path, out: &mut Out) -> Result<(), Failure> {
    let shown = file.display().to_string();
    let mut declaration = emit::json_file(file)?;
    let name = declaration.as_object_mut().and_then(|fields| fields.remove("name"));
    let Some(Value::String(name)) = name else {
        return Err(Failure::usage(format!("{shown} is not a declaration: an object with `name` and `rules`")));
    };
    let put = async |owner: &OwnerClient, path: String| owner.client.put(&path, &declaration).await;
    let made: DeclaredSliceDocument = acting(globals, session, &name, put)?;
    out.show(&made, |out| {
        let (name, version) = (&made.declaration.name, made.version);
        out.line(format!("declared {name}, version {version}, at event {}", made.since))
    })
}

fn list(globals: &Globals, session: &str, out: &mut Out) -> Result<(), Failure> {
    let found: Session = open::session(globals, session)?.session;
    let all: Vec<DeclaredSliceDocument> = foldspace::hub::operations::declared(&found.state()?);
    if out.is_json() {
        return out.document(&all);
    }
    if all.is_empty() {
        return out.line("no declared slices; `foldspace reducer add` declares one");
    }
    let mut table = TextTable::with_titles(&["slice", ">version", ">since", ">skipped", "kinds"]);
    for slice in &all {
        let kinds: Vec<&str> =
            slice.declaration.rules.iter().flat_map(|rule| rule.kinds.iter().map(String::as_str)).collect();
        table.row([
            Cell::left(slice.declaration.name.as_str()),
            Cell::right(slice.version),
            Cell::right(slice.since),
            Cell::right(slice.skipped),
            Cell::left(text::one_line(&kinds.join(", "), 200)),
        ]);
    }
    table.show(out)
}

/// Runs a request of one of the session's declared slices, at its path.
fn acting<T>(
    globals: &Globals,
    session: &str,
    slice: &str,
    work: impl AsyncFnOnce(&OwnerClient, String) -> Result<T, foldspace::http::ClientError>,
) -> Result<T, Failure> {
    super::block_on(async {
        let owner = OwnerClient::of_existing(globals).await?;
        let id = open::reading(globals)?.find(session)?.session.id();
        let done = work(&owner, format!("/v1/sessions/{id}/reducers/{}", encoded(slice))).await;
        owner.end().await;
        Ok::<_, Failure>(done?)
    })?
}
