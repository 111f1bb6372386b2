//! The program: arguments in, exit code out.

mod cli;
mod terminal;
#[cfg(feature = "tui")]
mod tui;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    cli::main()
}
