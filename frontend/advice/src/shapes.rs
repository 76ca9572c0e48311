//! Shapes of rows: sets of fields that have a value, grouped by similarity.

use std::collections::BTreeSet;

/// Similar sets of fields, and the number of rows that have one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cluster<'a> {
    /// Union of the sets.
    pub(crate) fields: BTreeSet<&'a str>,
    /// Number of rows.
    pub(crate) rows: u64,
}

/// Common members divided by all members; two empty sets are equal.
pub(crate) fn similarity(a: &BTreeSet<&str>, b: &BTreeSet<&str>) -> f64 {
    let all = a.union(b).count();
    if all == 0 { 1.0 } else { a.intersection(b).count() as f64 / all as f64 }
}

/// Groups shapes, the most frequent first: each joins the first group to which it is similar enough.
pub(crate) fn clusters(shapes: &[(Vec<String>, u64)], least: f64) -> Vec<Cluster<'_>> {
    let mut sorted: Vec<&(Vec<String>, u64)> = shapes.iter().collect();
    sorted.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let mut clusters: Vec<Cluster<'_>> = Vec::new();
    for (names, rows) in sorted {
        let fields: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        match clusters.iter_mut().find(|cluster| similarity(&cluster.fields, &fields) >= least) {
            Some(cluster) => {
                cluster.fields.extend(fields);
                cluster.rows += rows;
            }
            None => clusters.push(Cluster { fields, rows: *rows }),
        }
    }
    clusters
}

/// Groups that have a share of all rows and are not similar to each other.
pub(crate) fn distinct_clusters(
    shapes: &[(Vec<String>, u64)],
    least_share: f64,
    least_similarity: f64,
) -> Vec<Cluster<'_>> {
    let total: u64 = shapes.iter().map(|(_, rows)| rows).sum();
    let mut distinct: Vec<Cluster<'_>> = Vec::new();
    for cluster in clusters(shapes, least_similarity) {
        let is_large = cluster.rows as f64 >= least_share * total as f64 && cluster.rows > 0;
        let is_new = distinct
            .iter()
            .all(|accepted| similarity(&accepted.fields, &cluster.fields) < least_similarity);
        if is_large && is_new && !cluster.fields.is_empty() {
            distinct.push(cluster);
        }
    }
    distinct
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(fields: &[&str], rows: u64) -> (Vec<String>, u64) {
        (fields.iter().map(|field| (*field).to_owned()).collect(), rows)
    }

    #[test]
    fn similar_shapes_are_one_cluster() {
        let shapes = [shape(&["a", "b", "c"], 5), shape(&["a", "b"], 3), shape(&["x"], 4)];
        let clusters = clusters(&shapes, 0.5);
        let rows: Vec<u64> = clusters.iter().map(|cluster| cluster.rows).collect();
        assert_eq!(rows, [8, 4]);
        assert_eq!(clusters[0].fields, BTreeSet::from(["a", "b", "c"]));
    }

    #[test]
    fn rare_shapes_do_not_count() {
        let shapes = [shape(&["a"], 95), shape(&["b"], 5)];
        assert_eq!(distinct_clusters(&shapes, 0.1, 0.5).len(), 1);
        assert_eq!(distinct_clusters(&shapes, 0.05, 0.5).len(), 2);
    }

    #[test]
    fn sets_are_compared_by_their_members() {
        assert_eq!(similarity(&BTreeSet::from(["a", "b"]), &BTreeSet::from(["b", "c", "d"])), 0.25);
        assert_eq!(similarity(&BTreeSet::new(), &BTreeSet::new()), 1.0);
    }
}
