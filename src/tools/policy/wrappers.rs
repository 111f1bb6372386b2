//! Programs that run other programs, and the programs in their arguments.

use super::names::changes_meanings;
use super::words::{base_name, has, marker};

/// Wrappers, each with its short options that take values, and `1` if an operand precedes the program.
const WRAPPERS: &str = "builtin busybox chronic chroot::1 chrt:TPD:1 command dbus-run-session doas:uC env:uCSa \
    exec:a fakeroot:lsbi flock:wEc:1 ionice:cnpPu linux32 linux64 ltrace:aeEFlnopsuwx nice:n nohup nsenter:tSG \
    prlimit:po rlwrap:bCDefFgHlMOPqsStwz runuser:cgGsuw setarch::1 setpriv setsid stdbuf:ioe strace:aeEIoOpPsSuUX sudo:ugpChrtTUDR \
    systemd-run:pEuMH taskset::1 time:fo timeout:sk:1 toybox unbuffer unshare:SGRw watch:nq xargs:adEILnPs";
/// Long options of wrappers that take the next word as a value, and long options without values.
const LONG_VALUES: &str = "--adjustment --arg-file --chdir --chroot --class --classdata --config-file --conflict-exit-code \
    --delay --delimiter --equexit --error --format --group --groups --host --input --interval --jobs --kill-after \
    --max-args --max-lines --max-procs --output --pid --prompt --property --regid --reuid --root --setenv --setgid \
    --setuid --shell --signal --supp-group --target --timeout --trace --unit --unset --user --userspec --wait --wd";
const LONG_PLAIN: &str = "--background --differences --errexit --exec --foreground --ignore-environment --line-buffer \
    --login --no-run-if-empty --non-interactive --null --open-tty --portability --preserve-env --preserve-status \
    --set-home --stdin --verbose --will-cite";
/// Shells that run text. A version may follow.
const SHELLS: &str =
    "ash bash csh dash elvish fish hush ksh lksh mksh nu oksh posh pwsh rbash rksh rzsh sh tcsh yash zsh";
/// Shells with a non-POSIX syntax.
const FOREIGN: &str = "csh elvish fish nu pwsh tcsh";
/// Wrappers that run a shell if no program follows.
const SHELL_STARTERS: &str = "chroot fakeroot linux32 linux64 nsenter runuser setarch systemd-run unshare";
/// Interpreters other than shells. A version may follow.
const INTERPRETERS: &str = "bun deno lua node nodejs perl php python ruby tclsh";
/// Builtins that run text in the same shell, now or later, or change the meaning of later words.
const EVALUATORS: &str = "alias bind compgen complete enable eval hash let trap";

