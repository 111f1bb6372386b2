//! What commands do to the files, compared after each with what is really there.

mod budgets;
mod crowds;
mod drift;
mod endings;
mod entries;
mod images;
mod kept;
mod past;
mod programs;
mod recorded;
mod unprivileged;
