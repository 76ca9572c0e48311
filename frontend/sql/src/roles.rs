//! Statements about roles and owners: CREATE, ALTER and DROP ROLE, OWNER TO, REASSIGN and DROP OWNED, SET ROLE.
//!
//! ```text
//! CREATE {ROLE | USER | GROUP} name [WITH] option ...
//! ALTER {ROLE | USER | GROUP} role {[WITH] option ... | RENAME TO name | SET setting .. | RESET {setting | ALL}}
//! option = [NO]SUPERUSER | [NO]CREATEDB | [NO]CREATEROLE | [NO]INHERIT | [NO]LOGIN | [NO]ADMIN
//!        | PASSWORD {'text' | NULL} | VALID UNTIL 'time' | {ORGANISATION | ORG} {name | NONE}
//!        | IN ROLE role, .. | ROLE role, .. | ADMIN role, ..          the last three for CREATE only
//! ```
//!
//! ADMIN without a role is the attribute.
//!
//! Invariant: no error contains a string of the statement, because it may be a password.

use arrow::datatypes::TimeUnit;
use datafusion::sql::sqlparser::tokenizer::Token;
use partita_worker::Zone;
use partita_worker::moments::{Moment, ticks};

use super::access_statement::{
    AccessStatement, CreateRole, GrantRole, GranteeName, MembershipPart, OwnedObject, Password,
    RevokeRole, RoleChange, RoleName, RoleOptions, SetRole,
};
use super::statement::{SetValue, Statement};
use super::tokens::Tokens;
use crate::error::{INVALID_DATETIME, SqlError};

/// Words that begin an option of a role, so that no role of a list can have them as its name without quotes.
const OPTION_WORDS: &[&str] = &[
    "admin",
    "bypassrls",
    "connection",
    "createdb",
    "createrole",
    "encrypted",
    "in",
    "inherit",
    "login",
    "noadmin",
    "nobypassrls",
    "nocreatedb",
    "nocreaterole",
    "noinherit",
    "nologin",
    "noreplication",
    "nosuperuser",
    "org",
    "organisation",
    "organization",
    "password",
    "replication",
    "role",
    "superuser",
    "sysid",
    "unencrypted",
    "user",
    "valid",
];

/// Returns true if a token is a string of any kind.
fn is_string(token: &Token) -> bool {
    matches!(
        token,
        Token::SingleQuotedString(_)
            | Token::EscapedStringLiteral(_)
            | Token::NationalStringLiteral(_)
            | Token::UnicodeStringLiteral(_)
            | Token::DollarQuotedString(_)
            | Token::DoubleQuotedString(_)
            | Token::TripleSingleQuotedString(_)
            | Token::HexStringLiteral(_)
    )
}

