//! GRANT and REVOKE, of rights on objects and of roles.
//!
//! ```text
//! GRANT  {privilege, .. | ALL [PRIVILEGES]} ON object TO {role | PUBLIC}, .. [WITH GRANT OPTION] [GRANTED BY role]
//! REVOKE [GRANT OPTION FOR] {privilege, .. | ALL [PRIVILEGES]} ON object FROM {role | PUBLIC}, .. [GRANTED BY role]
//!        [CASCADE | RESTRICT]
//! GRANT  role, .. TO role, .. [WITH {ADMIN | INHERIT} {OPTION | TRUE | FALSE}, ..] [GRANTED BY role]
//! REVOKE [{ADMIN | INHERIT} OPTION FOR] role, .. FROM role, .. [GRANTED BY role] [CASCADE | RESTRICT]
//!
//! object = [TABLE] table, .. | SEQUENCE sequence, .. | ALL {TABLES | SEQUENCES} IN {SCHEMA | DATABASE} database, ..
//!        | {DATABASE | SCHEMA} database, .. | CLUSTER
//! ```
//!
//! ON decides: before it stand privileges, and without it roles.

use datafusion::sql::sqlparser::tokenizer::Token;
use partita_proto::access::{Action, Actions};

use super::access_statement::{
    AccessStatement, GrantObjects, GrantRights, GrantRole, MembershipPart, Privileges,
    RevokeRights, RevokeRole, RoleName,
};
use super::roles::access;
use super::statement::Statement;
use super::tokens::{Tokens, word_name};
use crate::error::SqlError;

/// SQLSTATE of a privilege that an object does not have.
const INVALID_GRANT_OPERATION: &str = "0LP01";

/// Privileges by their names in SQL; USAGE is PostgreSQL's word for using a schema or a sequence.
const PRIVILEGES: [(&str, Action); 17] = [
    ("select", Action::Select),
    ("insert", Action::Insert),
    ("update", Action::Update),
    ("delete", Action::Delete),
    ("truncate", Action::Truncate),
    ("create", Action::Create),
    ("connect", Action::Connect),
    ("usage", Action::Connect),
    ("maintain", Action::Maintain),
    ("admin", Action::Admin),
    ("monitor", Action::Monitor),
    ("create role", Action::CreateRole),
    ("manage token", Action::ManageToken),
    ("manage tokens", Action::ManageToken),
    ("manage organisation", Action::ManageOrg),
    ("manage organization", Action::ManageOrg),
    ("task", Action::Task),
];

/// Privileges of PostgreSQL on what does not exist here.
const UNSUPPORTED_PRIVILEGES: [&str; 7] =
    ["alter system", "execute", "references", "set", "temp", "temporary", "trigger"];

/// Objects of PostgreSQL that have no rights here.
const UNSUPPORTED_OBJECTS: [&str; 11] = [
    "domain",
    "foreign",
    "function",
    "language",
    "large",
    "parameter",
    "procedure",
    "routine",
    "tablespace",
    "type",
    "view",
];

/// One item before ON, TO or FROM: the words of a privilege, or a role.
struct Item {
    /// The words, folded, with single blanks.
    words: String,
    /// Number of words.
    count: usize,
    is_quoted: bool,
    position: usize,
}

