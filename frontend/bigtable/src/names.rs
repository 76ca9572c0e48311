//! Names of resources: `projects/PROJECT/instances/INSTANCE/tables/TABLE`.
//!
//! An instance is a database, and projects are not told apart: whatever project a client names, it sees the same
//! instances.

use std::fmt;

use tonic::Status;

/// Maximum letters of a table's name.
const TABLE_LETTERS_MAX: usize = 50;

/// An instance in a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InstanceName {
    pub(crate) project: String,
    pub(crate) instance: String,
}

impl InstanceName {
    /// Reads `projects/PROJECT/instances/INSTANCE`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for another form.
    pub(crate) fn parse(text: &str) -> Result<Self, Status> {
        match text.split('/').collect::<Vec<_>>()[..] {
            ["projects", project, "instances", instance]
                if !project.is_empty() && !instance.is_empty() =>
            {
                Ok(Self { project: project.to_owned(), instance: instance.to_owned() })
            }
            _ => Err(malformed(text, "projects/PROJECT/instances/INSTANCE")),
        }
    }

    /// The name of a table of the instance.
    pub(crate) fn table(&self, table: &str) -> TableName {
        TableName {
            project: self.project.clone(),
            instance: self.instance.clone(),
            table: table.to_owned(),
        }
    }
}

/// A table of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableName {
    /// Project; any text.
    pub project: String,
    /// Instance, which is a database.
    pub instance: String,
    /// Name of the table in its database.
    pub table: String,
}

impl TableName {
    /// Reads `projects/PROJECT/instances/INSTANCE/tables/TABLE`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for another form, and without a name: views of tables are not supported.
    pub(crate) fn parse(text: &str) -> Result<Self, Status> {
        if text.is_empty() {
            return Err(Status::invalid_argument(
                "the name of a table is missing; authorized and materialized views are not supported",
            ));
        }
        let form = "projects/PROJECT/instances/INSTANCE/tables/TABLE";
        let Some((parent, table)) = text.split_once("/tables/") else {
            return Err(malformed(text, form));
        };
        if table.is_empty() || table.contains('/') {
            return Err(malformed(text, form));
        }
        InstanceName::parse(parent).map_err(|_| malformed(text, form)).map(|name| name.table(table))
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { project, instance, table } = self;
        write!(formatter, "projects/{project}/instances/{instance}/tables/{table}")
    }
}

fn malformed(text: &str, form: &str) -> Status {
    Status::invalid_argument(format!("\"{text}\" does not have the form {form}"))
}

/// Checks the name of a new table.
///
/// # Errors
/// INVALID_ARGUMENT when it is empty, too long, or has other letters.
pub(crate) fn check_table(name: &str) -> Result<(), Status> {
    let is_first = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let begins_well = name.bytes().next().is_some_and(is_first);
    if begins_well && name.len() <= TABLE_LETTERS_MAX && name.bytes().all(is_letter) {
        return Ok(());
    }
    Err(Status::invalid_argument(format!(
        "table name \"{name}\" is not 1 to {TABLE_LETTERS_MAX} letters, digits, \"_\", \"-\" and \".\""
    )))
}

fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written_in_one_form() {
        let text = "projects/p/instances/i/tables/t";
        let name = TableName::parse(text).unwrap();
        assert_eq!((name.instance.as_str(), name.table.as_str()), ("i", "t"));
        assert_eq!(name.to_string(), text);
        for text in [
            "",
            "t",
            "projects/p/instances/i",
            "projects/p/instances/i/tables/",
            "projects/p/instances/i/tables/t/x",
            "projects//instances/i/tables/t",
            "projects/p/instances//tables/t",
            "projects/p/clusters/i/tables/t",
            "x/projects/p/instances/i/tables/t",
        ] {
            assert!(TableName::parse(text).is_err(), "{text}");
        }
        assert!(InstanceName::parse("projects/p/instances/i/").is_err());
    }

    #[test]
    fn names_of_tables_have_few_letters() {
        for name in ["t", "_t-1.x", "9"] {
            check_table(name).unwrap();
        }
        for name in ["", "-t", ".t", "a b", "ä", &"t".repeat(51)] {
            assert!(check_table(name).is_err(), "{name}");
        }
    }
}
