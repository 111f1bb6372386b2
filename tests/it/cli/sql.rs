//! SQL over the sessions: the questions of docs/sql.md, and queries that must not run.

use serde_json::{Value, json};

use crate::rig::{Program, told};

const EDIT: &str = "sed -i s/1/3/ src/app.py";
const TEST: &str = "sh test.sh";

/// Three runs of one task. The first tests after its last edit; the second fails; the third edits after its test.
fn runs() -> Program {
    let program = Program::new();
    let write = |path: &str, text: &str| json!({ "tool": "write_file", "params": { "file_path": path, "content": text }, "agent": "coder" });
    let shell = |command: &str| json!({ "tool": "shell_execute", "params": { "command": command }, "agent": "tester" });
    let start = [write("src/app.py", "retries = 1\n"), write("test.sh", "! test -e broken\n")];
    let rest = [
        vec![shell(EDIT), shell(TEST)],
        vec![
            shell(EDIT),
            write("broken", "x"),
            json!({ "expect": "error", "tool": "ls", "params": { "path": "no" } }),
            shell(TEST),
        ],
        vec![shell(TEST), shell("echo retries = 2 > src/app.py")],
    ];
    for (at, rest) in rest.iter().enumerate() {
        let calls: String = start.iter().chain(rest).map(|call| format!("{call}\n")).collect();
        let (script, name) = (program.file("calls.jsonl", calls), format!("run-{}", at + 1));
        program.printed(&["run", &script, "--session", &name, "--backend", "host", "--yes"]);
    }
    for (status, id) in [("open", 1), ("open", 2), ("done", 1)] {
        let step = json!({ "id": id, "status": status }).to_string();
        program.printed(&["emit", "run-1", "plan.step", &step, "--agent", "coder"]);
    }
    program
}

fn rows(program: &Program, query: &str) -> Value {
    program.json(&["sql", query])["rows"].clone()
}

/// Returns the SQL of the questions in the document, with the words before them.
fn questions() -> Vec<String> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/sql.md");
    let text = std::fs::read_to_string(path).unwrap();
    let blocks = text.split("```sql\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap().to_owned()).collect()
}

#[test]
fn sql_questions_of_the_document_have_answers() {
    let (program, questions) = (runs(), questions());
    assert_eq!(questions.len(), 12);
    let answers: Vec<Value> = questions.iter().map(|question| rows(&program, question)).collect();
    assert_eq!(answers[0], json!([["run-1", 1], ["run-2", 1], ["run-3", 0]]));
    let spent = answers[1].as_array().unwrap();
    let spent: Vec<_> = spent.iter().map(|row| (row[0].as_str().unwrap(), row[1].clone(), row[2].clone())).collect();
    assert_eq!(spent, [("coder", json!(7), json!(0)), ("tester", json!(6), json!(1)), ("", json!(1), json!(1))]);
    assert_eq!(answers[2], json!([["run-1", 8, "src/app.py", "tester"]]));
    assert_eq!(answers[3], json!([["broken", 1]]));
    assert_eq!(answers[4][0][0], 3, "the first two calls are the same");
    assert_eq!(answers[4][0][1], 2);
    assert_eq!(answers[5], json!([["sh", 3, 1], ["echo", 1, 0], ["sed", 2, 0]]));
    assert_eq!(answers[6], json!([["shell_execute", TEST, 3, 2]]));
    assert_eq!(
        answers[7],
        json!([["run-1", 12, "retries = 3"], ["run-2", 12, "retries = 3"], ["run-3", 12, "retries = 2"]])
    );
    assert_eq!(answers[8], json!([["run-2", 3, 30], ["run-1", 2, 29], ["run-3", 2, 29]]));
    assert_eq!(answers[9][0], json!(["src/app.py", "created", 2]));
    let steps: Vec<Value> =
        answers[10].as_array().unwrap().iter().map(|row| json!(row.as_array().unwrap()[..3])).collect();
    assert_eq!(json!(steps), json!([["run-1", 1, "done"], ["run-1", 2, "open"]]));
    assert_eq!((&answers[11][0][0], &answers[11][0][1]), (&json!("run-2"), &json!(1)));
}

