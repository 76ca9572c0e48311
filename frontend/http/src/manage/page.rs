//! A part of a list: `limit`, `offset`, `after`, `descending`.

use super::ids::number_of;
use crate::error::ApiError;
use crate::parameters::Parameters;

/// A part of a list.
pub(super) struct Page {
    offset: usize,
    limit: usize,
    /// Items up to this id are left out.
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

    /// The items of the part, by their ids.
    pub(super) fn of_items<T>(&self, mut items: Vec<T>, id: impl Fn(&T) -> u64) -> Vec<T> {
        items.sort_unstable_by_key(&id);
        if let Some(after) = self.after {
            items.retain(|item| id(item) > after);
        }
        if self.descending {
            items.reverse();
        }
        items.into_iter().skip(self.offset).take(self.limit).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(query: &str) -> Result<Page, ApiError> {
        let uri = format!("/x?{query}").parse().unwrap();
        Page::of(&Parameters::of(&uri), 2, 100)
    }

    #[test]
    fn a_page_is_a_part_by_id() {
        let items = |query: &str| page(query).unwrap().of_items(vec![3_u64, 1, 2, 4], |id| *id);
        assert_eq!(items(""), [1, 2]);
        assert_eq!(items("offset=1&limit=3"), [2, 3, 4]);
        assert_eq!(items("after=0000000000000002"), [3, 4]);
        assert_eq!(items("descending=true"), [4, 3]);
        for wrong in ["limit=0", "limit=101", "limit=x", "offset=-1", "after=2"] {
            assert!(page(wrong).is_err(), "{wrong}");
        }
    }
}
