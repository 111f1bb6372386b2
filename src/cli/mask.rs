//! Options that mask secrets in exported files.

use foldspace::tools::{SecretMask, regex_error};
use regex::Regex;

use super::output;

/// The largest size of a compiled expression, in bytes.
const SIZE_MAX: usize = 1 << 20;

#[derive(Debug, clap::Args)]
pub(super) struct MaskArgs {
    /// Masks matches, besides well-known secrets; a group named `s` is the part to mask. May be given several times
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

pub(super) fn expression(text: &str) -> Result<Regex, String> {
    let regex = regex::RegexBuilder::new(text).size_limit(SIZE_MAX).build().map_err(|error| regex_error(&error))?;
    if regex.is_match("") { Err("it matches the empty text".to_owned()) } else { Ok(regex) }
}