#[test]
fn sql_prints_tables_json_and_csv() {
    let program = Program::with_story();
    let query = "SELECT path, size, agent FROM changes";
    insta::assert_snapshot!(program.run(&["sql", query]), @"
    path         size  agent
    a.txt          14
    src/main.rs    13
    a.txt          15
    a.txt           -  tidy
    [exit 0]
    ");
    insta::assert_snapshot!(program.run(&["sql", query, "--csv", "--limit", "2"]), @r#"
    path,size,agent
    a.txt,14,""
    src/main.rs,13,""
    note: these are the first 2 rows; --limit ROWS returns more
    [exit 0]
    "#);
    let answer = program.json(&["sql", query, "--limit", "1"]);
    assert_eq!(answer, json!({ "columns": ["path", "size", "agent"], "rows": [["a.txt", 14, ""]], "truncated": true }));
    insta::assert_snapshot!(program.fed(&["sql", "-", "--csv"], b"SELECT 'a,\"b\"' AS one, NULL, '', 1.5;"), @r#"
    one,NULL,'',1.5
    "a,""b""",,"",1.5
    [exit 0]
    "#);
}

fn assert_refused(program: &Program, query: &str, code: i32, words: &str) {
    let seconds = if words.contains("took longer") { "2" } else { "60" };
    let output = program.output(&["sql", query, "--timeout", seconds]);
    assert_eq!(output.status.code(), Some(code), "{query}: {}", told(&output));
    assert!(told(&output).contains(words), "{query}: {}", told(&output));
}

#[test]
fn sql_refuses_everything_but_a_bounded_select() {
    let program = Program::with_story();
    let refused = |query: &str, code, words: &str| assert_refused(&program, query, code, words);
    let only = "a query is a single SELECT";
    for query in [
        "CREATE TABLE t (x)",
        "CREATE TEMP TABLE t (x)",
        "DROP TABLE events",
        "ATTACH '/tmp/x.db' AS x",
        "VACUUM INTO '/tmp/x.db'",
        "PRAGMA hard_heap_limit = 0",
        "SELECT 1; SELECT 2",
        "BEGIN",
        "CREATE VIRTUAL TABLE t USING fts5(x)",
        "SELECT * FROM pragma_database_list",
        "EXPLAIN SELECT 1; DROP TABLE x",
    ] {
        refused(query, 1, only);
    }
    refused(
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n",
        1,
        "took longer than 2 s",
    );
    refused(
        "SELECT count(*) FROM events a, events b, events c, events d, events e, events f, events g, events h",
        1,
        "took longer",
    );
    refused("SELECT zeroblob(100000000)", 1, "limit of 16777216 bytes");
    refused("SELECT hex(zeroblob(9000000))", 1, "limit of 16777216 bytes");
    refused(
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 1000) \
         SELECT * FROM n ORDER BY zeroblob(8000000 + x)",
        1,
        "limit of 268435456 bytes",
    );
}

#[test]
fn sql_names_the_problem_of_an_invalid_query() {
    let program = Program::with_story();
    let refused = |query: &str, code, words: &str| assert_refused(&program, query, code, words);
    refused("DELETE FROM events", 2, "table events may not be modified");
    refused("UPDATE calls SET tool = 'x'", 2, "table calls may not be modified");
    refused("INSERT INTO changes VALUES (1)", 1, "a query is a single SELECT");
    refused("SELECT load_extension('x')", 2, "not authorized to use function: load_extension");
    refused("SELEC 1", 2, "syntax error");
    refused("", 2, "the query is empty");
    refused("SELECT * FROM missing", 2, "no such table: missing");
    refused("SELECT * FROM \"plan.step\"", 2, "the tables are sessions, events");
    refused("SELECT * FROM files('nope')", 3, "no session is called \"nope\"");
    refused("SELECT * FROM files('story', 'noon')", 2, "argument at: a position is");
    refused("SELECT * FROM content", 2, "content needs an argument: content(digest)");
    program.printed(&["fork", "story", "--name", "child"]);
    let inherited = rows(
        &program,
        "SELECT parent, inherited, (SELECT sum(inherited) FROM events e WHERE e.session = 'child') FROM sessions",
    );
    assert_eq!(inherited[1], json!(["story", 15, 15]));
    assert_eq!(
        rows(&program, "SELECT count(*) FROM events WHERE session = 'story'"),
        json!([[16]]),
        "nothing was recorded"
    );
}

#[test]
fn sql_writes_parquet() {
    let program = Program::new();
    program.printed(&["new", "demo"]);
    let file = program.file("rows.parquet", "");
    let told = program.run(&["sql", "SELECT session, events FROM sessions", "--parquet", &file]);
    assert_eq!(told, format!("wrote {file}, rows: 1\n[exit 0]"));
    let bytes = std::fs::read(&file).unwrap();
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    let refused = program.run(&["sql", "SELECT 1 AS a, 2 AS a", "--parquet", &file]);
    assert!(refused.contains("rename one with AS") && refused.ends_with("[exit 2]"), "{refused}");
    assert_eq!(std::fs::read(&file).unwrap(), bytes, "it stays as it was");
    let nowhere = program.run(&["sql", "SELECT 1", "--parquet", "/nowhere/rows.parquet"]);
    assert!(nowhere.contains("/nowhere/rows.parquet") && !nowhere.ends_with("[exit 0]"), "{nowhere}");
}
