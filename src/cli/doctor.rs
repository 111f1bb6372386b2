use foldspace::backends::{DoctorReport, Finding, PodmanOptions, diagnose};

use super::{BAD, Exit, Failure, GOOD, Globals, ODD, Out, attach, hook_log, left_out, open, shared_store, text};

const IMAGES: &str = "`foldspace image build` builds one; --image or FOLDSPACE_IMAGE names another";

/// Checks the requirements of the backends on this machine
#[derive(Debug, clap::Args)]
pub(super) struct Doctor {
    /// The image to try [default: the image that `run` would use]
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// The address of the engine [default: looks for Podman and Docker]
    #[arg(long, value_name = "URL")]
    engine: Option<String>,
}

impl Doctor {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        let defaults = PodmanOptions::default();
        let image = self.image.clone().unwrap_or_else(|| defaults.image.clone());
        let mut findings = diagnose(&PodmanOptions { image, connection: self.engine.clone(), ..defaults });
        findings.extend(left_out::findings());
        if let Ok(data) = open::directory(globals) {
            findings.extend(hook_log::finding(&data));
            findings.extend(attach::silent_hooks(&data));
            let cluster = shared_store::health(&data)?;
            if !cluster.is_empty() {
                let advice = "set `sync_interval: always` in the jetstream section of each server".to_owned();
                let found = "NATS does not report its sync_interval to clients".to_owned();
                findings.push(Finding { what: "cluster disks", state: DoctorReport::Limited, found, advice });
            }
            findings.extend(cluster);
        }
        out.show(&findings, |out| findings.iter().try_for_each(|finding| show(finding, out)))?;
        let is_missing = findings.iter().any(|finding| finding.state == DoctorReport::Missing);
        Ok(if is_missing { Exit::Failed } else { Exit::Ok })
    }
}

fn show(finding: &Finding, out: &mut Out) -> Result<(), Failure> {
    let (style, word) = match finding.state {
        DoctorReport::Ok => (GOOD, "ok"),
        DoctorReport::Limited => (ODD, "limited"),
        DoctorReport::Missing => (BAD, "missing"),
    };
    let state = out.paint(style, format!("{word:<8}"));
    out.line(format!("{state} {:<14} {}", finding.what, text::one_line(&finding.found, 1000)))?;
    if finding.advice.is_empty() {
        return Ok(());
    }
    out.line(format!("{:24}{}", "", text::one_line(&finding.advice, 1000)))?;
    if finding.what == "image" { out.line(format!("{:24}{IMAGES}", "")) } else { Ok(()) }
}
