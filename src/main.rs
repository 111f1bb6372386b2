//! The program `foldspace`.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    foldspace::program::main_with(foldspace::Registry::standard())
}