impl Tokens<'_> {
    /// Takes ROLE, USER or GROUP; true for USER.
    pub(super) fn role_word(&mut self) -> Option<bool> {
        // USER MAPPING is another object.
        if self.at("user") && self.at_nth(1, "mapping") {
            return None;
        }
        if self.take(&["user"]) {
            return Some(true);
        }
        (self.take(&["role"]) || self.take(&["group"])).then_some(false)
    }

    /// The error of an unexpected next token, which may be a password.
    fn unexpected_secret(&self, expected: &str) -> SqlError {
        let next = &self.peek().token;
        let is_quoted = matches!(next, Token::Word(word) if word.quote_style.is_some());
        if is_string(next) || is_quoted || matches!(next, Token::Number(..)) {
            let message = format!("syntax error at a literal or quoted name, expected {expected}");
            return self.located(SqlError::syntax(message));
        }
        self.unexpected(expected)
    }

    /// Takes what follows CREATE ROLE, USER or GROUP.
    pub(super) fn create_role(&mut self, is_user: bool) -> Result<Statement, SqlError> {
        let name = self.name("a role's name")?;
        self.take(&["with"]);
        let mut create = CreateRole {
            name,
            options: RoleOptions::default(),
            in_roles: Vec::new(),
            members: Vec::new(),
            admins: Vec::new(),
        };
        while !self.at_end() {
            if self.take(&["in"]) {
                let _ = self.take(&["role"]) || self.take(&["group"]) || self.take(&["user"]);
                self.add_roles(&mut create.in_roles)?;
            } else if self.take(&["role"]) || self.take(&["user"]) {
                self.add_roles(&mut create.members)?;
            } else if self.at("admin") && self.names_role(1) {
                self.next();
                self.add_roles(&mut create.admins)?;
            } else {
                self.role_option(&mut create.options)?;
            }
        }
        create.options.login = Some(create.options.login.unwrap_or(is_user));
        Ok(access(AccessStatement::CreateRole(Box::new(create))))
    }

    /// Returns true if the token `n` places ahead is a role's name, and no option.
    fn names_role(&self, n: usize) -> bool {
        match &self.peek_nth(n).token {
            Token::Word(word) if word.quote_style.is_some() => true,
            Token::Word(word) => {
                !OPTION_WORDS.iter().any(|option| word.value.eq_ignore_ascii_case(option))
            }
            _ => false,
        }
    }

    fn add_roles(&mut self, roles: &mut Vec<RoleName>) -> Result<(), SqlError> {
        if !roles.is_empty() {
            return Err(self.located(redundant()));
        }
        *roles = self.role_names()?;
        Ok(())
    }

    /// Takes one option of a role.
    fn role_option(&mut self, options: &mut RoleOptions) -> Result<(), SqlError> {
        let position = self.position();
        let flags: [(&str, &str, &mut Option<bool>); 6] = [
            ("superuser", "nosuperuser", &mut options.superuser),
            ("createdb", "nocreatedb", &mut options.create_db),
            ("createrole", "nocreaterole", &mut options.create_role),
            ("inherit", "noinherit", &mut options.inherit),
            ("login", "nologin", &mut options.login),
            ("admin", "noadmin", &mut options.admin),
        ];
        for (word, opposite, flag) in flags {
            let value = self.take(&[word]);
            if value || self.take(&[opposite]) {
                return put(flag, value).map_err(|error| error.with_position(position));
            }
        }
        // Defaults of PostgreSQL's dumps are accepted; what they exclude is not supported.
        if self.take(&["noreplication"]) || self.take(&["nobypassrls"]) {
            return Ok(());
        }
        if self.at("connection") && self.at_nth(1, "limit") {
            let is_none = matches!(self.peek_nth(2).token, Token::Minus)
                && matches!(&self.peek_nth(3).token, Token::Number(number, _) if number == "1");
            if !is_none {
                return Err(self.unsupported("CONNECTION LIMIT of a role"));
            }
            (0..4).for_each(|_| drop(self.next()));
            return Ok(());
        }
        for (word, option) in [
            ("replication", "REPLICATION of a role"),
            ("bypassrls", "BYPASSRLS"),
            ("sysid", "SYSID"),
            ("unencrypted", "UNENCRYPTED PASSWORD"),
        ] {
            if self.at(word) {
                return Err(self.unsupported(option));
            }
        }
        if self.at("encrypted") && self.at_nth(1, "password") {
            self.next();
        }
        if self.take(&["password"]) {
            let password = if self.take(&["null"]) { None } else { Some(self.password()?) };
            return put(&mut options.password, password)
                .map_err(|error| error.with_position(position));
        }
        if self.take(&["valid", "until"]) {
            let end_ms = self.end_of_validity()?;
            return put(&mut options.valid_until_ms, end_ms)
                .map_err(|error| error.with_position(position));
        }
        if self.take_org_word() {
            let name = match self.take(&["none"]) {
                true => None,
                false => Some(self.name("an organisation's name")?),
            };
            return put(&mut options.org, name).map_err(|error| error.with_position(position));
        }
        Err(self.unexpected_secret("an option of a role"))
    }

    /// Takes ORGANISATION in one of its spellings.
    pub(super) fn take_org_word(&mut self) -> bool {
        self.take(&["organisation"]) || self.take(&["organization"]) || self.take(&["org"])
    }

    fn password(&mut self) -> Result<Password, SqlError> {
        // Whatever stands here may be the password, without its quotes.
        let expected =
            self.located(SqlError::syntax("syntax error: PASSWORD takes a string or NULL"));
        self.string().map(Password::new).map_err(|_| expected)
    }

    /// Takes a time in a string, as milliseconds since 1970; `None` for 'infinity'.
    pub(super) fn end_of_validity(&mut self) -> Result<Option<i64>, SqlError> {
        let wrong = self.located(SqlError::new(INVALID_DATETIME, "invalid time"));
        let expected = self.unexpected_secret("a time in quotes");
        let text = self.string().map_err(|_| expected)?;
        if text.trim().eq_ignore_ascii_case("infinity") {
            return Ok(None);
        }
        let moment = Moment::parse(&text).ok_or_else(|| wrong.clone())?;
        ticks(moment.instant(Zone::UTC), TimeUnit::Millisecond).map(Some).ok_or(wrong)
    }

    /// Takes what follows ALTER ROLE, USER or GROUP.
    pub(super) fn alter_role(&mut self) -> Result<Statement, SqlError> {
        if self.at("all") && (self.at_nth(1, "set") || self.at_nth(1, "reset")) {
            return Err(self.unsupported("ALTER ROLE ALL"));
        }
        let role = self.role_name()?;
        // ALTER GROUP's forms for memberships.
        let is_added = self.take(&["add", "user"]);
        if is_added || self.take(&["drop", "user"]) {
            let (groups, members) = (vec![role], self.role_names()?);
            let statement = if is_added {
                let (admin_option, inherit, grantor) = (false, None, None);
                AccessStatement::GrantRole(GrantRole {
                    groups,
                    members,
                    admin_option,
                    inherit,
                    grantor,
                })
            } else {
                let (part, grantor) = (MembershipPart::Whole, None);
                AccessStatement::RevokeRole(RevokeRole { groups, members, part, grantor })
            };
            return Ok(access(statement));
        }
        if self.at("in") && self.at_nth(1, "database") {
            return Err(self.unsupported("ALTER ROLE ... IN DATABASE"));
        }
        let change = if self.take(&["rename", "to"]) {
            RoleChange::Rename(self.name("a role's name")?)
        } else if self.take(&["set"]) {
            self.role_setting()?
        } else if self.take(&["reset", "all"]) {
            RoleChange::ResetAll
        } else if self.take(&["reset"]) {
            let name =
                if self.take(&["time", "zone"]) { "timezone".to_owned() } else { self.setting()? };
            RoleChange::Setting { name, value: None }
        } else {
            self.take(&["with"]);
            let mut options = RoleOptions::default();
            loop {
                self.role_option(&mut options)?;
                if self.at_end() {
                    break RoleChange::Options(options);
                }
            }
        };
        Ok(access(AccessStatement::AlterRole { role, change: Box::new(change) }))
    }

    fn role_setting(&mut self) -> Result<RoleChange, SqlError> {
        let is_zone = self.take(&["time", "zone"]);
        let name = if is_zone { "timezone".to_owned() } else { self.setting()? };
        if self.take(&["from", "current"]) {
            return Ok(RoleChange::SettingFromCurrent(name));
        }
        if !self.take_mark(&Token::Eq) && !self.take(&["to"]) && !is_zone {
            return Err(self.unexpected("TO or \"=\""));
        }
        let value = match self.set_value(&name)? {
            SetValue::Default => None,
            SetValue::Values(values) => Some(values.join(", ")),
        };
        Ok(RoleChange::Setting { name, value })
    }

    /// Takes what follows DROP ROLE, USER or GROUP.
    pub(super) fn drop_role(&mut self) -> Result<Statement, SqlError> {
        let if_exists = self.if_exists();
        let mut names = vec![self.name("a role's name")?];
        while self.take_mark(&Token::Comma) {
            names.push(self.name("a role's name")?);
        }
        Ok(access(AccessStatement::DropRole { names, if_exists }))
    }

    /// Takes a role.
    pub(super) fn role_name(&mut self) -> Result<RoleName, SqlError> {
        if self.take(&["current_user"]) || self.take(&["current_role"]) {
            return Ok(RoleName::CurrentUser);
        }
        if self.take(&["session_user"]) {
            return Ok(RoleName::SessionUser);
        }
        Ok(RoleName::Named(self.name("a role's name")?))
    }

    /// Takes roles between commas.
    pub(super) fn role_names(&mut self) -> Result<Vec<RoleName>, SqlError> {
        let mut names = vec![self.role_name()?];
        while self.take_mark(&Token::Comma) {
            names.push(self.role_name()?);
        }
        Ok(names)
    }

    /// Takes roles and PUBLIC between commas, each after an optional GROUP.
    pub(super) fn grantees(&mut self) -> Result<Vec<GranteeName>, SqlError> {
        let mut names = Vec::new();
        loop {
            if matches!(self.peek_nth(1).token, Token::Word(_)) && !self.at_nth(1, "with") {
                self.take(&["group"]);
            }
            names.push(match self.role_name()? {
                // As in PostgreSQL, also with quotes.
                RoleName::Named(name) if name == "public" => GranteeName::Public,
                role => GranteeName::Role(role),
            });
            if !self.take_mark(&Token::Comma) {
                return Ok(names);
            }
        }
    }

    /// Takes what follows ALTER TABLE if it is OWNER TO, and nothing otherwise.
    pub(super) fn table_owner(&mut self) -> Result<Option<Statement>, SqlError> {
        // ALTER TABLE [IF EXISTS] [ONLY] [database.]table OWNER TO: the number of tokens before the word.
        let mut ahead = usize::from(self.at("if")) * 2;
        ahead += usize::from(self.at_nth(ahead, "only"));
        ahead += 1;
        while matches!(self.peek_nth(ahead).token, Token::Period) {
            ahead += 2;
        }
        if !self.at_nth(ahead, "owner") || !self.at_nth(ahead + 1, "to") {
            return Ok(None);
        }
        let if_exists = self.if_exists();
        self.take(&["only"]);
        let name = self.table_name()?;
        self.expect("owner")?;
        self.expect("to")?;
        let object = OwnedObject::Table { name, if_exists };
        let owner = self.role_name()?;
        if matches!(self.peek().token, Token::Comma) {
            let message = "OWNER TO must be the only action of its ALTER TABLE";
            return Err(self.located(SqlError::syntax(message)));
        }
        Ok(Some(access(AccessStatement::SetOwner { object, owner })))
    }

    /// Takes OWNER TO role after the name of a database.
    pub(super) fn database_owner(&mut self, name: String) -> Result<Statement, SqlError> {
        self.expect("owner")?;
        self.expect("to")?;
        let owner = self.role_name()?;
        Ok(access(AccessStatement::SetOwner { object: OwnedObject::Database(name), owner }))
    }

    /// Takes REASSIGN OWNED BY roles TO role.
    pub(super) fn reassign(&mut self) -> Result<Statement, SqlError> {
        self.expect("reassign")?;
        self.expect("owned")?;
        self.expect("by")?;
        let owners = self.role_names()?;
        self.expect("to")?;
        let successor = self.role_name()?;
        Ok(access(AccessStatement::ReassignOwned { owners, successor }))
    }

    /// Takes what follows DROP OWNED.
    pub(super) fn drop_owned(&mut self) -> Result<Statement, SqlError> {
        self.expect("by")?;
        let owners = self.role_names()?;
        let cascade = self.take(&["cascade"]);
        if !cascade {
            self.take(&["restrict"]);
        }
        Ok(access(AccessStatement::DropOwned { owners, cascade }))
    }

    /// Takes what follows SET ROLE.
    pub(super) fn set_role(&mut self) -> Result<Statement, SqlError> {
        let _ = self.take_mark(&Token::Eq) || self.take(&["to"]);
        let role = if self.take(&["none"]) || self.take(&["default"]) {
            None
        } else {
            let name = match self.string() {
                Ok(name) => name,
                Err(_) => self.name("a role's name")?,
            };
            // As in PostgreSQL, NONE has this meaning in quotes, too.
            Some(name).filter(|name| name != "none")
        };
        Ok(Statement::SetRole(SetRole { role, is_reset: false }))
    }
}

/// A statement about who may do what.
pub(super) fn access(statement: AccessStatement) -> Statement {
    Statement::Access(statement)
}

fn redundant() -> SqlError {
    SqlError::syntax("conflicting or redundant options")
}

/// Sets an option that may be given once.
pub(super) fn put<T>(option: &mut Option<T>, value: T) -> Result<(), SqlError> {
    match option.replace(value) {
        None => Ok(()),
        Some(_) => Err(redundant()),
    }
}