impl Tokens<'_> {
    /// Takes a GRANT statement.
    pub(super) fn grant(&mut self) -> Result<Statement, SqlError> {
        self.expect("grant")?;
        let items = self.grant_items()?;
        if self.take(&["on"]) {
            let objects = self.grant_objects()?;
            let privileges = privileges(&items, &objects)?;
            self.expect("to")?;
            let grantees = self.grantees()?;
            let grant_option = self.take(&["with", "grant", "option"]);
            if self.at("with") {
                return Err(self.unexpected("WITH GRANT OPTION"));
            }
            let grantor = self.granted_by()?;
            let grant = GrantRights { privileges, objects, grantees, grant_option, grantor };
            return Ok(access(AccessStatement::Grant(grant)));
        }
        self.expect("to")?;
        let groups = groups(&items)?;
        let members = self.role_names()?;
        let (mut admin_option, mut inherit) = (false, None);
        if self.take(&["with"]) {
            loop {
                if self.take(&["admin"]) {
                    admin_option = self.option_value_of_membership()?;
                } else if self.take(&["inherit"]) {
                    inherit = Some(self.option_value_of_membership()?);
                } else if self.take(&["set"]) {
                    if !self.option_value_of_membership()? {
                        return Err(self.unsupported("WITH SET FALSE"));
                    }
                } else {
                    return Err(self.unexpected("ADMIN, INHERIT or SET"));
                }
                if !self.take_mark(&Token::Comma) {
                    break;
                }
            }
        }
        let grantor = self.granted_by()?;
        let grant = GrantRole { groups, members, admin_option, inherit, grantor };
        Ok(access(AccessStatement::GrantRole(grant)))
    }

    /// Takes OPTION, TRUE or FALSE.
    fn option_value_of_membership(&mut self) -> Result<bool, SqlError> {
        if self.take(&["option"]) || self.take(&["true"]) {
            return Ok(true);
        }
        self.expect("false").map_err(|_| self.unexpected("OPTION, TRUE or FALSE"))?;
        Ok(false)
    }

    /// Takes a REVOKE statement.
    pub(super) fn revoke(&mut self) -> Result<Statement, SqlError> {
        self.expect("revoke")?;
        let options_only = self.take(&["grant", "option", "for"]);
        let part = if self.take(&["admin", "option", "for"]) {
            MembershipPart::AdminOption
        } else if self.take(&["inherit", "option", "for"]) {
            MembershipPart::Inherit
        } else {
            MembershipPart::Whole
        };
        if self.at("set") && self.at_nth(1, "option") {
            return Err(self.unsupported("REVOKE SET OPTION FOR"));
        }
        let items = self.grant_items()?;
        if part == MembershipPart::Whole && self.take(&["on"]) {
            let objects = self.grant_objects()?;
            let privileges = privileges(&items, &objects)?;
            self.expect("from")?;
            let grantees = self.grantees()?;
            let grantor = self.granted_by()?;
            let cascade = self.cascades();
            return Ok(access(AccessStatement::Revoke(RevokeRights {
                privileges,
                objects,
                grantees,
                options_only,
                cascade,
                grantor,
            })));
        }
        if options_only {
            return Err(self.unexpected("ON"));
        }
        self.expect("from")?;
        let groups = groups(&items)?;
        let members = self.role_names()?;
        let grantor = self.granted_by()?;
        // No membership depends on another.
        self.cascades();
        Ok(access(AccessStatement::RevokeRole(RevokeRole { groups, members, part, grantor })))
    }

    /// Takes [CASCADE | RESTRICT].
    fn cascades(&mut self) -> bool {
        let cascade = self.take(&["cascade"]);
        if !cascade {
            self.take(&["restrict"]);
        }
        cascade
    }

    fn granted_by(&mut self) -> Result<Option<RoleName>, SqlError> {
        if self.take(&["granted", "by"]) { self.role_name().map(Some) } else { Ok(None) }
    }

    /// Takes the items before ON, TO or FROM.
    fn grant_items(&mut self) -> Result<Vec<Item>, SqlError> {
        let mut items = Vec::new();
        loop {
            let mut item = Item {
                words: String::new(),
                count: 0,
                is_quoted: false,
                position: self.position(),
            };
            let is_end = |tokens: &Self| ["on", "to", "from"].iter().any(|word| tokens.at(word));
            while let Token::Word(word) = &self.peek().token
                && !is_end(self)
            {
                if item.count > 0 {
                    item.words.push(' ');
                }
                item.words.push_str(&word_name(word));
                item.count += 1;
                item.is_quoted |= word.quote_style.is_some();
                self.next();
            }
            if item.count == 0 {
                return Err(self.unexpected("a privilege or a role"));
            }
            if matches!(self.peek().token, Token::LParen) {
                return Err(self.unsupported("a privilege on columns"));
            }
            items.push(item);
            if !self.take_mark(&Token::Comma) {
                return Ok(items);
            }
        }
    }

    /// Takes the objects after ON.
    fn grant_objects(&mut self) -> Result<GrantObjects, SqlError> {
        if self.take(&["cluster"]) {
            return Ok(GrantObjects::Cluster);
        }
        if self.take(&["all", "tables", "in"]) {
            return self.databases_of_all().map(GrantObjects::AllTablesIn);
        }
        if self.take(&["all", "sequences", "in"]) {
            return self.databases_of_all().map(GrantObjects::AllSequencesIn);
        }
        if self.at("all") {
            let object = self.peek_nth(1).token.to_string().to_ascii_uppercase();
            return Err(self.unsupported(format!("a privilege on ALL {object}")));
        }
        let names_object = matches!(self.peek_nth(1).token, Token::Word(_))
            && !self.at_nth(1, "to")
            && !self.at_nth(1, "from");
        if names_object && (self.take(&["database"]) || self.take(&["schema"])) {
            return self.database_names().map(GrantObjects::Databases);
        }
        if names_object && let Some(word) = UNSUPPORTED_OBJECTS.iter().find(|word| self.at(word)) {
            let object = word.to_ascii_uppercase();
            return Err(self.unsupported(format!("a privilege on a {object}")));
        }
        let is_sequence = names_object && self.take(&["sequence"]);
        if names_object && !is_sequence {
            self.take(&["table"]);
        }
        let mut names = vec![self.table_name()?];
        while self.take_mark(&Token::Comma) {
            names.push(self.table_name()?);
        }
        Ok(if is_sequence { GrantObjects::Sequences(names) } else { GrantObjects::Tables(names) })
    }

    /// Takes {SCHEMA | DATABASE} and the databases of ALL TABLES IN and ALL SEQUENCES IN.
    fn databases_of_all(&mut self) -> Result<Vec<String>, SqlError> {
        if !self.take(&["schema"]) {
            self.expect("database").map_err(|_| self.unexpected("SCHEMA or DATABASE"))?;
        }
        self.database_names()
    }

    fn database_names(&mut self) -> Result<Vec<String>, SqlError> {
        let mut names = vec![self.name("a database's name")?];
        while self.take_mark(&Token::Comma) {
            names.push(self.name("a database's name")?);
        }
        Ok(names)
    }
}

