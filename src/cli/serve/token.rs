//! The server's token: given, or generated.

use std::io::{IsTerminal, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use foldspace::http::Token;

use crate::cli::{Exit, Failure, output, text};

const KEPT: &str = "http.token";
const FILE_MAX: u64 = 4096;

/// The server's token, for checking it and for passing it on.
pub(super) struct ChosenToken {
    pub(super) token: Token,
    pub(super) text: String,
    /// The message about a generated token.
    pub(super) told: Option<String>,
}

/// Returns the token from the file or the environment; `None` if one has to be generated.
pub(super) fn given(file: Option<&Path>) -> Result<Option<ChosenToken>, Failure> {
    let (text, place) = match (file, std::env::var("FOLDSPACE_TOKEN").ok().filter(|given| !given.is_empty())) {
        (Some(file), _) => (from_file(file)?, text::one_line(&file.display().to_string(), 300)),
        (None, Some(given)) => (given, "FOLDSPACE_TOKEN".to_owned()),
        (None, None) => return Ok(None),
    };
    Ok(Some(ChosenToken { token: checked(&text, &place)?, text: text.trim().to_owned(), told: None }))
}

pub(super) fn chosen(file: Option<&Path>, directory: &Path) -> Result<ChosenToken, Failure> {
    if let Some(given) = given(file)? {
        return Ok(given);
    }
    let made = fresh()?;
    let path = directory.join(KEPT);
    keep(directory, &path, &made).map_err(|error| Failure::io("write", path.display(), &error))?;
    let shown = text::one_line(&path.display().to_string(), 300);
    // Anything but a terminal may be a log that others read.
    let told = match std::io::stdout().is_terminal() {
        true => format!("token {made}, also in {shown}"),
        false => format!("the token is in {shown}"),
    };
    Ok(ChosenToken { token: checked(&made, KEPT)?, text: made, told: Some(told) })
}

fn checked(token: &str, place: &str) -> Result<Token, Failure> {
    Token::new(token).map_err(|error| Failure::usage(format!("{place}: {error}")))
}

#[expect(clippy::disallowed_methods, reason = "a face reads the files that it is given")]
fn from_file(path: &Path) -> Result<String, Failure> {
    let shown = text::one_line(&path.display().to_string(), 300);
    let failed = |error| Failure::io("read", path.display(), &error);
    let file = std::fs::File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.mode() & 0o077 != 0 {
        output::note(&format!("others can read the token in {shown}; `chmod 600` prevents that"));
    }
    let mut read = String::new();
    file.take(FILE_MAX).read_to_string(&mut read).map_err(failed)?;
    Ok(read.lines().next().unwrap_or_default().to_owned())
}

fn fresh() -> Result<String, Failure> {
    let mut bytes = [0; 32];
    let filled = getrandom::fill(&mut bytes);
    filled.map_err(|error| Failure::new(Exit::Io, format!("failed to generate a token: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Writes the token readable by this user only, whatever the mode of an earlier file.
fn keep(directory: &Path, path: &Path, token: &str) -> std::io::Result<()> {
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    writeln!(file, "{token}")?;
    file.persist(path)?;
    Ok(())
}
