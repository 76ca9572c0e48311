//! The caller of the API: its rights, what it sees, and the changes that it makes.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use partita_frontend::SqlError;
use partita_frontend::access::random;
use partita_frontend::access::viewer::Viewer;
use partita_frontend::privileges::shows_role;
use partita_proto::access::{
    Access, AccessChange, Action, Identity, Need, Object, Org, Permit, Role, RoleEdit,
};
use partita_proto::catalog::{Catalog, Database};
use partita_proto::id::{OrgId, RoleId, TokenId};
use partita_proto::service::Ddl;
use serde::de::DeserializeOwned;

use super::failure::Failure;
use super::ids::database_of;
use crate::body;
use crate::door::Door;
use crate::error::ApiError;

/// Maximum bytes of a body of the API.
const BODY_BYTES_MAX: usize = 1 << 20;

/// The caller of a request.
pub(super) struct Client<'a> {
    pub(super) door: &'a Door,
    pub(super) identity: Identity,
    viewer: Arc<Viewer>,
}

impl<'a> Client<'a> {
    pub(super) fn new(door: &'a Door, identity: Identity) -> Self {
        Self { door, identity, viewer: door.frontend.viewer(identity) }
    }

    pub(super) fn access(&self) -> Arc<Access> {
        self.viewer.access()
    }

    /// The catalog without what the caller may not see.
    pub(super) fn catalog(&self) -> Arc<Catalog> {
        self.viewer.catalog()
    }

    pub(super) fn may(&self, action: Action, object: Object) -> bool {
        self.viewer.check(&[Need::new(action, object)]).is_ok()
    }

    /// Checks that the caller may do all of these things.
    ///
    /// # Errors
    /// 403 or 404 when it may not.
    pub(super) fn permit(&self, needs: &[Need]) -> Result<Permit, SqlError> {
        self.door.frontend.authorize(&self.identity, needs)
    }

    /// Changes the catalog; the next look at it shows the change.
    ///
    /// # Errors
    /// Those of meta.
    pub(super) async fn change(&self, permit: &Permit, ddl: Ddl) -> Result<bool, SqlError> {
        self.door.frontend.change(permit, ddl).await
    }

    /// Changes roles, tokens or organisations.
    ///
    /// # Errors
    /// Those of meta.
    pub(super) async fn change_access(
        &self,
        permit: &Permit,
        change: AccessChange,
    ) -> Result<bool, SqlError> {
        self.change(permit, Ddl::Access(Box::new(change))).await
    }

    /// The current role.
    ///
    /// # Errors
    /// When it was dropped meanwhile.
    pub(super) fn role(&self) -> Result<Arc<Role>, SqlError> {
        let id = self.identity.acting.unwrap_or(self.identity.login);
        let role = self.access().role(id).map(Arc::clone);
        role.ok_or_else(|| SqlError::new("42501", "the current role does not exist"))
    }

    /// The role with this id, if the caller may see it.
    pub(super) fn visible_role(&self, id: RoleId) -> Option<Arc<Role>> {
        let role = self.access().role(id).map(Arc::clone)?;
        shows_role(&self.viewer, &role).then_some(role)
    }

    /// The organisation with this id.
    ///
    /// # Errors
    /// 404 when there is none that the caller may see.
    pub(super) fn org(&self, text: &str) -> Result<Arc<Org>, Failure> {
        let id = text.parse::<OrgId>().ok();
        let org = id.and_then(|id| self.access().org(id).map(Arc::clone));
        let org = org.filter(|org| self.may(Action::Select, org_object(org)));
        org.ok_or_else(|| Failure::missing("organization not found"))
    }

    /// The organisation with this name.
    ///
    /// # Errors
    /// 404 when there is none that the caller may see.
    pub(super) fn org_named(&self, name: &str) -> Result<Arc<Org>, Failure> {
        let org = self.access().org_by_name(name).map(Arc::clone);
        let org = org.filter(|org| self.may(Action::Select, org_object(org)));
        org.ok_or_else(|| Failure::missing(format!("organization name \"{name}\" not found")))
    }

