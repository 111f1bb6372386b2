//! Every backend that comes with foldspace keeps what the public suite checks.

use std::sync::Arc;

use foldspace::backends::compliance::{
    CheckOutcome, ComplianceReport, Means, canned_answers, check_shell, check_workspace,
};
use foldspace::backends::{HostOptions, MockWorkspace, PodmanOptions};
use foldspace::{
    HostWorkspace, MemoryWorkspace, NewSession, PodmanSandbox, Registry, Sessions, Workspace, WorkspaceSpec,
};

use crate::rig::{Kind, Rig, skip};

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work)
}

/// Everything, of a backend with real processes.
fn check_all(workspace: Arc<dyn Workspace>) {
    let shell = workspace.unrecorded_shell().unwrap();
    let files = block_on(check_workspace(Arc::clone(&workspace), Means::Processes));
    assert!(files.passed(), "{files}");
    let commands = block_on(check_shell(shell, Means::Processes));
    workspace.close();
    assert!(commands.passed(), "{commands}");
    // There is nothing that does not apply where there are files and processes, but what needs a broken engine.
    assert_eq!((not_applicable(&files), not_applicable(&commands)), (vec![], vec!["unavailable"]));
}

fn not_applicable(report: &ComplianceReport) -> Vec<&'static str> {
    let is_not = |outcome: &CheckOutcome| matches!(outcome, CheckOutcome::NotApplicable { .. });
    report.checks.iter().filter(|check| is_not(&check.outcome)).map(|check| check.name).collect()
}

#[test]
fn memory_workspace_is_compliant() {
    let report = block_on(check_workspace(Arc::new(MemoryWorkspace), Means::Processes));
    assert!(report.passed(), "{report}");
    assert_eq!(report.check("accepts").unwrap().outcome, CheckOutcome::Passed);
}

#[test]
fn mock_workspace_is_compliant() {
    let mock = canned_answers()
        .into_iter()
        .try_fold(MockWorkspace::new(), |mock, rule| mock.answering(&rule.command, rule.answer))
        .unwrap();
    let report = block_on(check_shell(mock.unrecorded_shell().unwrap(), Means::Canned));
    assert!(report.passed(), "{report}");
    for name in
        ["lists", "scripts", "exit-codes", "no-program", "output-bounded", "timeout", "cancelled", "unavailable"]
    {
        assert_eq!(report.check(name).unwrap().outcome, CheckOutcome::Passed, "{name}");
    }
    let report = block_on(check_workspace(Arc::new(mock), Means::Canned));
    assert!(report.passed(), "{report}");
}

#[test]
fn host_workspace_is_compliant() {
    let directory = tempfile::tempdir().unwrap();
    let workspace = HostWorkspace::open(&directory.path().join("files"), &HostOptions::default()).unwrap();
    check_all(Arc::new(workspace));
}

#[test]
fn mounted_workspace_is_compliant() {
    let directory = tempfile::tempdir().unwrap();
    let sessions = Sessions::open(directory.path(), Registry::standard()).unwrap();
    let session = sessions.create(NewSession::default()).unwrap().id();
    let spec = WorkspaceSpec::Host(HostOptions { mount: true, ..HostOptions::default() });
    match spec.open(session, directory.path()) {
        Ok(workspace) => check_all(workspace),
        Err(error) => skip(&error.to_string()),
    }
    spec.remove(session, directory.path()).unwrap();
    assert!(!WorkspaceSpec::directory(session, directory.path()).exists());
}

#[test]
fn podman_workspace_is_compliant() {
    let Some(options) = Rig::options(Kind::Overlay) else { return };
    check_podman(&options);
}

#[test]
fn podman_workspace_without_overlay_is_compliant() {
    let Some(options) = Rig::options(Kind::Plain) else { return };
    check_podman(&options);
}

fn check_podman(options: &PodmanOptions) {
    let directory = tempfile::tempdir().unwrap();
    // Containers are named after sessions, so the session must be one that nobody else has.
    let sessions = Sessions::open(directory.path(), Registry::standard()).unwrap();
    let session = sessions.create(NewSession::default()).unwrap().id();
    check_all(Arc::new(PodmanSandbox::open(session, options).unwrap()));
    PodmanSandbox::open(session, options).unwrap().remove_files().unwrap();
}
