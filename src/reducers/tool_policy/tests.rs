use serde_json::json;

use super::*;
use crate::engine::SessionId;
use crate::engine::clock::Timestamp;
use crate::engine::recorded::ValidatedPayload;

fn policy(value: Value) -> ToolPolicy {
    serde_json::from_value(value).unwrap()
}

fn wrong(value: Value) -> String {
    policy(value).check(|tool| tool != "nothing").unwrap_err().to_string()
}

/// Folds an event, encoded as in a journal.
fn told<E: Event>(rules: &ToolRules, seq: Seq, call: Option<Seq>, event: &E) -> ToolRules {
    let mut payload = Vec::new();
    event.encode(&mut payload).unwrap();
    let mut fold = Box::new(ToolRulesFold(rules.clone()));
    let event = EventRef {
        session: SessionId::from_bytes([1; 16]),
        seq,
        time: Timestamp(1),
        call,
        agent: "",
        kind: E::KIND,
        version: E::VERSION,
        payload: &payload,
        declared: None,
        common: Common::of(E::KIND.as_bytes()),
        validated: ValidatedPayload::No,
    };
    fold.apply(&event).unwrap();
    fold.finish()
}

fn set(rules: &ToolRules, seq: Seq, policy: Value) -> ToolRules {
    told(rules, seq, None, &ToolPolicySet { policy, inherited: None })
}

fn begin(rules: &ToolRules, seq: Seq, tool: &str) -> ToolRules {
    told(rules, seq, Some(seq), &CallStarted { tool: tool.to_owned(), params: Value::Null })
}

fn end(rules: &ToolRules, seq: Seq, call: Seq, result: Result<Value, CallReason>) -> ToolRules {
    let ended = match result {
        Ok(result) => CallFinished { status: CallStatus::Ok, result, message: String::new(), micros: 1, reason: None },
        Err(reason) => CallFinished::without_success(CallStatus::Error, reason, String::new(), 1),
    };
    told(rules, seq, Some(call), &ended)
}

fn path(text: &str) -> EntryPath {
    EntryPath::lookup(text).unwrap()
}

#[test]
fn policy_check_names_the_rule_and_the_limit() {
    let many: Vec<String> = (0..101).map(|number| format!("a{number}")).collect();
    let long = "x".repeat(1001);
    let order = |first: &str, before: &str| json!({ "first": first, "before": before });
    let by_path = |first: &str, before: &str| json!({ "first": first, "before": before, "same_path": true });
    for (given, expected) in [
        (json!({}), "the policy has no rules; remove it instead"),
        (json!({ "read": many }), "read has 101 rules; the limit is 100"),
        (json!({ "tools": many }), "tools has 101 rules; the limit is 100"),
        (json!({ "write": ["a", "b{"] }), "write rule 2 (b{): the glob is invalid"),
        (json!({ "write": [long] }), "the glob has 1001 characters; the limit is 1000"),
        (json!({ "read": ["a/../b"] }), "read rule 1 (a/../b): `.` and `..` are not allowed"),
        (json!({ "read": ["!/"] }), "read rule 1 (!/): the glob is empty"),
        (json!({ "read": ["!a"] }), "read only excludes, so it allows nothing"),
        (json!({ "tools": ["nothing"] }), "tools: unknown tool \"nothing\""),
        (json!({ "commands_outside": "undo" }), "commands_outside has no effect without `write`"),
        (json!({ "order": [order("a", "nothing")] }), "order rule 1: unknown tool \"nothing\""),
        (json!({ "order": [order("a", "a")] }), "order rule 1: a and a wait for each other"),
        (json!({ "order": [order("a", "b"), order("b", "c"), order("c", "a")] }), "order rule 3: c and a wait"),
        (
            json!({ "order": [by_path("read_file", "shell_execute")] }),
            "order rule 1: same_path needs tools that name a path",
        ),
        (json!({ "order": [by_path("a", "grep")] }), "and grep has to change it"),
        (json!({ "tools": ["b"], "order": [order("a", "b")] }), "order rule 1: `tools` excludes a"),
        (json!({ "tools": ["b"], "at_most": [{ "tool": "a", "n": 1 }] }), "at_most rule 1: `tools` excludes a"),
        (json!({ "order": [order("a", "b")], "at_most": [{ "tool": "a", "n": 0 }] }), "so b could never run"),
        (
            json!({ "at_most": [{ "tool": "a", "n": 1 }, { "tool": "a", "n": 2 }] }),
            "at_most rule 2: rule 1 limits a already",
        ),
    ] {
        let error = wrong(given);
        assert!(error.contains(expected), "{error}");
    }
    assert!(serde_json::from_value::<ToolPolicy>(json!({ "reed": [] })).is_err());
    let whole = json!({
        "tools": ["read_file", "edit_file"], "read": ["**", "!.env"], "write": ["src/"], "commands_outside": "report",
        "order": [by_path("read_file", "edit_file"), by_path("edit_file", "edit_file")],
        "at_most": [{ "tool": "edit_file", "n": 5 }], "on_failure": "undo",
    });
    assert_eq!(policy(whole).check(|_| true), Ok(()));
}

