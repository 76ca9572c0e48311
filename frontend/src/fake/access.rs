//! Roles and tokens of the fake cluster.

use std::sync::Arc;

use partita_proto::access::Access;

use super::Fake;

impl Fake {
    /// Changes roles, tokens and grants in one step of the catalog, as meta does.
    pub fn edit_access(&self, edit: impl FnOnce(&mut Access)) {
        let _changing = self.changing.lock();
        let mut catalog = self.catalog.borrow().as_ref().clone();
        let mut access = catalog.access.as_ref().clone();
        edit(&mut access);
        access.version += 1;
        catalog.access = Arc::new(access);
        self.publish(catalog);
    }
}
