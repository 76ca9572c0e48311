//! Statements about organisations.
//!
//! ```text
//! CREATE {ORGANISATION | ORGANIZATION | ORG} name [option ..]
//! ALTER  {ORGANISATION | ..} name {RENAME TO name | option ..}
//! DROP   {ORGANISATION | ..} [IF EXISTS] name
//!
//! option = PROFILE {UNLIMITED | FREE | PAYG} | SERIES LIMIT {n | NONE}
//! ```

use partita_proto::access::Profile;

use super::access_statement::{AccessStatement, OrgOptions};
use super::roles::{access, put};
use super::statement::Statement;
use super::tokens::Tokens;
use crate::error::{INVALID_PARAMETER_VALUE, SqlError};

impl Tokens<'_> {
    /// Takes what follows CREATE ORGANISATION.
    pub(super) fn create_org(&mut self) -> Result<Statement, SqlError> {
        let name = self.org_name()?;
        let options = self.org_options()?;
        Ok(access(AccessStatement::CreateOrg { name, options }))
    }

    /// Takes what follows ALTER ORGANISATION.
    pub(super) fn alter_org(&mut self) -> Result<Statement, SqlError> {
        let name = self.org_name()?;
        if self.take(&["rename", "to"]) {
            let options = OrgOptions { name: Some(self.org_name()?), ..OrgOptions::default() };
            return Ok(access(AccessStatement::AlterOrg { name, options }));
        }
        let options = self.org_options()?;
        if options == OrgOptions::default() {
            return Err(self.unexpected("RENAME TO, PROFILE or SERIES LIMIT"));
        }
        Ok(access(AccessStatement::AlterOrg { name, options }))
    }

    /// Takes what follows DROP ORGANISATION.
    pub(super) fn drop_org(&mut self) -> Result<Statement, SqlError> {
        let if_exists = self.if_exists();
        let name = self.org_name()?;
        Ok(access(AccessStatement::DropOrg { name, if_exists }))
    }

    fn org_name(&mut self) -> Result<String, SqlError> {
        self.name("an organisation's name")
    }

    fn org_options(&mut self) -> Result<OrgOptions, SqlError> {
        let mut options = OrgOptions::default();
        loop {
            let position = self.position();
            let located = |error: SqlError| error.with_position(position);
            if self.take(&["profile"]) {
                let name = self.name("a profile")?;
                let profile = Profile::named(&name.to_ascii_lowercase()).ok_or_else(|| {
                    let message = "the profile must be UNLIMITED, FREE or PAYG";
                    SqlError::new(INVALID_PARAMETER_VALUE, message).with_position(position)
                })?;
                put(&mut options.profile, profile).map_err(located)?;
            } else if self.take(&["series", "limit"]) {
                let limit = match self.take(&["none"]) {
                    true => None,
                    false => Some(self.unsigned("a number or NONE")?),
                };
                put(&mut options.series_max, limit).map_err(located)?;
            } else {
                return Ok(options);
            }
        }
    }
}
