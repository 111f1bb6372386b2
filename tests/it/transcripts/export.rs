//! Exports for other programs. `python/tests/test_export.py` has Harbor and OpenTelemetry read them.

use serde_json::Value;

use crate::rig::Program;

fn document(program: &Program, arguments: &[&str]) -> Value {
    serde_json::from_str(&program.printed(arguments)).unwrap()
}

#[test]
fn trajectory_and_traces_of_a_fork_have_its_past() {
    let program = Program::with_story();
    program.printed(&["clone", "story", "--name", "child"]);
    let trajectory = document(&program, &["export", "story", "--atif"]);
    assert_eq!(trajectory["schema_version"], "ATIF-v1.8");
    let steps = trajectory["steps"].as_array().unwrap();
    let ids: Vec<u64> = steps.iter().map(|step| step["step_id"].as_u64().unwrap()).collect();
    assert_eq!(ids, (1..=steps.len() as u64).collect::<Vec<_>>());
    let child = &trajectory["subagent_trajectories"][0];
    assert_eq!(child["steps"].as_array().unwrap().len(), 1, "it has made no call of its own: {child}");
    let alone = document(&program, &["export", "child", "--atif"]);
    let copied = alone["steps"].as_array().unwrap().iter().filter(|step| step["is_copied_context"] == true);
    assert_eq!(copied.count(), steps.len());

    let traces = document(&program, &["export", "story", "--otlp"]);
    let spans = traces["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
    let roots: Vec<&Value> = spans.iter().filter(|span| span["parentSpanId"] == "").collect();
    assert_eq!((roots.len(), roots[0]["traceId"].as_str().unwrap().len()), (1, 32));
    let file = program.path("traces.json").to_string_lossy().into_owned();
    program.printed(&["export", "story", "--otlp", "--output", &file]);
    assert_eq!(serde_json::from_slice::<Value>(&std::fs::read(file).unwrap()).unwrap(), traces);
    for wrong in [&["export", "story"][..], &["export", "story", "--atif", "--otlp"], &["export", "none", "--atif"]] {
        assert!(!program.output(wrong).status.success(), "{wrong:?}");
    }
}
