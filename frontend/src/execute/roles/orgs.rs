//! CREATE, ALTER and DROP ORGANISATION.

use partita_proto::access::{AccessChange, Action, Object, Org};
use partita_proto::id::OrgId;
use partita_sql::access_statement::OrgOptions;

use super::attributes::access;
use super::names::Names;
use super::plan::Plan;
use crate::access::random;
use crate::error::SqlError;

/// Plans CREATE ORGANISATION; without `makes_id` it is only checked.
pub(super) fn create(
    names: &Names<'_>,
    name: &str,
    options: &OrgOptions,
    makes_id: bool,
) -> Result<Plan, SqlError> {
    let mut plan = Plan::default();
    plan.need(Action::ManageOrg, Object::Cluster);
    if makes_id {
        let org = Org {
            id: new_id(names)?,
            name: name.to_owned(),
            series_max: options.series_max.flatten(),
            profile: options.profile.unwrap_or_default(),
        };
        plan.changes.push(access(AccessChange::CreateOrg(org)));
    }
    Ok(plan)
}

/// A random id that no organisation has.
fn new_id(names: &Names<'_>) -> Result<OrgId, SqlError> {
    loop {
        let id = OrgId::new(u64::from_be_bytes(random::bytes::<8>()?));
        if let Some(id) = id.filter(|id| names.access.org(*id).is_none()) {
            return Ok(id);
        }
    }
}

pub(super) fn alter(names: &Names<'_>, name: &str, options: &OrgOptions) -> Result<Plan, SqlError> {
    let mut plan = Plan::default();
    let id = names.org(name)?;
    plan.need(Action::ManageOrg, Object::Org { id, name: name.to_owned() });
    if let Some(former) = names.access.org(id) {
        let org = Org {
            id,
            name: options.name.clone().unwrap_or_else(|| former.name.clone()),
            series_max: options.series_max.unwrap_or(former.series_max),
            profile: options.profile.unwrap_or(former.profile),
        };
        plan.changes.push(access(AccessChange::AlterOrg(org)));
    }
    Ok(plan)
}

pub(super) fn drop(names: &Names<'_>, name: &str, if_exists: bool) -> Result<Plan, SqlError> {
    let mut plan = Plan::default();
    let id = match names.org(name) {
        Ok(id) => id,
        Err(_) if if_exists => {
            plan.notice(format!("organisation \"{name}\" does not exist, skipping"));
            return Ok(plan);
        }
        Err(error) => return Err(error),
    };
    plan.need(Action::ManageOrg, Object::Org { id, name: name.to_owned() });
    plan.changes.push(access(AccessChange::DropOrg(id)));
    Ok(plan)
}
