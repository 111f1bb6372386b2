//! `foldspace doctor`: what works here.

use foldspace::backends::{DoctorReport, PodmanOptions, diagnose};

use super::exit::{Exit, Failure};
use super::output::{BAD, GOOD, ODD, Out};
use super::text;

/// Tries what the backends need on this machine, and tells what to do about what does not work
#[derive(Debug, clap::Args)]
pub(super) struct Doctor {
    /// The image to try [default: FOLDSPACE_IMAGE, else python:3.12-bookworm]
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// Where the engine listens
    #[arg(long, value_name = "URL")]
    engine: Option<String>,
}

impl Doctor {
    pub(super) fn run(&self, out: &mut Out) -> Result<Exit, Failure> {
        let defaults = PodmanOptions::of_environment();
        let image = self.image.clone().unwrap_or_else(|| defaults.image.clone());
        let findings = diagnose(&PodmanOptions { image, connection: self.engine.clone(), ..defaults });
        let well = findings.iter().all(|finding| finding.state != DoctorReport::Missing);
        let exit = if well { Exit::Ok } else { Exit::Failed };
        if out.is_json() {
            out.document(&findings)?;
            return Ok(exit);
        }
        for finding in findings {
            let (style, word) = match finding.state {
                DoctorReport::Ok => (GOOD, "ok"),
                DoctorReport::Limited => (ODD, "limited"),
                DoctorReport::Missing => (BAD, "missing"),
            };
            let state = out.paint(style, format!("{word:<8}"));
            out.line(format!("{state} {:<14} {}", finding.what, text::one_line(&finding.found, 1000)))?;
            if !finding.advice.is_empty() {
                out.line(format!("{:24}{}", "", text::one_line(&finding.advice, 1000)))?;
            }
        }
        Ok(exit)
    }
}