/// The privileges that the items name.
fn privileges(items: &[Item], objects: &GrantObjects) -> Result<Privileges, SqlError> {
    let (kind, grantable) = match objects {
        GrantObjects::Cluster => ("cluster", Actions::CLUSTER),
        GrantObjects::Databases(_) => ("database", Actions::DATABASE),
        GrantObjects::Tables(_) | GrantObjects::AllTablesIn(_) => ("table", Actions::TABLE),
        GrantObjects::Sequences(_) | GrantObjects::AllSequencesIn(_) => {
            ("sequence", Actions::SEQUENCE)
        }
    };
    let mut listed = Actions::NONE;
    for item in items {
        let located = |error: SqlError| error.with_position(item.position);
        if ["all", "all privileges"].contains(&item.words.as_str()) && !item.is_quoted {
            if items.len() > 1 {
                return Err(located(SqlError::syntax("ALL must be the only privilege")));
            }
            return Ok(Privileges::All);
        }
        if UNSUPPORTED_PRIVILEGES.contains(&item.words.as_str()) {
            let privilege = item.words.to_ascii_uppercase();
            return Err(located(SqlError::unsupported(format!("privilege {privilege}"))));
        }
        let entry = PRIVILEGES.iter().find(|(name, _)| *name == item.words);
        let Some((name, action)) = entry else {
            let message = format!("unrecognized privilege type \"{}\"", item.words);
            return Err(located(SqlError::syntax(message)));
        };
        let is_other = kind == "sequence" && *name == "connect";
        if is_other || !grantable.contains(*action) {
            let name = name.to_ascii_uppercase();
            let message = format!("invalid privilege type {name} for {kind}");
            return Err(located(SqlError::new(INVALID_GRANT_OPERATION, message)));
        }
        listed = listed.union(Actions::of(&[*action]));
    }
    Ok(Privileges::Listed(listed))
}

/// The roles that the items name.
fn groups(items: &[Item]) -> Result<Vec<RoleName>, SqlError> {
    let role = |item: &Item| {
        if item.count > 1 {
            let message = format!("syntax error at or near \"{}\", expected ON", item.words);
            return Err(SqlError::syntax(message).with_position(item.position));
        }
        Ok(match item.words.as_str() {
            "current_user" | "current_role" if !item.is_quoted => RoleName::CurrentUser,
            "session_user" if !item.is_quoted => RoleName::SessionUser,
            name => RoleName::Named(name.to_owned()),
        })
    };
    items.iter().map(role).collect()
}
