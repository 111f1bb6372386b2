//! What a hostile command tries and what holds it; and what happens to containers behind our back.

mod confinement;
mod container;
pub(crate) mod engine;
mod escape;
pub(crate) mod full;
mod hunger;
mod import;
mod leftovers;
mod magic;
mod probes;
mod rooted;
mod runner;
