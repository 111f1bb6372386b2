use clap::builder::{PossibleValuesParser, TypedValueParser};
use foldspace::backends::{BuiltImage, EngineKind, build_image, find_engine};
use serde_json::json;

use super::{Exit, Failure, Globals, Out, output};

/// Builds the image with the programs that agents use
///
/// It has Python, Node, git, jq, ripgrep, compilers and more. Once it is built, sessions that name no image use it.
#[derive(Debug, clap::Args)]
pub(super) struct Image {
    #[command(subcommand)]
    verb: ImageVerb,
}

#[derive(Debug, clap::Subcommand)]
enum ImageVerb {
    /// Builds the development image with an engine, from images/Containerfile
    Build(ImageBuildArgs),
}

#[derive(Debug, clap::Args)]
struct ImageBuildArgs {
    /// The engine that builds and stores it [default: the first that works, Podman before Docker]
    #[arg(long, value_name = "ENGINE", value_parser = engine())]
    backend: Option<EngineKind>,
    /// The address of the engine
    #[arg(long, value_name = "URL")]
    engine: Option<String>,
    /// The base image, Debian or derived from Debian [default: python:3.12-bookworm]
    #[arg(long, value_name = "IMAGE")]
    base: Option<String>,
    /// Builds an image like E2B's `base` instead, from images/e2b-base/Containerfile; `serve --e2b` then uses it
    #[arg(long)]
    e2b: bool,
    /// The network for downloading packages, such as host [default: the engine's own]
    #[arg(long, value_name = "NETWORK")]
    network: Option<String>,
}

fn engine() -> impl TypedValueParser<Value = EngineKind> {
    PossibleValuesParser::new(EngineKind::ALL.map(EngineKind::name)).map(|name| match &*name {
        "docker" => EngineKind::Docker,
        _ => EngineKind::Podman,
    })
}

impl Image {
    pub(super) fn run(&self, _: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        let ImageVerb::Build(ImageBuildArgs { backend, engine, base, e2b, network }) = &self.verb;
        let kind = match backend {
            Some(kind) => *kind,
            None => find_engine(engine.as_deref())?,
        };
        let mut progress = output::progress;
        let what = if *e2b { BuiltImage::E2bBase } else { BuiltImage::Development };
        let image = build_image(what, kind, engine.as_deref(), base.as_deref(), network.as_deref(), &mut progress)?;
        match out.is_json() {
            true => out.document(&json!({ "image": image, "engine": kind.name() }))?,
            false if *e2b => out.line(format!("built {image}; `foldspace serve --e2b` uses it on {kind}"))?,
            false => out.line(format!("built {image}; sessions that name no image use it on {kind}"))?,
        }
        Ok(Exit::Ok)
    }
}
