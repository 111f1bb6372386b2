//! Merging children back, and the limits of children.

mod back;
mod blamed;
mod killed;
mod limits;
mod rig;
mod subagents;
