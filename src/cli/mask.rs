//! Options that mask secrets in files for other people.

use foldspace::tools::{SecretMask, regex_error};
use regex::Regex;

use super::output;

/// Bytes of the program that an expression becomes.
const SIZE_MAX: usize = 1 << 20;

#[derive(Debug, clap::Args)]
pub(super) struct MaskArgs {
    /// Masks what matches, besides well-known secrets; a group named `s` is the part to mask. Can be given again
    #[arg(long, value_name = "REGEX", value_parser = expression)]
    mask: Vec<Regex>,
    /// Leaves well-known secrets as they are
    #[arg(long)]
    no_mask: bool,
}

impl MaskArgs {
    pub(super) fn is_given(&self) -> bool {
        !self.mask.is_empty()
    }

    pub(super) fn mask(&self) -> SecretMask {
        SecretMask::new(!self.no_mask, &self.mask)
    }

    /// Prints the numbers of masked secrets.
    pub(super) fn tell(&self, mask: &SecretMask) {
        if let Some(found) = mask.found() {
            let undo = if self.no_mask { "" } else { "; --no-mask leaves well-known secrets" };
            output::note(&format!("masked {found}{undo}"));
        }
    }
}

fn expression(text: &str) -> Result<Regex, String> {
    let regex = regex::RegexBuilder::new(text).size_limit(SIZE_MAX).build().map_err(|error| regex_error(&error))?;
    if regex.is_match("") { Err("it matches an empty text".to_owned()) } else { Ok(regex) }
}
