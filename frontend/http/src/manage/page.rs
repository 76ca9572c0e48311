//! A part of a list: `limit`, `offset`, `after`, `descending`.
//!
//! Clients read a list part by part for as long as a response has a link to the next one.

use serde_json::{Value, json};

use super::ids::number_of;
use crate::error::ApiError;
use crate::parameters::Parameters;

/// A part of a list.
pub(super) struct Page {
    offset: usize,
    limit: usize,
    /// Items are left out up to this id, in the order of the list.
    after: Option<u64>,
    descending: bool,
}

impl Page {
    /// The part that a request wants, of at most `limit_max` items.
    ///
    /// # Errors
    /// 400 for a number that is none, or out of range.
    pub(super) fn of(
        parameters: &Parameters,
        limit: usize,
        limit_max: usize,
    ) -> Result<Self, ApiError> {
        let number = |name: &str| {
            let text = parameters.get(name);
            text.map(str::parse::<usize>).transpose().map_err(|_| {
                ApiError::bad_request(format!("{name} must be a number that is not negative"))
            })
        };
        let limit = number("limit")?.unwrap_or(limit);
        if !(1..=limit_max).contains(&limit) {
            return Err(ApiError::bad_request(format!("limit must be between 1 and {limit_max}")));
        }
        let after = match parameters.get("after") {
            Some(text) => Some(number_of(text).ok_or_else(|| ApiError::bad_request("invalid ID"))?),
            None => None,
        };
        let descending = parameters.flag("descending", false).map_err(ApiError::bad_request)?;
        Ok(Self { offset: number("offset")?.unwrap_or(0), limit, after, descending })
    }

    /// The items of the part, by their ids; true if others follow.
    pub(super) fn of_items<T>(&self, mut items: Vec<T>, id: impl Fn(&T) -> u64) -> (Vec<T>, bool) {
        items.sort_unstable_by_key(&id);
        if self.descending {
            items.reverse();
        }
        if let Some(after) = self.after {
            items.retain(|item| if self.descending { id(item) < after } else { id(item) > after });
        }
        let has_next = items.len() > self.next_offset();
        (items.into_iter().skip(self.offset).take(self.limit).collect(), has_next)
    }

    fn next_offset(&self) -> usize {
        self.offset.saturating_add(self.limit)
    }

    /// Links of the list at a path: to itself, and to the part that follows.
    pub(super) fn links(&self, path: &str, parameters: &Parameters, has_next: bool) -> Value {
        if !has_next {
            return json!({ "self": path });
        }
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (name, value) in parameters.pairs() {
            if !["limit", "offset"].contains(&name) {
                query.append_pair(name, value);
            }
        }
        query.append_pair("limit", &self.limit.to_string());
        query.append_pair("offset", &self.next_offset().to_string());
        json!({ "self": path, "next": format!("{path}?{}", query.finish()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(query: &str) -> Parameters {
        Parameters::of(&format!("/x?{query}").parse().unwrap())
    }

    fn page(query: &str) -> Result<Page, ApiError> {
        Page::of(&parameters(query), 2, 100)
    }

    #[test]
    fn a_page_is_a_part_by_id() {
        let items = |query: &str| page(query).unwrap().of_items(vec![3_u64, 1, 2, 4], |id| *id);
        assert_eq!(items(""), (vec![1, 2], true));
        assert_eq!(items("offset=1&limit=3"), (vec![2, 3, 4], false));
        assert_eq!(items("after=0000000000000002"), (vec![3, 4], false));
        assert_eq!(items("descending=true"), (vec![4, 3], true));
        assert_eq!(items("descending=true&after=0000000000000003"), (vec![2, 1], false));
        for wrong in ["limit=0", "limit=101", "limit=x", "offset=-1", "after=2"] {
            assert!(page(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_page_leads_to_the_next_one() {
        let links =
            |query: &str, has_next| page(query).unwrap().links("/x", &parameters(query), has_next);
        assert_eq!(links("", false), json!({ "self": "/x" }));
        let next = links("org=a%26b&offset=4&after=0000000000000002", true)["next"].clone();
        assert_eq!(next, "/x?after=0000000000000002&org=a%26b&limit=2&offset=6");
    }
}
