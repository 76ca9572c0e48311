//! Sources of the rows of virtual tables.

use std::sync::Arc;

use partita_proto::service::MetaService;

use crate::advisor::state::Advisor;
use crate::audit::Audit;
use crate::copies::Copies;
use crate::index_usage::IndexUsage;
use crate::load::Loads;
use crate::query_log::QueryLog;
use crate::rejected_points::RejectedPoints;
use crate::statements::Statements;
use crate::view::ClusterView;

/// Sources of the rows of `sys` and `information_schema`.
#[derive(Clone)]
pub(crate) struct Sources {
    pub(crate) view: Arc<ClusterView>,
    pub(crate) query_log: Arc<QueryLog>,
    pub(crate) audit: Arc<Audit>,
    pub(crate) rejected_points: Arc<RejectedPoints>,
    pub(crate) loads: Arc<Loads>,
    pub(crate) meta: Arc<dyn MetaService>,
    pub(crate) statements: Arc<Statements>,
    pub(crate) index_usage: Arc<IndexUsage>,
    pub(crate) advisor: Arc<Advisor>,
    pub(crate) copies: Arc<Copies>,
}
