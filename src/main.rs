//! The program: arguments in, exit code out.

#[cfg_attr(not(feature = "mcp"), expect(dead_code, reason = "some of it is for the servers only"))]
mod cli;
#[cfg_attr(not(feature = "tui"), expect(dead_code, reason = "some tones are for the debugger only"))]
mod terminal;
#[cfg(feature = "tui")]
mod tui;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    if std::env::args_os().nth(1).is_some_and(|first| first == "hook") {
        return cli::hook(std::env::args_os().skip(2).map(|word| word.to_string_lossy().into_owned()));
    }
    cli::main()
}
