//! The direction of a search.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    Back,
}

impl Direction {
    pub(crate) fn nothing_found(self) -> &'static str {
        match self {
            Self::Forward => "nothing found up to the end",
            Self::Back => "nothing found back to the beginning",
        }
    }
}