const NOT_UNDERSTOOD: &str = "an unsupported wrapper";
const READ_BY_SHELL: &str = "a shell that reads commands";

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Runs {
    Nothing,
    /// The programs in its words; true if all words before them were understood.
    Programs(Vec<Vec<String>>, bool),
    Text(String),
    /// Its input, as code in a language other than a shell's.
    Code,
    /// Something unknown, with a description.
    Unclear(&'static str),
}

pub(super) fn is_shell(name: &str) -> bool {
    has(SHELLS, without_version(name))
}

pub(super) fn is_foreign(name: &str) -> bool {
    has(FOREIGN, without_version(name))
}

fn without_version(name: &str) -> &str {
    name.trim_start_matches('-').trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-'))
}

pub(super) fn is_wrapper(name: &str) -> bool {
    is_shell(name) || wrapper(name).is_some()
}

/// Looks up a wrapper's short options with values, and its number of operands before the program.
fn wrapper(name: &str) -> Option<(&'static str, usize)> {
    let mut known = WRAPPERS.split_whitespace().map(|entry| entry.split(':'));
    let mut parts = known.find_map(|mut parts| (parts.next() == Some(name)).then_some(parts))?;
    Some((parts.next().unwrap_or_default(), parts.count()))
}

pub(super) fn runs(program: &str, arguments: &[String]) -> Runs {
    let name = base_name(program);
    let given = |letters: &[char], long: &str| {
        let mut options = arguments.iter().take_while(|word| word.starts_with('-') && *word != "--");
        options.any(|word| if word.starts_with("--") { word.starts_with(long) } else { word.contains(letters) })
    };
    let has_text = || arguments.iter().any(|word| has("-c -lc", word) || word.starts_with("--command"));
    match name {
        _ if program.contains(marker::is) || program.starts_with('~') => {
            Runs::Unclear("an expansion in a program's place")
        }
        name if has(EVALUATORS, name) => Runs::Unclear("a builtin that evaluates its words"),
        name if is_shell(name) => shell(arguments),
        "source" | "." if arguments.first().is_some_and(|path| is_stdin(path)) => Runs::Unclear(READ_BY_SHELL),
        "source" | "." => arguments.first().map_or(Runs::Unclear(NOT_UNDERSTOOD), |path| file(path)),
        "su" | "script" | "parallel" => Runs::Unclear(NOT_UNDERSTOOD),
        "runuser" | "flock" if has_text() => Runs::Unclear(NOT_UNDERSTOOD),
        "env" if given(&['S'], "--s") => Runs::Unclear(NOT_UNDERSTOOD),
        "command" if given(&['v', 'V'], "-- ") => Runs::Nothing,
        "find" => Runs::Programs(programs(arguments).map(with_unknown).collect(), true),
        _ if has(INTERPRETERS, name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.')) => code(arguments),
        _ => wrapped(name, arguments),
    }
}

fn wrapped(name: &str, arguments: &[String]) -> Runs {
    let Some((short, own)) = wrapper(name) else { return Runs::Nothing };
    let mut at = 0;
    // A shell parses the command of `watch`.
    let mut is_clear = name != "watch";
    while let Some(word) = arguments.get(at) {
        is_clear &= !word.contains(marker::is_open);
        let is_set = matches!(name, "env" | "sudo" | "doas") && word.contains('=');
        if !word.starts_with('-') && !is_set {
            break;
        }
        at += 1;
        match word.strip_prefix('-').unwrap_or_default() {
            "-" => break,
            long if long.starts_with('-') => {
                let takes_value = has(LONG_VALUES, word);
                is_clear &= takes_value || word.contains('=') || has(LONG_PLAIN, word);
                at += usize::from(takes_value);
            }
            letters => {
                // Text after some letters of `xargs` is an optional value.
                let attached = if name == "xargs" { "eil" } else { "" };
                let value = letters.find(|c| short.contains(c) || attached.contains(c)).map(|at| &letters[at..]);
                at += usize::from(value.is_some_and(|value| value.len() == 1 && short.contains(value)));
            }
        }
    }
    let mut program = arguments.get(at + own..).unwrap_or_default().to_vec();
    let options = &arguments[..at.min(arguments.len())];
    // A value may expand to several words, so that another word is the program.
    is_clear &= !arguments.iter().take(at + own).any(|word| word.contains(marker::is_many));
    is_clear &= !options.iter().any(|word| name == "xargs" && word.starts_with("--proc"));
    match program.is_empty() {
        true if starts_shell(name, options) => return Runs::Unclear(READ_BY_SHELL),
        true if is_clear => return Runs::Nothing,
        true => return Runs::Unclear(NOT_UNDERSTOOD),
        false if name == "xargs" && program.iter().any(|word| is_shell(base_name(word))) => {
            return Runs::Unclear(READ_BY_SHELL);
        }
        false if name == "xargs" => {
            let unknown = marker::UNKNOWN.to_string();
            let mut marks = replaced(options);
            if let Some(mark) = marks.next() {
                program.iter_mut().for_each(|word| *word = word.replace(mark, &unknown));
            }
            is_clear &= marks.next().is_none();
            program.push(unknown);
        }
        false => {}
    }
    Runs::Programs(vec![program], is_clear)
}

fn starts_shell(name: &str, options: &[String]) -> bool {
    let asks = |word: &String| match word.starts_with("--") {
        true => has("--login --shell", word),
        false => word.contains(['i', 's']),
    };
    has(SHELL_STARTERS, name) || (has("doas sudo", name) && options.iter().any(asks))
}

/// Finds the texts that `xargs` replaces by its input, including in the program's name.
fn replaced(options: &[String]) -> impl Iterator<Item = &str> {
    let marks = options.iter().enumerate().filter_map(|(at, word)| {
        if word.starts_with("--r") {
            return Some(word.split_once('=').map_or("{}", |(_, mark)| mark));
        }
        let letters = word.strip_prefix('-').filter(|letters| !letters.starts_with('-'))?;
        let (_, mark) = letters.split_at_checked(letters.find(['I', 'i', 'J'])? + 1)?;
        match mark.is_empty() {
            true if letters.ends_with('i') => Some("{}"),
            true => options.get(at + 1).map(String::as_str),
            false => Some(mark),
        }
    });
    marks.filter(|mark| !mark.is_empty())
}

fn shell(arguments: &[String]) -> Runs {
    let (mut at, mut takes_text, mut from_stdin) = (0, false, false);
    let is_option = |word: &&String| word.len() > 1 && word.starts_with(['-', '+']) && *word != "--";
    while let Some(word) = arguments.get(at).filter(is_option) {
        at += 1;
        if word.starts_with("--") {
            at += usize::from(matches!(word.as_str(), "--rcfile" | "--init-file"));
            continue;
        }
        takes_text |= word.starts_with('-') && word.contains('c');
        from_stdin |= word.starts_with('-') && word.contains('s');
        at += usize::from(word.ends_with(['o', 'O']));
    }
    if changes_meanings(arguments.iter().take(at)) {
        return Runs::Unclear("options that change the meaning of words");
    }
    at += usize::from(arguments.get(at).is_some_and(|word| word == "--" || word == "-"));
    match arguments.get(at) {
        Some(text) if takes_text => Runs::Text(text.clone()),
        Some(path) if !from_stdin && !is_stdin(path) => file(path),
        _ => Runs::Unclear(READ_BY_SHELL),
    }
}

fn file(path: &str) -> Runs {
    if path.contains(marker::is) { Runs::Unclear("an expansion in a script's place") } else { Runs::Nothing }
}

fn is_stdin(path: &str) -> bool {
    has("- /dev/stdin /dev/fd/0 /proc/self/fd/0", path)
}

/// Returns what an interpreter runs: its input if it gets neither code nor a file.
fn code(arguments: &[String]) -> Runs {
    let at = arguments.iter().position(|word| !word.starts_with("--") || has("--eval --print", word));
    let Some(at) = at.filter(|&at| !is_stdin(&arguments[at])) else { return Runs::Code };
    let given = 1 + usize::from(arguments[at].starts_with('-'));
    let is_open = arguments.iter().skip(at).take(given).any(|word| word.contains(marker::is_open));
    if is_open { Runs::Unclear("an expansion in code") } else { Runs::Nothing }
}

/// Marks the paths found by `find` as unknown if they end up in shell text.
fn with_unknown(program: &[String]) -> Vec<String> {
    let in_text = program.iter().any(|word| is_shell(base_name(word)));
    let given = |word: &String| word.replace("{}", marker::UNKNOWN.encode_utf8(&mut [0; 4]));
    if in_text { program.iter().map(given).collect() } else { program.to_vec() }
}

pub(super) fn programs(arguments: &[String]) -> impl Iterator<Item = &[String]> {
    let runs = |word: &String| has("-exec -execdir -ok -okdir", word);
    arguments.split_inclusive(move |word| runs(word)).skip(1).map(|rest| {
        let end = rest.iter().position(|word| word == ";" || word == "+").unwrap_or(rest.len());
        &rest[..end]
    })
}
