//! Listing a cluster: the listings of its nodes, one after the other. A lock whose slot moves meanwhile can be missed
//! or appear twice.

use std::num::NonZeroU32;

use tenure_backend::{BackendError, Cursor, LockStatus, Page, Query};

use crate::cluster::nodes::RedisCluster;

impl RedisCluster {
    /// Returns a page. Its cursor is the address of a node, a blank, and that node's own cursor, if it has begun.
    pub(super) async fn list(
        &self,
        prefix: &str,
        after: Option<&Cursor>,
        limit: NonZeroU32,
    ) -> Result<Page<LockStatus>, BackendError> {
        self.dialer.check_process()?;
        let (from, inner) = after
            .and_then(|cursor| cursor.as_str().split_once(' '))
            .unwrap_or_default();
        let nodes = self.nodes()?.by_address.clone();
        let mut rest = nodes.into_iter().skip_while(|(address, _)| **address < *from);
        let Some((address, node)) = rest.next() else {
            return Ok(Page::new(Vec::new(), None));
        };
        let query = Query::Prefix {
            prefix: prefix.into(),
            // The node of the cursor may have left the cluster.
            after: Some(inner)
                .filter(|inner| *address == *from && !inner.is_empty())
                .map(Cursor::new),
            limit,
        };
        let page = node.inspect_query(query).await?;
        let next = match (page.next, rest.next()) {
            (Some(inner), _) => Some(format!("{address} {}", inner.as_str())),
            (None, Some((address, _))) => Some(format!("{address} ")),
            (None, None) => None,
        };
        Ok(Page::new(page.items, next.map(Cursor::new)))
    }
}