#[test]
fn path_rules_allow_and_exclude() {
    let given = policy(json!({ "read": ["**", "!.env", "!secrets"], "write": ["src/", "docs/*.md", "/top"] }));
    let rules = ToolRules { own: Some(PolicyInForce { policy: given, ..Default::default() }), ..Default::default() };
    let rules = PathRules::new(&rules, "write_file").unwrap();
    for allowed in ["a", "src/lib.rs", "x/y/z"] {
        assert_eq!(rules.read_refusal(&path(allowed)), None);
    }
    let refusal = rules.read_refusal(&path("x/secrets/deep/key")).unwrap();
    assert_eq!(refusal, "policy: read rule 3 (!secrets) excludes /x/secrets/deep/key");
    assert!(rules.read_refusal(&path("a/.env")).is_some() && rules.read_refusal(&path("a.env")).is_none());
    for allowed in ["src", "src/a/b", "docs/a.md", "top"] {
        assert_eq!(rules.write_refusal(&path(allowed)), None, "{allowed}");
    }
    for refused in ["docs", "docs/a/b.md", "a/top", "top/a", "srcs"] {
        let expected = format!("policy: no write rule allows /{refused}; allowed: src/, docs/*.md, /top");
        assert_eq!(rules.write_refusal(&path(refused)), Some(expected));
    }
}

#[test]
fn calls_count_unless_they_are_refused() {
    let rules = set(&ToolRules::default(), 1, json!({ "at_most": [{ "tool": "w", "n": 2 }] }));
    let rules = end(&begin(&rules, 2, "w"), 3, 2, Err(CallReason::Refused));
    let rules = end(&begin(&rules, 4, "w"), 5, 4, Err(CallReason::TimedOut));
    let rules = end(&begin(&rules, 6, "other"), 7, 6, Ok(Value::Null));
    let both = begin(&begin(&rules, 8, "w"), 9, "w");
    assert_eq!(both.refusal(8, "w"), None, "a later call does not count for an earlier one");
    let refusal = both.refusal(9, "w").unwrap();
    assert_eq!(refusal, "policy: at_most rule 1: w has used up its 2 calls");
    let ended = end(&both, 10, 9, Err(CallReason::Refused));
    assert_eq!(ended.own.as_ref().unwrap().calls["w"], 2);
    assert_eq!(both.with_counts_of(&rules).own, rules.own, "a rewind counts as then");
    assert!(both.with_counts_of(&ToolRules::default()).own.unwrap().calls.is_empty());
    let encoded = both.encode().unwrap().into_iter().map(bytes::Bytes::from).collect::<Vec<_>>();
    assert_eq!(ToolRules::decode(&encoded).unwrap(), both);
}

#[test]
fn order_waits_for_a_success() {
    let given = json!({ "order": [{ "first": "sh", "before": "w" },
        { "first": "r", "before": "w", "same_path": true }] });
    let rules = set(&ToolRules::default(), 1, given);
    let failed = end(&begin(&rules, 2, "sh"), 3, 2, Ok(json!({ "exit_code": 1 })));
    assert_eq!(failed.refusal(9, "w").unwrap(), "policy: order rule 1: sh must succeed before w");
    let passed = end(&begin(&failed, 4, "sh"), 5, 4, Ok(json!({ "exit_code": 0 })));
    assert_eq!(passed.refusal(9, "w"), None);
    let read = end(&begin(&passed, 6, "r"), 7, 6, Ok(json!({ "file_path": "/a" })));
    let paths = PathRules::new(&read, "w").unwrap();
    assert_eq!(paths.order_refusal(&path("a")), None);
    assert_eq!(
        paths.order_refusal(&path("b")).unwrap(),
        "policy: order rule 2: r must succeed with /b before w changes it"
    );
    assert_eq!(PathRules::new(&read, "other").unwrap().order_refusal(&path("b")), None);
}

#[test]
fn unreadable_policy_allows_no_tool() {
    let rules = set(&ToolRules::default(), 1, json!({ "colour": "red" }));
    assert_eq!(rules.refusal(2, "ls").unwrap(), "policy: tools allows no tool, and so not ls");
    assert!(set(&rules, 2, Value::Null).is_empty());
}
