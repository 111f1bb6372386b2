//! Checks the engine on this machine.

use super::engine::{Engine, EngineError};
use super::paths;
use super::sandbox::PodmanSandbox;
use crate::backends::containers::PodmanOptions;
use crate::backends::disk::overlay;
use crate::backends::doctor::{DoctorReport, Finding};
use crate::backends::{MachineNews, Workspace};
use crate::engine::id::SessionId;

/// Checks that overlays work, queries the engines, and starts a container in each that has the image.
pub(crate) fn diagnose(options: &PodmanOptions) -> Vec<Finding> {
    let (engines, errors) = Engine::all(options.connection.as_deref());
    let mut each: Vec<_> = engines.into_iter().map(|engine| ask_engine(engine, options)).collect();
    if each.is_empty() || options.connection.is_none() {
        let missing = |error: EngineError| {
            Finding::missing("engine", error.to_string(), "install Podman or Docker, and start it")
        };
        each.extend(errors.into_iter().map(|error| vec![missing(error)]));
    }
    // One working engine is enough.
    let is_missing = |finding: &Finding| finding.state == DoctorReport::Missing;
    if each.iter().any(|findings| !findings.iter().any(is_missing)) {
        each.iter_mut()
            .flatten()
            .filter(|finding| is_missing(finding))
            .for_each(|finding| finding.state = DoctorReport::Limited);
    }
    [overlay_works()].into_iter().chain(each.into_iter().flatten()).collect()
}

fn overlay_works() -> Finding {
    let supported = paths::cache().and_then(|cache| paths::directory(&cache, 0o700).map(|()| cache));
    let supported = supported.map_err(|error| error.to_string());
    match supported.and_then(|cache| overlay::supported(&cache)) {
        Ok(()) => Finding::ok("overlay", "can be mounted"),
        Err(why) if !rustix::process::geteuid().is_root() => {
            Finding::limited("overlay", why, "containers use plain directories instead")
        }
        Err(why) => Finding::limited(
            "overlay",
            why,
            "containers use plain directories instead; set FOLDSPACE_CACHE to a directory on another file system",
        ),
    }
}

fn ask_engine(engine: Engine, options: &PodmanOptions) -> Vec<Finding> {
    let mut options = PodmanOptions { engine: engine.kind, ..options.clone() };
    if options.image == PodmanOptions::default().image {
        options.image = PodmanOptions::usual(engine.kind, options.connection.as_deref()).image;
    }
    let root = if engine.rootless { "rootless" } else { "rootful" };
    let Engine { kind, version, runtime_name, connection, .. } = &engine;
    let mut findings = vec![Finding::ok(
        "engine",
        format!("{kind} {version} ({runtime_name}, {root}) at {}, from {}", connection.url, connection.source),
    )];
    if let Err(error) = engine.check_user() {
        findings.push(Finding::missing("engine's user", error.to_string(), "an engine serves its own user"));
        return findings;
    }
    findings.push(cgroups(&engine));
    match engine.has_image(&options.image) {
        Ok(true) => {
            findings.push(Finding::ok("image", format!("{} is present", options.image)));
            findings.extend(container(&options));
        }
        Ok(false) => findings.push(Finding::missing(
            "image",
            format!("the engine has no {}", options.image),
            format!("{} pull {}; or build one for development; or use another", kind.name(), options.image),
        )),
        Err(error) => findings.push(Finding::missing(
            "engine",
            error.to_string(),
            format!("check the engine: {} info", kind.name()),
        )),
    }
    findings
}

fn cgroups(engine: &Engine) -> Finding {
    let found = format!("version {}", engine.cgroup_version);
    match (engine.cgroup_version, engine.rootless) {
        (1, true) => Finding::limited(
            "cgroups",
            format!("{found}, and the engine is rootless: it silently ignores limits"),
            "boot with cgroup version 2 (systemd.unified_cgroup_hierarchy=1), or use a rootful engine",
        ),
        _ => Finding::ok("cgroups", found),
    }
}

/// Starts a container, and removes it with everything made for it, even if it did not start.
fn try_container(session: SessionId, options: &PodmanOptions) -> Result<Vec<MachineNews>, String> {
    let opened = PodmanSandbox::open(session, options).map_err(|error| error.to_string());
    let tried = opened.and_then(|sandbox| {
        let started = sandbox.container().map_or(Ok(()), |container| container.start());
        started.map(|()| sandbox.news()).map_err(|error| error.to_string())
    });
    let removed = paths::remove_files(session);
    let news = tried?;
    removed.map(|()| news).map_err(|error| error.to_string())
}

/// Starts a container without a session, and reports the kernel's view of it.
fn container(options: &PodmanOptions) -> Vec<Finding> {
    let mut id = [0; 16];
    let tried = getrandom::fill(&mut id).map_err(|error| error.to_string());
    let tried = tried.and_then(|()| try_container(SessionId::from_bytes(id), options));
    let news = match tried {
        Ok(news) => news,
        Err(error) => {
            let name = options.engine.name();
            let advice = format!("check the engine: {name} info, {name} ps -a");
            return vec![Finding::missing("container", error, advice)];
        }
    };
    let started = news.into_iter().find_map(|news| match news {
        MachineNews::Started(started) => Some(started),
        MachineNews::Stopped(_) | MachineNews::Connected(_) | MachineNews::Exchanged(..) => None,
    });
    let Some(started) = started else { return Vec::new() };
    let mut findings = vec![Finding::ok(
        "container",
        "starts; an unprivileged user, no capabilities, no new privileges, a seccomp filter: as the kernel reports",
    )];
    findings.push(match started.limits_enforced {
        true => Finding::ok("limits", "memory, processes and processor: in force"),
        false => Finding::limited(
            "limits",
            "not all are in force: a command can use all memory, processes or processors",
            "use cgroup version 2, or a rootful engine",
        ),
    });
    findings.push(match started.overlay {
        true => Finding::ok("workspace", "an overlay: changes of a command are found in microseconds"),
        false => {
            Finding::limited("workspace", "a plain directory: every file is scanned after a command", "see overlay")
        }
    });
    findings.push(Finding::ok("runner", "commands start in under a millisecond"));
    findings
}
