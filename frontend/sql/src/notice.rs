//! Messages to the client of a statement that succeeded.

/// Severity of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Information.
    Notice,
    /// A likely mistake.
    Warning,
}

impl Severity {
    /// The word in PostgreSQL's protocol.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Notice => "NOTICE",
            Self::Warning => "WARNING",
        }
    }
}

/// A message to the client of a statement that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Severity, sent to the client.
    pub severity: Severity,
    /// SQLSTATE: "00000" for a notice, "01000" for a warning.
    pub code: String,
    /// Message in PostgreSQL's style.
    pub message: String,
    /// Advice for the user.
    pub hint: Option<String>,
}

impl Notice {
    /// A notice: information.
    #[expect(clippy::self_named_constructors, reason = "PostgreSQL's word for the lesser one")]
    pub fn notice(message: impl Into<String>) -> Self {
        let (severity, code) = (Severity::Notice, "00000".to_owned());
        Self { severity, code, message: message.into(), hint: None }
    }

    /// A warning: a likely mistake.
    pub fn warning(message: impl Into<String>) -> Self {
        let (severity, code) = (Severity::Warning, "01000".to_owned());
        Self { severity, code, message: message.into(), hint: None }
    }

    /// Adds a hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
