//! The program: arguments in, exit code out.

mod cli;
#[cfg(feature = "tui")]
mod terminal;
mod tui;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    cli::main()
}
