//! One evaluation by Monty: an interpreter that can only access its inputs.

use std::borrow::Cow;
use std::collections::BTreeSet;

use monty::{MontyRepl, ReplProgress};
use monty_types::{
    CompileOptions, ExcType, ExtFunctionResult, MontyException, MontyObject, NameLookupResult, PrintWriter,
    PrintWriterCallback, ResourceLimits, ResourceTracker,
};

use super::interpreter_files::{HELPERS, InterpreterFiles};
use super::json_values::{as_shown, from_json, is_machinery, to_json};
use super::statistics;
use foldspace_evaluator::{EvalAnswer, EvalRequest};

/// The number of bytes retained of the code's output.
const PRINTED_MAX: usize = 1 << 20;
/// The maximum length of a value's repr, in characters.
const REPR_MAX: usize = 4096;
/// The maximum size of all globals as JSON, in bytes.
const GLOBALS_MAX: usize = 192_000;
const TRACEBACK_MAX: usize = 16_384;

pub(super) fn evaluate(request: EvalRequest) -> EvalAnswer {
    let limits = ResourceLimits { max_duration: Some(request.limit()), ..ResourceLimits::default() };
    let repl = MontyRepl::new("code", ResourceTracker::new(limits), CompileOptions::default());
    let mut files = InterpreterFiles::new(request.files);
    let mut printed = Printed::default();
    let inputs = request.globals.iter().map(|(name, value)| (name.clone(), from_json(value))).collect();
    let ran = run(repl, &request.code, inputs, &mut files, &mut printed);
    let mut answer = EvalAnswer { stdout: printed.text, printed: printed.bytes, ..EvalAnswer::default() };
    match ran {
        Ok((mut repl, value)) => {
            let shown = |value: &MontyObject| as_shown(value).py_repr().chars().take(REPR_MAX).collect();
            answer.value_repr = (!matches!(value, MontyObject::None)).then(|| shown(&value));
            let names: BTreeSet<&str> =
                identifiers(&request.code).chain(request.globals.keys().map(String::as_str)).collect();
            take_globals(&mut repl, names, &mut answer);
            answer.files = files.left();
        }
        Err(error) => {
            answer.timed_out = error.exc_type() == ExcType::TimeoutError
                && error.message().is_some_and(|text| text.starts_with("time limit exceeded"));
            answer.failure = Some(error.to_string().chars().take(TRACEBACK_MAX).collect());
        }
    }
    answer
}

fn run(
    mut repl: MontyRepl,
    code: &str,
    inputs: Vec<(String, MontyObject)>,
    files: &mut InterpreterFiles,
    printed: &mut Printed,
) -> Result<(MontyRepl, MontyObject), MontyException> {
    let code = statistics::imported(&mut repl, code)?;
    let mut progress = repl.feed_start(&code, inputs, PrintWriter::Callback(printed));
    loop {
        let print = PrintWriter::Callback(printed);
        progress = match progress.map_err(|failed| failed.error)? {
            ReplProgress::Complete { repl, value } => return Ok((repl, value)),
            ReplProgress::OsCall(call) => call.resume_with(print, |call| files.call(call)),
            ReplProgress::NameLookup(lookup) => {
                let helper = HELPERS.contains(&&*lookup.name).then(|| lookup.name.clone());
                let function = |name| NameLookupResult::Value(MontyObject::Function { name, docstring: None });
                lookup.resume(helper.map_or(NameLookupResult::Undefined, function), print)
            }
            ReplProgress::FunctionCall(mut call) if HELPERS.contains(&&*call.function_name) => {
                let (args, named) = (std::mem::take(&mut call.args), std::mem::take(&mut call.kwargs));
                let answer = files.help(&call.function_name, args, named);
                call.resume(answer.map_or_else(ExtFunctionResult::Error, ExtFunctionResult::Return), print)
            }
            ReplProgress::FunctionCall(call) => {
                let what = format!("{} is not supported here", call.function_name);
                call.resume(MontyException::new(ExcType::NotImplementedError, Some(what)), print)
            }
            ReplProgress::ResolveFutures(futures) => {
                let what = "nothing to wait for".to_owned();
                futures.abort(MontyException::new(ExcType::RuntimeError, Some(what)), print)
            }
        };
    }
}

