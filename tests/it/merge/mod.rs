//! Merging children back, and the limits of children.

mod back;
mod limits;
mod rig;
