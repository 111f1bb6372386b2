//! The integration tests: one binary, a module per area.

mod cli;
mod golden;
mod house;
mod store;
