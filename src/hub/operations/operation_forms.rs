//! The forms of operations in the HTTP API and as tools for models.

/// The route of an operation in the HTTP API. Path parameters, except `session`, are fields of the operation; the other
/// fields are in the query for GET and DELETE, and in the body for POST and PUT.
#[derive(Debug, Clone, Copy)]
pub struct OperationRoute {
    /// `GET`, `POST`, `PUT` or `DELETE`.
    pub method: &'static str,
    /// The path, with `{session}`.
    pub path: &'static str,
    /// The group in the API description.
    pub tag: &'static str,
    /// The status on success. 201 comes with the address of the created session; 202 and 204 come without a document.
    pub status: u16,
}

/// The form of an operation as a tool for models.
#[derive(Debug, Clone, Copy)]
pub struct OperationTool {
    /// The tool.
    pub name: &'static str,
    /// The effect on sessions and the outside.
    pub effect: OperationEffect,
    /// The parameter that names the session, and its description.
    pub session: (&'static str, &'static str),
    /// The parameters that are hidden from models.
    pub hidden: &'static [&'static str],
    /// The handling of a result that is too long.
    pub too_long: TooLong,
}

/// The effect of an operation on sessions and the outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationEffect {
    /// Only reads.
    Looks,
    /// Creates something new.
    Adds,
    /// Changes a session's files.
    Changes,
    /// Runs or stops commands.
    Runs,
}

/// The handling of a result that is too long for a model, with advice for the model.
#[derive(Debug, Clone, Copy)]
pub enum TooLong {
    /// Cuts the result: part of it is useful, and the operation may have made a change.
    Cut(&'static str),
    /// Refuses the result, since the operation only reads.
    Refuse(&'static str),
}

impl OperationTool {
    pub(crate) const fn new(name: &'static str, effect: OperationEffect, too_long: TooLong) -> Self {
        let session = ("session", "The session, by name or id prefix; this client's own by default.");
        Self { name, effect, session, hidden: &[], too_long }
    }

    pub(crate) const fn for_session(self, name: &'static str, about: &'static str) -> Self {
        Self { session: (name, about), ..self }
    }

    pub(crate) const fn hiding(self, hidden: &'static [&'static str]) -> Self {
        Self { hidden, ..self }
    }
}

impl OperationRoute {
    #[doc(hidden)]
    pub const fn at(method: &'static str, tag: &'static str, path: &'static str, status: u16) -> Self {
        Self { method, path, tag, status }
    }

    pub(crate) const fn get(tag: &'static str, path: &'static str) -> Option<Self> {
        Some(Self::at("GET", tag, path, 200))
    }

    pub(crate) const fn post(tag: &'static str, path: &'static str, status: u16) -> Option<Self> {
        Some(Self::at("POST", tag, path, status))
    }

    pub(crate) const fn put(tag: &'static str, path: &'static str, status: u16) -> Option<Self> {
        Some(Self::at("PUT", tag, path, status))
    }

    pub(crate) const fn delete(tag: &'static str, path: &'static str, status: u16) -> Option<Self> {
        Some(Self::at("DELETE", tag, path, status))
    }
}