/// Takes the values of names. The interpreter can't list its globals, but each one's name is in the code.
fn take_globals(repl: &mut MontyRepl, names: BTreeSet<&str>, answer: &mut EvalAnswer) {
    let mut bytes = 0;
    for name in names {
        // Other names and keywords in parentheses fail; builtins are skipped.
        let Ok(value) = repl.feed_run(&format!("({name})"), Vec::new(), PrintWriter::Disabled) else { continue };
        if is_machinery(&value) {
            continue;
        }
        let json = to_json(&value).and_then(|json| {
            bytes += json.to_string().len();
            if bytes > GLOBALS_MAX { Err(format!("over {GLOBALS_MAX} bytes with those before it")) } else { Ok(json) }
        });
        match json {
            Ok(json) => drop(answer.globals.insert(name.to_owned(), json)),
            Err(why) => drop(answer.omitted.insert(name.to_owned(), why)),
        }
    }
}

/// Lists the identifiers in the code that may be globals. Names with a leading underscore are private.
fn identifiers(code: &str) -> impl Iterator<Item = &str> {
    const CONSTANTS: [&str; 3] = ["None", "True", "False"];
    let is_name = |word: &&str| word.starts_with(|first: char| first.is_alphabetic()) && !CONSTANTS.contains(word);
    code.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(is_name)
}

/// The code's output: its beginning and its length.
#[derive(Default)]
struct Printed {
    text: String,
    bytes: u64,
}

impl PrintWriterCallback for Printed {
    fn stdout_write(&mut self, output: Cow<'_, str>) -> Result<(), MontyException> {
        self.bytes += output.len() as u64;
        let room = PRINTED_MAX.saturating_sub(self.text.len());
        self.text.push_str(&output[..output.floor_char_boundary(room)]);
        Ok(())
    }

