//! Commands that look.

use insta::assert_snapshot;

use crate::rig::Program;

#[test]
fn sessions_lists_sessions() {
    let program = Program::with_story();
    assert_snapshot!(program.run(&["sessions"]), @"
    name   id            backend  events  calls  updated
    story  [id]  memory       15      5  [time]
    [exit 0]
    ");
}

#[test]
fn log_shows_events() {
    let program = Program::with_story();
    assert_snapshot!(program.run(&["log", "story"]), @"
       1  [time]  SessionStarted  -      -         story on memory
       2  [time]  CallStarted     #2     -         write_file a.txt
       3  [time]  WriteFile       #2     -         create /a.txt  14 B
       4  [time]  CallFinished    #2     -         ok in [duration]
       5  [time]  CallStarted     #5     -         write_file /src/main.rs
       6  [time]  WriteFile       #5     -         create /src/main.rs  13 B
       7  [time]  CallFinished    #5     -         ok in [duration]
       8  [time]  CallStarted     #8     -         edit_file a.txt
       9  [time]  WriteFile       #8     -         overwrite /a.txt  15 B
      10  [time]  CallFinished    #8     -         ok in [duration]
      11  [time]  CallStarted     #11    -         read_file missing.txt
      12  [time]  CallFinished    #11    -         error in [duration]: /missing.txt does not exist
      13  [time]  CallStarted     #13    tidy      rm a.txt
      14  [time]  DeleteEntry     #13    tidy      /a.txt
      15  [time]  CallFinished    #13    tidy      ok in [duration]
    [exit 0]
    ");
    assert_snapshot!(program.run(&["log", "story", "--limit", "2", "--reverse"]), @"
      15  [time]  CallFinished    #13    tidy      ok in [duration]
      14  [time]  DeleteEntry     #13    tidy      /a.txt
    [exit 0]
    ");
    assert_snapshot!(program.run(&["log", "story", "--kind", "writefile", "--kind", "DeleteEntry"]), @"
       3  [time]  WriteFile       #2     -         create /a.txt  14 B
       6  [time]  WriteFile       #5     -         create /src/main.rs  13 B
       9  [time]  WriteFile       #8     -         overwrite /a.txt  15 B
      14  [time]  DeleteEntry     #13    tidy      /a.txt
    [exit 0]
    ");
    assert_snapshot!(program.run(&["log", "story", "--agent", "tidy"]), @"
      13  [time]  CallStarted     #13    tidy      rm a.txt
      14  [time]  DeleteEntry     #13    tidy      /a.txt
      15  [time]  CallFinished    #13    tidy      ok in [duration]
    [exit 0]
    ");
    assert_snapshot!(program.run(&["log", "story", "--path", "/src/**"]), @"
       6  [time]  WriteFile       #5     -         create /src/main.rs  13 B
    [exit 0]
    ");
    assert_snapshot!(program.run(&["log", "story", "--at", "@3", "--limit", "1"]), @"
       3  [time]  WriteFile       #2     -         create /a.txt  14 B
    [exit 0]
    ");
}

#[test]
fn log_shows_calls() {
    let program = Program::with_story();
    assert_snapshot!(program.run(&["log", "story", "--calls"]), @"
       2  [time]  ok [duration]  -         write_file  a.txt  +1
       5  [time]  ok [duration]  -         write_file  /src/main.rs  +1
       8  [time]  ok [duration]  -         edit_file   a.txt  ~1
      11  [time]  error [duration]  -         read_file   missing.txt  /missing.txt does not exist
      13  [time]  ok [duration]  tidy      rm          a.txt  -1
    [exit 0]
    ");
    assert_snapshot!(program.run(&["log", "story", "--calls", "--path", "a.txt", "--limit", "2"]), @"
       8  [time]  ok [duration]  -         edit_file   a.txt  ~1
      13  [time]  ok [duration]  tidy      rm          a.txt  -1
    [exit 0]
    ");
    assert_snapshot!(program.run(&["log", "story", "--calls", "--path", "["]), @"
    error: the glob can't be understood: unclosed character class; missing ']'
    [exit 2]
    ");
}

#[test]
fn show_prints_a_call_and_an_event() {
    let program = Program::with_story();
    assert_snapshot!(program.run(&["show", "story", "8"]), @"
    call 8  edit_file
      status  ok in [duration]
      time    [time]

    parameters
      file_path   a.txt
      old_string  two
      new_string  zwei

    result
      file_path     /a.txt
      replacements  1
      version       2
      size          15

    events
         8  CallStarted     edit_file a.txt
         9  WriteFile       overwrite /a.txt  15 B
        10  CallFinished    ok in [duration]

    diff --git a/a.txt b/a.txt
    --- a/a.txt
    +++ b/a.txt
    @@ -1,3 +1,3 @@
     one
    -two
    +zwei
     three
    [exit 0]
    ");
    assert_snapshot!(program.run(&["show", "story", "@14"]), @"
    event 14  DeleteEntry
      time    [time]
      call    13
      agent   tidy

      path  a.txt

    diff --git a/a.txt b/a.txt
    deleted file mode 100644
    --- a/a.txt
    +++ /dev/null
    @@ -1,3 +0,0 @@
    -one
    -zwei
    -three
    [exit 0]
    ");
}

#[test]
fn show_of_failed_call_prints_its_message() {
    let program = Program::with_story();
    assert_snapshot!(program.run(&["show", "story", "11"]), @"
    call 11  read_file
      status  error in [duration]
      time    [time]

    parameters
      file_path  missing.txt

    message
        /missing.txt does not exist

    events
        11  CallStarted     read_file missing.txt
        12  CallFinished    error in [duration]: /missing.txt does not exist
    [exit 0]
    ");
    assert_snapshot!(program.run(&["show", "story", "16"]), @"
    error: the session has no position 16; its last one is 15
    hint: `foldspace log` shows the positions
    [exit 3]
    ");
}

#[test]
fn show_prints_long_texts() {
    let program = Program::new();
    let long = "word ".repeat(200);
    let params = serde_json::json!({ "file_path": "long.txt", "content": long });
    let script = program.file("long.jsonl", format!("{{\"tool\": \"write_file\", \"params\": {params}}}"));
    program.printed(&["run", &script]);
    assert!(program.printed(&["show", "long", "2"]).contains(&long));
    assert_eq!(program.json(&["show", "long", "2"])["call"]["params"]["content"], long);
    assert!(program.printed(&["--json", "log", "long"]).contains("$content"));
}

#[test]
fn state_lists_and_shows_slices() {
    let program = Program::with_story();
    assert_snapshot!(program.run(&["state", "story"]), @"
    story at 15, [time]
    slice              on rewind  as JSON  digest
    VirtualFileSystem  restore      402 B  [digest]
    ToolCalls keep [size]  [digest]
    Usage keep [size]  [digest]
    Mounts             keep           2 B  [digest]
    Commands           keep          90 B  [digest]
    Allowances         restore        2 B  [digest]
    PodmanWorkspace    keep         128 B  [digest]
    Network            keep          12 B  [digest]
    Services           restore        2 B  [digest]
    Effects            keep          26 B  [digest]
    Children           keep          27 B  [digest]
    Merges             restore       28 B  [digest]
    Annotations        keep          24 B  [digest]
    AgentRuns          keep          11 B  [digest]
    GitWorktree        keep          44 B  [digest]
    ToolRules          restore       49 B  [digest]
    DeclaredSlices     restore        2 B  [digest]
    [exit 0]
    ");
    assert_snapshot!(program.run(&["state", "story", "VirtualFileSystem"]), @"
    dir   v1        [time]  src/
    file  v1  13 B  [time]  src/main.rs
    [exit 0]
    ");
    assert_snapshot!(program.run(&["state", "story", "ToolCalls"]), @"
    5 calls
     2  [time]  ok [duration]  -     write_file
     5  [time]  ok [duration]  -     write_file
     8  [time]  ok [duration]  -     edit_file
    11  [time]  error [duration]  -     read_file   /missing.txt does not exist
    13  [time]  ok [duration]  tidy  rm
    [exit 0]
    ");
    assert!(program.run(&["state", "story", "usage"]).contains("entries written"));
    assert_snapshot!(program.run(&["state", "story", "nonsense"]), @r#"
    error: unknown slice "nonsense"
    hint: there are VirtualFileSystem, ToolCalls, Usage, Mounts, Commands, Allowances, PodmanWorkspace, Network, Services, Effects, Children, Merges, Annotations, AgentRuns, GitWorktree, ToolRules, DeclaredSlices
    [exit 3]
    "#);
}

#[test]
fn ls_and_cat_read_files_of_any_moment() {
    let program = Program::with_story();
    assert_snapshot!(program.run(&["ls", "story"]), @"
    src/
    [exit 0]
    ");
    assert_snapshot!(program.run(&["ls", "story", "-lR", "--at", "9"]), @"
    file  v2  15 B  [time]  a.txt
    dir   v1        [time]  src/
    file  v1  13 B  [time]  src/main.rs
    [exit 0]
    ");
    assert_snapshot!(program.run(&["ls", "story", "/a.txt", "--before", "13"]), @"
    a.txt
    [exit 0]
    ");
    assert_snapshot!(program.run(&["ls", "story", "nothing"]), @"
    error: /nothing does not exist at position 15
    hint: `foldspace ls [id] -R` lists the files; --at selects another position
    [exit 3]
    ");
    assert_snapshot!(program.run(&["cat", "story", "a.txt", "/src/main.rs", "--before", "8"]), @"
    one
    two
    three
    fn main() {}
    [exit 0]
    ");
    assert_snapshot!(program.run(&["cat", "story", "src"]), @"
    error: /src is a directory
    [exit 3]
    ");
    assert_snapshot!(program.run(&["cat", "story", "../src"]), @r#"
    error: path "../src": `.` and `..` are not allowed; give the path from the workspace root
    [exit 2]
    "#);
}

#[test]
fn grep_and_stat_read_files_of_any_moment() {
    let program = Program::with_story();
    assert_snapshot!(program.run(&["grep", "story", "MAIN|e", "--at", "@10", "-i"]), @"
    a.txt:1:one
    a.txt:2:zwei
    a.txt:3:three
    src/main.rs:1:fn main() {}
    [exit 0]
    ");
    assert_snapshot!(program.run(&["grep", "story", "e", "--at", "10", "-l", "--glob", "*.txt"]), @"
    a.txt
    [exit 0]
    ");
    assert_snapshot!(program.run(&["grep", "story", "nothing like it"]), @"

    [exit 1]
    ");
    assert_snapshot!(program.run(&["grep", "story", "("]), @"
    error: the pattern can't be understood: unclosed group
    [exit 2]
    ");
    assert_snapshot!(program.run(&["stat", "story", "a.txt", "--at", "-3"]), @"
    path        /a.txt
    kind        text file
    size        15 bytes (15 B)
    mode        0644
    digest      [digest]
    stored      yes
    version     2
    created     [time]
    updated     [time]
    written by  event 9 of call 8
    [exit 0]
    ");
}

#[test]
fn diff_prints_patches() {
    let program = Program::with_story();
    assert_snapshot!(program.run(&["diff", "story", ".."]), @"
    diff --git a/src/main.rs b/src/main.rs
    new file mode 100644
    --- /dev/null
    +++ b/src/main.rs
    @@ -0,0 +1 @@
    +fn main() {}
    [exit 0]
    ");
    assert_snapshot!(program.run(&["diff", "story", "3..-2"]), @"
    diff --git a/a.txt b/a.txt
    --- a/a.txt
    +++ b/a.txt
    @@ -1,3 +1,3 @@
     one
    -two
    +zwei
     three
    diff --git a/src/main.rs b/src/main.rs
    new file mode 100644
    --- /dev/null
    +++ b/src/main.rs
    @@ -0,0 +1 @@
    +fn main() {}
    [exit 0]
    ");
    assert_snapshot!(program.run(&["diff", "story", "4..10", "--stat"]), @"
    changed  a.txt        +1 -1
    added    src/main.rs  +1 -0
    2 entries changed, +2 -1
    [exit 0]
    ");
    assert_snapshot!(program.run(&["diff", "story", "-5..", "--name-only"]), @"
    a.txt
    [exit 0]
    ");
    assert_snapshot!(program.run(&["diff", "story", "10..4", "src"]), @"
    diff --git a/src/main.rs b/src/main.rs
    deleted file mode 100644
    --- a/src/main.rs
    +++ /dev/null
    @@ -1 +0,0 @@
    -fn main() {}
    [exit 0]
    ");
    assert_snapshot!(program.run(&["diff", "story", "..", "nothing"]), @"
    error: /nothing exists neither at 1 nor at 15
    hint: `foldspace ls [id] -R` lists the files
    [exit 3]
    ");
    assert_snapshot!(program.run(&["diff", "story", "5"]), @"
    error: `diff` takes two positions, not one: 5
    hint: `foldspace show story 5` shows the changes of a call, `foldspace diff story 5..` all changes since
    [exit 2]
    ");
}

#[test]
fn colour_follows_option_and_terminal() {
    let program = Program::with_story();
    let escapes = |arguments: &[&str]| program.printed(arguments).contains('\u{1b}');
    assert!(!escapes(&["log", "story"]));
    assert!(escapes(&["log", "story", "--color", "always"]));
    assert!(!escapes(&["log", "story", "--color", "never"]));
    let colour = |name: &str, value: &str, arguments: &[&str]| {
        let output = program.command(arguments).env(name, value).output().unwrap();
        output.stdout.contains(&0x1b)
    };
    assert!(!colour("NO_COLOR", "1", &["diff", "story", ".."]));
    assert!(colour("CLICOLOR_FORCE", "1", &["diff", "story", ".."]));
}

#[test]
fn tools_print_their_parameters() {
    let program = Program::new();
    let listed = program.printed(&["tools"]);
    for name in ["edit_file", "glob", "grep", "ls", "read_file", "rm", "write_file"] {
        assert!(listed.contains(name), "{name}");
    }
    assert!(program.printed(&["tools", "rm"]).contains("\"$schema\""));
    assert_snapshot!(program.run(&["tools", "nothing"]), @r#"
    error: unknown tool "nothing"
    hint: there are edit_file, env, evaluate_python, execute_script, glob, grep, ls, process_list, process_read, process_signal, process_start, process_write, read_file, rm, shell_execute, which, write_file
    [exit 3]
    "#);
}