    /// The bucket with this id.
    ///
    /// # Errors
    /// 404 when there is none that the caller may see.
    pub(super) fn bucket(&self, text: &str) -> Result<Arc<Database>, Failure> {
        let bucket = database_of(&self.catalog(), text).map(Arc::clone);
        bucket.ok_or_else(|| Failure::missing("bucket not found"))
    }

    /// The organisation of the role that owns a bucket.
    pub(super) fn org_of(&self, bucket: &Database) -> Option<OrgId> {
        self.access().role(bucket.owner).and_then(|role| role.org)
    }

    /// Role that owns buckets which others make for an organisation; created with the first of them.
    ///
    /// # Errors
    /// Those of meta.
    pub(super) async fn org_role(&self, permit: &Permit, org: OrgId) -> Result<RoleId, SqlError> {
        let name = org_role_name(org);
        let existing = || {
            let access = self.access();
            access.role_by_name(&name).filter(|role| role.org == Some(org)).map(|role| role.id)
        };
        if let Some(id) = existing() {
            return Ok(id);
        }
        let edit = RoleEdit { org: Some(Some(org)), ..RoleEdit::default() };
        let (member_of, members) = (Vec::new(), Vec::new());
        let change = AccessChange::CreateRole { name: name.clone(), edit, member_of, members };
        let created = self.change_access(permit, change).await;
        // Another request may have been faster.
        match (existing(), created) {
            (Some(id), _) => Ok(id),
            (None, Err(error)) => Err(error),
            (None, Ok(_)) => Err(SqlError::internal("a role that was created is missing")),
        }
    }

    /// A random id that no organisation has.
    ///
    /// # Errors
    /// When the system has no random bytes.
    pub(super) fn new_org_id(&self) -> Result<OrgId, SqlError> {
        let access = self.access();
        loop {
            let id = OrgId::new(u64::from_be_bytes(random::bytes::<8>()?));
            if let Some(id) = id.filter(|id| access.org(*id).is_none()) {
                return Ok(id);
            }
        }
    }

    /// A random id that no token has.
    ///
    /// # Errors
    /// When the system has no random bytes.
    pub(super) fn new_token_id(&self) -> Result<TokenId, SqlError> {
        let access = self.access();
        loop {
            let id = TokenId::new(u64::from_be_bytes(random::bytes::<8>()?));
            if let Some(id) = id.filter(|id| access.token(*id).is_none()) {
                return Ok(id);
            }
        }
    }
}

/// Name of the role that owns buckets of an organisation.
pub(super) fn org_role_name(org: OrgId) -> String {
    format!("org_{org}")
}

/// The object of needs about an organisation.
pub(super) fn org_object(org: &Org) -> Object {
    Object::Org { id: org.id, name: org.name.clone() }
}

/// The object of needs about a role.
pub(super) fn role_object(role: &Role) -> Object {
    Object::Role { id: role.id, name: role.name.clone() }
}

/// The JSON object of a request's body.
///
/// # Errors
/// 400 when it is no such object, 413 when it is too large, and those of [`body::take`].
pub(super) async fn object<T: DeserializeOwned>(
    door: &Door,
    headers: &HeaderMap,
    body: Body,
) -> Result<T, ApiError> {
    let received = body::take(door, headers, body).await?;
    if received.bytes.len() > BODY_BYTES_MAX {
        return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "request too large"));
    }
    serde_json::from_slice(&received.bytes).map_err(|error| ApiError::bad_request(reason(&error)))
}

/// The reason why a body is refused, without its values: one of them may be a secret.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    if error.is_data() && text.starts_with("missing field") {
        return format!("invalid request: {text}");
    }
    format!(
        "invalid request: the body is not the expected JSON object (line {}, column {})",
        error.line(),
        error.column()
    )
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    struct Named {
        #[expect(dead_code, reason = "only parsed")]
        name: String,
    }

    #[test]
    fn a_refused_body_is_not_repeated() {
        let reason_of = |text: &str| reason(&serde_json::from_str::<Named>(text).unwrap_err());
        assert!(reason_of("{}").contains("missing field `name`"));
        let text = reason_of("{\"name\": 123456}");
        assert!(text.contains("line 1") && !text.contains("123456"), "{text}");
    }
}
