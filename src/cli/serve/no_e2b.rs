//! Stand-in for a program that was built without E2B's API.

use foldspace::WorkspaceSpec;
use foldspace::http::{HttpFace, HttpServer, Token};

use crate::cli::{Failure, Out};

#[derive(Debug, clap::Args)]
pub(super) struct NoE2bArgs {}

impl NoE2bArgs {
    pub(super) fn is_given(&self) -> bool {
        false
    }

    pub(super) fn check(&self, _: bool) -> Result<(), Failure> {
        Ok(())
    }

    pub(super) async fn serve(
        &self,
        _: &HttpServer,
        _: &HttpFace,
        _: (Option<WorkspaceSpec>, bool),
        _: (Token, &[String]),
        _: &mut Out,
    ) -> Result<(), Failure> {
        Ok(())
    }
}