    fn stdout_push(&mut self, end: char) -> Result<(), MontyException> {
        self.stdout_write(Cow::Borrowed(end.encode_utf8(&mut [0; 4])))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn evaluated(code: &str) -> EvalAnswer {
        evaluate(EvalRequest { code: code.to_owned(), limit_millis: 2000, ..EvalRequest::default() })
    }

    #[test]
    fn globals_are_values_of_the_code_alone() {
        let code = "import math\nx = [1, (2.5, None)]\ny = {'a': True}\n_z = 1\ns = {1}\nbig = 2 ** 70\n\
                    def f(inner):\n    return inner\nclass C:\n    pass\nprint(f(7))\nmath.pi > 3";
        let answer = evaluated(code);
        assert_eq!(answer.failure, None);
        assert_eq!(answer.value_repr.as_deref(), Some("True"));
        assert_eq!(answer.stdout, "7\n");
        assert_eq!(serde_json::Value::from(answer.globals), json!({ "x": [1, [2.5, null]], "y": { "a": true } }));
        let omitted: Vec<_> = answer.omitted.iter().map(|(name, why)| (name.as_str(), why.as_str())).collect();
        assert_eq!(omitted, [("big", "int over 64 bits"), ("s", "set")]);
    }

    #[test]
    fn globals_given_come_back_changed() {
        let globals = json!({ "n": 1, "t": "x", "big": u64::MAX, "list": [1], "d": { "k": null } });
        let serde_json::Value::Object(globals) = globals else { panic!() };
        let code = "n += 1\nlist.append(t)".to_owned();
        let answer = evaluate(EvalRequest { code, globals, limit_millis: 2000, ..EvalRequest::default() });
        let expected = json!({ "n": 2, "t": "x", "big": u64::MAX, "list": [1, "x"], "d": { "k": null } });
        assert_eq!((answer.failure, serde_json::Value::from(answer.globals)), (None, expected));
    }

    #[test]
    fn values_are_shown_as_python_shows_them() {
        for (code, shown) in [
            ("range(3)", "range(0, 3)"),
            ("[range(3), (range(1),)]", "[range(0, 3), (range(0, 1),)]"),
            ("{'a': range(2)}", "{'a': range(0, 2)}"),
            ("\"Repr('x')\"", "\"Repr('x')\""),
            ("int", "<class 'int'>"),
        ] {
            assert_eq!(evaluated(code).value_repr.as_deref(), Some(shown), "{code}");
        }
        for code in [
            "def f(): pass\nf",
            "class C: pass\nC",
            "class C: pass\nC()",
            "lambda: 1",
            "import re\nre.compile('a')",
            "iter([])",
        ] {
            let answer = evaluated(code);
            let shown = answer.value_repr.unwrap();
            assert!(!shown.contains("Repr(") && !shown.contains("<function '"), "{code}: {shown}");
        }
    }

    #[test]
    fn statistics_is_imported_in_each_form() {
        for import in ["import statistics", "import statistics as st", "from statistics import mean, median as m"] {
            let (mean, median) = match import.split_once(" as ") {
                Some((_, "st")) => ("st.mean", "st.median"),
                Some(_) => ("mean", "m"),
                None => ("statistics.mean", "statistics.median"),
            };
            let answer = evaluated(&format!("import math\n{import}\n({mean}([1, 2, 6]), {median}([3, 1, 2, 4]))"));
            assert_eq!((answer.failure, answer.value_repr.as_deref()), (None, Some("(3, 2.5)")), "{import}");
            assert!(answer.globals.is_empty() && answer.omitted.is_empty(), "{:?}", answer.omitted);
        }
        let answer = evaluated(
            "import statistics\n[statistics.stdev([1, 2, 3, 4]), statistics.pvariance([1, 3]), statistics.mode('aab')]",
        );
        assert_eq!(answer.value_repr.as_deref(), Some("[1.2909944487358056, 1, 'a']"), "{:?}", answer.failure);
        let failure = evaluated("import statistics\nstatistics.mean([])").failure.unwrap();
        assert!(failure.contains("mean requires at least one data point"), "{failure}");
        let failure = evaluated("import statistics\n1 / 0").failure.unwrap();
        assert!(failure.contains("line 2"), "{failure}");
    }

    #[test]
    fn endless_code_ends_and_prints_within_bounds() {
        let request = EvalRequest {
            code: "while True:\n    print('ab')".to_owned(),
            limit_millis: 100,
            ..EvalRequest::default()
        };
        let answer = evaluate(request);
        assert!(answer.timed_out && answer.printed as usize >= answer.stdout.len(), "{:?}", answer.failure);
        assert!(answer.stdout.len() <= PRINTED_MAX);
    }

    #[test]
    fn files_are_read_and_written_as_text() {
        let code = "from pathlib import Path\nwith open('a.txt') as f:\n    text = f.read()\n\
                    with open('/workspace/d/b.txt', 'w') as f:\n    f.write(text.upper())\n\
                    Path('a.txt').read_text() + open('d/b.txt').read()";
        let files = [("a.txt".to_owned(), "one\n".to_owned())].into();
        let answer =
            evaluate(EvalRequest { code: code.to_owned(), files, limit_millis: 2000, ..EvalRequest::default() });
        assert_eq!((answer.failure, answer.value_repr.as_deref()), (None, Some("'one\\nONE\\n'")));
        let left: Vec<_> = answer.files.iter().map(|file| (file.path.as_str(), file.text.as_str())).collect();
        assert_eq!(left, [("d/b.txt", "ONE\n")]);
        let code = "write = write_text\nwrite('new', 'one')\nwrite_text('new', content=' two', mode='append')\n\
                    write_text('/workspace/a.txt', 'x', 'overwrite')\nread_text('new') + read_text('a.txt')";
        let files = [("a.txt".to_owned(), "one\n".to_owned())].into();
        let answer =
            evaluate(EvalRequest { code: code.to_owned(), files, limit_millis: 2000, ..EvalRequest::default() });
        assert_eq!((answer.failure, answer.value_repr.as_deref()), (None, Some("'one twox'")));
        let left: Vec<_> =
            answer.files.iter().map(|file| (file.path.as_str(), file.text.as_str(), file.is_new)).collect();
        assert_eq!(left, [("a.txt", "x", false), ("new", "one two", true)]);
        assert!(answer.globals.is_empty() && answer.omitted.is_empty(), "{:?} {:?}", answer.globals, answer.omitted);
        for (code, why) in [
            ("write_text('n', '1')\nwrite_text('n', '2')", "FileExistsError"),
            ("write_text('n', '1', 'x')", "may be create, overwrite or append"),
            ("write_text('n')", "TypeError: write_text() takes path, content, mode"),
            ("write_text('n', 1)", "takes texts, not int"),
            ("read_text('n', 'm')", "TypeError: read_text() takes path"),
            ("read_text('../n')", "leads out of the workspace"),
            ("read_text('n')", "list files to read in `reads`"),
        ] {
            let failure = evaluated(code).failure.unwrap();
            assert!(failure.contains(why), "{code}: {failure}");
        }
        for code in ["open('b.txt')", "open('../x', 'w')", "open('a.txt', 'rb')", "import os\nos.getenv('HOME')"] {
            let failure = evaluated(code).failure;
            assert!(failure.is_some(), "{code}");
        }
    }
}
