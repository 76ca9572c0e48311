//! `/api/v2/orgs`: organisations. `description` is accepted and not kept.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use partita_proto::access::{AccessChange, Action, Need, Object, Org, Profile};
use partita_proto::schema::validate_name;
use serde::Deserialize;
use serde_json::{Value, json};

use super::client::{Client, object, org_object, org_role_name};
use super::failure::{Answer, Failure};
use super::page::Page;
use crate::error::ApiError;
use crate::parameters::Parameters;

/// Number of organisations of a list without a limit, and its maximum.
const LISTED: usize = 20;
const LISTED_MAX: usize = 100;

/// Body of POST and PATCH.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OrgBody {
    name: Option<String>,
    /// Limits by contract; InfluxDB has no field for them.
    profile: Option<String>,
    series_max: Option<u64>,
}

impl OrgBody {
    fn profile(&self) -> Result<Option<Profile>, ApiError> {
        let Some(name) = &self.profile else { return Ok(None) };
        let profile = Profile::named(name);
        let unknown = || ApiError::bad_request("profile must be unlimited, free or payg");
        profile.map(Some).ok_or_else(unknown)
    }
}

/// An organisation as clients see it.
pub(super) fn shown(org: &Org) -> Value {
    let id = org.id.to_string();
    json!({
        "id": id,
        "name": org.name,
        "description": "",
        "status": "active",
        "profile": org.profile.name(),
        "seriesMax": org.series_max,
        "links": {
            "self": format!("/api/v2/orgs/{id}"),
            "buckets": format!("/api/v2/buckets?orgID={id}"),
        },
    })
}

pub(super) fn list(client: &Client<'_>, parameters: &Parameters) -> Answer {
    let page = Page::of(parameters, LISTED, LISTED_MAX)?;
    // One that is named must exist.
    let selected = match (parameters.get("org"), parameters.get("orgID")) {
        (Some(name), _) => Some(client.org_named(name)?),
        (None, Some(id)) => Some(client.org(id)?),
        (None, None) => None,
    };
    let orgs: Vec<_> = match selected {
        Some(org) => vec![org],
        None => {
            let access = client.access();
            let visible = |org: &&Arc<Org>| client.may(Action::Select, org_object(org));
            access.orgs().filter(visible).cloned().collect()
        }
    };
    let (orgs, has_next) = page.of_items(orgs, |org| org.id.get());
    let orgs: Vec<_> = orgs.iter().map(|org| shown(org)).collect();
    let links = page.links("/api/v2/orgs", parameters, has_next);
    Ok(Json(json!({ "links": links, "orgs": orgs })).into_response())
}

pub(super) async fn create(client: &Client<'_>, headers: &HeaderMap, body: Body) -> Answer {
    let permit = client.permit(&[Need::new(Action::ManageOrg, Object::Cluster)])?;
    let body: OrgBody = object(client.door, headers, body).await?;
    let name = body.name.clone().unwrap_or_default();
    check_name(client, &name)?;
    let profile = body.profile()?.unwrap_or_default();
    let org = Org { id: client.new_org_id()?, name, series_max: body.series_max, profile };
    client.change_access(&permit, AccessChange::CreateOrg(org.clone())).await?;
    Ok((StatusCode::CREATED, Json(shown(&org))).into_response())
}

/// Checks the name of a new organisation.
///
/// # Errors
/// 400 for an invalid one, 422 for one that is taken.
pub(super) fn check_name(client: &Client<'_>, name: &str) -> Result<(), Failure> {
    validate_name("organization", name)
        .map_err(|error| ApiError::bad_request(error.to_string()))?;
    if client.access().org_by_name(name).is_some() {
        let message = format!("organization with name {name} already exists");
        return Err(Failure::conflict(message));
    }
    Ok(())
}

pub(super) fn show(client: &Client<'_>, id: &str) -> Answer {
    Ok(Json(shown(client.org(id)?.as_ref())).into_response())
}

pub(super) async fn change(
    client: &Client<'_>,
    id: &str,
    headers: &HeaderMap,
    body: Body,
) -> Answer {
    let org = client.org(id)?;
    let permit = client.permit(&[Need::new(Action::ManageOrg, org_object(&org))])?;
    let body: OrgBody = object(client.door, headers, body).await?;
    let mut changed = org.as_ref().clone();
    if let Some(name) = body.name.as_ref().filter(|name| **name != changed.name) {
        check_name(client, name)?;
        changed.name.clone_from(name);
    }
    changed.profile = body.profile()?.unwrap_or(changed.profile);
    changed.series_max = body.series_max.or(changed.series_max);
    client.change_access(&permit, AccessChange::AlterOrg(changed.clone())).await?;
    Ok(Json(shown(&changed)).into_response())
}

/// Removes an organisation without buckets, users and tokens, and the role that was made to own its buckets.
pub(super) async fn remove(client: &Client<'_>, id: &str) -> Answer {
    let org = client.org(id)?;
    let permit = client.permit(&[Need::new(Action::ManageOrg, org_object(&org))])?;
    let access = client.access();
    let role = access.role_by_name(&org_role_name(org.id));
    if let Some(role) = role.filter(|role| role.org == Some(org.id)) {
        client.change_access(&permit, AccessChange::DropRole { role: role.id }).await?;
    }
    client.change_access(&permit, AccessChange::DropOrg(org.id)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
