//! The protocol between foldspace and its Python evaluator, a separate program that foldspace starts.

mod wire;

pub use wire::{EvalAnswer, EvalRequest, EvaluatorHello, LeftFile, read_frame, write_frame};

/// Bytes of data that an evaluator may have.
pub const MEMORY_MAX: u64 = 256 << 20;
