//! Finds the data directory.

use std::ffi::OsString;
use std::path::PathBuf;

use super::{Failure, Globals, shared_store, text};

pub(super) fn existing(globals: &Globals) -> Result<PathBuf, Failure> {
    let directory = directory(globals)?;
    if directory.join("journal").is_dir() || shared_store::address(&directory)?.is_some() {
        return Ok(directory);
    }
    let shown = directory.display().to_string();
    Err(Failure::missing(format!("no store found in {}", text::visible(&shown)))
        .with_hint("`foldspace new` creates one; --data or FOLDSPACE_DATA names its directory"))
}

pub(super) fn directory(globals: &Globals) -> Result<PathBuf, Failure> {
    let given = globals.data.clone().or_else(default_directory);
    let directory = given.ok_or_else(|| {
        Failure::usage("no data directory: neither HOME nor XDG_DATA_HOME is set")
            .with_hint("name one with --data DIR or FOLDSPACE_DATA")
    })?;
    if directory.exists() && !directory.is_dir() {
        let shown = directory.display().to_string();
        return Err(Failure::usage(format!("{} is not a directory", text::visible(&shown)))
            .with_hint("--data or FOLDSPACE_DATA names the directory of the store"));
    }
    shared_store::note(globals, &directory)?;
    Ok(directory)
}

pub(super) fn default_directory() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value: &OsString| !value.is_empty()).map(PathBuf::from);
    // The XDG specification ignores relative paths.
    let absolute = |path: &PathBuf| path.is_absolute();
    set("FOLDSPACE_DATA")
        .or_else(|| set("XDG_DATA_HOME").filter(absolute).map(|home| home.join("foldspace")))
        .or_else(|| set("HOME").filter(absolute).map(|home| home.join(".local/share/foldspace")))
}
